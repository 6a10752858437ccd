"""Where `pylog consume` starts to read each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from pyspark_log.cli.support import warn
from pyspark_log.errors import OffsetOutOfRangeError
from pyspark_log.storage.groups import OffsetAndMetadata
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_UNCOMMITTED, TopicPartition

#: The offset at which a partition is begun.
Start = Callable[[int], int]


class Starts:
    """The ways to say where a partition is begun."""

    def __init__(self, store: Store, topic: str, isolation_level: str) -> None:
        """For readers of that isolation level."""
        self._store, self._topic, self._level = store, topic, isolation_level

    def earliest(self, partition: int) -> int:
        """The first offset."""
        return self._store.earliest_offset(self._topic, partition)

    def latest(self, partition: int) -> int:
        """The end."""
        return self._end(partition, self._level)

    def at_offset(self, offset: int) -> Start:
        """An offset. The result raises OffsetOutOfRangeError."""

        def start(partition: int) -> int:
            earliest, latest = self.earliest(partition), self.latest(partition)
            if not earliest <= offset <= latest:
                raise OffsetOutOfRangeError(self._topic, partition, offset, earliest, latest)
            return offset

        return start

    def at_time(self, timestamp: int) -> Start:
        """The first record of a time (ms) or later; the end if there is none."""

        def start(partition: int) -> int:
            match = self._store.offset_for_timestamp(self._topic, partition, timestamp)
            return self.latest(partition) if match is None else match.offset

        return start

    def last(self, count: int) -> Start:
        """The last `count` records of each partition."""

        def start(partition: int) -> int:
            earliest, end = self.earliest(partition), self.latest(partition)
            # Offsets may be without records: those of markers, and those that compaction has removed.
            reach = count
            while True:
                begin = max(earliest, end - reach)
                offsets = self._offsets(partition, begin, end)
                if len(offsets) >= count or begin == earliest:
                    return int(offsets[-count].as_py()) if 0 < count <= len(offsets) else begin if count else end
                reach *= 8

        return start

    def committed(self, committed: Mapping[TopicPartition, OffsetAndMetadata], otherwise: Start) -> Start:
        """What a group has committed; where that is nothing, what `otherwise` says.

        The result raises OffsetOutOfRangeError for an offset beyond the end, and warns of records that were deleted
        before the group has read them.
        """

        def start(partition: int) -> int:
            at = TopicPartition(self._topic, partition)
            if at not in committed:
                return otherwise(partition)
            offset, earliest = committed[at].offset, self.earliest(partition)
            end = self._end(partition, READ_UNCOMMITTED)
            if offset > end:
                raise OffsetOutOfRangeError(self._topic, partition, offset, earliest, end)
            if offset < earliest:
                warn(f"{at}: offsets {offset} to {earliest - 1} were deleted before the group has read them")
            return max(offset, earliest)

        return start

    def _end(self, partition: int, isolation_level: str) -> int:
        at = TopicPartition(self._topic, partition)
        return self._store.partitions.latest_offsets([at], isolation_level=isolation_level)[at]

    def _offsets(self, partition: int, start: int, end: int) -> pa.ChunkedArray:
        batches: Iterable[pa.RecordBatch] = ()
        if start < end:
            batches = self._store.read(
                self._topic, partition, start, end, columns=["offset"], isolation_level=self._level
            )
        return pa.chunked_array([batch.column("offset") for batch in batches], pa.int64())
