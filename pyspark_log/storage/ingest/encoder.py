"""Encodes rows into record batches: of one partition of a topic at a time, or of all of them as they fill up.

Rows are Arrow's, or pairs of keys and values. Their times are checked as a broker checks them (LogValidator; KIP-937),
and of records that retention is about to delete, which a broker accepts silently, it warns.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import secrets
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark_log.config import LONG_MAX, TopicConfig
from pyspark_log.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from pyspark_log.storage.fs.clock import format_time
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.record.layout import HEADER_SIZE, MAX_TIMESTAMP_AT
from pyspark_log.types import NO_TIMESTAMP

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_log.storage.ingest.partitioner import Partitioner

log = logging.getLogger(__name__)

_Item = TypeVar("_Item")
#: Receives a finished record batch: partition, bytes, number of records.
Sink = Callable[[int, bytes, int], None]

#: Bytes of batches that `BatchEncoder.pieces` yields at once: few enough to be in the processor's cache.
PIECE_SIZE = 2 * 1024 * 1024
#: Memory (bytes) of batches that are being filled, over all partitions; beyond it they are sealed as they are.
FILLING_BYTES = 64 * 1024 * 1024
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
            InvalidRecordError: see WriteColumns, and check_times.
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


def grouped(items: Iterable[_Item], most: int, size_of: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    """Items in order, in lists of at most `most` bytes, or of one larger item."""
    found, size = list[_Item](), 0
    for item in items:
        if found and size + size_of(item) > most:
            yield found
            found, size = [], 0
        found.append(item)
        size += size_of(item)
    if found:
        yield found


def packed(batches: Iterable[bytes], size: int) -> Iterator[bytearray]:
    """Joins batches in order for few appends: each of at most `size` bytes, or of one larger batch."""
    return (bytearray().join(group) for group in grouped(batches, size, len))


class RecordAccumulator:
    """One stream of record batches for each partition of a topic."""

    def __init__(self, topic: str, partitions: int, config: TopicConfig, sink: Sink) -> None:
        self._encoder = BatchEncoder(topic, partitions, config)
        self._sink = sink
        self._builders: dict[int, BatchBuilder] = {}

    def add(self, data: pa.RecordBatch, now: int) -> None:
        """Adds rows; `now` (ms) is the time of those without one.

        Raises:
            InvalidRecordError: as `BatchEncoder.assign`. RecordTooLargeError.
        """
        encoder = self._encoder
        records, order, shares = encoder.assign(data, now)
        for partition, (start, high) in shares.items():
            low = start
            while low < high:
                builder = self._builders.get(partition)
                if builder is None:
                    builder = self._builders[partition] = encoder.new_builder()
                low += encoder.fill(partition, builder, records, order, low, high)
                if low < high:
                    self._seal(partition, builder)
        if self.held > FILLING_BYTES:
            self.flush()

    @property
    def held(self) -> int:
        """Bytes of memory of the batches that are being filled."""
        return sum(builder.capacity for builder in self._builders.values())

    def _seal(self, partition: int, builder: BatchBuilder) -> None:
        count = builder.count
        self._sink(partition, self._encoder.seal(partition, builder), count)

    def flush(self) -> None:
        """Hands out the remaining batches, which may be small, and frees their memory."""
        for partition, builder in self._builders.items():
            if builder.count:
                self._seal(partition, builder)
        self._builders.clear()


def check_times(
    bounds: tuple[int, int], times: Callable[[], Iterable[int | None]], config: TopicConfig, now: int, where: object
) -> None:
    """Checks the timestamps of records.

    Args:
        bounds: the smallest and the largest one, in ms.
        times: returns that of each record, in ms; None and NO_TIMESTAMP are never refused.
        config: the topic's configs; with LogAppendTime these timestamps are not used.
        now: the time in ms.
        where: the topic, for errors.

    Raises:
        InvalidTimestampError: a time is outside of what message.timestamp.before.max.ms and .after.max.ms allow.
    """
    if config.log_append_time:
        return
    oldest = max(now - config.message_timestamp_before_max_ms, NO_TIMESTAMP)
    newest = min(now + config.message_timestamp_after_max_ms, LONG_MAX)
    if oldest <= bounds[0] and bounds[1] <= newest:
        return
    refused = [
        (row, time)
        for row, time in enumerate(times())
        if time is not None and time != NO_TIMESTAMP and not oldest <= time <= newest
    ]
    if not refused:
        return
    row, time = refused[0]
    if time > newest:
        side, limit = "after", config.message_timestamp_after_max_ms
    else:
        side, limit = "before", config.message_timestamp_before_max_ms
    error = InvalidTimestampError(
        f"{where}: record {row} has the time {time} (ms), and the clock says {now}: more than "
        f"message.timestamp.{side}.max.ms ({limit}) {side} it; correct the time, or raise that config of the topic"
    )
    error.records = tuple(row for row, _ in refused)
    raise error


def is_past_retention(newest: int, config: TopicConfig, now: int) -> bool:
    """Whether records of the time `newest` (ms) and before are past the topic's retention at the time `now` (ms)."""
    by_age = config.deletes and config.retention_ms >= 0 and not config.log_append_time
    return by_age and 0 <= newest < now - config.retention_ms


def warn_past_retention(newest: int, config: TopicConfig, where: object) -> None:
    """Warns that records of the time `newest` (ms) and before, past the topic's retention, are being written."""
    log.warning(
        "%s: records of %s and before are past the topic's retention.ms (%d) already: the next "
        "cleaning deletes them. Set retention.ms=-1 to keep them",
        where,
        format_time(newest),
        config.retention_ms,
    )
