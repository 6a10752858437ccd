"""Reads one partition in a Kafka broker's log dir, and finds its end in its files.

There is no state file and no lock. The broker may be running: the last batch may be half written, the active
segment's indexes and its log may have a tail of zeros, retention renames segments away, and the cleaner swaps them for
others. So the end is where the chain of complete batches ends, or the high watermark if a checkpoint has it;
and a file that disappears while it is read is looked up again.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from typing import NamedTuple

from pyspark_log.config import LONG_MAX, MAX_BATCH_BYTES
from pyspark_log.errors import CorruptRecordError, LogDamagedError, SideFileError, UnknownTopicError
from pyspark_log.storage.broker.aborted_check import ended_in, refuted
from pyspark_log.storage.broker.log_dir import LOG_NAME, BrokerLogDir
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.catalog.kafka_files import LOG_START
from pyspark_log.storage.fs import Mutex, files
from pyspark_log.storage.log.read import LogReader, aborted_between
from pyspark_log.storage.log.state import EMPTY, Flags, PartitionState
from pyspark_log.storage.log.state.partition_state import missing_is_damage
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.segment import AbortedTransaction, SegmentReader
from pyspark_log.storage.segment.batch_stream import batch_at, header_at, is_intact
from pyspark_log.types import TopicPartition

# How often an index is compared with its log before it is reported that they differ.
_ATTEMPTS = 2
# How often a segment is opened by the name that it is listed with before it is reported as missing.
_OPENS = 5

log = logging.getLogger(__name__)


class _End(NamedTuple):
    """The end of a segment's complete batches: the position, and the offset after the last one."""

    base_offset: int
    inode: int
    position: int
    next_offset: int


def _next(file: files.File, position: int, size: int, complete: bool) -> BatchHeader | None:
    """The next batch that counts, if there is one.

    One with a wrong CRC is half written, in a preallocated file; but if it is where the log is `complete`, or another
    one follows it, it is damaged, which is reported to its readers.
    """
    header = header_at(file, position, size)
    if header is None or complete or is_intact(file, header):
        return header
    following = batch_at(file, header.end, size)
    return header if following is not None and following.base_offset > header.base_offset else None


class BrokerLogReader(LogReader):
    """The reader's view of a partition of a broker. Safe to use from several threads."""

    def __init__(self, place: PartitionPath, broker: BrokerLogDir, max_batch_bytes: int = MAX_BATCH_BYTES) -> None:
        """`max_batch_bytes`: the most that one batch may take in memory; a larger one is refused."""
        super().__init__(place, max_batch_bytes)
        # Compaction, transactions and copies of other logs leave gaps.
        self._dense = False
        self._segment_cache = None
        self._broker = broker
        self._at = TopicPartition(place.topic, place.partition)
        self._files: tuple[int, dict[int, str]] = (0, {})
        self._end = _End(-1, -1, 0, 0)
        self._reported_end = ""
        self._reported_index = ""
        self._owner = ""  # the topic's id, once the folder has been found to have it
        self._mutex = Mutex()

    def state(self) -> PartitionState:
        """The current log start and log end; the other fields of a state have no meaning here.

        Raises:
            UnknownTopicError: the topic was deleted.
            SideFileError: a checkpoint is damaged.
            LogDamagedError: a segment that is listed cannot be opened.
        """
        return self._read_state()[0]

    def lost_end(self) -> str:
        """Returns what the log lacks at its end by the broker's checkpoints, as text for a warning; "": nothing.

        A broker writes its checkpoints late, so one below the end is normal. Raises as `state` does.
        """
        return self._read_state()[1]

    def _read_state(self) -> tuple[PartitionState, str]:
        while True:
            generation, names = self._list()
            # Before the end, which can only grow from here on.
            known_end, checkpoint = self._broker.known_end(self._at)
            if not names:
                start = self._broker.log_start(self._at)
                lost = ""
                if files.is_folder(self.place.folder) and known_end > start:
                    lost = self._report_end("there is no segment", known_end, checkpoint)
                return EMPTY._replace(
                    generation=generation, log_start=start, next_offset=start, high_watermark=start, active_base=start
                ), lost
            bases = list(names)
            log_start = max(self._broker.log_start(self._at), bases[0])
            limit = self._broker.high_watermark(self._at)
            try:
                end = self._find_end(bases, LONG_MAX if limit is None else max(limit, log_start))
            except LogDamagedError:
                if self._list()[0] == generation:
                    raise
                continue
            lost = ""
            if end.next_offset < log_start:
                lost = self._report(
                    f"the log starts at offset {log_start}, by {LOG_START}, but ends at {end.next_offset}: it reads as "
                    "empty, and a broker that starts here deletes it. If the checkpoint is that of another time, "
                    "remove it from the copy"
                )
            elif end.next_offset < known_end:
                path = f"{self.place.folder}/{names[end.base_offset]}"
                lost = self._report_end(f"{path} ends at offset {end.next_offset}", known_end, checkpoint)
            visible = max(end.next_offset, log_start)
            return EMPTY._replace(
                # It is not known whether there are idempotent producers.
                flags=Flags.PRODUCERS,
                generation=generation,
                log_start=log_start,
                active_base=end.base_offset,
                position=end.position,
                next_offset=visible,
                high_watermark=visible,
            ), lost

    def _report_end(self, what: str, known_end: int, checkpoint: str) -> str:
        return self._report(
            f"{what}, but {checkpoint} says that the log had reached {known_end}: its end was lost, or the checkpoint "
            "was copied later than the log. The existing records are read"
        )

    def _report(self, what: str) -> str:
        """Warns once for each different end."""
        message = f"{self.place}: {what}"
        if message != self._reported_end:
            self._reported_end = message
            log.warning("%s", message)
        return message

    # ---- aborted transactions

    def _aborted_by(self, bases: list[int], start: int, end: int, state: PartitionState) -> list[AbortedTransaction]:
        return self._compared(bases, start, end, state)[0]

    def refuted_index(self) -> str:
        """Returns what the log's markers refute of the indexes of aborted transactions, as a warning; "": nothing.

        Reads the headers of all batches.

        Raises:
            UnknownTopicError, LogDamagedError, CorruptRecordError: as `last_stable_offset`.
        """
        end = self.last_stable_offset()

        def read_fault(state: PartitionState, _: bool) -> str:
            bases = self.segments(state)
            return self._compared(bases, state.log_start, end, state)[1] if bases else ""

        return self._retry_while_segments_change(read_fault)

    def _compared(
        self, bases: list[int], start: int, end: int, state: PartitionState
    ) -> tuple[list[AbortedTransaction], str]:
        """The aborted transactions of [start, end), and what the log refutes of their indexes.

        If it refutes them, the transactions are those of the log itself.
        """
        for attempt in range(_ATTEMPTS):
            indexed, fault = list[AbortedTransaction](), ""
            try:
                indexed = aborted_between(self.place.folder, bases, start, end)
            except SideFileError as error:
                fault = str(error)
            try:
                ended = ended_in(self._segments_from(start, state, listed=True), start, end, state.high_watermark)
            except CorruptRecordError:
                if fault:
                    raise
                return indexed, ""  # Readers will report the damage, after the records before it.
            fault = fault or refuted(indexed, ended, start)
            # The cleaner may just have replaced a segment and its index.
            if not fault or attempt == _ATTEMPTS - 1:
                break
        if not fault:
            return indexed, ""
        message = (
            f"{self.place}: the index of aborted transactions of a segment in {self.place.folder} is not that of its "
            f"log: {fault}. What the log says counts"
        )
        if message != self._reported_index:
            self._reported_index = message
            log.warning("%s", message)
        return ended.aborted, message

    # ---- files

    def _list(self) -> tuple[int, dict[int, str]]:
        """The existing logs, by their base offsets, and a number that changes when they do.

        Raises:
            UnknownTopicError: the topic was deleted, also if there is another one of that name by now.
        """
        # A large folder is listed in several steps, and a file that is renamed meanwhile can be found under neither of
        # its names. So a change counts when it is found twice in a row.
        names, before = self._log_names(), self._files[1]
        while names != before:
            names, before = self._log_names(), names
        if not names and self._written:
            raise UnknownTopicError(f"{self.place}: the topic was deleted, or moved out of its folder")
        # Read last: what was listed belongs to the same topic or to an older one.
        owner = self.place.owner()
        if self._owner not in ("", owner):
            raise UnknownTopicError(
                f"{self.place}: the topic was deleted and recreated (id {owner or 'unknown'}, it was {self._owner})"
            )
        self._owner = owner
        with self._mutex.lock:
            if names != self._files[1]:
                self._written = True
                self._files = self._files[0] + 1, names
            return self._files

    def _log_names(self) -> dict[int, str]:
        """The names of the logs in the folder, by their base offsets, ascending."""
        found: list[str] = []
        try:
            if self._broker.has(self._at):
                found = [name for name in files.list_folder(self.place.folder) if LOG_NAME.fullmatch(name)]
        except FileNotFoundError:
            pass
        # If both exist, the swap is about to replace this log; it is as good until then.
        names = {int(name[:20]): name for name in sorted(found, reverse=True)}
        return {base: names[base] for base in sorted(names)}

    def _open_listed(self, base: int) -> SegmentReader:
        """Opens a segment by the name that it has in the folder. LogDamagedError: it is not there."""
        tries = 0
        with missing_is_damage(self.place):
            while True:
                # A segment that is not listed is missing by its usual name, too.
                name = self._list()[1].get(base, "")
                try:
                    return SegmentReader(self.place.folder, base, name)
                except FileNotFoundError:
                    # The cleaner may just have swapped it for another one, of the same names.
                    tries += 1
                    if tries == _OPENS:
                        raise

    def _find_end(self, bases: list[int], limit: int) -> _End:
        """The visible end: of complete batches, or `limit`."""
        base = bases[max(bisect_right(bases, limit) - 1, 0)]
        with self._open_listed(base) as segment:
            status = os.fstat(segment.log.fd)
            known, size = self._end, status.st_size
            if known[:2] != (base, status.st_ino) or known.position > size or known.next_offset > limit:
                known = _End(base, status.st_ino, segment.position_of(limit - 1, size), base)
            position, end = known.position, known.next_offset
            # Below the high watermark everything was written, and all of it was if its broker was shut down cleanly.
            complete = limit != LONG_MAX or self._broker.is_closed()
            while (header := _next(segment.log, position, size, complete)) is not None and header.base_offset < limit:
                position, end = header.end, min(header.next_offset, limit)
        self._end = found = _End(base, status.st_ino, position, end)
        if header is None and base == bases[-1]:
            return found
        # An inactive segment has no unfinished write: what is not a batch there is damage, which its readers report.
        return found._replace(next_offset=limit, position=position if header is not None else size)

    def segments(self, state: PartitionState) -> list[int]:
        """The base offsets of the live segments of `state`, ascending."""
        bases = [base for base in self._list()[1] if base <= state.active_base]
        return bases[max(bisect_right(bases, state.log_start) - 1, 0) :]

    def _log_path(self, base: int, state: PartitionState) -> str:
        name = self._list()[1].get(base)
        return super()._log_path(base, state) if name is None else f"{self.place.folder}/{name}"

    def _open(self, base: int, following: int | None, state: PartitionState) -> tuple[SegmentReader, PartitionState]:
        segment = self._open_listed(base)
        # What was opened can belong to a newer topic of the same name; but not if this one still exists.
        self._list()
        return segment, self.state()

    def _live_bytes(self, segment: SegmentReader, state: PartitionState, now: PartitionState) -> int:
        """The live bytes of the last segment of `state`.

        The cleaner may have replaced it, as the high watermark can be in a segment that is inactive.
        """
        return segment.size_up_to(state.next_offset)
