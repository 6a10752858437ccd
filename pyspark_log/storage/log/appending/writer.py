"""Appends to one partition's log: which of them take place when, and what each does.

One holder of its lock at a time, which finds its log recovered. Small appends in a row find the lock kept, and all that
is cached right. Threads that wait append together. In short an append is: bytes first, then the log end, then the index
entries. Until the end moves, no reader sees what was written.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from pyspark_log.errors import InvalidRecordError, ProducerError, RecordTooLargeError, UnknownTopicError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import contextmanager
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.log.appending.append import AppendPlan, Copy, append, append_in_room, must_roll
from pyspark_log.storage.log.appending.appends import Appended, Extent, Outcomes, PendingAppend
from pyspark_log.storage.log.appending.replica import raise_high_watermark
from pyspark_log.storage.log.held_log import HeldLog
from pyspark_log.storage.log.producers.manager import ProducerAppendInfo
from pyspark_log.storage.log.producers.state import Duplicate
from pyspark_log.storage.log.recovery import after_restart, apply_intent
from pyspark_log.storage.log.source_positions import SourcePositions
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.log.state.partition_state import Flags, Intent, PartitionState
from pyspark_log.storage.log.state.state_file import OpenState
from pyspark_log.storage.record import BatchHeader, assign_offsets, scan

_log = logging.getLogger(__name__)

#: No more bytes are appended at once, so that other writers get their turn; but batches that are written while they are
#: encoded, and batches of one call that need one another's offsets.
APPEND_BYTES = 16 * 1024 * 1024

# What may be set of a log in which nothing is in progress.
_AT_REST = Flags.PRODUCERS | Flags.SUSPECT


class Turnstile:
    """Lets appends to a partition in, one after the other, or together. Safe to use from several threads.

    Attributes:
        log: the log, for what needs its lease.
        config: the topic's configs.
    """

    def __init__(self, log: HeldLog) -> None:
        """Opens nothing yet."""
        self.log, self.config = log, log.config
        self._writer = LogWriter(log)
        self._pending = deque[PendingAppend]()

    @property
    def place(self) -> PartitionPath:
        """The partition; its folder is current while the lease is held."""
        return self.log.place

    @contextmanager
    def hold(self, timeout: float = DEFAULT_TIMEOUT) -> Iterator[LogWriter]:
        """Holds the partition's lock, with its log recovered: no intent, nothing beyond the log end.

        What a killed holder, or a power loss, has left is finished or undone first.

        Raises:
            LockTimeoutError: the lock was not acquired within `timeout` seconds.
            UnknownTopicError: the topic was deleted.
            LogDamagedError: the files are shorter than the state says.
            LogDirOfflineError: the log dir that holds its log has failed; nothing was changed.
            OSError: the store cannot be written.
        """
        log = self.log
        try:
            with log.lease.hold(timeout) as usable:
                if not usable:
                    log.forget_all()
                _enter(log)
                yield self._writer
        except OSError as error:
            log.fail(error)

    def append_in_turn(self, batches: Sequence[bytes | bytearray], *, sync: bool) -> Outcomes:
        """Appends batches as `LogWriter.append_each`, with those of other threads: one write, one sync if any asks.

        A thread that waits for the lock leaves its batches to the thread that gets it first, as in a write group of
        RocksDB. The lock is not held by the caller. Raises as `hold` and `append_each`.

        Args:
            batches: that the topic accepts; no control batches; APPEND_BYTES and `segment.bytes` at most.
            sync: True: they survive a power loss.
        """
        if not sync:
            try:
                # If the lock was kept, all that `hold` looks up is known.
                outcomes = self.log.lease.run_if_kept(self._append_at_rest, batches)
            except OSError as error:
                self.log.fail(error)
            if outcomes is not None:
                return outcomes
        pending, leads = PendingAppend(batches, sync=sync), False
        try:
            self._pending.append(pending)
            with self.hold():
                leads = pending.claim()
                if leads:
                    self._append_pending(pending)
        except BaseException as error:
            # Once this thread has withdrawn its batches, no other one appends them.
            if leads or pending.claim() or not isinstance(error, Exception):
                raise
        return pending.outcomes()

    def append_at_once(
        self, batches: Sequence[bytes | bytearray], then: Callable[[], object] | None = None
    ) -> Outcomes | None:
        """Appends batches if there is nothing to wait for; else does nothing (None). Raises as `append_each`.

        So it is if no other process has the lock or has changed the log, no segment begins, and no sync is due.
        `then` is called once they are there, before another process can change the log.
        """
        lease, append = self.log.lease, (batches, then)
        try:
            return lease.run_if_kept(self._append_in_room, append) or lease.run_if_as_left(self._append_in_room, append)
        except OSError as error:
            self.log.fail(error)

    def _append_at_rest(self, held: OpenState, batches: Sequence[bytes | bytearray]) -> Outcomes | None:
        if held.stored.flags & ~_AT_REST or held.stored.intent:
            return None
        return self._writer.append_each(batches, sync=False)

    def _append_in_room(
        self, _held: OpenState, append: tuple[Sequence[bytes | bytearray], Callable[[], object] | None]
    ) -> Outcomes | None:
        batches, then = append
        outcomes = self._writer.append_each_in_room(batches) if _is_entered_as_left(self.log) else None
        if outcomes is not None and then is not None and isinstance(outcomes[0], Appended):
            then()
        return outcomes

    def _append_pending(self, first: PendingAppend) -> None:
        """Appends what this thread has claimed, and what other threads wait for, as far as it fits."""
        together, size = [first], first.size
        most = min(APPEND_BYTES, self.config.segment_bytes)
        while self._pending:
            other = self._pending.popleft()
            if size + other.size > most and other is not first:
                self._pending.appendleft(other)
                break
            if other.claim():
                together.append(other)
                size += other.size
        try:
            batches = [batch for pending in together for batch in pending.batches]
            outcomes = iter(self._writer.append_each(batches, sync=any(pending.sync for pending in together)))
        except BaseException as error:
            for pending in together:
                pending.fail(error)
            raise
        for pending in together:
            pending.finish([next(outcomes) for _ in pending.batches])

    def raise_at_once(self, high_watermark: int) -> bool:
        """Raises the high watermark of a node's copy if there is nothing to wait for; whether it is raised. OSError."""
        try:
            lease, action = self.log.lease, self._raise
            return bool(lease.run_if_kept(action, high_watermark) or lease.run_if_as_left(action, high_watermark))
        except OSError as error:
            self.log.fail(error)

    def _raise(self, _held: OpenState, high_watermark: int) -> bool:
        raise_high_watermark(self.log, high_watermark)
        return True


def _enter(log: HeldLog) -> None:
    """Finishes or undoes what a killed holder of the lease, or a power loss, has left. Raises as `Turnstile.hold`."""
    if _is_entered_as_left(log):
        return
    lease, state = log.lease, log.state
    mine = lease.is_as_left
    if state.flags & Flags.DEAD:
        raise UnknownTopicError(f"{log.place}: the topic was deleted")
    log.find_folder()
    unfinished = state.flags & (Flags.CLAIMED | Flags.CUTTING) or state.intent != Intent.NONE
    lease.cut_off = lease.shared and bool(unfinished)
    if lease.cut_off:
        lease.claim()
    if not mine:
        lease.confirm()
    if state.boot != state_file.this_boot() and not lease.shared:
        after_restart(log)
    elif state.intent != Intent.NONE:
        log.invalidate()
        apply_intent.resolve(log)
    elif not mine:
        log.catch_up()
    log.cut_leftovers()
    if lease.cut_off:
        _log.warning("%s: a writer was killed or lost its lock: continuing in another segment", log.place)
        log.roll(new_incarnation=True)


def _is_entered_as_left(log: HeldLog) -> bool:
    """Whether the log is as this process has left it, and in order; then all is done that `_enter` is for."""
    lease = log.lease
    # What a move of the log end does not change.
    state = lease.held.stored
    if not lease.is_as_left or state.flags & ~_AT_REST or state.intent:
        return False
    # Only what is beyond the log end may have changed, unless the lock was kept.
    lease.cut_off = False
    if not lease.was_kept:
        log.find_folder()
        log.cut_leftovers()
    return True


def _of_duplicate(first: Duplicate) -> Appended:
    return Appended(first.base_offset, first.last_offset + 1, duplicate=True)


class LogWriter:
    """Appends to a partition, whose lease `Turnstile.hold` holds; `log` and `config` are those of the turnstile."""

    def __init__(self, log: HeldLog) -> None:
        self.log, self.config = log, log.config

    @property
    def state(self) -> PartitionState:
        """The partition's state; the lease is held."""
        return self.log.lease.held.state

    def append(self, data: bytearray, *, sync: bool, first_undone: int | None = None) -> Appended:
        """Appends whole record batches; the caller holds the lock.

        Args:
            data: batches in format 2, back to back, with dense offsets from 0; their offsets are set here. A batch
                with a producer id comes alone.
            sync: True: acknowledged records survive a power loss.
            first_undone: for the decision log: its new value in the state.

        Returns:
            The offsets that the records have; those of the first time, if their producer sends them again.

        Raises:
            RecordTooLargeError: larger than a segment may be.
            PartitionOwnedError: another than this process gives the records their offsets.
            ProducerError: the batch does not follow its producer's last one; nothing was appended.
            OSError: e.g. a full disk; nothing was appended.
            OutcomeUnknownError: a sync failed; readers see nothing of the append, but the disk can no longer be
                trusted with this segment. The next append begins another one. Or what a failed append wrote could
                not be removed: the next writer does that, unless a power loss comes first.
        """
        if len(data) > self.config.segment_bytes:
            raise RecordTooLargeError(
                f"{self.log.place}: an append of {len(data)} bytes is larger than segment.bytes "
                f"({self.config.segment_bytes}): append fewer records at a time, or raise segment.bytes"
            )
        assign_offsets(data, 0, len(data), self.state.next_offset, self.state.leader_epoch)
        headers = scan(data, 0, len(data))
        numbered = self._validate(headers, data)
        if numbered is not None and numbered.duplicate is not None:
            self._flush_due(sync=sync)
            return _of_duplicate(numbered.duplicate)
        return self._write(data, headers, () if numbered is None else (numbered,), sync=sync, first_undone=first_undone)

    def append_each(self, batches: Sequence[bytes | bytearray], *, sync: bool) -> Outcomes:
        """Appends batches of clients, each for itself: a refused batch leaves the others as they are.

        All become visible at once; but one after the other where the topic has `source.position.header`, which leaves
        out records that the log has. Arguments that are missing here, and errors, are those of `append`.

        Args:
            batches: that the topic accepts; no control batches.

        Returns:
            The offsets of each batch, or why it was refused.
        """
        if self.log.sources is not None and len(batches) > 1:
            return [outcome for batch in batches for outcome in self.append_each([batch], sync=sync)]
        data, headers, numbered, outcomes = self._accepted(batches)
        if not headers:
            self._flush_due(sync=sync)
        elif sync or not append_in_room(self.log, data, headers, numbered):
            self._write(data, headers, numbered, sync=sync)
        self._enter_sources(headers)
        return outcomes

    def append_each_in_room(self, batches: Sequence[bytes | bytearray]) -> Outcomes | None:
        """As `append_each`; None: it needs more than `append_in_room` does, and nothing was done."""
        if self.log.sources is not None and len(batches) > 1:
            return None
        data, headers, numbered, outcomes = self._accepted(batches)
        if isinstance(outcomes[0], InvalidRecordError):
            return outcomes  # It is refused once, and perhaps not the next time.
        if not headers or not append_in_room(self.log, data, headers, numbered):
            return None
        self._enter_sources(headers)
        return outcomes

    def _accepted(
        self, batches: Sequence[bytes | bytearray]
    ) -> tuple[bytearray, list[BatchHeader], Sequence[ProducerAppendInfo], Outcomes]:
        """Batches that are neither refused nor in the log: bytes, headers, with producer ids; and all outcomes."""
        data, headers = self._joined(batches)
        producer_ids = {header.producer_id for header in headers if header.producer_id >= 0}
        if not producer_ids:
            outcomes: Outcomes = [Appended(header.base_offset, header.next_offset) for header in headers]
            if self.log.sources is None:
                return data, headers, (), outcomes
        else:
            outcomes = self._check_one(headers[0]) if len(headers) == 1 else self._check_each(headers, producer_ids)
        if self.log.sources is not None:
            batches, outcomes = self._sifted(self.log.sources, batches, outcomes)
        accepted = [
            batch
            for batch, outcome in zip(batches, outcomes, strict=True)
            if isinstance(outcome, Appended) and not outcome.duplicate
        ]
        if len(accepted) < len(batches) or self.log.sources is not None:
            data, headers = self._joined(accepted)
        numbered = [ProducerAppendInfo(header, None, None, None) for header in headers if header.producer_id >= 0]
        return data, headers, numbered, outcomes

    def _sifted(
        self, sources: SourcePositions, batches: Sequence[bytes | bytearray], outcomes: Outcomes
    ) -> tuple[Sequence[bytes | bytearray], Outcomes]:
        """The only batch and its outcome, once the records are left out that the log has."""
        if not isinstance(outcomes[0], Appended) or outcomes[0].duplicate:
            return batches, outcomes
        try:
            return [sources.sift(self.state, batches[0])], outcomes
        except InvalidRecordError as error:
            return batches, [error]

    def _enter_sources(self, appended: Sequence[BatchHeader]) -> None:
        if appended and self.log.sources is not None:
            self.log.sources.enter(self.state)

    def _joined(self, batches: Sequence[bytes | bytearray]) -> tuple[bytearray, list[BatchHeader]]:
        """The bytes of batches with the next offsets of the log, and their headers."""
        data, held = bytearray().join(batches), self.log.lease.held
        assign_offsets(data, 0, len(data), held.next_offset, held.stored.leader_epoch)
        return data, scan(data, 0, len(data))

    def _check_one(self, header: BatchHeader) -> Outcomes:
        """As `_check_each` for the only batch, which has a producer id: nothing need be copied for those after it."""
        # Without the bytes of the file, which `state` puts together.
        state = self.log.lease.held.moved()
        try:
            duplicate = self.log.producers.validate(state, b"", header, self.log.clock()).duplicate
        except ProducerError as error:
            return [error]
        return [_of_duplicate(duplicate) if duplicate else Appended(header.base_offset, header.next_offset)]

    def _check_each(self, headers: Sequence[BatchHeader], producer_ids: set[int]) -> Outcomes:
        """Where each batch goes if those that are refused, and those that are in the log already, are left out."""
        ahead = self.log.producers.copy(self.state, producer_ids, self.log.clock())
        end = self.state.next_offset
        outcomes: Outcomes = []
        for sent in headers:
            header = sent._replace(base_offset=end)
            if header.producer_id >= 0:
                try:
                    duplicate = ahead.check(header)
                except ProducerError as error:
                    outcomes.append(error)
                    continue
                if duplicate is not None:
                    outcomes.append(_of_duplicate(duplicate))
                    continue
                ahead.enter(header)
            outcomes.append(Appended(end, header.next_offset))
            end = header.next_offset
        return outcomes

    def _flush_due(self, *, sync: bool) -> None:
        """Syncs what was appended before, after an append that adds nothing; `sync`: as it asks."""
        if sync or self.log.must_sync(self.state.next_offset):
            self.log.flush()

    def _write(
        self,
        data: bytearray,
        headers: Sequence[BatchHeader],
        numbered: Sequence[ProducerAppendInfo],
        *,
        sync: bool,
        first_undone: int | None = None,
    ) -> Appended:
        """Appends batches that have their offsets; `numbered`: those that have producer ids. Errors as `append`."""
        copy = Copy(len(data), headers[-1].next_offset - self.state.next_offset, (data,), headers)
        newest = max([header.max_timestamp for header in headers])
        return append(self.log, AppendPlan((copy,), newest, sync, numbered, first_undone))

    def append_pieces(self, pieces: Iterator[memoryview], most: Extent, *, sync: bool) -> Appended:
        """Appends record batches that are encoded while those before them are written.

        All of them become visible at once. Arguments that are missing here, and errors, are those of `append`.

        Args:
            pieces: whole batches without producer ids. The memory of a piece may change when the next but one is asked
                for.
            most: what they are together, at most.
        """
        if not self.has_room(most):
            # Perhaps: only all of them together show whether they still fit.
            data = bytearray()
            for piece in pieces:
                data += piece
            return self.append(data, sync=sync)
        copy = Copy(most.size, most.records, pieces, encoded_meanwhile=True)
        return append(self.log, AppendPlan((copy,), most.newest, sync))

    def has_room(self, most: Extent) -> bool:
        """Whether so much surely fits into the active segment; the lock is held."""
        return not must_roll(self.log, most.size, self.state.next_offset + most.records - 1, most.newest)

    def _validate(self, headers: Sequence[BatchHeader], data: bytearray) -> ProducerAppendInfo | None:
        """Checks a batch with a producer id against this partition's producers; None for all others."""
        if all(header.producer_id < 0 for header in headers):
            return None
        if len(headers) != 1:
            raise InvalidRecordError(f"{self.log.place}: {len(headers)} batches at once, one with a producer id")
        return self.log.producers.validate(self.state, data, headers[0], self.log.clock())
