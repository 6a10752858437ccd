"""One topic of an open store, for programs that work with whole topics: append rows, read all partitions, follow."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from pyspark_log.arguments import to_ms
from pyspark_log.errors import InvalidConfigError
from pyspark_log.storage.log.read import READ_BYTES
from pyspark_log.types import (
    EARLIEST,
    LATEST,
    READ_UNCOMMITTED,
    AppendResult,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_log.storage.record.rows import Rows
    from pyspark_log.storage.store import Store

#: Where a read begins or ends: an offset, EARLIEST or LATEST for all partitions; a time; or an offset for each one.
Bound: TypeAlias = "int | datetime | Mapping[int, int]"

# How long `follow` waits at most, in seconds: partitions may be added, and there may be no state to watch.
_PAUSE = 0.1
# It looks no more often where each look is a request, in seconds.
_LOOK_SECONDS = 1.0


class Topic:
    """A topic. `store.topic("orders")` returns one; it holds nothing open, and looks the topic up each time.

    Attributes:
        store: whose topic it is.
        name: the topic's.
    """

    def __init__(self, store: Store, name: str) -> None:
        """Raises UnknownTopicError or InvalidTopicError if there is no such topic."""
        store.describe_topic(name)
        self.store, self.name = store, name

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, partitions={self.describe().partitions}, store={self.store.path!r})"

    def describe(self) -> TopicDescription:
        """Its id, partitions and configs at this moment. UnknownTopicError."""
        return self.store.describe_topic(self.name)

    @property
    def partitions(self) -> range:
        """The numbers of its partitions."""
        return range(self.describe().partitions)

    # ---- writing

    def append(self, rows: Rows, *, partition: int | None = None, sync: bool = False) -> list[AppendResult]:
        """Appends rows, such as `[{"key": "a", "value": "b"}]`; arguments and errors are those of Store.append."""
        return self.store.append(self.name, rows, partition=partition, sync=sync)

    # ---- reading

    def read(
        self,
        start: Bound = EARLIEST,
        end: Bound = LATEST,
        *,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        headers: bool = False,
        max_bytes: int = READ_BYTES,
        isolation_level: str = READ_UNCOMMITTED,
    ) -> Scan:
        """Reads between two offsets of each partition, or between two times; partition after partition.

        Args:
            start: where to begin; a time: the first record of that time or later.
            end: where to end, exclusive; LATEST: the log end at the call. A time: the first record of it or later.
            partitions: which ones; None: all.
            columns: of the row schema; None: all.
            headers: adds the column of headers.
            max_bytes, isolation_level: as Store.read.

        Raises:
            UnknownTopicError, InvalidConfigError, OffsetOutOfRangeError: as Store.read.
        """
        from pyspark_log.storage.record.rows import row_schema  # noqa: PLC0415  (Arrow, which a server does not load)

        numbers = list(self.partitions if partitions is None else partitions)
        ends = self._offsets(end, numbers, LATEST, isolation_level)
        starts = self._offsets(start, numbers, EARLIEST, isolation_level)
        ranges = {number: (starts[number], max(starts[number], ends[number])) for number in numbers}
        return Scan(self, ranges, row_schema(headers, columns), headers, max_bytes, isolation_level)

    def follow(
        self,
        start: Bound = LATEST,
        *,
        timeout: float | None = None,
        partitions: Iterable[int] | None = None,
        headers: bool = False,
        isolation_level: str = READ_UNCOMMITTED,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the records from `start` on, as they arrive, for ever; ordered within each partition.

        Args:
            start: where to begin.
            timeout: ends when nothing has arrived for this many seconds; None: never.
            partitions: which ones; None: all, including partitions added later.
            headers, isolation_level: as `read`.
        """
        chosen = None if partitions is None else list(partitions)
        positions = self._offsets(start, chosen or list(self.partitions), EARLIEST, isolation_level)
        idle_since, watch = time.monotonic(), self.store.partitions.watch()
        while True:
            found = False
            with self.store.partitions.looking(_LOOK_SECONDS):
                numbers = chosen or self.partitions
                watch.note(self.name, numbers)
                ends = self._ends(numbers, isolation_level)
            for number, end in ends.items():
                position = positions.setdefault(number, 0)
                if end <= position:
                    continue
                yield from self.store.read(
                    self.name, number, position, end, headers=headers, isolation_level=isolation_level
                )
                positions[number], found = end, True
            if found:
                idle_since = time.monotonic()
            elif timeout is not None and time.monotonic() - idle_since >= timeout:
                return
            else:
                watch.wait(_PAUSE)

    # ---- offsets

    def earliest_offsets(self) -> dict[int, int]:
        """Each partition's first readable offset."""
        return {number: self.store.earliest_offset(self.name, number) for number in self.partitions}

    def latest_offsets(self, *, isolation_level: str = READ_UNCOMMITTED) -> dict[int, int]:
        """Each partition's next offset, or its last stable offset."""
        return self._ends(self.partitions, isolation_level)

    def offsets_for(self, timestamp: datetime | int) -> dict[int, OffsetAndTimestamp | None]:
        """Each partition's first record of a time (or ms since 1970) or later; None: there is none."""
        return {
            number: self.store.offset_for_timestamp(self.name, number, to_ms(timestamp)) for number in self.partitions
        }

    def _offsets(self, bound: Bound, numbers: list[int], absent: int, isolation_level: str) -> dict[int, int]:
        """Each partition's offset for a bound; `absent`: for partitions that it does not name."""
        if isinstance(bound, Mapping):
            bounds = {number: bound.get(number, absent) for number in numbers}
        elif isinstance(bound, datetime):
            found = {n: self.store.offset_for_timestamp(self.name, n, to_ms(bound)) for n in numbers}
            bounds = {n: LATEST if one is None else one.offset for n, one in found.items()}
        elif isinstance(bound, SupportsIndex):  # also an offset of NumPy's, as from a column
            bounds = dict.fromkeys(numbers, index(bound))
        else:
            raise InvalidConfigError(f"{bound!r}: must be an offset, a datetime, or offsets by partition")
        for number, offset in bounds.items():
            if offset == EARLIEST:
                bounds[number] = self.store.earliest_offset(self.name, number)
        return bounds | self._ends([number for number, offset in bounds.items() if offset == LATEST], isolation_level)

    def _ends(self, numbers: Iterable[int], isolation_level: str) -> dict[int, int]:
        """The ends of partitions, after what is decided was applied."""
        places = [TopicPartition(self.name, number) for number in numbers]
        if places:
            self.store.publishes.apply_pending()
        found = self.store.partitions.latest_offsets(places, isolation_level=isolation_level)
        return {at.partition: end for at, end in found.items()}


class Scan:
    """Records to read, lazily, by whatever reads Arrow: Polars, DuckDB, pyarrow. Can be read more than once.

    Attributes:
        ranges: each partition's first offset and exclusive end.
        schema: the rows' schema.
    """

    def __init__(
        self,
        topic: Topic,
        ranges: Mapping[int, tuple[int, int]],
        schema: pa.Schema,
        headers: bool,
        max_bytes: int,
        isolation_level: str,
    ) -> None:
        """For Topic.read."""
        self._topic, self.schema = topic, schema
        self._headers, self._max_bytes, self._isolation_level = headers, max_bytes, isolation_level
        self.ranges = dict(ranges)

    def __repr__(self) -> str:
        records = sum(end - start for start, end in self.ranges.values())
        return f"Scan({self._topic.name!r}, {len(self.ranges)} partitions, at most {records} records)"

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The record batches, partition after partition."""
        for number, (start, end) in self.ranges.items():
            yield from self._topic.store.read(
                self._topic.name, number, start, end, max_bytes=self._max_bytes, columns=self.schema.names,
                headers=self._headers, isolation_level=self._isolation_level,
            )  # fmt: skip

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The records as Arrow's PyCapsule interface defines it: `pl.DataFrame(scan)`, DuckDB's `FROM scan`."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """An Arrow reader, which streams the batches: for a Parquet writer, say."""
        import pyarrow as pa  # noqa: PLC0415  (Arrow, which a server does not load)

        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """All of it as an Arrow table."""
        import pyarrow as pa  # noqa: PLC0415  (Arrow, which a server does not load)

        return pa.Table.from_batches(iter(self), self.schema)

    def to_pandas(self) -> Any:  # noqa: ANN401  (pandas need not be installed)
        """All of it as a pandas DataFrame. ImportError: pandas is not installed."""
        return self.to_table().to_pandas()
