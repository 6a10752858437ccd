"""Collects rows of one topic over many calls, and hands out record batches as they fill up."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pyspark_log.config import TopicConfig
from pyspark_log.storage.ingest.encoder import BatchEncoder
from pyspark_log.storage.ingest.packs import FILLING_BYTES
from pyspark_log.storage.record.builder import BatchBuilder

#: Receives a finished record batch: partition, bytes, number of records.
Sink = Callable[[int, bytes, int], None]


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
