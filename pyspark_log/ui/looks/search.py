"""The search in a topic for a key, or for a text in keys, values and headers, in steps within a bound."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.ui.bounds import MOST_PARTITIONS, SCAN_BYTES
from pyspark_log.ui.looks.found import Look, Record
from pyspark_log.ui.looks.records import TOO_MANY, Reader, last_rows

_NO_ENDS: Mapping[int, int] = MappingProxyType({})


class Match(NamedTuple):
    """What a record has.

    Attributes:
        key: all of its key; None: any.
        text: bytes somewhere in its key, its value, or the name or value of a header; empty: any.
        is_any_case: whether small and capital letters are the same in `text`.
    """

    key: bytes | None = None
    text: bytes = b""
    is_any_case: bool = False

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those of a batch."""
        if self.key is not None:
            batch = batch.filter(pc.equal(batch.column("key"), _scalar(self.key)))
        if not self.text or not batch.num_rows:
            return batch
        headers = batch.column("headers")
        pairs = pc.list_flatten(headers)
        in_record = pc.or_kleene(self._has(batch.column("key")), self._has(batch.column("value")))
        in_header = pc.or_kleene(self._has(pc.struct_field(pairs, "key")), self._has(pc.struct_field(pairs, "value")))
        places = pa.concat_arrays([
            pc.indices_nonzero(in_record).cast(pa.int64()),
            pc.list_parent_indices(headers).filter(in_header).cast(pa.int64()),
        ]).unique()  # fmt: skip
        return batch.take(places.take(pc.array_sort_indices(places)))

    def _has(self, column: pa.Array) -> pa.Array:
        # As strings, which need not be valid UTF-8 here: letters are compared in any case by their characters, then.
        strings = column if column.type == pa.string() else column.view(pa.string())
        return pc.match_substring(strings, self.text, ignore_case=self.is_any_case)


def search(
    reader: Reader,
    match: Match,
    count: int,
    starts: Mapping[int, int],
    *,
    is_forward: bool = False,
    ends: Mapping[int, int] = _NO_ENDS,
) -> Look:
    """One step of a search.

    Args:
        reader: of the topic.
        match: what is looked for.
        count: of how many records at most.
        starts: the offset of each partition before which is looked, newest first; or from which on, in their order.
        is_forward: the latter.
        ends: of some partitions, the offset at which what is looked at ends.
    """
    look, matching, windows = Look(), list[Record](), dict[int, tuple[int, int]]()
    if len(starts) > MOST_PARTITIONS:
        look.notes.append(TOO_MANY.format(len(starts)))
    share = SCAN_BYTES // min(len(starts) or 1, MOST_PARTITIONS)
    for partition, start in list(starts.items())[:MOST_PARTITIONS]:
        first, end = _range(reader, partition, ends)
        begin = stop = max(first, min(start, end))
        if is_forward:
            stop = reader.end_of(partition, begin, end, share)
        else:
            begin = reader.begin_of(partition, first, stop, share)
        windows[partition] = begin, stop
        rows = map(match.rows, reader.batches(look, partition, begin, stop, share))
        matching += reader.records_of(partition, _first_rows(rows, count) if is_forward else last_rows(rows, count))
    matching.sort(key=lambda record: (record.time or 0, record.offset, record.partition), reverse=not is_forward)
    look.rows += matching[:count]
    for partition, (begin, stop) in windows.items():
        reached = _reached(matching, count, partition, stop if is_forward else begin, is_forward=is_forward)
        first, end = _range(reader, partition, ends)
        if reached < end if is_forward else reached > first:
            look.rest[partition] = reached
    _say(look, windows, is_forward=is_forward)
    return look


def _range(reader: Reader, partition: int, ends: Mapping[int, int]) -> tuple[int, int]:
    first, end = reader.range(partition)
    return first, max(first, min(end, ends.get(partition, end)))


def _reached(matching: list[Record], count: int, partition: int, bound: int, *, is_forward: bool) -> int:
    """Where the next step continues in a partition, of which all up to `bound` was looked at, or up to enough rows."""
    own = [record.offset for record in matching if record.partition == partition]
    hidden = [record.offset for record in matching[count:] if record.partition == partition]
    if hidden:
        return min(hidden) if is_forward else max(hidden) + 1
    if len(own) == count:
        return max(own) + 1 if is_forward else min(own)
    return bound


def _say(look: Look, windows: Mapping[int, tuple[int, int]], *, is_forward: bool) -> None:
    seen = sum(stop - begin for begin, stop in windows.values())
    if not seen:
        return
    span = f"{seen:,} offsets of {len(windows)} partitions"
    if len(windows) == 1:
        [(begin, stop)] = windows.values()
        span = f"the offsets {begin:,} to {stop - 1:,}"
    ending = "" if look.rest else f", and reached the {'end' if is_forward else 'start'}"
    look.notes.append(f"The search looked at {span}{ending}.")


def _first_rows(batches: Iterable[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    """The first rows of all batches; no more of these are asked for than needed."""
    kept = list[pa.RecordBatch]()
    for batch in batches:
        kept.append(batch.slice(0, count))
        count -= kept[-1].num_rows
        if not count:
            break
    return kept


def _scalar(data: bytes) -> pa.Scalar:
    """By its buffers: pa.scalar imports pandas if it is installed, which takes a third of a second and 40 MB."""
    buffers = [None, pa.py_buffer(array("i", [0, len(data)])), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), 1, buffers)[0]
