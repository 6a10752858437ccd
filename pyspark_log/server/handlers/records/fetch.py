"""Fetch: stored record batches from partitions, with a wait for new ones.

Records are not read: the answer says where they are in the files of their segments, and the system sends them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark_log.errors import OffsetOutOfRangeError, PylogError, UnknownTopicError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import FetchRequest, FetchResponse
from pyspark_log.server.answers.errors import code_of
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.handlers.call import Call, key_of
from pyspark_log.server.handlers.records.leader_epochs import NO_EPOCH, check_epoch, divergence
from pyspark_log.server.security.acls import Operation, Resource
from pyspark_log.server.served import LogView, MustWaitError, ServedTopic
from pyspark_log.server.state.appends import PartitionKey, Seen
from pyspark_log.server.state.fetch_sessions import INITIAL_EPOCH, Entry, Reader, Session
from pyspark_log.storage.catalog import PUBLISH_TOPIC

_Topic = FetchResponse.FetchableTopicResponse
_Partition = FetchResponse.PartitionData
_Aborted = FetchResponse.AbortedTransaction

#: Its key.
KEY = key_of(FetchRequest)
#: The version from which on followers say their epochs (KIP-903).
WITH_REPLICA_STATE = 15

# The most bytes of records in a response (Kafka's fetch.max.bytes of a broker), but for the first batch.
_MAX_BYTES = 55 * 1024 * 1024
# An answer waits no longer, whatever the client says (ms).
_MAX_WAIT_MS = 600_000
_READ_COMMITTED = 1
# Topics are named by their ids from this version on.
_FIRST_BY_ID = 13


@dataclass
class _Part:
    """A partition that is asked for, and what was found of it so far.

    Attributes:
        asked: the topic, as the client names it: name and id.
        request: what is asked.
        topic: the topic as it is; None: there is none.
        key: by which to wait for its records.
        error: why it cannot be read.
        data: the answer, once it was looked at.
        size: bytes of the records in it.
        there: bytes of records that are there, as many as may be sent at most.
        has_records: whether there are records, also if none may be sent.
        end: for a follower: where the log ended when it was looked at.
        entry: in the client's session; None: it has none.
        seen: the log as it is, if that is at hand.
    """

    asked: tuple[str, bytes]
    request: FetchRequest.FetchPartition
    topic: ServedTopic | None
    key: PartitionKey
    error: ErrorCode
    data: FetchResponse.PartitionData | None = None
    size: int = 0
    there: int = 0
    has_records: bool = False
    end: int = -1
    entry: Entry | None = None
    seen: Seen | None = None

    @property
    def is_open(self) -> bool:
        """Whether records may come."""
        return self.error == ErrorCode.NONE and self.topic is not None


class Replica(Protocol):
    """How a node of a cluster answers a fetch."""

    is_follower: bool  #: whether a follower asks, which gets what not all have yet

    def refusal(self, topic: str, request: FetchRequest.FetchPartition) -> FetchResponse.PartitionData | None:
        """The answer for a partition that is not to be read here; None: it is."""

    def holds_back(self, topic: str, partition: int) -> bool:
        """Whether nothing may be sent of a partition for now."""

    def sent(self, topic: str, partition: int, size: int) -> None:
        """Takes that bytes are sent."""

    def read(self, topic: str, request: FetchRequest.FetchPartition, log: LogView) -> ErrorCode:
        """Takes that a partition was read, which does not differ from what the client has; an error instead of it."""


def follower_of(request: FetchRequest, version: int) -> int:
    """The id of the follower that asks in a version of the request; negative: it is a consumer."""
    return request.replica_state.replica_id if version >= WITH_REPLICA_STATE else request.replica_id


def sent_elsewhere(partition: int, node_id: int) -> FetchResponse.PartitionData:
    """Has a consumer fetch a partition from another server (KIP-392)."""
    return _Partition(partition, ErrorCode.NONE, -1, -1, -1, preferred_read_replica=node_id, records=b"")


async def fetch(call: Call, request: FetchRequest, replica: Replica | None = None) -> FetchResponse:
    """Answers with records, as soon as there are `min_bytes` of them, an error, or the time is over.

    `replica`: of a node of a cluster.

    A consumer of a node has no fetch session (KIP-227): it asks for all partitions each time.
    """
    counts = call.broker.counts
    try:
        session = call.broker.fetch_sessions.of(request, by_id=call.version >= _FIRST_BY_ID)
    except RefusedError as error:
        counts.errors[KEY, error.code] += 1
        return FetchResponse(error_code=error.code)
    parts = await _parts(call, request, replica, session)
    search = _Search(call, request, replica)
    may_wait = request.max_wait_ms > 0 and request.min_bytes > 0 and (session is not None or len(parts) > 0)
    if may_wait and not [part for part in parts if not part.is_open]:
        await _wait_for_records(call, request, search, parts, session)
    else:
        await search.look(parts)
    topics = list[tuple[tuple[str, bytes], list[FetchResponse.PartitionData]]]()
    # As Kafka, those last that were not looked at.
    for part in sorted(parts, key=lambda part: part.topic is None):
        if replica is not None and part.size and part.topic is not None:
            replica.sent(part.topic.name, part.request.partition, part.size)
        if part.error:
            counts.errors[KEY, part.error] += 1
        elif part.size and part.topic is not None:
            counts.topic(part.topic.name).bytes_out += part.size
        answer = search.answer(part)
        if session is None or _is_new(request, session, part, answer):
            if not topics or topics[-1][0] != part.asked:
                topics.append((part.asked, []))
            topics[-1][1].append(answer)
    return FetchResponse(
        session_id=0 if session is None else session.session_id,
        responses=[_Topic(*topic, answers) for topic, answers in topics],
    )


def _is_new(request: FetchRequest, session: Session, part: _Part, answer: FetchResponse.PartitionData) -> bool:
    """Whether an answer says anything new to a client with a session; the first one does, for each partition."""
    entry = part.entry
    assert entry is not None
    # What there was may not have been sent, or not have been taken.
    entry.is_due = part.has_records or part.error != ErrorCode.NONE
    is_first = request.session_epoch == INITIAL_EPOCH
    if part.size and not is_first:
        session.move_back(entry)
    return entry.is_new(answer) or is_first


async def _parts(call: Call, request: FetchRequest, replica: Replica | None, session: Session | None) -> list[_Part]:
    """The partitions that are looked at; those of a session are watched from then on."""
    by_name = dict[str, ServedTopic]()
    if session is not None:
        reader = Reader(call.client.principal, call.client.host, call.rules)
        return [await _of_session(call, session, entry, request.rack_id, by_name) for entry in session.due(reader)]
    call.broker.appends.refresh_kept()
    parts = []
    for topic in request.topics:
        name = topic.topic if call.version < _FIRST_BY_ID else await call.broker.cluster.name_of(topic.topic_id)
        asked = topic.topic, topic.topic_id
        parts += [_part(call, name, asked, part, request.rack_id, replica, by_name) for part in topic.partitions]
    return parts


async def _of_session(call: Call, session: Session, entry: Entry, rack: str, by_name: dict[str, ServedTopic]) -> _Part:
    asked = entry.topic, entry.topic_id
    # A topic that has the name still, and the id, need not be found by its id.
    was_found = entry.key is not None and entry.name is not None
    part = _part(call, entry.name, asked, entry.request, rack, None, by_name) if was_found else None
    if part is None or part.key != entry.key:
        name = entry.topic if call.version < _FIRST_BY_ID else await call.broker.cluster.name_of(entry.topic_id)
        part, entry.name = _part(call, name, asked, entry.request, rack, None, by_name), name
    part.entry = entry
    if part.is_open:
        session.watch(entry, part.key)
    return part


def taken_back(call: Call, response: FetchResponse) -> FetchResponse:
    """The answer to a client that has to wait: nothing, which does not count as sent. It then asks again."""
    for topic in response.responses:
        name = topic.topic or call.broker.topics.known_name(topic.topic_id)
        size = sum(len(part.records or b"") for part in topic.partitions)
        if name is not None and size:
            call.broker.counts.topic(name).bytes_out -= size
    call.broker.fetch_sessions.take_back(response.session_id)
    return FetchResponse(error_code=response.error_code, session_id=response.session_id)


async def _wait_for_records(
    call: Call, request: FetchRequest, search: _Search, parts: list[_Part], session: Session | None
) -> None:
    """Looks at partitions until there are records; adds those of a session that change meanwhile."""
    by_key = {part.key: part for part in parts}
    loop, appends = call.broker.loop, call.broker.appends
    deadline = loop.time() + min(request.max_wait_ms, _MAX_WAIT_MS) / 1000
    kept = None if session is None else session.waiting
    # From before the partitions are looked at, so that no append comes in between.
    waiting = appends.waiting(by_key.keys()) if kept is None else kept
    try:
        await search.look(parts)
        while search.there < min(request.min_bytes, search.most) and not any(part.error for part in parts):
            seconds = deadline - loop.time()
            changed: Mapping[PartitionKey, Seen | None] = await waiting.change(seconds) if seconds > 0 else {}
            if not changed:
                return
            if session is not None:
                by_name = dict[str, ServedTopic]()
                for key in changed.keys() - by_key.keys():
                    by_key[key] = await _of_session(call, session, session.of_key(key), request.rack_id, by_name)
                    parts.append(by_key[key])
            for key, seen in changed.items():
                by_key[key].seen = seen
            await search.look([by_key[key] for key in changed])
    finally:
        if kept is None:
            waiting.close()


def _part(
    call: Call,
    name: str | None,
    asked: tuple[str, bytes],
    request: FetchRequest.FetchPartition,
    rack: str,
    replica: Replica | None,
    by_name: dict[str, ServedTopic],
) -> _Part:
    """A partition that is asked for; `by_name`: the topics of the request that were looked up already."""
    if name is None:
        return _Part(asked, request, None, PartitionKey("", request.partition), ErrorCode.UNKNOWN_TOPIC_ID)
    try:
        if name == PUBLISH_TOPIC:
            raise UnknownTopicError(f"{name} is not served")
        # What a follower may, the replica says.
        if replica is None or not replica.is_follower:
            call.require(Operation.READ, Resource.TOPIC, name)
        refusal = None if replica is None else replica.refusal(name, request)
        if refusal is not None:
            code = ErrorCode(refusal.error_code)
            return _Part(asked, request, None, PartitionKey("", request.partition), code, refusal)
        topic = by_name.get(name) or by_name.setdefault(name, call.broker.logs.topic(name))
        topic.check(request.partition)
        nearer = call.broker.logs.servers.nearer(topic.topic_id, request.partition, rack) if rack else None
        if nearer is not None:
            data = sent_elsewhere(request.partition, nearer)
            return _Part(asked, request, None, PartitionKey("", request.partition), ErrorCode.NONE, data)
        return _Part(asked, request, topic, PartitionKey(topic.topic_id, request.partition), ErrorCode.NONE)
    except RefusedError as error:
        return _Part(asked, request, None, PartitionKey("", request.partition), error.code)
    except (PylogError, OSError) as error:
        return _Part(asked, request, None, PartitionKey("", request.partition), code_of(error))


class _Search:
    """Looks for the records of one request.

    Attributes:
        most: the most bytes of records in the answer, but for the first batch.
        size: the bytes that were found.
        there: the bytes that are there, if batches could be cut. The answer may have less, as only whole ones are sent.
    """

    def __init__(self, call: Call, request: FetchRequest, replica: Replica | None) -> None:
        self._call, self.size, self.there, self._replica = call, 0, 0, replica
        self.most = min(request.max_bytes, _MAX_BYTES)
        self._is_committed = request.isolation_level == _READ_COMMITTED

    async def look(self, parts: Iterable[_Part]) -> None:
        """Looks at partitions, in order; where that may take long, in another thread."""
        in_order = list(parts)
        for number, part in enumerate(in_order):
            try:
                self._look_at(part, may_wait=False)
            except MustWaitError:
                await self._call.broker.workers.run(self._look_at_all, in_order[number:])
                return

    def _look_at_all(self, parts: Iterable[_Part]) -> None:
        for part in parts:
            self._look_at(part, may_wait=True)

    def _look_at(self, part: _Part, *, may_wait: bool) -> None:
        if part.topic is None or self._is_as_seen(part, part.topic, may_wait=may_wait):
            return
        self.size -= part.size
        self.there -= part.there
        part.size, part.there, part.has_records, part.error, part.data = 0, 0, False, ErrorCode.NONE, None
        try:
            self._find(part, part.topic, may_wait=may_wait)
        except (PylogError, OSError) as error:
            part.error = code_of(error)
        self.size += part.size
        self.there += part.there

    def _is_as_seen(self, part: _Part, topic: ServedTopic, *, may_wait: bool) -> bool:
        """Whether there is nothing new for a follower: the high watermark alone has moved."""
        if part.error or part.end < 0:
            return False
        try:
            return topic.view(part.request.partition, may_wait=may_wait).next_offset == part.end
        except (PylogError, OSError):
            return False  # The look reports what is wrong.

    def _find(self, part: _Part, topic: ServedTopic, *, may_wait: bool) -> None:
        request = part.request
        if part.seen is not None and part.seen.start == request.fetch_offset:
            log = part.seen.log
        else:
            log = self._view(part, topic, may_wait=may_wait)
        # A replica has the epoch of its last record, which may be older than its leader's.
        part.error = ErrorCode.NONE if self._replica else check_epoch(request.current_leader_epoch, log.leader_epoch)
        if part.error:
            return
        if request.last_fetched_epoch > NO_EPOCH and self._has_diverged(part, log, may_wait=may_wait):
            return
        if self._replica is not None:
            part.error = self._replica.read(topic.name, request, log)
        if not part.error:
            self._read(part, topic.name, log, may_wait=may_wait)

    def _view(self, part: _Part, topic: ServedTopic, *, may_wait: bool) -> LogView:
        """The log as it is; as it was, if all that changes it is reported, and nothing was."""
        appends, request = self._call.broker.appends, part.request
        kept = None if may_wait else appends.kept(part.key)
        if kept is not None:
            return kept
        log = topic.view(request.partition, may_wait=may_wait, client_end=request.fetch_offset)
        if log.is_reported and not may_wait:
            appends.keep(part.key, log)
        return log

    def _read(self, part: _Part, topic: str, log: LogView, *, may_wait: bool) -> None:
        request, replica = part.request, self._replica
        is_filtered = self._is_committed and log.may_have_transactions
        if not may_wait and not log.is_near(request.fetch_offset, committed=is_filtered):
            raise MustWaitError
        stable = log.last_stable_offset() if is_filtered else log.high_watermark
        end = min(stable, log.high_watermark)
        if replica is not None and replica.is_follower:
            end = part.end = log.next_offset
        start, batches = request.fetch_offset, None
        aborted: Sequence[FetchResponse.AbortedTransaction] | None = () if self._is_committed else None
        # A consumer may know a later high watermark than a leader that was just elected.
        if not log.log_start <= start <= log.next_offset:
            raise OffsetOutOfRangeError(topic, request.partition, start, log.log_start, end)
        room, part.has_records = self.most - self.size, start < end
        limit = max(min(request.partition_max_bytes, room), 0)
        is_held = replica is not None and replica.holds_back(topic, request.partition)
        if part.has_records and (room > 0 or self.size == 0) and not is_held:
            batches = log.batches(start, end, limit)
        if batches is not None:
            length = len(batches.records)
            if length > room and self.size > 0:
                batches, part.there = None, limit
            else:
                part.size, part.there = length, length if batches.next_offset >= end else max(limit, length)
        if is_filtered and batches is not None:
            aborted = [_Aborted(*transaction) for transaction in log.aborted(start, batches.next_offset)]
        elif is_filtered:
            aborted = []
        part.data = _Partition(
            request.partition, ErrorCode.NONE, log.high_watermark, stable, log.log_start,
            aborted_transactions=aborted, records=b"" if batches is None else batches.records,
        )  # fmt: skip

    def _has_diverged(self, part: _Part, log: LogView, *, may_wait: bool) -> bool:
        """Whether a copy of the log has other records, which is answered at once."""
        request = part.request
        if not may_wait and request.last_fetched_epoch != log.leader_epoch:
            raise MustWaitError
        diverging = divergence(log, request.last_fetched_epoch, request.fetch_offset)
        if diverging is None:
            return False
        end = FetchResponse.EpochEndOffset(*diverging)
        part.there = self.most
        part.data = _Partition(
            request.partition, ErrorCode.NONE, log.high_watermark, log.high_watermark, log.log_start,
            diverging_epoch=end, records=b"",
        )  # fmt: skip
        return True

    def answer(self, part: _Part) -> FetchResponse.PartitionData:
        """The answer of a partition."""
        if part.data is not None:
            return part.data
        # Kafka's answers have an empty list where nothing was looked at, and a null where there was an error.
        aborted = () if part.topic is None else None
        error = part.error or ErrorCode.UNKNOWN_SERVER_ERROR
        return _Partition(part.request.partition, error, -1, -1, -1, aborted_transactions=aborted, records=b"")
