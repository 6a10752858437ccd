"""How single records are shown as text, which keeps their bytes."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

#: Names of `timestampType`, as Kafka's tools print them.
TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
_KINDS = pa.array([TIMESTAMP_TYPES[number] for number in sorted(TIMESTAMP_TYPES)])


@dataclass(frozen=True)
class TextLayout:
    """What precedes the value on a line, in the order and form of Kafka's console consumer."""

    timestamp: bool
    partition: bool
    offset: bool
    headers: bool
    key: bool
    separator: bytes
    null: bytes


def text_lines(batch: pa.RecordBatch, layout: TextLayout) -> bytes:
    """Each record's value, and what the layout wants before it, then a line end; bytes stay as they are."""
    if not batch.num_rows:
        return b""
    columns = []
    if layout.timestamp:
        columns.append(joined(time_types(batch), times(batch), b":"))
    if layout.partition:
        columns.append(joined(b"Partition", batch.column("partition").cast(pa.string()), b":"))
    if layout.offset:
        columns.append(joined(b"Offset", batch.column("offset").cast(pa.string()), b":"))
    if layout.headers:
        columns.append(header_texts(batch.column("headers"), layout.null, between=b":", none=b"NO_HEADERS"))
    for name in ("key", "value") if layout.key else ("value",):
        columns.append(batch.column(name).fill_null(layout.null).cast(pa.large_binary()))
    lines = columns[0] if len(columns) == 1 else joined(*columns, layout.separator)
    return data_of(joined(lines, b"", b"\n"))


def time_types(batch: pa.RecordBatch) -> pa.Array:
    """The name of each record's type of time."""
    return _KINDS.take(pc.add(batch.column("timestampType"), 1))


def times(batch: pa.RecordBatch) -> pa.Array:
    """Each record's time in ms, as text."""
    return batch.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).cast(pa.string())


def data_of(texts: pa.Array) -> bytes:
    """All texts of a column that `joined` has made, one after the other."""
    # They follow each other in its buffer; it is new, so the first begins at its start.
    return bytes(memoryview(texts.buffers()[2])[: pc.sum(pc.binary_length(texts)).as_py() or 0])


def joined(*parts: pa.Array | bytes) -> pa.Array:
    """Texts joined row by row, null if one of them is; the last part is what is between them."""
    kind = pa.large_binary()
    return pc.binary_join_element_wise(
        *[pa.scalar(part, kind) if isinstance(part, bytes) else part.cast(kind) for part in parts]
    )


def header_texts(headers: pa.Array, null: bytes, *, between: bytes, none: bytes) -> pa.Array:
    """The headers of each record with commas between them: a:1,b:2.

    Args:
        headers: the column.
        null: the text of a null value.
        between: what is between the name of a header and its value.
        none: the text of a record without headers.
    """
    entries = headers.flatten()
    values = pc.struct_field(entries, "value").fill_null(null)
    texts = pc.binary_join_element_wise(pc.struct_field(entries, "key").cast(pa.binary()), values, between)
    lengths = pc.list_value_length(headers).fill_null(0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), b",")
    return pc.if_else(pc.equal(lengths, 0), none, joined).cast(pa.large_binary())


def times_ms(column: pa.Array) -> list[int]:
    """The times of a timestamp column in ms."""
    return [micros // 1000 for micros in column.cast(pa.int64()).to_pylist()]
