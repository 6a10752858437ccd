"""Quotas of `pylog serve` with Kafka's own tools: set and shown by kafka-configs, measured by its performance tools."""

import re
import subprocess

import pytest
from kafka_tools import PATIENCE, command, run

from pyspark_log import Store
from pyspark_log.server.quotas import DEFAULT, ClientQuotas, Entity
from tests.amounts import one_in
from tests.documents import documents_at
from tests.security_tools import add_users
from tests.server_tools import served, served_anew

pytestmark = pytest.mark.usefixtures("kafka")

_PRODUCE = "org.apache.kafka.tools.ProducerPerformance"
_CONSUME = "org.apache.kafka.tools.ConsumerPerformance"
#: Bytes a second, and of a record.
QUOTA, SIZE = 1_000_000, 1000
#: As many as pass in half a minute. A rate is measured over eleven seconds, whose bytes may come at once: so these are
#: three bursts, and the begin of a fourth.
RECORDS = 34 * QUOTA // SIZE
#: Sent at a rate that the quota would not allow.
FREE, FREE_SECONDS = 2000, 30


def _configs(server, *arguments):
    return run("kafka.admin.ConfigCommand", "--bootstrap-server", server.bootstrap, *arguments)


@pytest.mark.parametrize(
    ("clients", "entity", "shown", "quotas"),
    one_in(4, [
        (("--entity-type", "users", "--entity-name", "anna"), Entity("anna"), "user-principal 'anna'",
         {"producer_byte_rate": 1000.0, "request_percentage": 12.5}),
        (("--entity-type", "users", "--entity-default"), Entity(DEFAULT), "the default user-principal",
         {"consumer_byte_rate": 2000.0}),
        (("--entity-type", "clients", "--entity-name", "app"), Entity(None, "app"), "client-id 'app'",
         {"controller_mutation_rate": 5.0}),
        (("--client-defaults",), Entity(None, DEFAULT), "the default client-id", {"producer_byte_rate": 3000.0}),
        (("--user", "anna", "--client", "app"), Entity("anna", "app"), "user-principal 'anna', client-id 'app'",
         {"producer_byte_rate": 4000.0}),
        (("--user", "anna", "--client-defaults"), Entity("anna", DEFAULT), "user-principal 'anna', the default",
         {"producer_byte_rate": 5000.0}),
        (("--entity-type", "ips", "--entity-name", "10.0.0.1"), Entity(ip="10.0.0.1"), "ip '10.0.0.1'",
         {"connection_creation_rate": 10.0}),
        (("--ip-defaults",), Entity(ip=DEFAULT), "the default ip", {"connection_creation_rate": 20.0}),
    ]),
)  # fmt: skip
def test_kafka_configs(configured, clients, entity, shown, quotas):
    file = ClientQuotas(documents_at(configured.path))
    added = ",".join(f"{name}={value:.15g}" for name, value in quotas.items())
    _configs(configured, "--alter", *clients, "--add-config", added)
    assert file.table().quotas[entity] == quotas
    described = _configs(configured, "--describe", *clients)
    [line] = [one for one in described.splitlines() if one.startswith("Quota configs for")]
    assert line.startswith(f"Quota configs for {shown}")
    assert dict(re.findall(r"([a-z_]+)=([\d.]+)", line)) == {name: str(value) for name, value in quotas.items()}
    _configs(configured, "--alter", *clients, "--delete-config", ",".join(quotas))
    assert entity not in file.table().quotas


@pytest.fixture(scope="module")
def configured(kafka, tmp_path_factory):
    folder = tmp_path_factory.mktemp("configured")
    Store.create(folder / "store").close()
    add_users(folder / "store")
    with served(folder / "store", folder) as server:
        yield server


def test_kafka_configs_shows_users_with_credentials(configured):
    _configs(
        configured, "--alter", "--entity-type", "users", "--entity-name", "bert", "--add-config", "request_percentage=5"
    )
    described = _configs(configured, "--describe", "--entity-type", "users")
    assert "Quota configs for user-principal 'bert' are request_percentage=5.0" in described
    for user in ("anna", "bert"):
        assert f"SCRAM credential configs for user-principal '{user}' are SCRAM-SHA-256=iterations=8192" in described


@pytest.mark.slow
@pytest.mark.long
def test_the_rate_is_the_quota_and_others_are_not_slowed(kafka, tmp_path):
    with served_anew(tmp_path) as server:
        rates = f"producer_byte_rate={QUOTA},consumer_byte_rate={QUOTA}"
        _configs(server, "--alter", "--entity-type", "clients", "--entity-name", "limited", "--add-config", rates)
        with Store.open(server.path) as store:
            store.create_topic("limited", 1)
            store.create_topic("free", 1)
        where = f"bootstrap.servers={server.bootstrap}"
        how = ("--record-size", SIZE, "--command-property", where)
        free = subprocess.Popen(
            command(
                _PRODUCE, "--topic", "free", "--num-records", FREE * FREE_SECONDS, "--throughput", FREE, *how,
                "client.id=free",
            ), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        produced = run(
            _PRODUCE, "--topic", "limited", "--num-records", RECORDS, "--throughput", -1, *how, "client.id=limited"
        )
        of_free, _ = free.communicate(timeout=PATIENCE)
        assert free.returncode == 0
        consumed = run(
            _CONSUME, "--bootstrap-server", server.bootstrap, "--topic", "limited", "--num-records", RECORDS,
            "--timeout", 1000 * PATIENCE, "--command-property", "client.id=limited",
        )  # fmt: skip
    limited, other = _produced(produced), _produced(of_free)
    rate = _consumed(consumed)
    print(f"records a second: produced {limited[0]}, consumed {rate}; without quota {other[0]}, after {other[1]} ms")
    assert limited[0] * SIZE == pytest.approx(QUOTA, rel=0.05)
    assert rate * SIZE == pytest.approx(QUOTA, rel=0.05)
    assert other[0] == pytest.approx(FREE, rel=0.02)
    # What a client wants to send faster than its quota allows waits for seconds.
    assert limited[1] > 5000
    assert other[1] < 500


def _produced(printed):
    """Records a second, and the mean latency (ms)."""
    [(rate, latency)] = re.findall(
        r"^\d+ records sent, ([\d.]+) records/sec .*?, ([\d.]+) ms avg latency.*50th", printed, re.M
    )
    return float(rate), float(latency)


def _consumed(printed):
    """Records a second, of the time in which it had its partitions."""
    names, values = ([one.strip() for one in line.split(",")] for line in printed.splitlines()[-2:])
    found = dict(zip(names, values, strict=True))
    assert int(found["data.consumed.in.nMsg"]) >= RECORDS
    return int(found["data.consumed.in.nMsg"]) / int(found["fetch.time.ms"]) * 1000
