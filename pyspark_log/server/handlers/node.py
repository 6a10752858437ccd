"""What a node of a cluster answers: the cluster as its image has it, and its own replicas."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_log.config import store_config
from pyspark_log.errors import InvalidTopicError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
)
from pyspark_log.server.cluster import Image
from pyspark_log.server.cluster.image import Broker, Topic
from pyspark_log.server.cluster.leading import UNKNOWN, Fetched
from pyspark_log.server.handlers import fetch as plain
from pyspark_log.server.handlers.call import NOT_ALLOWED, Call
from pyspark_log.server.handlers.groups import KINDS
from pyspark_log.server.handlers.leader_epochs import check_epoch
from pyspark_log.server.handlers.metadata import NOT_ASKED, cluster_operations, require_create
from pyspark_log.server.handlers.node_topics import create_missing, create_own
from pyspark_log.server.handlers.transactions import init_producer_id as init_plain
from pyspark_log.server.refusal import RefusedError
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource
from pyspark_log.storage.catalog import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, check_name
from pyspark_log.storage.groups.records import partition_for
from pyspark_log.storage.log.state import PartitionState
from pyspark_log.types import TopicPartition

_MetadataBroker = MetadataResponse.MetadataResponseBroker
_MetadataTopic = MetadataResponse.MetadataResponseTopic
_MetadataPartition = MetadataResponse.MetadataResponsePartition
_Coordinator = FindCoordinatorResponse.Coordinator

_ELSEWHERE = ErrorCode.NOT_LEADER_OR_FOLLOWER
_NO_ID = bytes(16)
_NO_NODE = -1
_BROKERS = 1  # a type of endpoint
_FIRST_OF_MANY = 4  # versions of FindCoordinator
_WITH_RACKS = 11  # the version of Fetch from which on consumers say their racks (KIP-392)
# The topics whose leaders coordinate, by the kind of coordinator.
_COORDINATES = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
_INTERNAL = frozenset({*_COORDINATES.values(), "__share_group_state"})
# Topics that no client's question makes.
_NEVER_MADE = INTERNAL_TOPICS - set(_COORDINATES.values())
_FIRST_TO_ASK = 4  # versions of Metadata that say whether topics are to be created


def _image(call: Call) -> Image:
    node = call.broker.node
    assert node is not None
    return node.image


def _alive(call: Call) -> dict[int, tuple[str, int, str | None]]:
    """Brokers that clients may ask, by id: host, port and rack. Those that listen as this node does."""
    found = {}
    for one in _image(call).brokers.values():
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
    own, alive = call.broker.node_id, sorted(_alive(call))
    return next((one for one in alive if one != own), own if alive else _NO_NODE)


async def metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    """Describes topics, their leaders, and brokers."""
    image, asked = _image(call), request.include_topic_authorized_operations
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
        brokers=[_MetadataBroker(node, host, port, rack) for node, (host, port, rack) in sorted(_alive(call).items())],
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
    alive, partitions = _alive(call), []
    for number, one in sorted(topic.partitions.items()):
        leader = one.leader if one.leader in alive else _NO_NODE
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
        brokers=[row(node, host, port, rack) for node, (host, port, rack) in sorted(_alive(call).items())],
        cluster_authorized_operations=cluster_operations(call, asked=request.include_cluster_authorized_operations),
    )


async def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Names the brokers that coordinate groups or transactions: the leaders of partitions of Kafka's own topics.

    A topic that is missing is created, and until it is there no coordinator is available.
    """
    keys = request.coordinator_keys if call.version >= _FIRST_OF_MANY else [request.key]
    found = [_coordinator(call, request.key_type, key) for key in keys]
    own = _COORDINATES.get(request.key_type)
    is_asked_for = any(one.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE for one in found)
    if own is not None and is_asked_for and _image(call).topic(own) is None:
        await create_own(call, own)
    if call.version >= _FIRST_OF_MANY:
        return FindCoordinatorResponse(coordinators=found)
    [one] = found
    return FindCoordinatorResponse(0, one.error_code, one.error_message or "NONE", one.node_id, one.host, one.port)


def _coordinator(call: Call, kind: int, key: str) -> FindCoordinatorResponse.Coordinator:
    if kind not in _COORDINATES:
        why = f"no kind of coordinator has the number {kind}"
        return _Coordinator(key, _NO_NODE, "", -1, ErrorCode.INVALID_REQUEST, why)
    resource = KINDS[kind]
    if not call.allows(Operation.DESCRIBE, resource, key):
        return _Coordinator(key, _NO_NODE, "", -1, NOT_ALLOWED[resource], "the client may not ask for that")
    alive, topic = _alive(call), _image(call).topic(_COORDINATES[kind])
    if topic is None:
        why = f"{_COORDINATES[kind]} is being created"
        return _Coordinator(key, _NO_NODE, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
    leader = topic.partitions[partition_for(key, len(topic.partitions))].leader
    if leader in alive:
        host, port, _ = alive[leader]
        return _Coordinator(key, leader, host, port, ErrorCode.NONE, "")
    return _Coordinator(key, _NO_NODE, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, "its partition has no leader")


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Gives an id to a producer without transactions."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR, producer_id=-1, producer_epoch=-1)
    return await init_plain(call, request)


async def fetch(call: Call, request: FetchRequest) -> FetchResponse:
    """Answers followers of what is led here; and consumers, from any replica up to its high watermark (KIP-392)."""
    replica = plain.follower_of(request, call.version)
    epoch = request.replica_state.replica_epoch if call.version >= plain.WITH_REPLICA_STATE else UNKNOWN
    return await plain.fetch(call, request, _Replica(call, request, replica, epoch))


class _Replica:
    """How a fetch is answered; see plain.Replica."""

    def __init__(self, call: Call, request: FetchRequest, replica: int, broker_epoch: int) -> None:
        node = call.broker.node
        assert node is not None
        self._call = call
        self._node, self._rack, self._id, self._broker_epoch = node, request.rack_id, replica, broker_epoch
        self.is_follower = replica >= 0
        self._may_ask_followers = call.version >= _WITH_RACKS

    def refusal(self, topic: str, wanted: FetchRequest.FetchPartition) -> FetchResponse.PartitionData | None:
        may = not self.is_follower or self._call.allows(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
        if not may:
            return self._error(wanted, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        at, image = TopicPartition(topic, wanted.partition), self._node.image
        known = image.topic(topic)
        one = None if known is None else known.partitions.get(wanted.partition)
        epoch = self._node.leaders.epoch(at)
        needs_leader = self.is_follower or not self._may_ask_followers
        if one is None or (epoch is None and (needs_leader or not self._node.has_replica(at))):
            return self._error(wanted, _ELSEWHERE)
        if error := check_epoch(wanted.current_leader_epoch, one.leader_epoch if epoch is None else epoch):
            return self._error(wanted, error)
        if self.is_follower:
            # It may know of its replica before this node does.
            is_known = self._node.leaders.has_follower(at, self._id)
            return None if is_known else self._error(wanted, ErrorCode.UNKNOWN_LEADER_EPOCH)
        closest = self._node.leaders.closest(at, self._rack, wanted.fetch_offset) if self._rack else None
        if closest is None:
            return None
        return FetchResponse.PartitionData(
            wanted.partition, ErrorCode.NONE, -1, -1, -1, preferred_read_replica=closest, records=b""
        )

    def holds_back(self, topic: str, partition: int) -> bool:
        at = TopicPartition(topic, partition)
        return self.is_follower and self._node.leaders.throttle.holds_back(self._node.image, at, self._id)

    def sent(self, topic: str, partition: int, size: int) -> None:
        if self.is_follower:
            self._node.leaders.throttle.count(self._node.image, TopicPartition(topic, partition), self._id, size)

    def read(self, topic: str, wanted: FetchRequest.FetchPartition, state: PartitionState) -> ErrorCode:
        if not self.is_follower:
            return ErrorCode.NONE
        fetched = Fetched(self._id, self._broker_epoch, wanted.fetch_offset, wanted.log_start_offset)
        is_in_log = state.log_start <= wanted.fetch_offset <= state.next_offset
        if is_in_log and not self._node.leaders.fetched(TopicPartition(topic, wanted.partition), fetched, state):
            return _ELSEWHERE
        return ErrorCode.NONE

    def _error(self, wanted: FetchRequest.FetchPartition, error: ErrorCode) -> FetchResponse.PartitionData:
        return FetchResponse.PartitionData(wanted.partition, error, -1, -1, -1, records=b"")
