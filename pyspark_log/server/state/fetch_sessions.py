"""Fetch sessions (KIP-227): the server remembers what a consumer asks for, and the consumer says only what changes.

So a fetch costs what has changed, however many partitions it is of: the others are not in the request, not looked at,
and not in the response. A partition is due if the request names it, if its log has changed since it was looked at, or
if there was something the last time that the client does not seem to have.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import FetchRequest, FetchResponse
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.security.acls import Rules
from pyspark_log.server.state.appends import Appends, PartitionKey, Waiting

#: The epochs of a request without a session, and of one that begins one (Kafka's FetchMetadata).
FINAL_EPOCH, INITIAL_EPOCH = -1, 0
_LAST_EPOCH = 2**31 - 1
# For a new session one is dropped that was not used for so long (s), if there are as many as may be (Kafka's
# min.incremental.fetch.session.eviction.ms).
_UNUSED = 120.0
# How often all partitions are looked at (s). Not all that becomes of one is reported: that a topic without records is
# deleted, and another gets its name.
_LOOK = 5.0


class Reader(NamedTuple):
    """As what a client reads: its principal and address, and the rules of then; None: it may read all."""

    principal: str
    host: str
    rules: Rules | None


class Entry:
    """A partition of a session.

    Attributes:
        topic, topic_id: as the client names its topic.
        name: the topic's, as it was found last; None: it was not.
        request: what the client asks for.
        key: by which its changes are noted; None: it was not found yet.
        is_due: whether it is to be looked at.
    """

    __slots__ = ("_high_watermark", "_log_start", "is_due", "key", "name", "request", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: bytes, request: FetchRequest.FetchPartition) -> None:
        self.topic, self.topic_id, self.request = topic, topic_id, request
        self.name: str | None = None
        self.key: PartitionKey | None = None
        self.is_due = True
        self._high_watermark = self._log_start = -1

    def is_new(self, data: FetchResponse.PartitionData) -> bool:
        """Whether an answer says anything that the client has not; the client has it from then on."""
        before = self._high_watermark, self._log_start
        self._high_watermark, self._log_start = data.high_watermark, data.log_start_offset
        has_diverged = data.diverging_epoch.end_offset >= 0
        is_elsewhere = data.preferred_read_replica >= 0
        if data.error_code or has_diverged or is_elsewhere:
            self._high_watermark = -1  # It is said again, as long as it is so.
        is_moved = before != (data.high_watermark, data.log_start_offset)
        return bool(is_moved or data.error_code or has_diverged or is_elsewhere or len(data.records or b""))

    def forget_answer(self) -> None:
        """The client did not get it."""
        self.is_due, self._high_watermark = True, -1


class Session:
    """What a consumer has asked for.

    Attributes:
        session_id: its id.
        entries: the partitions, in the order in which they are looked at: those that had records come last.
        waiting: notes their changes; None: the store reports none, so each is always due.
        used: when it was used last (s).
    """

    def __init__(self, session_id: int, appends: Appends, *, by_id: bool) -> None:
        """`by_id`: whether topics are named by their ids."""
        self.session_id, self.epoch, self._by_id = session_id, INITIAL_EPOCH, by_id
        self.entries = dict[tuple[str, bytes, int], Entry]()
        self.waiting: Waiting | None = appends.waiting(()) if appends.reports else None
        self._by_key = dict[PartitionKey, Entry]()
        self._reader: Reader | None = None
        self._appends, self._next_look = appends, 0.0
        self.used = 0.0

    def advance(self, epoch: int, *, by_id: bool) -> None:
        """Takes in the epoch of a request. RefusedError."""
        if epoch != self.epoch:
            raise RefusedError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"the session's epoch is {self.epoch}")
        if by_id != self._by_id:
            raise RefusedError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "the session has topics by names, or by ids")
        self.epoch = epoch + 1 if epoch < _LAST_EPOCH else 1

    def update(self, request: FetchRequest) -> None:
        """Takes in what the client asks for, and what it does not ask for any more."""
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                self._drop((topic.topic, topic.topic_id, number))
        for asked in request.topics:
            for part in asked.partitions:
                place = (asked.topic, asked.topic_id, part.partition)
                entry = self.entries.get(place)
                if entry is None:
                    self.entries[place] = Entry(asked.topic, asked.topic_id, part)
                else:
                    entry.request, entry.is_due = part, True

    def _drop(self, place: tuple[str, bytes, int]) -> None:
        entry = self.entries.pop(place, None)
        if entry is not None:
            self._unwatch(entry)

    def due(self, reader: Reader) -> list[Entry]:
        """The partitions to be looked at for a reader, in order."""
        # So a client gets what was there before it has asked.
        self._appends.look()
        if reader != self._reader or self.waiting is None or self.used >= self._next_look:
            self._reader, self._next_look = reader, self.used + _LOOK
            return list(self.entries.values())
        for key in self.waiting.take():
            self._by_key[key].is_due = True
        return [entry for entry in self.entries.values() if entry.is_due]

    def watch(self, entry: Entry, key: PartitionKey) -> None:
        """Notes changes of a partition from now on, before it is looked at."""
        if entry.key == key:
            return
        self._unwatch(entry)
        entry.key, self._by_key[key] = key, entry
        if self.waiting is not None:
            self.waiting.begin(key)

    def _unwatch(self, entry: Entry) -> None:
        if entry.key is not None:
            self._by_key.pop(entry.key, None)
            if self.waiting is not None:
                self.waiting.end(entry.key)

    def of_key(self, key: PartitionKey) -> Entry:
        """The partition that has changed."""
        return self._by_key[key]

    def move_back(self, entry: Entry) -> None:
        """Lets the others be looked at before a partition that had records."""
        place = (entry.topic, entry.topic_id, entry.request.partition)
        self.entries[place] = self.entries.pop(place)

    def close(self) -> None:
        """Ends it."""
        if self.waiting is not None:
            self.waiting.close()


class FetchSessions:
    """The sessions of a server. All calls come from the loop's thread."""

    def __init__(self, appends: Appends, clock: Callable[[], float], most: int) -> None:
        """There are none, and never more than `most`."""
        self._appends, self._clock, self._most = appends, clock, most
        self._sessions = OrderedDict[int, Session]()

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def of(self, request: FetchRequest, *, by_id: bool) -> Session | None:
        """The session of a request, with what it asks for; None: it has none.

        Raises:
            RefusedError: there is no such session, or it is at another epoch, so the client has to begin another one.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._drop(request.session_id)
            if request.session_epoch == FINAL_EPOCH or not self._has_room():
                return None
            session = self._begun(by_id=by_id)
        elif request.session_id in self._sessions:
            session = self._sessions[request.session_id]
        else:
            raise RefusedError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "there is no such session")
        session.advance(request.session_epoch, by_id=by_id)
        session.update(request)
        if not session.entries and request.session_epoch != INITIAL_EPOCH:
            self._drop(session.session_id)  # as Kafka does
            return None
        session.used = self._clock()
        self._sessions.move_to_end(session.session_id)
        return session

    def _begun(self, *, by_id: bool) -> Session:
        session_id = random.randrange(1, _LAST_EPOCH)
        while session_id in self._sessions:
            session_id = random.randrange(1, _LAST_EPOCH)
        session = self._sessions[session_id] = Session(session_id, self._appends, by_id=by_id)
        return session

    def _has_room(self) -> bool:
        """Whether there can be another session; drops one that was not used for long."""
        if len(self._sessions) < self._most:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or self._clock() - oldest.used < _UNUSED:
            return False
        self._drop(oldest.session_id)
        return True

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def take_back(self, session_id: int) -> None:
        """The client of a session does not get the response that was made for it."""
        session = self._sessions.get(session_id)
        for entry in () if session is None else session.entries.values():
            entry.forget_answer()
