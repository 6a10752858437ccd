"""OffsetForLeaderEpoch: where a leader epoch ends (KIP-101, KIP-320), by which a client notices a cut log."""

from __future__ import annotations

from functools import partial

from pyspark_log.config import LONG_MAX
from pyspark_log.errors import PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from pyspark_log.server.answers.errors import code_of
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource
from pyspark_log.server.served import LogView
from pyspark_log.storage.log.leader_epochs import EpochEnd
from pyspark_log.types import TopicPartition

_Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_End = OffsetForLeaderEpochResponse.EpochEndOffset
#: The leader epoch of a client that names none.
NO_EPOCH = -1
_NO_OFFSET = -1


def check_epoch(client_epoch: int, current: int) -> ErrorCode:
    """Compares the leader epoch that a client knows with the current one."""
    if client_epoch in (NO_EPOCH, current):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if client_epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH


def divergence(log: LogView, epoch: int, offset: int) -> EpochEnd | None:
    """Where a log that has records of `epoch` up to `offset` may first differ from this one (KIP-595); None: nowhere.

    Raises:
        SideFileError, OSError: the file of epochs cannot be read.
    """
    if epoch == log.leader_epoch and offset <= log.next_offset:
        return None
    end = log.end_of_epoch(epoch)
    return end if end.epoch < epoch or end.end_offset < offset else None


async def offset_for_leader_epoch(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """Finds where epochs end."""
    return OffsetForLeaderEpochResponse(topics=await call.broker.workers.run(_topics, call, request))


def _topics(
    call: Call, request: OffsetForLeaderEpochRequest
) -> list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult]:
    try:
        # The client compares its position, which it may have from another server: one look for all partitions.
        with call.broker.store.partitions.looking():
            return [
                _Topic(topic.topic, [_end(call, topic.topic, part) for part in topic.partitions])
                for topic in request.topics
            ]
    except (PylogError, OSError) as error:
        code = code_of(error)
        return [
            _Topic(topic.topic, [_End(code, part.partition, NO_EPOCH, _NO_OFFSET) for part in topic.partitions])
            for topic in request.topics
        ]


def _end(
    call: Call, topic: str, asked: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> OffsetForLeaderEpochResponse.EpochEndOffset:
    # Followers ask, too.
    is_broker = partial(call.allows, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
    if not (call.allows(Operation.DESCRIBE, Resource.TOPIC, topic) or is_broker()):
        return _End(ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked.partition, NO_EPOCH, _NO_OFFSET)
    try:
        if not call.leads(TopicPartition(topic, asked.partition)):
            return _End(ErrorCode.NOT_LEADER_OR_FOLLOWER, asked.partition, NO_EPOCH, _NO_OFFSET)
        log = call.broker.logs.topic(topic).view(asked.partition, may_wait=True, client_end=LONG_MAX)
        error = check_epoch(asked.current_leader_epoch, log.leader_epoch)
        if error:
            return _End(error, asked.partition)
        epoch, end = log.end_of_epoch(asked.leader_epoch)
        return _End(ErrorCode.NONE, asked.partition, epoch, end)
    except (PylogError, OSError) as error:
        return _End(code_of(error), asked.partition, NO_EPOCH, _NO_OFFSET)
