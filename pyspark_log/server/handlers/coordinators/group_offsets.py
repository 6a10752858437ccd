"""OffsetCommit, OffsetFetch and OffsetDelete: how far groups have read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from pyspark_log.errors import PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
)
from pyspark_log.server.answers.errors import code_of
from pyspark_log.server.coordinator import of_storing
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.security.acls import Operation, Resource
from pyspark_log.server.state.topic_ids import NO_ID
from pyspark_log.storage.groups import OffsetAndMetadata
from pyspark_log.storage.groups.changes import GroupChange
from pyspark_log.storage.groups.committed_offsets import MAX_METADATA_BYTES
from pyspark_log.types import TopicPartition

_log = logging.getLogger(__name__)

_Committed = dict[TopicPartition, OffsetAndMetadata]

# Topics are named by their ids from this version on, in commits and fetches; several groups in a fetch from the other.
_FIRST_BY_ID, _FIRST_OF_MANY = 10, 8
# From this version on a fetch has an error of its own, without topics.
_FIRST_WITH_ERROR = 2
_NOTHING = -1
_DESCRIBE = Operation.DESCRIBE, Resource.TOPIC
# An offset that a transaction may change which is open.
_UNSTABLE = OffsetAndMetadata(_NOTHING, _NOTHING, "", _NOTHING)


# ---- committing


async def offset_commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commits offsets of a member, or of a group without members."""
    groups = call.broker.groups
    now = groups.now()
    # The group may be "", which only its members may not name.
    may = call.broker.logs.groups.writable and call.allows(Operation.READ, Resource.GROUP, request.group_id)
    error = ErrorCode.NONE if may else ErrorCode.GROUP_AUTHORIZATION_FAILED
    names = [await _name_of(call, topic.name, topic.topic_id) for topic in request.topics]
    errors = dict[tuple[int, int], ErrorCode]()
    offsets = dict[TopicPartition, OffsetAndMetadata]()
    expires = -1 if request.retention_time_ms < 0 else now + request.retention_time_ms
    for number, (topic, name) in enumerate(zip(request.topics, names, strict=True)):
        for part in topic.partitions:
            refused = error or refusal(call, request.group_id, name, part)
            errors[number, part.partition_index] = refused
            if not refused and name is not None:
                offsets[TopicPartition(name, part.partition_index)] = OffsetAndMetadata(
                    part.committed_offset, part.committed_leader_epoch, part.committed_metadata or "", now, expires
                )
    if offsets:
        # Nothing may come between the check and the place in the queue of the log.
        failed = groups.coordinator.check_commit(
            request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id,
            call.version, now, partitions=[(at.topic, at.partition) for at in offsets],
        )  # fmt: skip
        if not failed:
            outcome = await groups.log.write(GroupChange(request.group_id, offsets))
            failed = ErrorCode.NONE if outcome is None else of_storing(code_of(outcome))
        errors = {place: code or failed for place, code in errors.items()}
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        part.partition_index, errors[number, part.partition_index]
                    )
                    for part in topic.partitions
                ],
            )
            for number, topic in enumerate(request.topics)
        ]
    )


async def _name_of(call: Call, name: str, topic_id: bytes) -> str | None:
    return name if call.version < _FIRST_BY_ID else await call.broker.cluster.name_of(topic_id)


def refusal(
    call: Call,
    group: str,
    topic: str | None,
    part: OffsetCommitRequest.OffsetCommitRequestPartition | TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition,
) -> ErrorCode:
    """Why an offset cannot be committed, which is logged once for a client; NONE: it can.

    `topic`: None: there is none of that id.
    """
    error = _refusal(call, topic, part)
    if error and (noted := f"{group} {error.name}") not in call.client.warned:
        call.client.warned.add(noted)
        _log.warning(
            "group %s: %s (%s) cannot commit offset %d for %s-%d: %s",
            group, call.client_id, call.client.peer, part.committed_offset, topic, part.partition_index, error.name,
        )  # fmt: skip
    return error


def _refusal(
    call: Call,
    topic: str | None,
    part: OffsetCommitRequest.OffsetCommitRequestPartition | TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition,
) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not call.allows(Operation.READ, Resource.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if len((part.committed_metadata or "").encode()) > MAX_METADATA_BYTES:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return unknown(call, topic, part.partition_index)


def unknown(call: Call, topic: str, partition: int) -> ErrorCode:
    """The error of a partition that does not exist; NONE: it does."""
    try:
        is_there = call.broker.cluster.has_partition(TopicPartition(topic, partition))
    except (PylogError, OSError) as error:
        return code_of(error)
    return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- fetching


async def offset_fetch(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Fetches committed offsets, of some partitions or of all that a group has."""
    if call.version >= _FIRST_OF_MANY:
        return OffsetFetchResponse(groups=[await _of_group(call, request, group) for group in request.groups])
    committed, error = await _committed(call, request.group_id, is_stable=request.require_stable)
    topics = request.topics
    # All of them: an empty list in version 1, which has no null.
    partitions = None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]
    if error and call.version >= _FIRST_WITH_ERROR:
        return OffsetFetchResponse(error_code=error)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name,
                [
                    OffsetFetchResponse.OffsetFetchResponsePartition(*row)
                    for row in _rows(parts, error or _may(call, name))
                ],
            )
            for name, parts in _offsets_by_topic(committed, partitions)
            if partitions is not None or call.allows(*_DESCRIBE, name)
        ],
        error_code=error,
    )


async def _of_group(
    call: Call, request: OffsetFetchRequest, group: OffsetFetchRequest.OffsetFetchRequestGroup
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    committed, error = await _committed(call, group.group_id, is_stable=request.require_stable)
    coordinator = call.broker.groups.coordinator
    error = error or coordinator.check_fetch(group.group_id, group.member_id, group.member_epoch)
    topics = list[OffsetFetchResponse.OffsetFetchResponseTopics]()
    if error:
        return OffsetFetchResponse.OffsetFetchResponseGroup(group.group_id, topics, error)
    if group.topics is None:
        for name, parts in _offsets_by_topic(committed, None):
            if not call.allows(*_DESCRIBE, name):
                continue
            topic_id = call.broker.topics.note(name) or NO_ID
            if call.version < _FIRST_BY_ID or topic_id != NO_ID:
                topics.append(_topic(name, topic_id, parts))
        return OffsetFetchResponse.OffsetFetchResponseGroup(group.group_id, topics)
    for topic in group.topics:
        name_or_none = await _name_of(call, topic.name, topic.topic_id)
        if name_or_none is None:
            rows = _rows(dict.fromkeys(topic.partition_indexes), ErrorCode.UNKNOWN_TOPIC_ID)
            partitions = [OffsetFetchResponse.OffsetFetchResponsePartitions(*row) for row in rows]
            topics.append(OffsetFetchResponse.OffsetFetchResponseTopics("", topic.topic_id, partitions))
            continue
        [(_, parts)] = _offsets_by_topic(committed, [(name_or_none, topic.partition_indexes)])
        topics.append(_topic(name_or_none, topic.topic_id, parts, _may(call, name_or_none)))
    return OffsetFetchResponse.OffsetFetchResponseGroup(group.group_id, topics)


def _may(call: Call, topic: str) -> ErrorCode:
    return ErrorCode.NONE if call.allows(*_DESCRIBE, topic) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _topic(
    name: str, topic_id: bytes, parts: Mapping[int, OffsetAndMetadata | None], error: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponse.OffsetFetchResponseTopics:
    partitions = [OffsetFetchResponse.OffsetFetchResponsePartitions(*row) for row in _rows(parts, error)]
    return OffsetFetchResponse.OffsetFetchResponseTopics(name, topic_id, partitions)


async def _committed(call: Call, group: str, *, is_stable: bool) -> tuple[_Committed, ErrorCode]:
    """The committed offsets of a group; if they are to be stable, _UNSTABLE where a transaction may change them."""
    log, workers = call.broker.logs.groups, call.broker.workers
    if not call.allows(Operation.DESCRIBE, Resource.GROUP, group):
        return {}, ErrorCode.GROUP_AUTHORIZATION_FAILED
    try:
        # Before the offsets: a transaction that ends in between is seen there.
        pending = await workers.run(log.pending, group) if is_stable else ()
        return await workers.run(lambda: log.fetch(group, with_resets=True)) | dict.fromkeys(
            pending, _UNSTABLE
        ), ErrorCode.NONE
    except (PylogError, OSError) as error:
        return {}, code_of(error)


def _offsets_by_topic(
    committed: _Committed, partitions: Iterable[tuple[str, Iterable[int]]] | None
) -> list[tuple[str, dict[int, OffsetAndMetadata | None]]]:
    """The committed offsets of what is wanted, by topic and partition; None: all there are."""
    if partitions is not None:
        return [
            (name, {number: committed.get(TopicPartition(name, number)) for number in numbers})
            for name, numbers in partitions
        ]
    by_topic = dict[str, dict[int, OffsetAndMetadata | None]]()
    for at in sorted(committed):
        by_topic.setdefault(at.topic, {})[at.partition] = committed[at]
    return list(by_topic.items())


def _rows(
    parts: Mapping[int, OffsetAndMetadata | None], error: ErrorCode
) -> list[tuple[int, int, int, str, ErrorCode]]:
    rows = []
    for number, kept in parts.items():
        if kept is None or kept is _UNSTABLE or error:
            code = error or (ErrorCode.NONE if kept is None else ErrorCode.UNSTABLE_OFFSET_COMMIT)
            rows.append((number, _NOTHING, _NOTHING, "", code))
        else:
            rows.append((number, kept.offset, kept.leader_epoch, kept.metadata, error))
    return rows


# ---- deleting


async def offset_delete(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Deletes committed offsets of topics that the group's members do not subscribe to."""
    groups = call.broker.groups
    if not call.allows(Operation.DELETE, Resource.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    await groups.refresh()
    error = groups.coordinator.check_offset_delete(request.group_id)
    if error:
        return OffsetDeleteResponse(error_code=error)
    deleted, topics = dict[TopicPartition, OffsetAndMetadata | None](), []
    for topic in request.topics:
        is_read = groups.coordinator.subscribes(request.group_id, topic.name)
        rows = []
        for part in topic.partitions:
            may = call.allows(Operation.READ, Resource.TOPIC, topic.name)
            code = unknown(call, topic.name, part.partition_index) if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if is_read and not code:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if not code:
                deleted[TopicPartition(topic.name, part.partition_index)] = None
            rows.append(OffsetDeleteResponse.OffsetDeleteResponsePartition(part.partition_index, code))
        topics.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(topic.name, rows))
    if deleted:
        outcome = await groups.log.write(GroupChange(request.group_id, deleted))
        if outcome is not None:
            return OffsetDeleteResponse(error_code=of_storing(code_of(outcome)))
    return OffsetDeleteResponse(topics=topics)
