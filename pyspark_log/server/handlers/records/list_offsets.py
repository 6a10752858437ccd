"""ListOffsets: the first and last offsets of partitions, and offsets by time."""

from __future__ import annotations

from collections import Counter

from pyspark_log.config import LONG_MAX
from pyspark_log.errors import PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import ListOffsetsRequest, ListOffsetsResponse
from pyspark_log.server.answers.errors import code_of
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.records.leader_epochs import NO_EPOCH, check_epoch
from pyspark_log.server.security.acls import Operation, Resource
from pyspark_log.server.served import LogView
from pyspark_log.types import TopicPartition

_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
_Partition = ListOffsetsResponse.ListOffsetsPartitionResponse

# What a negative time asks for: the log end, the log start, the record with the largest time (KIP-734), the first
# offset that is on the server itself (KIP-405), the last one that is in another storage (KIP-1005), the first one that
# is still to be copied there (KIP-1023).
_LATEST, _EARLIEST, _LARGEST_TIME, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING = range(-1, -7, -1)
# From which version a negative time has a meaning.
_SINCE = {_LATEST: 1, _EARLIEST: 1, _LARGEST_TIME: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_PENDING: 11}
_READ_COMMITTED = 1
_FIRST_WITH_EPOCH = 4
# What a client is answered that must ask again, before and from a version on.
_NOT_AVAILABLE, _SINCE_NOT_AVAILABLE = (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE), 5
_NOTHING = -1


async def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Looks the offsets up; those of records that were published before are among them."""
    topics = await call.broker.workers.run(_topics, call, request)
    return ListOffsetsResponse(topics=topics)


def _topics(call: Call, request: ListOffsetsRequest) -> list[ListOffsetsResponse.ListOffsetsTopicResponse]:
    call.broker.store.publishes.apply_pending()
    try:
        # Other servers may have answered later offsets (KIP-207): the store is looked at once for all partitions.
        with call.broker.store.partitions.looking():
            return _looked_up(call, request)
    except (PylogError, OSError) as error:
        code = code_of(error)
        return [
            _Topic(topic.name, [
                _Partition(part.partition_index, code, _NOTHING, _NOTHING, NO_EPOCH) for part in topic.partitions
            ])
            for topic in request.topics
        ]  # fmt: skip


def _looked_up(call: Call, request: ListOffsetsRequest) -> list[ListOffsetsResponse.ListOffsetsTopicResponse]:
    topics = []
    for topic in request.topics:
        times = Counter(part.partition_index for part in topic.partitions)
        # One that is named twice is answered once.
        by_number = {part.partition_index: part for part in topic.partitions}
        parts = [
            _partition(call, request, topic.name, part, is_twice=times[number] > 1)
            for number, part in by_number.items()
        ]
        topics.append(_Topic(topic.name, parts))
    return topics


def _partition(
    call: Call,
    request: ListOffsetsRequest,
    topic: str,
    asked: ListOffsetsRequest.ListOffsetsPartition,
    *,
    is_twice: bool,
) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    number, time = asked.partition_index, asked.timestamp
    at = TopicPartition(topic, number)
    if not call.allows(Operation.DESCRIBE, Resource.TOPIC, topic):
        return _Partition(number, ErrorCode.TOPIC_AUTHORIZATION_FAILED, _NOTHING, _NOTHING, NO_EPOCH)
    try:
        if not call.leads(at):
            return _Partition(number, ErrorCode.NOT_LEADER_OR_FOLLOWER, _NOTHING, _NOTHING, NO_EPOCH)
        log = call.broker.logs.topic(topic).view(number, may_wait=True, client_end=LONG_MAX)
        error = check_epoch(asked.current_leader_epoch, log.leader_epoch)
        is_client = request.replica_id < 0
        if not error and time != _EARLIEST and is_client and call.broker.cluster.is_behind(at, log.high_watermark):
            # Else an offset could be lower than one that the leader before has answered (KIP-207).
            error = _NOT_AVAILABLE[call.version >= _SINCE_NOT_AVAILABLE]
        if is_twice:
            error = ErrorCode.INVALID_REQUEST
        elif time < 0 and call.version < _SINCE.get(time, 1 << 15):
            error = ErrorCode.UNSUPPORTED_VERSION
        if error:
            return _Partition(number, error, _NOTHING, _NOTHING, NO_EPOCH)
        if request.replica_id >= 0 and time == _LATEST:
            timestamp, offset = _NOTHING, log.next_offset
        else:
            is_committed = request.isolation_level == _READ_COMMITTED
            timestamp, offset = _look_up(log, time, is_committed=is_committed)
        has_epoch = offset != _NOTHING and call.version >= _FIRST_WITH_EPOCH
        epoch = log.epoch_of(offset) if has_epoch else NO_EPOCH
        return _Partition(number, ErrorCode.NONE, timestamp, offset, epoch)
    except (PylogError, OSError) as error:
        return _Partition(number, code_of(error), _NOTHING, _NOTHING, NO_EPOCH)


def _look_up(log: LogView, time: int, *, is_committed: bool) -> tuple[int, int]:
    """A time (ms) and an offset; -1 for what there is not."""
    if time in (_EARLIEST, _EARLIEST_LOCAL):
        return _NOTHING, log.log_start
    if time in (_LATEST_TIERED, _EARLIEST_PENDING):
        return _NOTHING, _NOTHING
    end = min(log.last_stable_offset(), log.high_watermark) if is_committed else log.high_watermark
    if time == _LATEST:
        return _NOTHING, end
    record = log.find_max_timestamp() if time == _LARGEST_TIME else log.find_timestamp(time)
    if record is None or record.offset >= end:
        return _NOTHING, _NOTHING
    return record.timestamp, record.offset
