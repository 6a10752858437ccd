"""What a node of a cluster answers of the cluster: topics, brokers and coordinators, as its image has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark_log.config import store_config
from pyspark_log.errors import InvalidTopicError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.cluster.image import Broker, Topic
from pyspark_log.server.handlers.call import NOT_ALLOWED, Call
from pyspark_log.server.handlers.coordinators.membership import KINDS
from pyspark_log.server.handlers.node.topics import create_missing, create_own
from pyspark_log.server.handlers.topics.metadata import NOT_ASKED, cluster_operations, require_create
from pyspark_log.server.security.acls import Operation, Resource
from pyspark_log.storage.catalog import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, check_name
from pyspark_log.storage.groups.log.records import partition_for

if TYPE_CHECKING:
    from pyspark_log.server.node.view import NodeView

_MetadataBroker = MetadataResponse.MetadataResponseBroker
_MetadataTopic = MetadataResponse.MetadataResponseTopic
_MetadataPartition = MetadataResponse.MetadataResponsePartition
_Coordinator = FindCoordinatorResponse.Coordinator

_NO_ID = bytes(16)
_NO_NODE = -1
_BROKERS = 1  # a type of endpoint
_FIRST_OF_MANY = 4  # versions of FindCoordinator
# The topics whose leaders coordinate, by the kind of coordinator.
_COORDINATES = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
_INTERNAL = frozenset({*_COORDINATES.values(), "__share_group_state"})
# Topics that no client's question makes.
_NEVER_MADE = INTERNAL_TOPICS - set(_COORDINATES.values())
_FIRST_TO_ASK = 4  # versions of Metadata that say whether topics are to be created


def _reachable(view: NodeView) -> dict[int, tuple[str, int, str | None]]:
    """Brokers that clients may ask, by id: host, port and rack. Those that listen as this node does."""
    addresses = {}
    for broker in view.image.brokers.values():
        address = None if broker.fenced else _address(broker, view.node.listener)
        if address is not None:
            addresses[broker.id] = (*address, broker.rack)
    return addresses


def _address(broker: Broker, listener: str) -> tuple[str, int] | None:
    return next(((at.host, at.port) for at in broker.endpoints if at.listener == listener), None)


def _controller(view: NodeView, own: int) -> int:
    """A broker that takes requests for the controller: any; others rather than this node, which is `own`."""
    alive = sorted(_reachable(view))
    return next((broker for broker in alive if broker != own), own if alive else _NO_NODE)


async def metadata(view: NodeView, call: Call, request: MetadataRequest) -> MetadataResponse:
    """Describes topics, their leaders, and brokers."""
    image, asked = view.image, request.include_topic_authorized_operations
    if request.topics is None or (call.version == 0 and not request.topics):
        topics: Iterable[MetadataResponse.MetadataResponseTopic] = [
            _describe_topic(view, call, topic, asked=asked)
            for topic in image.topics.values()
            if call.allows(Operation.DESCRIBE, Resource.TOPIC, topic.name)
        ]
    else:
        topics = [_asked(view, call, topic, asked=asked) for topic in request.topics]
        # Versions without the field create what is missing.
        if call.version < _FIRST_TO_ASK or request.allow_auto_topic_creation:
            topics = await _created(view, call, topics)
    return MetadataResponse(
        brokers=[
            _MetadataBroker(node, host, port, rack) for node, (host, port, rack) in sorted(_reachable(view).items())
        ],
        cluster_id=call.broker.store.cluster_id,
        controller_id=_controller(view, call.broker.node_id),
        topics=list(topics),
        cluster_authorized_operations=cluster_operations(call, asked=request.include_cluster_authorized_operations),
    )


def _asked(
    view: NodeView, call: Call, asked_for: MetadataRequest.MetadataRequestTopic, *, asked: bool
) -> MetadataResponse.MetadataResponseTopic:
    name, image = asked_for.name, view.image
    if name is None:
        topic = image.topics.get(bytes(asked_for.topic_id))
        missing = _MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, asked_for.topic_id, False, (), NOT_ASKED)
    else:
        topic = image.topic(name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing = _MetadataTopic(unknown, name, _NO_ID, name in _INTERNAL, (), NOT_ASKED)
    described = name if topic is None else topic.name
    if described is not None and not call.allows(Operation.DESCRIBE, Resource.TOPIC, described):
        # One that asks by an id does not learn the name, and the other way round.
        topic_id = _NO_ID if name is not None else asked_for.topic_id
        return _MetadataTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, topic_id, False, (), NOT_ASKED)
    if name is not None:
        try:
            check_name(name)
        except InvalidTopicError:
            return missing._replace(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION)
    return missing if topic is None else _describe_topic(view, call, topic, asked=asked)


async def _created(
    view: NodeView, call: Call, topics: Iterable[MetadataResponse.MetadataResponseTopic]
) -> list[MetadataResponse.MetadataResponseTopic]:
    """Has the controllers create topics that are missing, if the client may; clients look for them again."""
    rows, missing = list[MetadataResponse.MetadataResponseTopic](), list[str]()
    may_create = store_config(call.broker.logs.configs, "auto.create.topics.enable")
    for topic in topics:
        row = topic
        if may_create and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.name not in _NEVER_MADE:
            assert topic.name is not None
            try:
                require_create(call, topic.name)
                missing.append(topic.name)
            except RefusedError as error:
                row = topic._replace(error_code=error.code)
        rows.append(row)
    if missing:
        await create_missing(view, call, missing)
    return rows


def _describe_topic(view: NodeView, call: Call, topic: Topic, *, asked: bool) -> MetadataResponse.MetadataResponseTopic:
    alive, partitions = _reachable(view), []
    for number, partition in sorted(topic.partitions.items()):
        leader = partition.leader if partition.leader in alive else _NO_NODE
        error = ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
        replicas, offline = partition.replicas, [node for node in partition.replicas if node not in alive]
        partitions.append(
            _MetadataPartition(error, number, leader, partition.leader_epoch, replicas, partition.isr, offline)
        )
    operations = call.operations(Resource.TOPIC, topic.name) if asked else NOT_ASKED
    return _MetadataTopic(ErrorCode.NONE, topic.name, topic.id, topic.name in _INTERNAL, partitions, operations)


async def describe_cluster(view: NodeView, call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describes the brokers that clients may ask."""
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message="clients find brokers here, and no controllers"
        )
    row = DescribeClusterResponse.DescribeClusterBroker
    return DescribeClusterResponse(
        cluster_id=call.broker.store.cluster_id,
        controller_id=_controller(view, call.broker.node_id),
        brokers=[row(number, *reached) for number, reached in sorted(_reachable(view).items())],
        cluster_authorized_operations=cluster_operations(call, asked=request.include_cluster_authorized_operations),
    )


async def find_coordinator(view: NodeView, call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Names the brokers that coordinate groups or transactions: the leaders of partitions of Kafka's own topics.

    A topic that is missing is created, and until it is there no coordinator is available.
    """
    keys = request.coordinator_keys if call.version >= _FIRST_OF_MANY else [request.key]
    rows = [_coordinator(view, call, request.key_type, key) for key in keys]
    own = _COORDINATES.get(request.key_type)
    is_asked_for = any(row.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE for row in rows)
    if own is not None and is_asked_for and view.image.topic(own) is None:
        await create_own(view, call, own)
    if call.version >= _FIRST_OF_MANY:
        return FindCoordinatorResponse(coordinators=rows)
    [row] = rows
    return FindCoordinatorResponse(0, row.error_code, row.error_message or "NONE", row.node_id, row.host, row.port)


def _coordinator(view: NodeView, call: Call, kind: int, key: str) -> FindCoordinatorResponse.Coordinator:
    if kind not in _COORDINATES:
        why = f"no kind of coordinator has the number {kind}"
        return _Coordinator(key, _NO_NODE, "", -1, ErrorCode.INVALID_REQUEST, why)
    resource = KINDS[kind]
    if not call.allows(Operation.DESCRIBE, resource, key):
        return _Coordinator(key, _NO_NODE, "", -1, NOT_ALLOWED[resource], "the client may not ask for that")
    alive, topic = _reachable(view), view.image.topic(_COORDINATES[kind])
    if topic is None:
        why = f"{_COORDINATES[kind]} is being created"
        return _Coordinator(key, _NO_NODE, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
    leader = topic.partitions[partition_for(key, len(topic.partitions))].leader
    if leader in alive:
        host, port, _ = alive[leader]
        return _Coordinator(key, leader, host, port, ErrorCode.NONE, "")
    return _Coordinator(key, _NO_NODE, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, "its partition has no leader")
