"""Turns Arrow columns into record batches, one stream of them for each partition of a topic."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

import pyarrow as pa

from pyspark_log.config import TopicConfig
from pyspark_log.errors import InvalidRecordError, RecordTooLargeError
from pyspark_log.storage.ingest.partitioner import Partitioner, group
from pyspark_log.storage.ingest.timestamps import check_times, is_past_retention, warn_past_retention
from pyspark_log.storage.record import HEADER_SIZE, MAX_TIMESTAMP_AT, BatchBuilder, WriteColumns

#: Bytes of records to which a batch is filled, before compression.
BATCH_SIZE = 512 * 1024

#: Memory (bytes) of batches that are being filled, over all partitions; beyond it they are sealed as they are.
FILLING_BYTES = 64 * 1024 * 1024

#: Receives a finished record batch: partition, bytes, number of records.
Sink = Callable[[int, bytes, int], None]


class RecordAccumulator:
    """Collects records of one topic and hands out record batches as they fill up.

    Rows keep their order within a partition. Rows without a partition get one from Kafka's default
    partitioner: by murmur2 of the key, or, without a key, one partition for a batch's worth of
    bytes and then another. A record batch that is past the topic's retention when it is written is logged, once.
    """

    def __init__(
        self, topic: str, partitions: int, config: TopicConfig, sink: Sink, log_append_time: int | None = None
    ) -> None:
        """`log_append_time` (ms): the time of all records, whatever theirs is, if the append takes place now."""
        self._topic = topic
        self._log_append_time = log_append_time
        self._partitions = partitions
        self._config = config
        self._sink = sink
        # A batch must fit into a segment and under max.message.bytes, unless a single record does not.
        room = min(config.max_message_bytes, config.segment_bytes) - HEADER_SIZE
        self._batch_size = max(1, min(BATCH_SIZE, room))
        self._partitioner = Partitioner(partitions, self._batch_size, secrets.randbits(32))
        self._builders: dict[int, BatchBuilder] = {}
        self._warned = False
        self._now = 0

    def add(self, data: pa.RecordBatch, now: int) -> None:
        """Adds rows; `now` (ms) is the time of those without one.

        Raises:
            InvalidRecordError: see WriteColumns, and timestamps.py. RecordTooLargeError.
        """
        config, self._now = self._config, now
        columns = WriteColumns(data, now, keys_required=config.compact, where=self._topic)
        if columns.timestamp is not None:
            check_times(columns.timestamp, config, now, self._topic)
        try:
            assignment = self._partitioner.assign(columns.key, columns.value, columns.partition, data.num_rows)
        except InvalidRecordError as error:
            hint = "; without the column partition the key decides where a row goes"
            raise InvalidRecordError(f"{self._topic}: {error}{hint if columns.partition is not None else ''}") from None
        rows, bounds = group(assignment, self._partitions)
        for partition in range(self._partitions):
            low, high = bounds[partition], bounds[partition + 1]
            while low < high:
                builder = self._builders.get(partition)
                if builder is None:
                    builder = self._builders[partition] = self._new_builder()
                try:
                    low += builder.append(columns.records, rows, low, high)
                except RecordTooLargeError as error:
                    raise self._named(partition, error) from None
                if low < high:
                    self._seal(partition, builder)
        if self.held > FILLING_BYTES:
            self.flush()

    @property
    def held(self) -> int:
        """Bytes of memory of the batches that are being filled."""
        return sum(builder.capacity for builder in self._builders.values())

    def _new_builder(self) -> BatchBuilder:
        config = self._config
        return BatchBuilder(
            self._batch_size, config.max_message_bytes, config.codec, config.level, config.max_batch_bytes
        )

    def _seal(self, partition: int, builder: BatchBuilder) -> None:
        count = builder.count
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
        self._sink(partition, batch, count)

    def _named(self, partition: int, error: RecordTooLargeError) -> RecordTooLargeError:
        return RecordTooLargeError(f"{self._topic}-{partition}: {error}")

    def flush(self) -> None:
        """Hands out the remaining batches, which may be small, and frees their memory."""
        for partition, builder in self._builders.items():
            if builder.count:
                self._seal(partition, builder)
        self._builders.clear()


def encode(
    topic: str, partitions: int, config: TopicConfig, data: pa.RecordBatch, now: int
) -> dict[int, list[bytes]]:
    """Encodes rows into record batches, by partition; `now` and errors as `RecordAccumulator.add`."""
    batches: dict[int, list[bytes]] = {}
    encoder = RecordAccumulator(
        topic, partitions, config, lambda partition, batch, _: batches.setdefault(partition, []).append(batch)
    )
    encoder.add(data, now)
    encoder.flush()
    return batches


def packed(batches: Iterable[bytes], size: int) -> list[bytearray]:
    """Joins batches in order for few appends: each of at most `size` bytes, or of one larger batch."""
    packs = list[bytearray]()
    for batch in batches:
        if not packs or len(packs[-1]) + len(batch) > size:
            packs.append(bytearray())
        packs[-1] += batch
    return packs
