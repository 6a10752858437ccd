"""Batch reads."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_log.spark_connector.assignment import offsets_at
from pyspark_log.spark_connector.catch_up import show_decided
from pyspark_log.spark_connector.errors import conditions_shown
from pyspark_log.spark_connector.options import ReadOptions
from pyspark_log.spark_connector.ranges import OffsetRange
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.spark_connector.task_reader import RangePartition, read_partition
from pyspark_log.storage.store import Store


class PylogBatchReader(DataSourceReader):
    """Plans one task a topic-partition."""

    def __init__(self, path: str, options: ReadOptions) -> None:
        self._path = path
        self._options = options
        self._start, self._end = options.batch_bounds()

    def partitions(self) -> list[InputPartition]:
        """The ranges to read; "earliest" and "latest" stay open until the tasks run (see `read_partition`)."""
        with conditions_shown():
            store = Store.shared(self._path)
            show_decided(store)
            headers, level = self._options.include_headers, self._options.isolation_level
            starts = offsets_at(store, self._options.topics, self._start, "start", level)
            ends = offsets_at(store, self._options.topics, self._end, "end", level)
            ref = StoreRef.to(store)
            return [
                RangePartition(ref, OffsetRange(at, starts[at], ends[at]), headers, level)
                for at in sorted(starts)
                if starts[at] != ends[at]
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        return read_partition(partition)
