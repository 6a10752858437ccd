"""The decisions of a store: which publishes happened, in which order, and whether each is applied.

They are records of the topic `__pylog_publish`, which has one partition. The offset of a record that says
"decided" is the decision's number; it is synced before the log's end moves, so no process ever acts on a
decision that a power loss could take back. The key is the publisher's id; the last record of a key is the
publisher's whole state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyspark_log.errors import TopicExistsError, UnknownTopicError
from pyspark_log.storage.catalog import PUBLISH_TOPIC, store_json
from pyspark_log.storage.fs import Mutex, contextmanager
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.ingest import encode_pairs, packed
from pyspark_log.storage.log import LogWriter
from pyspark_log.storage.log.read import LogReader
from pyspark_log.storage.log.state import EMPTY, PartitionState, ViewPosition
from pyspark_log.storage.log_manager import LogManager, TopicAdmin
from pyspark_log.storage.publish.decision import (
    NO_NUMBER,
    Decision,
    Origin,
    SetAside,
    TopicIdPartition,
    decode_decision,
    encode_decision,
    numbered,
    publisher_of,
)
from pyspark_log.storage.record.walk import Pairs

# Fixes every config whose store-wide value could make the topic unfit for decisions.
_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    # How long a tombstone must survive so that followers observe that a publisher was forgotten.
    "delete.retention.ms": "86400000",
    "max.message.bytes": "1048588",
    # Only inactive segments are compacted, and each process reads the whole log.
    "segment.bytes": "1048576",
}


# A publisher, and its last decision; None: it is forgotten.
_Record = tuple[str, Decision | None]


class DecisionLog:
    """The decisions of one store, as this process has read them. Safe to use from several threads.

    Attributes:
        logs: the store's logs.
        last: the last decision of each publisher.
        undone: decisions that no record marks as done, by number.
        applied: numbers of the undone decisions that were found applied everywhere.
        staged: the staged files of decisions that this process has made, by number, until they are removed.
        active_base: the base offset of the log's active segment when it was last read.
        reported: the last problem of `apply_pending` that was logged.
    """

    def __init__(self, logs: LogManager) -> None:
        """Creates an empty view; `follow` reads the log. `logs`: the store's logs."""
        self.logs = logs
        self.last: dict[str, Decision] = {}
        self.undone: dict[int, Decision] = {}
        self.applied: set[int] = set()
        self.staged: dict[int, set[str]] = {}
        self.active_base = 0
        self.reported = ""
        self._view = ViewPosition()
        self._mutex = Mutex()

    def follow(self) -> None:
        """Reads the decisions since the last call; reads nothing if nothing was ever published.

        Reads the whole log if the store was replaced by a copy meanwhile, or if the last call is so old that
        compaction may have removed a tombstone since.

        Raises:
            LockTimeoutError, LogDamagedError, OSError: the log could not be recovered after a crash, so some decisions
                may not be visible. A process that continued could overtake one of them.
            CorruptRecordError: a record is damaged, or is not a decision.
        """
        try:
            reader = self.logs.recovered_or_raise(PUBLISH_TOPIC, 0)
        except UnknownTopicError:
            reader = None
        self._follow(reader, None)

    def _follow(self, reader: LogReader | None, state: PartitionState | None) -> None:
        """Reads on; `state`: the log's, if its lock is held."""
        with self._mutex.lock:
            now = self.logs.clock()  # before reading the end: this process may be paused in between
            if state is None:
                state = EMPTY if reader is None else reader.state()
            end, self.active_base = state.high_watermark, state.active_base
            stamp, view = store_json.stamp(self.logs.path), self._view
            if view.must_rebuild(state, end, now, _tombstones_stay(self.logs), stamp):
                self.last, self.undone, self.applied = {}, {}, set()
            if reader is not None and view.position < end:
                self._read(reader.read_pairs(view.position, end, state=state))
            view.advance(end, now)

    def _read(self, batches: Iterator[Pairs]) -> None:
        for batch in batches:
            for key, value, offset in batch.pairs:
                publisher = publisher_of(key, offset)
                self._take(publisher, None if value is None else decode_decision(publisher, value, offset))

    def added(self, records: Sequence[_Record], state: PartitionState) -> None:
        """Updates the view with the records just added; the lock is held, and the log was followed to its end before.

        Args:
            records: the publishers and their last decisions.
            state: the log's state after the append.
        """
        with self._mutex.lock:
            position = self._view.position
            if position != state.next_offset - len(records):
                return  # Some of them could not be added in one append; the next `follow` reads all.
            for offset, (publisher, decision) in enumerate(records, position):
                self._take(publisher, None if decision is None else numbered(decision, offset))
            self._view.position, self.active_base = state.next_offset, state.active_base

    def in_order(self) -> list[Decision]:
        """The undone decisions, in the order in which they were made."""
        # One step, as another thread may be following the log.
        undone = list(self.undone.values())
        return sorted(undone, key=lambda decision: decision.offset)

    def _take(self, publisher: str, decision: Decision | None) -> None:
        before = self.last.get(publisher)
        # Set this first, so that no other thread misses a decision that merely has a newer record.
        if decision is not None and not decision.done:
            self.undone[decision.offset] = decision
        # A publisher decides again only when its last decision is done.
        if before is not None and (decision is None or decision.done or decision.offset != before.offset):
            self.undone.pop(before.offset, None)
            self.applied.discard(before.offset)
        # Last: after an interrupt the record is read again, and says again which decision it ends.
        if decision is None:
            self.last.pop(publisher, None)
        else:
            self.last[publisher] = decision

    @contextmanager
    def hold(self, timeout: float = DEFAULT_TIMEOUT) -> Iterator[DecisionWriter]:
        """Acquires the log's lock, then reads new decisions. Raises: as Turnstile.hold and `follow`."""
        try:
            partition = self.logs.writer(PUBLISH_TOPIC, 0)
        except UnknownTopicError:
            with contextlib.suppress(TopicExistsError):
                TopicAdmin(self.logs).create(PUBLISH_TOPIC, 1, _TOPIC_CONFIGS)
            partition = self.logs.writer(PUBLISH_TOPIC, 0)
        with partition.hold(timeout) as writer:
            self._follow(self.logs.reader(PUBLISH_TOPIC, 0), writer.state)
            yield DecisionWriter(self, writer)


def _tombstones_stay(logs: LogManager) -> int:
    """How long compaction keeps the tombstones of forgotten publishers, in ms."""
    try:
        return logs.topic_config(PUBLISH_TOPIC).delete_retention_ms
    except UnknownTopicError:
        return 0  # it was deleted


def _unnumbered(publisher: str, origin: Origin, location: str) -> Decision:
    """What is known of a publisher that has decided nothing yet."""
    return Decision(
        publisher, NO_NUMBER, done=True, location=location, host=origin.host, process=origin.process, time=origin.time
    )


def _done(decision: Decision) -> _Record:
    return decision.publisher, replace(decision, done=True)


class DecisionWriter:
    """Appends to the decision log while its lock is held."""

    def __init__(self, log: DecisionLog, writer: LogWriter) -> None:
        self._log = log
        self._writer = writer

    def decide(self, decision: Decision, done: Sequence[Decision] = ()) -> Decision:
        """Makes a decision; it is durable and final when this returns.

        The same write marks other decisions as done, so that no process checks them again. If the decision already has
        a time, some of its records bear it.

        Raises:
            OutcomeUnknownError: the decision may have been made or not.
            PylogError, OSError: it was not made.
        """
        finished = [_done(other) for other in done if other.publisher != decision.publisher]
        number = self._writer.state.next_offset + len(finished)
        origin = Origin.here(self._log.logs.clock())
        before = self._log.last.get(decision.publisher)
        decision = replace(
            decision,
            offset=-1,
            host=origin.host,
            process=origin.process,
            time=decision.time or origin.time,
            holder=origin if before is None or before.run != decision.run else before.holder,
        )
        left = self._log.undone.keys() - {other.offset for other in done} - {before.offset if before else -1}
        # All decisions are in one log: syncing one syncs those before it.
        records = [*finished, (decision.publisher, decision)]
        self._append(records, min([*left, number]))
        return replace(decision, offset=number)

    def fence(self, publisher: str, run: str, location: str = "") -> None:
        """Records that a newer run holds the publisher, which may be a new publisher, at a checkpoint."""
        last, origin = self._log.last.get(publisher), Origin.here(self._log.logs.clock())
        if last is None:
            last = _unnumbered(publisher, origin, location)
        self._append([(publisher, last.fenced_by(run, origin))], None)

    def take_over(self, last: Decision, run: str, location: str) -> None:
        """Gives a publisher to a run at another checkpoint, which numbers its publishes from any start.

        Args:
            last: its last decision, which is applied everywhere.
            run: the run; that of `last` is fenced.
            location: the run's checkpoint.
        """
        origin = Origin.here(self._log.logs.clock())
        fresh = replace(_unnumbered(last.publisher, origin, location), run=last.run, replaced=last.replaced)
        finished = [] if last.done else [last]
        records = [*map(_done, finished), (last.publisher, fresh.fenced_by(run, origin))]
        self._end(finished, records)

    def finish(self, done: Sequence[Decision], forget: str | None) -> None:
        """Records that decisions are applied everywhere, and forgets the publisher `forget` (None: no publisher)."""
        records = [(decision.publisher, None) if decision.publisher == forget else _done(decision) for decision in done]
        last = None if forget is None else self._log.last.get(forget)
        if last is not None and last.done:
            # Another process has already recorded that it is done.
            records.append((last.publisher, None))
        self._end(done, records)

    def forget(self, publishers: Sequence[str]) -> None:
        """Removes publishers whose decisions are all done, as if they had never existed."""
        self._end([], [(publisher, None) for publisher in publishers])

    def adopt(self, decisions: Sequence[Decision]) -> None:
        """Records publishers of another store, whose last decisions are done there and get new numbers here."""
        self._end([], [_done(replace(one, offset=-1)) for one in decisions])

    def set_aside(
        self, decision: Decision, places: Sequence[TopicIdPartition], origin: Origin, is_revoked: bool
    ) -> None:
        """Records that an undone decision must not be applied any more.

        Args:
            decision: the decision.
            places: the partitions in which it is not applied.
            origin: which process sets it aside, and when.
            is_revoked: it is applied in no partition; its publisher may decide its number again.
        """
        aside = replace(decision, set_aside=SetAside(decision.offset, decision.number, origin, tuple(places)))
        if is_revoked:
            before = decision.number - 1
            aside = replace(aside, number=before, offset=-1, plan="", records=0, places=(), manifest="", manifest_crc=0)
        self._end([decision], [_done(aside)])

    def _end(self, done: Sequence[Decision], records: Sequence[_Record]) -> None:
        if records:
            left = self._log.undone.keys() - {decision.offset for decision in done}
            self._append(records, min([*left, self._writer.state.next_offset + len(records)]))

    def _append(self, records: Sequence[_Record], first_undone: int | None) -> None:
        self._write(records, first_undone)
        self._log.added(records, self._writer.state)

    def _write(self, records: Sequence[_Record], first_undone: int | None) -> None:
        values = [None if decision is None else encode_decision(decision) for _, decision in records]
        keys = [publisher.encode() for publisher, _ in records]
        batches = encode_pairs(PUBLISH_TOPIC, self._writer.config, keys, values, self._log.logs.clock())
        # If they do not fit into a segment, those that mark others as done are appended first: each is valid alone.
        *before, last = packed(batches, self._writer.config.segment_bytes)
        for pack in before:
            self._writer.append(pack, sync=True)
        self._writer.append(last, sync=True, first_undone=first_undone)
