"""Appends the staged records of a decision to one partition, once.

Small output is copied after the end; a large file of the partition's own (or a copy of it) becomes a segment (see
install.py). The log appends all of it at once, and records "applied up to this decision" in the same move of its end.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark_log.errors import CorruptRecordError, StagedOutputError
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.links import forbids_links
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.log import AppendPlan, Copy, Decided, Turnstile
from pyspark_log.storage.log.appending.append import append
from pyspark_log.storage.log.appending.new_segment import NewSegment
from pyspark_log.storage.publish.staging.install import Ways, can_be_linked, choose
from pyspark_log.storage.publish.staging.staged_file import StagedRegion, headers_of, read_region
from pyspark_log.storage.record import crc32c, scan
from pyspark_log.storage.record.headers import set_log_append_time
from pyspark_log.storage.record.layout import crcs_of
from pyspark_log.types import NO_TIMESTAMP

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
# Errors that mean that a staged file is not what was staged.
_NOT_AS_STAGED = (FileNotFoundError, CorruptRecordError, StagedOutputError)


def apply(
    writer: Turnstile,
    decision: int,
    decided_at: int,
    regions: Sequence[StagedRegion],
    *,
    installs: bool = True,
    timeout: float = DEFAULT_TIMEOUT,
) -> bool:
    """Appends the regions in order, atomically, if the decision is still pending. Returns whether this call applied it.

    Args:
        writer: the partition's writer.
        decision: the decision's number.
        decided_at: when it was made (ms); the records' time if the topic has LogAppendTime.
        regions: the batches to append.
        installs: whether staged files may become segments; False for those of another store.
        timeout: how long to wait for the lock, in seconds.

    Raises:
        StagedOutputError: a region is missing, or is not what was decided; nothing was appended.
        OSError: e.g. a full disk; nothing was appended, and it can be tried again.
        LockTimeoutError, UnknownTopicError, LogDamagedError: as Turnstile.hold.
    """
    work = _Work(writer, decision, decided_at if writer.config.log_append_time else None, regions, timeout)
    # A host that lost its lock unnoticed may still write to a file that it has open, so hosts share no files.
    installs = installs and not writer.log.lease.shared
    try:
        return work.do(Ways.BY_SIZE if installs else Ways.COPIED)
    except OSError as error:
        if error.errno in _NO_ROOM and installs and work.can_install():
            # Installing needs no space, except for the indexes.
            return work.do(Ways.INSTALLED)
        if forbids_links(error):
            # It was prepared where the partition no longer is, or for another mount of the same device.
            return work.do(Ways.COPIED)
        raise


@dataclass(frozen=True, slots=True)
class _Work:
    """One decision to be applied to one partition."""

    writer: Turnstile
    decision: int
    append_time: int | None
    regions: Sequence[StagedRegion]
    timeout: float

    def do(self, ways: Ways) -> bool:
        """Applies the decision if it is still pending. Returns whether this call applied it. Raises: as `apply`."""
        with contextlib.ExitStack() as leftovers:
            try:
                pieces = self._prepare(ways, leftovers)
                digest, newest = self._digest(pieces), self._newest(pieces)
            except _NOT_AS_STAGED as error:
                # The staged files are deleted when the decision is done.
                with self.writer.hold(self.timeout):
                    if self.writer.log.state.applied >= self.decision:
                        return False
                raise self._named(error) from error
            with self.writer.hold(self.timeout):
                if self.writer.log.state.applied >= self.decision:
                    return False
                self._apply(pieces, digest, newest)
                return True

    def can_install(self) -> bool:
        """Whether some regions could become segments, size aside."""
        return any(self._choose(Ways.INSTALLED))

    def _choose(self, ways: Ways) -> list[bool]:
        return choose(self.regions, self.writer.place, self.writer.config, self.append_time, ways)

    def _named(self, error: Exception) -> StagedOutputError:
        return StagedOutputError(f"{self.writer.place}: decision {self.decision}: {error}")

    # ---- without the lock

    def _prepare(self, ways: Ways, leftovers: contextlib.ExitStack) -> list[StagedRegion | NewSegment]:
        """The regions, with those that become segments prepared."""
        installs = self._choose(ways)
        pieces: list[StagedRegion | NewSegment] = []
        for region, is_installed, next_is in zip(self.regions, installs, [*installs[1:], False], strict=True):
            if is_installed:
                ready = self._ready(region, inactive=next_is)
                leftovers.callback(ready.discard)
                pieces.append(ready)
            else:
                pieces.append(region)
        return pieces

    def _ready(self, region: StagedRegion, *, inactive: bool) -> NewSegment:
        writer = self.writer
        # Nothing may be created in the mount point of a log dir that is not mounted.
        place = writer.log.current_place()
        try:
            links = can_be_linked(region, place)
            return NewSegment(region, place, writer.config, links=links, inactive=inactive)
        except OSError as error:
            writer.log.fail(error)

    def _digest(self, pieces: Sequence[StagedRegion | NewSegment]) -> int:
        """A digest that identifies this decision's records as they will be in the log."""
        return crc32c(b"".join(map(self._crcs, pieces)))

    def _crcs(self, piece: StagedRegion | NewSegment) -> bytes:
        if self.append_time is None or isinstance(piece, NewSegment):
            return piece.crcs
        return b"".join(crcs_of(scan(data, 0, len(data))) for data in self._with_time(piece))

    def _newest(self, pieces: Sequence[StagedRegion | NewSegment]) -> int:
        """The largest time (ms) of the copied records; the segment may have to be rolled before them because of it."""
        if self.append_time is not None:
            return self.append_time
        copied = (piece for piece in pieces if isinstance(piece, StagedRegion))
        times = (header.max_timestamp for piece in copied for header in headers_of(piece))
        return max(times, default=NO_TIMESTAMP)

    # ---- with the lock

    def _apply(self, pieces: Sequence[StagedRegion | NewSegment], digest: int, newest: int) -> None:
        self._check_staged(pieces)
        planned = [piece if isinstance(piece, NewSegment) else self._copy(piece) for piece in pieces]
        append(self.writer.log, AppendPlan(planned, newest, True, decided=Decided(self.decision, digest)))

    def _check_staged(self, pieces: Sequence[StagedRegion | NewSegment]) -> None:
        """Refuses files that were removed since they were linked; the link still exists.

        A process that sets a decision aside moves its files first, and checks each partition under its lock after
        that. So either it finds what is applied here, or it has moved the files before this check.
        """
        for piece in pieces:
            if isinstance(piece, NewSegment) and not files.exists(piece.source):
                raise self._named(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), piece.source))

    def _copy(self, region: StagedRegion) -> Copy:
        return Copy(region.size, region.count, self._as_decided(region))

    def _as_decided(self, region: StagedRegion) -> Iterator[memoryview]:
        try:
            yield from self._with_time(region)
        except _NOT_AS_STAGED as error:
            raise self._named(error) from error

    def _with_time(self, region: StagedRegion) -> Iterator[memoryview]:
        """The batches of a region as they are copied; each is valid until the next is asked for."""
        for data in read_region(region):
            if self.append_time is not None:
                set_log_append_time(data, 0, len(data), self.append_time)
            yield data
