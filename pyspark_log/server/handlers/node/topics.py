"""Topics that do not exist and are asked for: a node has the controllers create them, as any broker does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from pyspark_log.kafka.error_codes import ErrorCode, name_of
from pyspark_log.kafka.errors import ClusterError
from pyspark_log.kafka.messages import CreateTopicsRequest, CreateTopicsResponse
from pyspark_log.server.cluster import Image
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.node.configs import broker_config
from pyspark_log.storage.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

_log = logging.getLogger(__name__)

_Topic = CreateTopicsRequest.CreatableTopic
_Config = CreateTopicsRequest.CreatableTopicConfig

_KEY = 19
# As many as the controllers have as defaults.
_DEFAULT = -1
_TIMEOUT_MS = 5_000
# Kafka's offsets.topic.replication.factor, transaction.state.log.replication.factor and transaction.state.log.min.isr.
_COPIES, _IN_SYNC = 3, 2
# The topics of the coordinators of groups and of transactions.
_PARTITIONS = {
    OFFSETS_TOPIC: "offsets.topic.num.partitions",
    TRANSACTIONS_TOPIC: "transaction.state.log.num.partitions",
}
_CONFIGS: Mapping[str, Mapping[str, str]] = {
    OFFSETS_TOPIC: {"compression.type": "producer"},
    TRANSACTIONS_TOPIC: {"compression.type": "uncompressed", "unclean.leader.election.enable": "false"},
}


async def create_own(call: Call, name: str) -> None:
    """Has the controllers create a topic of coordinators, in the name of this node."""
    node = call.broker.node
    assert node is not None
    await _create(call, [_own_topic(call, name)], node.ask_controllers)


async def create_missing(call: Call, names: Collection[str]) -> None:
    """Has them create topics in the name of the client."""
    node, client = call.broker.node, call.client
    assert node is not None
    topics = [_own_topic(call, name) if name in _PARTITIONS else _Topic(name, _DEFAULT, _DEFAULT) for name in names]
    version = call.broker.served[_KEY][-1]

    def forward(request: CreateTopicsRequest) -> CreateTopicsResponse:
        response = node.forward(request, version, call.client_id or "", client.principal, client.host)
        assert isinstance(response, CreateTopicsResponse)
        return response

    await _create(call, topics, forward)


def _own_topic(call: Call, name: str) -> CreateTopicsRequest.CreatableTopic:
    """One of Kafka's own topics as brokers create it; with fewer replicas if there are not as many brokers."""
    node, store = call.broker.node, call.broker.store
    assert node is not None
    partitions = broker_config(node.image, call.broker.node_id, store.configs, _PARTITIONS[name])
    copies = max(1, min(_COPIES, _brokers(node.image)))
    configs = {"cleanup.policy": "compact", "segment.bytes": "104857600", **_CONFIGS[name]}
    if name == TRANSACTIONS_TOPIC:
        configs["min.insync.replicas"] = str(min(_IN_SYNC, copies))
    return _Topic(name, int(partitions), copies, (), [_Config(*one) for one in configs.items()])


def _brokers(image: Image) -> int:
    """How many brokers may get new replicas."""
    return sum(not set(one.log_dirs) <= set(one.cordoned_log_dirs or ()) for one in image.brokers.values())


async def _create(
    call: Call, topics: Iterable[CreateTopicsRequest.CreatableTopic], ask: Callable[[CreateTopicsRequest], object]
) -> None:
    """Asks for topics, unless another client's request has just done so. What fails is logged: clients ask again."""
    node = call.broker.node
    assert node is not None
    wanted = [one for one in topics if one.name not in node.creating]
    if not wanted:
        return
    names = {one.name for one in wanted}
    node.creating |= names
    try:
        response = await node.asking.run(ask, CreateTopicsRequest(wanted, _TIMEOUT_MS))
    except (OSError, ClusterError) as error:
        _log.warning("the controllers do not create %s: %s", ", ".join(sorted(names)), error)
        return
    finally:
        node.creating -= names
    assert isinstance(response, CreateTopicsResponse)
    for one in response.topics:
        if one.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            why = one.error_message or name_of(one.error_code)
            _log.warning("the controllers do not create %s: %s", one.name, why)
