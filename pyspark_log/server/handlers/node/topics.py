"""Topics that do not exist and are asked for: a node has the controllers create them, as any broker does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from pyspark_log.kafka.error_codes import ErrorCode, name_of
from pyspark_log.kafka.errors import ClusterError
from pyspark_log.kafka.messages import CreateTopicsRequest, CreateTopicsResponse
from pyspark_log.server.cluster import Image
from pyspark_log.server.handlers.call import Call, key_of
from pyspark_log.server.node.configs import broker_config
from pyspark_log.storage.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from pyspark_log.server.node.node import Node
    from pyspark_log.server.node.view import NodeView

_log = logging.getLogger(__name__)

_Topic = CreateTopicsRequest.CreatableTopic
_Config = CreateTopicsRequest.CreatableTopicConfig

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


async def create_own(view: NodeView, call: Call, name: str) -> None:
    """Has the controllers create a topic of coordinators, in the name of this node."""
    await _create(view.node, [_own_topic(view, call, name)], view.node.ask_controllers)


async def create_missing(view: NodeView, call: Call, names: Collection[str]) -> None:
    """Has them create topics in the name of the client."""
    node, client = view.node, call.client
    topics = [
        _own_topic(view, call, name) if name in _PARTITIONS else _Topic(name, _DEFAULT, _DEFAULT) for name in names
    ]
    version = call.broker.served[key_of(CreateTopicsRequest)][-1]

    def forward(request: CreateTopicsRequest) -> CreateTopicsResponse:
        response = node.forward(request, version, call.client_id or "", client.principal, client.host)
        assert isinstance(response, CreateTopicsResponse)
        return response

    await _create(node, topics, forward)


def _own_topic(view: NodeView, call: Call, name: str) -> CreateTopicsRequest.CreatableTopic:
    """One of Kafka's own topics as brokers create it; with fewer replicas if there are not as many brokers."""
    broker = call.broker
    partitions = broker_config(view.image, broker.node_id, broker.logs.configs, _PARTITIONS[name])
    copies = max(1, min(_COPIES, _brokers(view.image)))
    configs = {"cleanup.policy": "compact", "segment.bytes": "104857600", **_CONFIGS[name]}
    if name == TRANSACTIONS_TOPIC:
        configs["min.insync.replicas"] = str(min(_IN_SYNC, copies))
    return _Topic(name, int(partitions), copies, (), [_Config(*config) for config in configs.items()])


def _brokers(image: Image) -> int:
    """How many brokers may get new replicas."""
    return sum(not set(broker.log_dirs) <= set(broker.cordoned_log_dirs or ()) for broker in image.brokers.values())


async def _create(
    node: Node, topics: Iterable[CreateTopicsRequest.CreatableTopic], ask: Callable[[CreateTopicsRequest], object]
) -> None:
    """Asks for topics, unless another client's request has just done so. What fails is logged: clients ask again."""
    missing = [topic for topic in topics if topic.name not in node.creating]
    if not missing:
        return
    names = {topic.name for topic in missing}
    node.creating |= names
    try:
        response = await node.asking.run(ask, CreateTopicsRequest(missing, _TIMEOUT_MS))
    except (OSError, ClusterError) as error:
        _log.warning("the controllers do not create %s: %s", ", ".join(sorted(names)), error)
        return
    finally:
        node.creating -= names
    assert isinstance(response, CreateTopicsResponse)
    for topic in response.topics:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            why = topic.error_message or name_of(topic.error_code)
            _log.warning("the controllers do not create %s: %s", topic.name, why)
