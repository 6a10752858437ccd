"""What one batch may become in memory, whatever its bytes claim."""

from __future__ import annotations

import pyarrow as pa
import pytest
from record_tools import EVERYTHING, HEADERS_TYPE, NOW, Record, build, patched, read, with_crc

from pyspark_log.storage import batch as layout
from pyspark_log.storage.batch import CODECS, MAX_BATCH_BYTES, ROW_BYTES
from pyspark_log.storage.compression import compress
from pyspark_log.storage.errors import CorruptRecordError, RecordTooLargeError
from pyspark_log.storage.records import BatchBuilder, RecordColumns, decode

HEADERS = tuple(("", None) for _ in range(100))
TINY = [Record(None, None) for _ in range(60)]  # 7 bytes each
TINY_LIMIT = 60 * (7 + ROW_BYTES)


def refuse(data: bytes, limit: int, **options) -> None:
    with pytest.raises(CorruptRecordError, match=f"more than {limit} bytes"):
        decode(data, 0, len(data), max_batch_bytes=limit, **options, **EVERYTHING)


@pytest.mark.parametrize("codec", CODECS)
def test_many_tiny_records_count_with_their_columns(codec):
    data = build(TINY, codec)
    assert len(read(data, max_batch_bytes=TINY_LIMIT)) == 60
    refuse(data, TINY_LIMIT - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_many_tiny_headers_count_if_they_are_read(codec):
    data = build([Record(None, None, NOW, HEADERS)], codec)
    needed = 1 + 2 * 100 + 1 + 7 + ROW_BYTES * (1 + 100)  # two of its lengths take two bytes
    assert len(read(data, max_batch_bytes=needed)[0].headers) == 100
    refuse(data, needed - 1, headers=True)
    assert decode(data, 0, len(data), max_batch_bytes=needed - 1, **EVERYTHING).num_rows == 1


@pytest.mark.parametrize("headers", [(), HEADERS])
def test_a_chunk_ends_before_the_batch_that_does_not_fit(headers):
    records = [Record(None, None, NOW, headers)] * 10
    first = build(records)
    log, limit = first + build(records, base_offset=10), len(first) + ROW_BYTES * 10 * (1 + len(headers))
    chunk = decode(log, 0, len(log), headers=True, max_batch_bytes=limit, **EVERYTHING)
    assert (chunk.num_rows, chunk.position) == (10, len(first))
    assert len(read(log, max_batch_bytes=limit)) == 20


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_stream_that_becomes_too_large_is_refused(codec):
    header = patched(build(TINY)[:61], layout.ATTRIBUTES_AT, 2, CODECS.index(codec))
    refuse(with_crc(header + bytes(compress(codec, bytes(100_000)))), 50_000)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_bombs_are_refused_without_being_asked_to(codec):
    header = patched(build(TINY)[:61], layout.ATTRIBUTES_AT, 2, CODECS.index(codec))
    bomb = with_crc(header + bytes(compress(codec, bytes(MAX_BATCH_BYTES + 1))))
    with pytest.raises(CorruptRecordError, match=f"more than {MAX_BATCH_BYTES} bytes"):
        decode(bomb, 0, len(bomb), **EVERYTHING)


def empty_headers(count: int) -> pa.Array:
    """One row with so many headers of two bytes: an empty key and no value."""
    edges, nulls = pa.py_buffer(bytes(4 * (count + 1))), pa.py_buffer(bytes(count // 8 + 1))
    keys = pa.Array.from_buffers(pa.string(), count, [None, edges, pa.py_buffer(b"")])
    values = pa.Array.from_buffers(pa.binary(), count, [nulls, edges, pa.py_buffer(b"")])
    headers = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
    return pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), headers)


@pytest.mark.slow
def test_nothing_is_written_that_is_too_large_to_read():
    most = (MAX_BATCH_BYTES - ROW_BYTES - 20) // (2 + ROW_BYTES)
    builder = BatchBuilder(1 << 30, 1 << 30)
    builder.append(RecordColumns(None, pa.nulls(1), None, empty_headers(most), NOW), None, 0, 1)
    data = builder.seal()
    assert len(decode(data, 0, len(data), headers=True, **EVERYTHING).columns["headers"].values) == most
    with pytest.raises(RecordTooLargeError, match=f"a batch may take {MAX_BATCH_BYTES}"):
        builder.append(RecordColumns(None, pa.nulls(1), None, empty_headers(most + 20), NOW), None, 0, 1)


@pytest.mark.slow
def test_the_fullest_batch_can_be_read():
    builder, rows = BatchBuilder(1 << 30, 1 << 30), 5_000_000
    taken = builder.append(RecordColumns(None, pa.nulls(rows), None, None, NOW), None, 0, rows)
    assert taken < rows
    data = builder.seal()
    assert decode(data, 0, len(data), **EVERYTHING).num_rows == taken


@pytest.mark.parametrize("limit", [0, -1, 2**31 - 63])
def test_limits_out_of_range(limit):
    with pytest.raises(ValueError, match=f"max_batch_bytes {limit}"):
        decode(b"", 0, 0, max_batch_bytes=limit, **EVERYTHING)
