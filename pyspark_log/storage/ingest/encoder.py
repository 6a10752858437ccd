"""Encodes rows into record batches, of one partition of a topic at a time: Arrow's, or pairs of keys and values."""

from __future__ import annotations

import contextlib
import mmap
import secrets
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark_log.config import TopicConfig
from pyspark_log.errors import InvalidRecordError, RecordTooLargeError
from pyspark_log.storage.ingest.packs import PIECE_SIZE
from pyspark_log.storage.ingest.timestamps import check_times, is_past_retention, warn_past_retention
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.record.layout import HEADER_SIZE, MAX_TIMESTAMP_AT

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_log.storage.ingest.partitioner import Partitioner

#: Bytes of records to which a batch is filled, before compression.
BATCH_SIZE = 512 * 1024


class AssignedRows(NamedTuple):
    """Rows whose partitions are known.

    Attributes:
        records: their columns.
        order: the numbers of the rows, those of each partition together; None: all rows as they are.
        shares: which of these each partition has, [low, high); only partitions that have some.
    """

    records: RecordColumns
    order: array[int] | None
    shares: dict[int, tuple[int, int]]


class BatchEncoder:
    """Assigns rows of one topic to its partitions, and encodes the rows of a partition. Not thread-safe.

    Rows keep their order within a partition. Rows without a partition get one from Kafka's default
    partitioner: by murmur2 of the key, or, without a key, one partition for a batch's worth of
    bytes and then another. A record batch that is past the topic's retention when it is written is logged, once.
    """

    def __init__(self, topic: str, partitions: int, config: TopicConfig, log_append_time: int | None = None) -> None:
        """`log_append_time` (ms): the time of all records, whatever theirs is, if the append takes place now."""
        self._topic = topic
        self._log_append_time = log_append_time
        self._partitions = partitions
        self._config = config
        # A batch must fit into a segment and under max.message.bytes, unless a single record does not.
        self._most = min(config.max_message_bytes, config.segment_bytes)
        self._batch_size = max(1, min(BATCH_SIZE, self._most - HEADER_SIZE))
        self._partitioner: Partitioner | None = None
        self._warned = False
        self._now = 0

    def assign(self, data: pa.RecordBatch, now: int, partition: int | None = None) -> AssignedRows:
        """Checks rows, and assigns each to a partition.

        Args:
            data: the rows.
            now: the time (ms) of those without one.
            partition: of all rows; None: the rows or their keys decide.

        Raises:
            InvalidRecordError: see WriteColumns, and timestamps.py.
        """
        # Here, as pairs need no Arrow.
        from pyspark_log.storage.ingest.partitioner import Partitioner, group  # noqa: PLC0415
        from pyspark_log.storage.record.rows import WriteColumns  # noqa: PLC0415

        config, self._now = self._config, now
        columns = WriteColumns(data, now, keys_required=config.compact, where=self._topic)
        if columns.timestamp is not None:
            records = columns.records
            check_times((records.oldest, records.newest), columns.timestamp.to_pylist, config, now, self._topic)
        if partition is None and self._partitions == 1 and columns.partition is None:
            partition = 0
        if partition is not None:
            return AssignedRows(columns.records, None, {partition: (0, data.num_rows)} if data.num_rows else {})
        if self._partitioner is None:
            self._partitioner = Partitioner(self._partitions, self._batch_size, secrets.randbits(32))
        try:
            assignment = self._partitioner.assign(columns.key, columns.value, columns.partition, data.num_rows)
        except InvalidRecordError as error:
            hint = "; without the column partition the key decides where a row goes"
            raise InvalidRecordError(f"{self._topic}: {error}{hint if columns.partition is not None else ''}") from None
        rows, bounds = group(assignment, self._partitions)
        shares = {
            number: (bounds[number], bounds[number + 1])
            for number in range(self._partitions)
            if bounds[number] < bounds[number + 1]
        }
        return AssignedRows(columns.records, rows, shares)

    def assign_pairs(self, keys: Sequence[bytes], values: Sequence[bytes | None], now: int) -> AssignedRows:
        """Assigns records of a key and a value each to partition 0; at the time `now` (ms)."""
        self._now = now
        return AssignedRows(RecordColumns.of_pairs(keys, values, now), None, {0: (0, len(keys))} if keys else {})

    def can_stream(self, parts: Sequence[AssignedRows]) -> bool:
        """Whether `pieces` can encode the rows without refusing any of them: none is large, none is compressed."""
        largest = self.new_builder().batch_size
        return self._config.codec == "none" and all(part.records.largest() <= largest for part in parts)

    def pieces(self, partition: int, parts: Sequence[AssignedRows]) -> Iterator[memoryview]:
        """Encodes a partition's share of the rows, for which `can_stream`.

        Yields whole batches, of PIECE_SIZE bytes at most. The memory of a piece is used again two pieces later.
        """
        builder = self.new_builder()
        room = HEADER_SIZE + self._batch_size
        buffers = [_borrowed(), _borrowed()]
        filled = 0
        try:
            builder.write_to(buffers[0], 0)
            for records, order, shares in parts:
                low, high = shares.get(partition, (0, 0))
                while low < high:
                    low += self.fill(partition, builder, records, order, low, high)
                    if low < high:
                        filled += len(self.seal(partition, builder))
                        if filled + room > PIECE_SIZE:
                            yield buffers[0][:filled]
                            buffers.reverse()
                            filled = 0
                        builder.write_to(buffers[0], filled)
            if builder.count:
                filled += len(self.seal(partition, builder))
            if filled:
                yield buffers[0][:filled]
        finally:
            _spare.extend(buffers[: max(0, _MOST_SPARE - len(_spare))])

    def batches(self, partition: int, parts: Sequence[AssignedRows]) -> Iterator[bytes]:
        """Encodes a partition's share of the rows, batch by batch. RecordTooLargeError."""
        builder = self.new_builder()
        for records, order, shares in parts:
            low, high = shares.get(partition, (0, 0))
            while low < high:
                low += self.fill(partition, builder, records, order, low, high)
                if low < high:
                    yield self.seal(partition, builder)
        if builder.count:
            yield self.seal(partition, builder)

    def new_builder(self) -> BatchBuilder:
        """A builder of one batch after the other."""
        config = self._config
        return BatchBuilder(
            self._batch_size, config.max_message_bytes, config.codec, config.level, config.max_batch_bytes
        )

    def fill(
        self,
        partition: int,
        builder: BatchBuilder,
        records: RecordColumns,
        order: array[int] | None,
        low: int,
        high: int,
    ) -> int:
        """Adds rows to a builder until it is full; returns how many. RecordTooLargeError."""
        try:
            return builder.append(records, order, low, high)
        except RecordTooLargeError as error:
            raise self._named(partition, error) from None

    def seal(self, partition: int, builder: BatchBuilder) -> bytes:
        """Returns the builder's batch. RecordTooLargeError."""
        try:
            batch = builder.seal(log_append_time=self._log_append_time)
        except RecordTooLargeError as error:
            raise self._named(partition, error) from None
        newest = int.from_bytes(batch[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8], "big", signed=True)
        if not self._warned and is_past_retention(newest, self._config, self._now):
            self._warned = True
            warn_past_retention(newest, self._config, self._topic)
        if len(batch) > self._config.segment_bytes:
            raise RecordTooLargeError(
                f"{self._topic}: a record batch of {len(batch)} bytes is larger than segment.bytes "
                f"({self._config.segment_bytes}): raise segment.bytes of the topic"
            )
        return batch

    def _named(self, partition: int, error: RecordTooLargeError) -> RecordTooLargeError:
        return RecordTooLargeError(f"{self._topic}-{partition}: {error}")


# Buffers of PIECE_SIZE that the next large append of this process uses again: memory that was never used before takes
# as long to get as to fill.
_spare: list[memoryview] = []
_MOST_SPARE = 2


def _borrowed() -> memoryview:
    try:
        return _spare.pop()
    except IndexError:
        memory = mmap.mmap(-1, PIECE_SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):
                memory.madvise(mmap.MADV_HUGEPAGE)
        return memoryview(memory)


def encode_pairs(
    topic: str, config: TopicConfig, keys: Sequence[bytes], values: Sequence[bytes | None], now: int
) -> list[bytes]:
    """Encodes records of a key and a value each, which may be null, for a topic's partition 0; at the time `now` (ms).

    RecordTooLargeError.
    """
    encoder = BatchEncoder(topic, 1, config)
    return list(encoder.batches(0, [encoder.assign_pairs(keys, values, now)]))
