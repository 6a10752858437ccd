"""Which appends to a partition take place when: one holder of its lock at a time, which finds its log recovered.

Small appends in a row find the lock kept, and all that is cached right. Threads that wait append together.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from pyspark_log.errors import UnknownTopicError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import contextmanager
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.log.appending.appends import Appended, Outcomes, PendingAppend
from pyspark_log.storage.log.appending.replica import raise_high_watermark
from pyspark_log.storage.log.appending.writer import LogWriter
from pyspark_log.storage.log.held_log import HeldLog
from pyspark_log.storage.log.recovery import after_restart, apply_intent
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.log.state.partition_state import Flags, Intent
from pyspark_log.storage.log.state.state_file import OpenState

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
