"""Appends Arrow rows to the partitions of a topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pyspark_log.config import TopicConfig
from pyspark_log.storage.ingest import PIECE_SIZE, grouped, packed
from pyspark_log.storage.ingest.encoder import AssignedRows, BatchEncoder
from pyspark_log.storage.log import APPEND_BYTES, Appended, Extent, Turnstile
from pyspark_log.storage.log_manager.manager import LogManager
from pyspark_log.types import AppendResult

# How many bytes are written in one turn while they are encoded, where the segment has room for them: each turn has a
# first encoding and a last write that overlap with nothing.
_STREAM_BYTES = 64 * 1024 * 1024


def append_rows(
    logs: LogManager,
    topic: str,
    data: pa.RecordBatch | pa.Table,
    partition: int | None,
    sync: bool,
    compression_type: str | None = None,
) -> list[AppendResult]:
    """Appends records to any topic, also an internal one; arguments and errors are those of `Store.append`."""
    opened = logs.topic(topic)
    count, config = opened.description.partitions, opened.config
    if compression_type is not None:
        config = TopicConfig.resolve(opened.description.configs, logs.configs, compression_type)
    if partition is not None:
        opened.check(partition)
    now = logs.clock()
    encoder = BatchEncoder(topic, count, config, now if config.log_append_time else None)
    rows = data.to_batches() if isinstance(data, pa.Table) else [data]
    parts = [encoder.assign(part, now, partition) for part in rows]
    targets = sorted({target for part in parts for target in part.shares})
    is_large = sum(part.records.size for part in parts) >= PIECE_SIZE and config.segment_bytes >= APPEND_BYTES
    streams = is_large and encoder.can_stream(parts)
    # What could be refused is encoded before anything is appended.
    encoded = {} if streams else {target: list(encoder.batches(target, parts)) for target in targets}
    results: list[AppendResult] = []
    for target in targets:
        try:
            writer = logs.writer_of(opened, target)
            if streams:
                newest = now if config.log_append_time else max(part.records.newest for part in parts)
                results.append(_stream(writer, encoder.pieces(target, parts), _share(target, parts), newest, sync))
            else:
                results.append(_append_all(writer, encoded[target], sync))
        except Exception as error:
            # Whatever the error: the caller must know what was appended so far.
            error.results = results  # type: ignore[attr-defined]
            raise
    return results


def _append_all(target: Turnstile, batches: Sequence[bytes], sync: bool) -> AppendResult:
    """Appends encoded batches. Up to APPEND_BYTES of them get consecutive offsets, however small a segment is."""
    most = min(APPEND_BYTES, target.config.segment_bytes)
    if len(batches) == 1 or sum(map(len, batches)) <= most:
        outcomes = target.append_in_turn(batches, sync=sync)
        placed = [one for one in outcomes if isinstance(one, Appended)]  # All: none has a producer id.
        return AppendResult(target.place.partition, placed[0].base_offset, placed[-1].next_offset)
    first = end = -1
    for turn in grouped(batches, APPEND_BYTES, len):
        with target.hold() as writer:
            for pack in packed(turn, most):
                base, end, _ = writer.append(pack, sync=sync)
                first = base if first < 0 else first
    return AppendResult(target.place.partition, first, end)


def _share(partition: int, parts: Sequence[AssignedRows]) -> int:
    """How many of the rows are the partition's."""
    return sum(high - low for part in parts for low, high in [part.shares.get(partition, (0, 0))])


def _stream(target: Turnstile, pieces: Iterator[memoryview], records: int, newest: int, sync: bool) -> AppendResult:
    """Appends batches while the next ones are encoded.

    Args:
        target: the partition.
        pieces: the batches.
        records: how many records they have.
        newest: the largest time of a record (ms).
        sync: as `Store.append`.
    """
    first = end = -1
    left = _Pieces(pieces)
    while left.following is not None:
        with target.hold() as writer:
            most = Extent(min(_STREAM_BYTES, writer.config.segment_bytes), records, newest)
            if not writer.has_room(most):
                most = most._replace(size=APPEND_BYTES)
            base, end, _ = writer.append_pieces(left.take(most.size), most, sync=sync)
        first = base if first < 0 else first
    return AppendResult(target.place.partition, first, end)


class _Pieces:
    """Takes some of the pieces at a time.

    Attributes:
        following: the first batch that was not taken yet; it is encoded while the last one taken is written.
    """

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces = pieces
        self.following = next(pieces, None)

    def take(self, size: int) -> Iterator[memoryview]:
        """Yields the next pieces, of `size` bytes at most."""
        for _ in range(size // PIECE_SIZE):
            if self.following is None:
                return
            yield self.following
            self.following = next(self._pieces, None)
