"""kio and kafka-python read what we write, and write the same of it, in each version.

kio takes seconds to load, so `make test` has kafka-python alone.
"""

import importlib
import io
import warnings

import pytest

from pyspark_log.kafka.wire import encode
from tests.amounts import few_or_many
from tests.message_values import Values, all_versions, joined

# Both have a class an API and direction.
VERSIONS = [(name, version) for name, version in all_versions() if name.endswith(("Request", "Response"))]
_MODULES = ("admin", "consumer", "metadata", "producer", "sasl")
# What kafka-python has not: mostly what only nodes of a cluster say.
_UNKNOWN = (
    "AllocateProducerIds", "AlterPartition", "AssignReplicasToDirs", "BrokerHeartbeat", "BrokerRegistration",
    "ConsumerGroupDescribe", "ConsumerGroupHeartbeat", "Envelope", "FetchSnapshot", "UnregisterBroker",
)  # fmt: skip
LACKING = {f"{name}{kind}" for name in _UNKNOWN for kind in ("Request", "Response")}
# kafka-python reads a response to ApiVersions as of version 0 if it looks like one.
NOT_COMPARED = LACKING | {"ApiVersionsResponse"}


def of_peer(name, version, seed, *, small):
    values = Values(name, version, seed, small=small)
    return joined(encode(None, None, values.message.plan(version), values.any()))


@pytest.mark.slow
def test_kio_writes_the_same():
    from kio.index import load_request_schema, load_response_schema  # noqa: PLC0415
    from kio.serial import entity_reader, entity_writer  # noqa: PLC0415

    for name, version in VERSIONS:
        key = Values(name, version).message.api_key
        entity = (load_request_schema if name.endswith("Request") else load_response_schema)(key, version)
        for seed in range(3):
            data = of_peer(name, version, seed, small=True)  # kio refuses error codes that Kafka has not
            found, _ = entity_reader(entity)(data, 0)
            with io.BytesIO() as out:
                entity_writer(entity)(out, found)
                assert out.getvalue() == data, (name, version)


@pytest.mark.parametrize("seeds", few_or_many(1, 3))
def test_kafka_python_writes_the_same(seeds):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        modules = [importlib.import_module(f"kafka.protocol.{module}") for module in _MODULES]
    peers = {name: getattr(module, name) for module in modules for name in dir(module)}
    assert {name for name, _ in VERSIONS} - set(peers) == LACKING
    for name, version in VERSIONS:
        if name in NOT_COMPARED:
            continue
        for seed in range(seeds):
            data = of_peer(name, version, seed, small=False)
            found = peers[name].decode(data, version=version)
            found._header = None  # it is written without one
            assert bytes(found.encode(version=version)) == data, (name, version)
