"""Rewrites a group of inactive segments as one, without the records that later ones have replaced (Kafka's
Cleaner.cleanSegments).

The new segment's files are beside the old ones with the suffix `.cleaned`. They are complete and durable when
`rewrite` returns; nothing reads them before they are renamed. Leftovers of a stopped process have no meaning.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_log.config import INT_MAX, TopicConfig
from pyspark_log.errors import LogDamagedError, SegmentOverflowError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.compaction.build_offset_map import Source, Throttle
from pyspark_log.storage.compaction.filter import BatchFilter, CleanedOutput
from pyspark_log.storage.compaction.offset_map import OffsetMap
from pyspark_log.storage.compaction.transactions import CleanedTransactions
from pyspark_log.storage.fs import files
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.layout import CODECS
from pyspark_log.storage.segment import AbortedTransaction, BatchStream, txn_index
from pyspark_log.storage.segment.file_names import CLEANED, INDEX, LOG, TIME_INDEX, TXN_INDEX, segment_path


class LastRecord(NamedTuple):
    """What must stay in the log for a producer that is still known (Kafka's LastRecord).

    Attributes:
        last_offset: of the last batch of records that it wrote; -1: it wrote none in this epoch.
        epoch: of the producer.
    """

    last_offset: int
    epoch: int


@dataclass(frozen=True)
class Round:
    """The parameters shared by all groups of one cleaning of a partition.

    Attributes:
        place: the partition.
        config: the topic's configs.
        delete_retention_ms: how long a tombstone stays after a cleaning has first met it.
        keys: the last offset of each key, from `fill`.
        now: the time in ms.
        legacy_horizon_ms: a segment that was written to later than then (ms, by its file) keeps the tombstones that are
            in messages of formats 0 and 1: when the last segment before the uncleaned part was, less
            `delete_retention_ms`.
        transactions: those of the partition. All of its groups must be written, in order.
        producers: what must stay of each producer, by its id.
        throttle: called with the number of bytes read or written.
    """

    place: PartitionPath
    config: TopicConfig
    delete_retention_ms: int
    keys: OffsetMap
    now: int
    legacy_horizon_ms: int
    transactions: CleanedTransactions
    producers: Mapping[int, LastRecord]
    throttle: Throttle

    def is_last(self, header: BatchHeader) -> bool:
        """Whether a batch, or at least its header, must stay for its producer's state."""
        last = self.producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.epoch

    def batch_filter(self, output: CleanedOutput) -> BatchFilter:
        """What passes the batches that stay on to an output."""
        return BatchFilter(
            self.keys,
            output,
            now=self.now,
            delete_retention_ms=self.delete_retention_ms,
            transactions=self.transactions,
            is_last=self.is_last,
            codec=self.config.codec if self.config.codec in CODECS else "none",
            level=self.config.level,
            max_batch_bytes=self.config.max_batch_bytes,
        )


@dataclass(frozen=True)
class Rewritten:
    """The result of rewriting a group.

    Attributes:
        bytes_read, bytes_written: of the logs.
        records_read, records_kept: without those in control batches.
    """

    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int


def rewrite(cleaning: Round, sources: Sequence[Source], until: int) -> Rewritten:
    """Writes consecutive inactive segments into one, with the suffix `.cleaned`.

    Order, offsets, timestamps and bytes of the kept records do not change. The offsets of removed records stay taken,
    by an empty batch where a whole batch is removed.

    Args:
        cleaning: what holds for all groups.
        sources: the segments, each open.
        until: where the last one ends, which is the base offset of the next segment.

    Raises:
        SegmentOverflowError: the output is too large for one segment; with fewer sources it may not be.
        CorruptRecordError, LogDamagedError: damage, with its place.
        OSError: of the disk.
        In all these cases no file is left.
    """
    output = _Output(cleaning.place.folder, sources[0].segment.base_offset)
    try:
        return _rewrite(cleaning, sources, until, output)
    except BaseException:
        output.remove()
        raise


def remove_unfinished(folder: str) -> None:
    """Removes leftovers of stopped cleanings in a partition's folder. No cleaner may be running there. OSError."""
    for name in files.list_folder(folder):
        if name.endswith(CLEANED):
            files.unlink(f"{folder}/{name}")


class _Output:
    """The files of a segment that is being written."""

    def __init__(self, folder: str, base_offset: int) -> None:
        self._folder = folder
        self._base_offset = base_offset
        self._made: list[str] = []

    def create(self, suffix: str) -> files.File:
        file = files.create(self._path(suffix))
        self._made.append(file.path)
        return file

    def write_index(self, suffix: str, entries: bytearray) -> None:
        with self.create(suffix) as file:
            file.pwrite(entries, 0)
            file.sync()

    def write_aborted(self, entries: Sequence[AbortedTransaction]) -> None:
        self._made.append(self._path(TXN_INDEX))
        txn_index.write_entries(self._path(TXN_INDEX), entries)

    def _path(self, suffix: str) -> str:
        return segment_path(self._folder, self._base_offset, suffix) + CLEANED

    def remove(self) -> None:
        for path in self._made:
            # The files have no meaning, and the earlier error is the one to raise.
            with contextlib.suppress(OSError):
                files.unlink(path)


def _rewrite(cleaning: Round, sources: Sequence[Source], until: int, output: _Output) -> Rewritten:
    config, base_offset = cleaning.config, sources[0].segment.base_offset
    if until - 1 - base_offset > INT_MAX:
        raise SegmentOverflowError(base_offset, f"offsets up to {until - 1}")
    cleaned = CleanedOutput(base_offset, config.index_interval_bytes)
    batches = cleaning.batch_filter(cleaned)
    stream = BatchStream(config.max_batch_bytes, cleaning.place.topic, cleaning.place.partition)
    with output.create(LOG) as log:
        written = 0

        def write() -> None:
            nonlocal written
            piece = cleaned.piece()
            if piece:
                log.pwrite(piece, written)
                # So that the disk works while the next piece is cleaned.
                log.begin_sync(written, len(piece))
                written += len(piece)
                cleaning.throttle(len(piece))

        def take(buffer: memoryview, at: int, filled: int) -> tuple[int, None]:
            end = batches.take(buffer, at, filled)
            cleaning.throttle(end - at)
            return end, None

        ends = [source.segment.base_offset for source in sources[1:]] + [until]
        for source, end in zip(sources, ends, strict=True):
            modified = source.segment.log.modified()
            batches.keeps_legacy_tombstones = modified // 1_000_000 > cleaning.legacy_horizon_ms
            for _ in stream.read(source.segment.log, 0, source.size, take):
                write()
            if batches.next_offset != end:
                raise LogDamagedError(
                    f"{cleaning.place}: {source.segment.log.path} ends at offset {batches.next_offset}, "
                    f"but the next segment begins at {end}"
                )
        cleaned.finish(until)
        write()
        log.set_modified(modified)
        log.sync()
    output.write_index(INDEX, cleaned.offset_index)
    output.write_index(TIME_INDEX, cleaned.time_index)
    retained = cleaning.transactions.take_retained()
    if retained:
        output.write_aborted(retained)
    files.sync_folder(cleaning.place.folder)
    return Rewritten(
        bytes_read=sum(source.size for source in sources),
        bytes_written=written,
        records_read=batches.records_read,
        records_kept=batches.records_kept,
    )
