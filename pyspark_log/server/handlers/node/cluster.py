"""What a node of a cluster answers of the cluster: topics and brokers, as its image has them."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_log.config import store_config
from pyspark_log.errors import InvalidTopicError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from pyspark_log.server.cluster import Image
from pyspark_log.server.cluster.image import Broker, Topic
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.node.topics import create_missing
from pyspark_log.server.handlers.topics.metadata import NOT_ASKED, cluster_operations, require_create
from pyspark_log.server.refusal import RefusedError
from pyspark_log.server.security.acls import Operation, Resource
from pyspark_log.storage.catalog import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, check_name

_MetadataBroker = MetadataResponse.MetadataResponseBroker
_MetadataTopic = MetadataResponse.MetadataResponseTopic
_MetadataPartition = MetadataResponse.MetadataResponsePartition

_NO_ID = bytes(16)
#: The number of no broker.
NO_NODE = -1
_BROKERS = 1  # a type of endpoint
#: The topics whose leaders coordinate, by the kind of coordinator.
COORDINATES = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
_INTERNAL = frozenset({*COORDINATES.values(), "__share_group_state"})
# Topics that no client's question makes.
_NEVER_MADE = INTERNAL_TOPICS - set(COORDINATES.values())
_FIRST_TO_ASK = 4  # versions of Metadata that say whether topics are to be created


def image_of(call: Call) -> Image:
    """The newest image of the cluster."""
    node = call.broker.node
    assert node is not None
    return node.image


def alive_of(call: Call) -> dict[int, tuple[str, int, str | None]]:
    """Brokers that clients may ask, by id: host, port and rack. Those that listen as this node does."""
    found = {}
    for one in image_of(call).brokers.values():
        at = None if one.fenced else _reached(call, one)
        if at is not None:
            found[one.id] = (*at, one.rack)
    return found


def _reached(call: Call, broker: Broker) -> tuple[str, int] | None:
    node = call.broker.node
    assert node is not None
    return next(((one.host, one.port) for one in broker.endpoints if one.listener == node.listener), None)


def _controller(call: Call) -> int:
    """A broker that takes requests for the controller: any; others rather than this node."""
    own, alive = call.broker.node_id, sorted(alive_of(call))
    return next((one for one in alive if one != own), own if alive else NO_NODE)


async def metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    """Describes topics, their leaders, and brokers."""
    image, asked = image_of(call), request.include_topic_authorized_operations
    if request.topics is None or (call.version == 0 and not request.topics):
        topics: Iterable[MetadataResponse.MetadataResponseTopic] = [
            _described(call, topic, asked=asked)
            for topic in image.topics.values()
            if call.allows(Operation.DESCRIBE, Resource.TOPIC, topic.name)
        ]
    else:
        topics = [_asked(call, image, wanted, asked=asked) for wanted in request.topics]
        # Versions without the field create what is missing.
        if call.version < _FIRST_TO_ASK or request.allow_auto_topic_creation:
            topics = await _created(call, topics)
    return MetadataResponse(
        brokers=[
            _MetadataBroker(node, host, port, rack) for node, (host, port, rack) in sorted(alive_of(call).items())
        ],
        cluster_id=call.broker.store.cluster_id,
        controller_id=_controller(call),
        topics=list(topics),
        cluster_authorized_operations=cluster_operations(call, asked=request.include_cluster_authorized_operations),
    )


def _asked(
    call: Call, image: Image, wanted: MetadataRequest.MetadataRequestTopic, *, asked: bool
) -> MetadataResponse.MetadataResponseTopic:
    name = wanted.name
    if name is None:
        topic = image.topics.get(bytes(wanted.topic_id))
        missing = _MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id, False, (), NOT_ASKED)
    else:
        topic = image.topic(name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing = _MetadataTopic(unknown, name, _NO_ID, name in _INTERNAL, (), NOT_ASKED)
    described = name if topic is None else topic.name
    if described is not None and not call.allows(Operation.DESCRIBE, Resource.TOPIC, described):
        # One that asks by an id does not learn the name, and the other way round.
        topic_id = _NO_ID if name is not None else wanted.topic_id
        return _MetadataTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, topic_id, False, (), NOT_ASKED)
    if name is not None:
        try:
            check_name(name)
        except InvalidTopicError:
            return missing._replace(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION)
    return missing if topic is None else _described(call, topic, asked=asked)


async def _created(
    call: Call, topics: Iterable[MetadataResponse.MetadataResponseTopic]
) -> list[MetadataResponse.MetadataResponseTopic]:
    """Has the controllers create topics that are missing, if the client may; clients look for them again."""
    found, missing, store = list[MetadataResponse.MetadataResponseTopic](), list[str](), call.broker.store
    may_create = store_config(store.configs, "auto.create.topics.enable")
    for one in topics:
        shown = one
        if may_create and one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and one.name not in _NEVER_MADE:
            assert one.name is not None
            try:
                require_create(call, one.name)
                missing.append(one.name)
            except RefusedError as error:
                shown = one._replace(error_code=error.code)
        found.append(shown)
    if missing:
        await create_missing(call, missing)
    return found


def _described(call: Call, topic: Topic, *, asked: bool) -> MetadataResponse.MetadataResponseTopic:
    alive, partitions = alive_of(call), []
    for number, one in sorted(topic.partitions.items()):
        leader = one.leader if one.leader in alive else NO_NODE
        error = ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
        offline = [node for node in one.replicas if node not in alive]
        partitions.append(_MetadataPartition(error, number, leader, one.leader_epoch, one.replicas, one.isr, offline))
    operations = call.operations(Resource.TOPIC, topic.name) if asked else NOT_ASKED
    return _MetadataTopic(ErrorCode.NONE, topic.name, topic.id, topic.name in _INTERNAL, partitions, operations)


async def describe_cluster(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describes the brokers that clients may ask."""
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message="clients find brokers here, and no controllers"
        )
    row = DescribeClusterResponse.DescribeClusterBroker
    return DescribeClusterResponse(
        cluster_id=call.broker.store.cluster_id,
        controller_id=_controller(call),
        brokers=[row(number, *reached) for number, reached in sorted(alive_of(call).items())],
        cluster_authorized_operations=cluster_operations(call, asked=request.include_cluster_authorized_operations),
    )
