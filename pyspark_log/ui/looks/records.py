"""Looks into a topic, within fixed bounds: the last records, and those from an offset or a time on.

A look reads a window of a partition: offsets between which there are at most some bytes of record batches, by the
indexes of the log. So what is read depends neither on how large a topic is nor on how many of its offsets have records.
A record batch is read whole, however large it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.ingest.partitioner import murmur2
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_COMMITTED, TopicPartition
from pyspark_log.ui.bounds import LISTED_BYTES, MOST_BYTES, MOST_HEADERS, MOST_MIXED, MOST_PARTITIONS, MOST_ROWS
from pyspark_log.ui.looks.found import Gap, Look, Record

# Bytes of records that are decoded at a time, at least one batch.
_STEP = 256 << 10
# How much further a look goes back that has found too few records.
_WIDER = 8
TOO_MANY: Final = f"These are of {MOST_PARTITIONS} of {{}} partitions: choose one to see the others."
NONE_SINCE: Final = "There is no record of this time or later."


class Reader:
    """Looks into one topic."""

    def __init__(self, store: Store, topic: str, most_value_bytes: int = LISTED_BYTES) -> None:
        """`most_value_bytes`: as many bytes of each key and value are taken. UnknownTopicError, InvalidTopicError."""
        self.partitions = store.describe_topic(topic).partitions
        self._store, self._topic, self._most = store, topic, most_value_bytes

    def written(self) -> list[int]:
        """The partitions that have records, or had some."""
        return self._store.partitions.written(self._topic)

    def partition_of(self, key: bytes) -> int:
        """Where Spark, `pylog` and Kafka's clients for Java put a key."""
        return int(murmur2(key) & 0x7FFFFFFF) % self.partitions

    def range(self, partition: int) -> tuple[int, int]:
        """The offsets that can be read: the first one, and the end."""
        at = TopicPartition(self._topic, partition)
        return self._store.earliest_offset(*_place(at)), self._store.partitions.latest_offsets([at])[at]

    # ---- looks

    def last_of_all(self, count: int) -> Look:
        """The last records of all partitions, the newest first."""

        def last(partition: int, most: int, most_bytes: int) -> Look:
            return self._last(partition, *self.range(partition), most, most_bytes)

        look, records = self._together(self.written(), count, last)
        look.rows += reversed(records[-count:])
        return look

    def last(self, partition: int, count: int, before: int | None = None) -> Look:
        """The last records of a partition, or those before an offset, the newest first."""
        first, end = self.range(partition)
        look = self._last(partition, first, end if before is None else max(first, min(before, end)), count, MOST_BYTES)
        if before is not None and before < end:
            look.newer = before
        return look

    def from_offset(self, partition: int, count: int, offset: int) -> Look:
        """The records from an offset on, in their order."""
        first, end = self.range(partition)
        look = Look()
        start = max(first, min(offset, end))
        if offset < first:
            look.notes.append(f"Offset {offset} is not there any more: the log starts at {first}.")
        elif offset > end:
            look.notes.append(f"Offset {offset} is not there yet: the log ends at {end}.")
        self._forward(look, partition, start, end, count, MOST_BYTES)
        look.older = start if start > first else None
        return look

    def offset_of(self, partition: int, time: int) -> int | None:
        """The offset of the first record of a time (ms) or later; None: there is none."""
        place = self._store.offset_for_timestamp(self._topic, partition, time)
        return None if place is None else place.offset

    def from_time(self, numbers: Sequence[int], count: int, time: int) -> Look:
        """The records of a time (ms) or later, in the order of their times."""
        if len(numbers) == 1:
            offset = self.offset_of(numbers[0], time)
            if offset is None:
                return Look(notes=[NONE_SINCE])
            return self.from_offset(numbers[0], count, offset)

        def since(partition: int, most: int, most_bytes: int) -> Look:
            look, offset = Look(), self.offset_of(partition, time)
            if offset is not None:
                self._forward(look, partition, offset, self.range(partition)[1], most, most_bytes)
            return look

        look, records = self._together(numbers, count, since)
        look.rows += records[:count]
        look.notes += [] if records else [NONE_SINCE]
        return look

    def _together(
        self, numbers: Sequence[int], count: int, look_at: Callable[[int, int, int], Look]
    ) -> tuple[Look, list[Record]]:
        """The looks at several partitions as one, without rows, and their records in the order of their times.

        `look_at` is given a partition, and how many records and bytes are its share.
        """
        together, records = Look(), list[Record]()
        if len(numbers) > MOST_PARTITIONS:
            together.notes.append(TOO_MANY.format(len(numbers)))
            numbers = numbers[:MOST_PARTITIONS]
        share = len(numbers) or 1
        for number in numbers:
            look = look_at(number, max(min(count, MOST_MIXED // share), 1), MOST_BYTES // share)
            records += look.records
            together.notes += look.notes
            together.read += look.read
        records.sort(key=lambda record: (record.time or 0, record.offset, record.partition))
        return together, records

    # ---- windows

    def end_of(self, partition: int, begin: int, end: int, most: int) -> int:
        """An offset up to which at most `most` bytes reach from `begin`, or one batch; at most `end`."""
        at = TopicPartition(self._topic, partition)
        return min(self._store.partitions.end_within(at, begin, end, most)[0], end) if begin < end else end

    def _fits(self, partition: int, begin: int, end: int, most: int) -> bool:
        return self.end_of(partition, begin, end, most) >= end

    def begin_of(self, partition: int, first: int, end: int, most: int) -> int:
        """An offset from which at most `most` bytes reach to `end`, or one batch; at least half as far as could be."""
        reach = 1
        while reach < end - first and self._fits(partition, max(first, end - 2 * reach), end, most):
            reach *= 2
        return max(first, end - reach)

    def _last(self, partition: int, first: int, end: int, count: int, most: int) -> Look:
        look, reach = Look(), count
        while reach > 1 and not self._fits(partition, max(first, end - reach), end, most):
            reach //= 2
        is_cut = reach < count
        while True:
            begin = max(first, end - reach)
            one = Look()
            kept = last_rows(self.batches(one, partition, begin, end, most), count)
            wider = max(first, end - reach * _WIDER)
            if is_cut or begin == first or sum(batch.num_rows for batch in kept) >= count:
                break
            # Offsets may be without records: those of markers, and those that compaction has removed.
            if not self._fits(partition, wider, end, most):
                break
            reach *= _WIDER
        records = self.records_of(partition, kept)
        begin = records[0].offset if len(records) == count else begin
        look.notes, look.read = one.notes, one.read
        look.rows += reversed(self._with_gaps(partition, records, begin, end))
        look.older = begin if begin > first else None
        return look

    def _forward(self, look: Look, partition: int, start: int, end: int, count: int, most: int) -> None:
        kept, left = list[pa.RecordBatch](), count
        until = self.end_of(partition, start, end, most)
        for batch in self.batches(look, partition, start, until, most):
            kept.append(batch.slice(0, left))
            left -= kept[-1].num_rows
            if not left:
                break
        records = self.records_of(partition, kept)
        reached = records[-1].offset + 1 if not left else until
        look.rows += self._with_gaps(partition, records, start, reached)
        look.newer = reached if reached < end else None

    def batches(self, look: Look, partition: int, start: int, end: int, most: int) -> Iterator[pa.RecordBatch]:
        """The records of a window. Damage ends it, with a note."""
        if start >= end:
            return
        at = TopicPartition(self._topic, partition)
        look.read += self._store.partitions.end_within(at, start, end, most)[1]
        try:
            yield from self._store.read(self._topic, partition, start, end, max_bytes=_STEP, headers=True)
        except CorruptRecordError as error:
            look.notes.append(f"The records after these cannot be read: [{error.condition}] {error}")

    # ---- what is made of it

    def records_of(self, partition: int, batches: Iterable[pa.RecordBatch]) -> list[Record]:
        """Rows of a partition as records."""
        found = list[Record]()
        for batch in batches:
            keys, values, headers = (batch.column(name) for name in ("key", "value", "headers"))
            columns = (
                batch.column("offset"), batch.column("timestamp").cast(pa.int64()), batch.column("timestampType"),
                pc.binary_slice(keys, 0, self._most), pc.binary_length(keys),
                pc.binary_slice(values, 0, self._most), pc.binary_length(values),
                pc.list_slice(headers, 0, MOST_HEADERS), pc.list_value_length(headers),
            )  # fmt: skip
            for offset, micros, kind, key, key_size, value, value_size, named, count in zip(
                *(column.to_pylist() for column in columns), strict=True
            ):
                pairs = [(one["key"], one["value"]) for one in named or ()]
                time = None if kind < 0 else micros // 1000
                found.append(Record(
                    partition, offset, time, kind == 1, key, key_size or 0, value, value_size or 0, pairs, count or 0
                ))  # fmt: skip
        return found

    def _with_gaps(self, partition: int, records: Sequence[Record], start: int, end: int) -> list[Record | Gap]:
        """The records of [start, end), with the offsets between them, and what became of their transactions."""
        at = TopicPartition(self._topic, partition)
        batches = self._producer_batches(partition, start, end) if start < end else []
        markers = {header.base_offset: (header.producer_id, marker) for header, marker in batches if marker is not None}
        if len(markers) > MOST_ROWS:
            markers = {}  # they are shown as one gap, or a few
        if any(header.is_transactional and marker is None for header, marker in batches):
            records = self._with_states(at, records)
        rows, next_offset = list[Record | Gap](), start
        for record in [*records, None]:
            until = end if record is None else record.offset
            while next_offset < until:
                marker = markers.get(next_offset)
                if marker is not None:
                    ending = "commit" if marker[1].commit else "abort"
                    rows.append(Gap(next_offset, next_offset, ending, marker[0]))
                    next_offset += 1
                    continue
                stop = min((offset for offset in markers if next_offset < offset < until), default=until)
                rows.append(Gap(next_offset, stop - 1))
                next_offset = stop
            if record is not None:
                rows.append(record)
                next_offset = record.offset + 1
        return rows

    def _producer_batches(
        self, partition: int, start: int, end: int
    ) -> Sequence[tuple[BatchHeader, EndTxnMarker | None]]:
        """The batches with a producer id that have offsets in [start, end), and perhaps some after them."""
        at, partitions = TopicPartition(self._topic, partition), self._store.partitions
        # A range that ends within a batch would leave that out.
        until = partitions.end_within(at, start, self.range(partition)[1], 2 * MOST_BYTES)[0]
        return partitions.producer_batches(at, start, max(end, until))

    def _with_states(self, at: TopicPartition, records: Sequence[Record]) -> list[Record]:
        stable = self._store.partitions.latest_offsets([at], isolation_level=READ_COMMITTED)[at]
        committed = set[int]()
        if records and records[0].offset < stable:
            first, end = records[0].offset, min(records[-1].offset + 1, stable)
            for batch in self._store.read(
                *_place(at), first, end, max_bytes=_STEP, columns=["offset"], isolation_level=READ_COMMITTED
            ):
                committed.update(batch.column("offset").to_pylist())

        def state(offset: int) -> str:
            return "open" if offset >= stable else "" if offset in committed else "aborted"

        return [record._replace(state=state(record.offset)) for record in records]


def _place(at: TopicPartition) -> tuple[str, int]:
    return at.topic, at.partition


def last_rows(batches: Iterable[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    """The last rows of all batches, of which only those are kept."""
    kept, rows = deque[pa.RecordBatch](), 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        while rows - kept[0].num_rows >= count:
            rows -= kept.popleft().num_rows
    if rows > count:
        kept[0] = kept[0].slice(rows - count)
    return list(kept)
