"""Batch reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_log.spark_connector.options import ReadOptions, StorePlace
from pyspark_log.spark_connector.planning.ranges import OffsetRange, identity_of, offsets_at, resolved
from pyspark_log.spark_connector.reading.task_reader import RangePartition, ReadPlan, in_tasks, read_partition
from pyspark_log.spark_connector.reading.transform import Transform
from pyspark_log.spark_connector.store_access import StoreRef, looking_at
from pyspark_log.spark_connector.worker_process import SentToTasks
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

if TYPE_CHECKING:
    from pyspark_log.spark_connector.typed_columns import TypedColumns


class PylogBatchReader(SentToTasks, DataSourceReader):
    """Plans one task per topic-partition, or more if options ask for it."""

    def __init__(
        self,
        place: StorePlace,
        options: ReadOptions,
        columns: tuple[str, ...],
        transform: Transform | None = None,
        typed: TypedColumns | None = None,
    ) -> None:
        self._place = place
        self._columns, self._transform, self._typed = columns, transform, typed
        self._options = options
        self._start, self._end = options.batch_bounds()

    def partitions(self) -> list[InputPartition]:
        """The ranges to read; "earliest" and "latest" stay open until the tasks run (see `read_partition`)."""
        with looking_at(self._place) as store:
            store.publishes.apply_pending()
            level = self._options.isolation_level
            # The ids first: the tasks then refuse a topic that is recreated in between.
            assigned = self._options.subscription.partitions(store)
            topic_ids = identity_of(store, {at.topic for at in assigned}).topic_ids
            starts = offsets_at(store, assigned, self._start, "start", level)
            ends = offsets_at(store, assigned, self._end, "end", level)
            ref = StoreRef.to(store, self._place.options)
            plan = ReadPlan.make(ref, self._columns, self._options, self._transform, self._typed)
            ranges = self._split(store, [OffsetRange(at, starts[at], ends[at]) for at in sorted(starts)])
            planned = [RangePartition(plan, one, topic_ids.get(one.at.topic)) for one in ranges if one.start != one.end]
            return in_tasks(store, planned, self._options.partitions_per_task)

    def _split(self, store: Store, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Splits the ranges if options ask for it, by the current offsets; open bounds stay open."""
        splitting, level = self._options.splitting, self._options.isolation_level
        if not splitting.is_due(ranges):
            return ranges
        known: list[OffsetRange] = []
        split: dict[TopicPartition, list[OffsetRange]] = {}
        for one in ranges:
            start, end = (resolved(store, one.at, edge, level) for edge in (one.start, one.end))
            # An empty range may have records when its task runs; the task raises if it ends before it starts.
            split[one.at] = [one] if start >= end else []
            known.append(OffsetRange(one.at, start, end))
        for piece in splitting.split(known):
            split[piece.at].append(piece)
        for one in ranges:
            pieces = split[one.at]
            if pieces:
                pieces[0] = replace(pieces[0], start=one.start)
                pieces[-1] = replace(pieces[-1], end=one.end)
        return [piece for pieces in split.values() for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the rows of one range."""
        return read_partition(partition)
