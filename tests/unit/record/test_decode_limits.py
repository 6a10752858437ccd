"""What one batch may become in memory, whatever its bytes claim."""

from __future__ import annotations

import json
import pickle
import shutil

import pyarrow as pa
import pytest
from cli_tools import pylog
from record_tools import EVERYTHING, HEADERS_TYPE, NOW, Record, build, patched, read, with_crc

from pyspark_log.config import MAX_BATCH_BYTES
from pyspark_log.errors import BatchTooLargeError, InvalidConfigError, RecordTooLargeError
from pyspark_log.spark_connector.corruption import OnCorruption
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.planning.ranges import OffsetRange
from pyspark_log.spark_connector.reading.task_reader import RangePartition, ReadPlan, read_partition
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.storage.maintenance.repair.store import repair
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.record import layout
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.record.codecs.compression import compress
from pyspark_log.storage.record.decoding.decoder import decode
from pyspark_log.storage.record.headers import scan
from pyspark_log.storage.record.layout import CODECS, ROW_BYTES
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_UNCOMMITTED, TopicPartition
from tests.store_tools import damages, new_store

HEADERS = tuple(("", None) for _ in range(100))
TINY = [Record(None, None) for _ in range(60)]  # 7 bytes each
TINY_LIMIT = 60 * (7 + ROW_BYTES)


def refuse(data: bytes, limit: int, **options) -> None:
    with pytest.raises(BatchTooLargeError, match=f"its {len(data)} bytes become more than {limit} bytes") as raised:
        decode(data, 0, len(data), max_batch_bytes=limit, **options, **EVERYTHING)
    assert (raised.value.size, raised.value.limit, raised.value.position) == (len(data), limit, 0)


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
    with pytest.raises(BatchTooLargeError, match=f"more than {MAX_BATCH_BYTES} bytes"):
        decode(bomb, 0, len(bomb), **EVERYTHING)


def empty_headers(count: int) -> pa.Array:
    """One row with `count` headers of two bytes: an empty key and no value."""
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


# ---- as a setting of the store

LOW = 1 << 20


@pytest.fixture
def store(tmp_path):
    """One record, a batch that becomes 2 MiB, and one record; the store was then set to take 1 MiB at most."""
    store = new_store(tmp_path, {"compression.type": "zstd", "retention.ms": "-1"})
    for value in (b"before", bytes(2 * LOW), b"behind"):
        store.append("t", pa.record_batch({"value": [value]}))
    return limited(store, LOW)


def limited(store, limit):
    path = f"{store.path}/store.json"
    with open(path, "rb") as file:
        content = json.load(file)
    content["settings"]["batch.max.memory.bytes"] = str(limit)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)
    return Store.open(store.path)


def test_the_store_says_how_much_a_batch_may_become(store):
    found = []
    with pytest.raises(BatchTooLargeError) as raised:
        found += store.read("t", 0)
    assert [batch["value"].to_pylist() for batch in found] == [[b"before"]]
    (log,) = store.segment_files("t", 0)
    with open(log, "rb") as file:
        data = file.read()
    batch = scan(data, 0, len(data))[1]
    error = raised.value
    assert (error.topic, error.partition, error.base_offset, error.file) == ("t", 0, 1, log)
    assert (error.size, error.limit, error.position) == (batch.size, LOW, batch.position)
    for part in ("t-0", f"its {batch.size} bytes", "base offset 1", f"{LOW} bytes", "batch.max.memory.bytes"):
        assert part in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert [b["offset"].to_pylist() for b in store.read("t", 0, 2)] == [[2]]
    assert sum(b.num_rows for b in limited(store, 3 * LOW).read("t", 0)) == 3


def test_a_batch_is_not_even_read_if_its_bytes_are_more_than_it_may_become(store):
    store = limited(store, 8 * LOW)
    store.create_topic("large", 1, {"max.message.bytes": str(8 * LOW), "retention.ms": "-1"})
    store.append("large", pa.record_batch({"value": [bytes(range(256)) * (LOW // 64)]}))
    with pytest.raises(BatchTooLargeError, match=f"more than {LOW} bytes.*batch.max.memory.bytes"):
        list(limited(store, LOW).read("large", 0))


def test_look_ups_by_time_refuse_it_too(store):
    store = limited(store, MAX_BATCH_BYTES)
    store.create_topic("tiny", 1, {"retention.ms": "-1"})
    times = pa.array(range(40_000), pa.int64())
    store.append("tiny", pa.record_batch({"value": pa.nulls(40_000, pa.binary()), "timestamp": times}))
    assert store.offset_for_timestamp("tiny", 0, 20_000).offset == 20_000
    with pytest.raises(BatchTooLargeError, match=r"batch\.max\.memory\.bytes"):
        limited(store, LOW).offset_for_timestamp("tiny", 0, 20_000)


def test_a_spark_task_and_the_command_line_name_the_setting(store):
    records = OffsetRange(TopicPartition("t", 0), 0, 3)
    task = RangePartition(
        ReadPlan(StoreRef.to(store), ("value",), READ_UNCOMMITTED, True, OnCorruption(), None, None, ("value",)),
        records,
        None,
    )
    with pytest.raises(ConnectorError, match=r"PYLOG_BATCH_TOO_LARGE.*t-0.*batch\.max\.memory\.bytes"):
        list(read_partition(task))
    for command in (["consume", "t"], ["dump", "--topic", "t", "--partition", "0", "--records"]):
        result = pylog(store, *command)
        assert result.exit_code == 1
        assert "[PYLOG_BATCH_TOO_LARGE] t-0" in result.stderr
        assert "batch.max.memory.bytes" in result.stderr


def test_verify_and_repair_name_the_setting_and_with_it_all_is_whole(store, tmp_path):
    (found,) = damages(store.path)
    assert (found.first_offset, found.next_offset) == (1, 2)
    assert "batch.max.memory.bytes" in found.advice
    (loss,) = repair(store.path, tmp_path / "copy").losses
    assert (loss.first_offset, loss.next_offset) == (1, 2)
    assert f"more than {LOW} bytes" in loss.reason
    shutil.rmtree(tmp_path / "copy")
    store = limited(store, 3 * LOW)
    assert not verify(store.path).damaged
    assert repair(store.path, tmp_path / "copy").complete


def test_what_is_written_can_be_read(tmp_path):
    store = Store.create(tmp_path / "store", {"batch.max.memory.bytes": str(LOW)})
    store.create_topic("t", 1, {"max.message.bytes": str(8 * LOW), "retention.ms": "-1"})
    with pytest.raises(RecordTooLargeError, match=r"batch\.max\.memory\.bytes"):
        store.append("t", pa.record_batch({"value": [bytes(LOW)]}))
    with pytest.raises(RecordTooLargeError, match=r"t-0.*batch\.max\.memory\.bytes"):
        store.append_batch("t", 0, build([Record(None, bytes(LOW))], "zstd"))
    store.append("t", pa.record_batch({"value": pa.nulls(100_000, pa.binary())}))
    assert sum(batch.num_rows for batch in store.read("t", 0)) == 100_000


@pytest.mark.parametrize("limit", [0, LOW - 1, 2**31 - 63, "much"])
def test_settings_out_of_range(tmp_path, limit):
    with pytest.raises(InvalidConfigError, match=r"batch\.max\.memory\.bytes"):
        Store.create(tmp_path / "store", {"batch.max.memory.bytes": str(limit)})
