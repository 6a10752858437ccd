"""The record codec: bytes that Kafka wrote, what each header field means, and bytes that are damaged."""

from __future__ import annotations

import json
from array import array
from itertools import pairwise

import pyarrow as pa
import pytest
from record_tools import EVERYTHING, HEADERS_TYPE, NOW, Record, build, columns_of, patched, read, rows_of, with_crc

from pyspark_log.errors import CorruptRecordError, InvalidConfigError, InvalidRecordError, RecordTooLargeError
from pyspark_log.storage.record import layout
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.record.codecs.compression import compress
from pyspark_log.storage.record.decoding.decoder import decode
from pyspark_log.storage.record.headers import assign_offsets, scan, set_log_append_time
from tests.old_messages import three
from tests.paths import GOLDEN as GOLDEN_FOLDER

GOLDEN = {
    str(path.relative_to(GOLDEN_FOLDER)): json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(GOLDEN_FOLDER.glob("**/[0-9][0-9]_*.json"))
    if path.parent.name in ("golden", "kafka-java")
}
# Kafka's builder and ours have no way to ask for these; the rest must come out byte for byte.
REBUILT = [
    name
    for name, golden in GOLDEN.items()
    if golden["inputs"]["compression"] in ("none", "snappy")
    and (not golden.get("patched") or golden["inputs"]["logAppendTime"] is not None)
]
THREE = [Record(b"k%d" % i, b"value %d" % i, NOW + i) for i in range(3)]
CODECS = pytest.mark.parametrize("codec", layout.CODECS)


def from_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def golden_records(inputs: dict, appended: int | None) -> list[Record]:
    return [
        Record(
            from_hex(r["key"]),
            from_hex(r["value"]),
            r["timestamp"] if appended is None else appended,
            tuple((k, from_hex(v)) for k, v in r["headers"]),
            inputs["baseOffset"] + r["offsetDelta"],
            0 if appended is None else 1,
        )
        for r in inputs["records"]
    ]


def test_there_are_golden_batches():
    assert len(GOLDEN) == 31
    assert len(REBUILT) == 19


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_batch_decodes_to_its_inputs(name):
    inputs, data = GOLDEN[name]["inputs"], bytes.fromhex(GOLDEN[name]["hex"])
    expected = [] if inputs["control"] else golden_records(inputs, inputs["logAppendTime"])
    assert read(data) == expected


@pytest.mark.parametrize("name", REBUILT)
def test_golden_batch_is_encoded_to_the_same_bytes(name):
    inputs = GOLDEN[name]["inputs"]
    made = build(
        golden_records(inputs, None),
        inputs["compression"],
        base_offset=inputs["baseOffset"],
        leader_epoch=inputs["partitionLeaderEpoch"],
        producer_id=inputs["producerId"],
        producer_epoch=inputs["producerEpoch"],
        base_sequence=inputs["baseSequence"],
        transactional=inputs["transactional"],
        control=inputs["control"],
        log_append_time=inputs["logAppendTime"],
    )
    assert made.hex() == GOLDEN[name]["hex"]


@pytest.mark.parametrize("name", [name for name, golden in GOLDEN.items() if "header" in golden])
def test_golden_header(name):
    golden, inputs = GOLDEN[name], GOLDEN[name]["inputs"]
    (header,) = scan(bytes.fromhex(golden["hex"]), 0, golden["size"], check_crcs=True)
    expected = golden["header"]
    assert header._asdict() == {
        "position": 0,
        "base_offset": expected["baseOffset"],
        "size": golden["size"],
        "leader_epoch": expected["partitionLeaderEpoch"],
        "magic": 2,
        "crc": expected["crc"],
        "attributes": expected["attributes"],
        "last_offset_delta": expected["lastOffsetDelta"],
        "base_timestamp": expected["baseTimestamp"],
        "max_timestamp": expected["maxTimestamp"],
        "producer_id": expected["producerId"],
        "producer_epoch": expected["producerEpoch"],
        "base_sequence": expected["baseSequence"],
        "count": expected["recordsCount"],
    }
    assert header.codec == inputs["compression"]
    assert header.is_control == inputs["control"]
    assert header.is_transactional == inputs["transactional"]
    assert header.timestamp_type == (0 if inputs["logAppendTime"] is None else 1)
    assert header.delete_horizon == inputs["deleteHorizonMs"]
    assert header.end == golden["size"]
    assert header.next_offset == header.last_offset + 1 == header.base_offset + header.last_offset_delta + 1


def test_struct_of_the_header_agrees_with_the_positions():
    assert layout.HEADER.size == layout.HEADER_SIZE == 61


def test_worked_example_of_kafkas_own_tests():
    data = build([Record(b"key1", b"value1", 283843), Record(b"key2", b"value2", 1234)])
    assert len(data) == 97
    assert scan(data, 0, len(data))[0].crc == 3851219455


@CODECS
def test_round_trip_of_nulls_empties_headers_and_times(codec):
    records = [
        Record(None, None, -1),
        Record(b"", b"", 5, (("", b""), ("twice", None), ("twice", b"x"))),
        Record(b"k" * 200, b"v" * 70_000, (2**63 - 1) // 1000, (("ключ", b"\x00\xff"),)),
        Record(None, b"after", 3),
    ]
    expected = [Record(r.key, r.value, r.timestamp, r.headers, 40 + i) for i, r in enumerate(records)]
    assert read(build(records, codec, base_offset=40)) == expected


@pytest.mark.parametrize("field", ["key", "value"])
def test_lengths_about_each_width_of_a_number_and_of_a_block(field):
    # Lengths and times of one to five bytes; values that are copied in blocks, and those that are not. Each is once the
    # last of its batch, where there is no room to read or to write beyond it.
    for size in (0, 1, 31, 32, 33, 63, 64, 224, 255, 256, 257, 8190, 8191, 8192, 2**20 - 9, 2**20, 2**20 + 1):
        data = bytes(range(251)) * (size // 251 + 1)
        rows = [
            Record(timestamp=NOW + step, offset=number, **{field: data[:size]})
            for number, step in enumerate((0, 63, 64, 8191, 8192, 2**20 - 1, 2**20, -(2**20) - 1, 2**34))
        ]
        for count in (1, 2, len(rows)):
            assert read(build(rows[:count])) == rows[:count]


def test_columns_grow_with_the_batches():
    rows = [
        Record(None if number % 3 else b"k", b"v" * (number % 50) if number % 5 else None, offset=number)
        for number in range(3000)
    ]
    cuts = [0, 1, 5, 700, 701, 3000]
    pieces = [rows[start:end] for start, end in pairwise(cuts)]
    for codec in ("none", "lz4"):
        log = bytearray(b"".join(build(piece, codec) for piece in pieces))
        assign_offsets(log, 0, len(log), 0, 0)
        for headers in (False, True):
            chunk = decode(log, 0, len(log), **EVERYTHING, headers=headers)
            assert chunk.position == len(log)
            assert chunk.columns["key"].to_pylist() == [row.key for row in rows]
            assert chunk.columns["value"].to_pylist() == [row.value for row in rows]


def test_records_without_nulls_have_no_bitmaps():
    columns = decode(data := build(THREE), 0, len(data), headers=True, **EVERYTHING).columns
    assert columns["key"].buffers()[0] is None
    assert columns["value"].buffers()[0] is None
    assert columns["headers"].null_count == 3


def test_headers_only_if_asked_for():
    data = build(THREE)
    assert "headers" not in decode(data, 0, len(data), **EVERYTHING).columns


@pytest.mark.parametrize("name", ["key", "value"])
@pytest.mark.parametrize("magic", [2, 1])
def test_a_column_that_is_not_asked_for_is_left_out_and_changes_no_other(name, magic):
    records = [Record(b"k" * 40, None, 1), Record(None, b"v" * 40, 2), Record(b"short", b"", 3)]
    data = build(records) if magic == layout.MAGIC else three(magic)
    whole = decode(data, 0, len(data), **EVERYTHING).columns
    other = decode(data, 0, len(data), **{f"{name}s": False}, **EVERYTHING).columns
    assert other == {column: array for column, array in whole.items() if column != name}


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view(), pa.binary(2)],
    ids=str,
)
def test_columns_of_any_layout_and_slices_of_them(kind):
    values = pa.array(["aa", None, "bb", "cc", None, "dd"]).cast(pa.binary())
    column = (values if pa.types.is_fixed_size_binary(kind) else values.cast(pa.string())).cast(kind)
    builder = BatchBuilder(1 << 20, 1 << 20)
    builder.append(RecordColumns(column[1:5], column[2:6], None, None, NOW), None, 0, 4)
    assert [(r.key, r.value, r.timestamp) for r in read(builder.seal())] == [
        (None, b"bb", NOW),
        (b"bb", b"cc", NOW),
        (b"cc", None, NOW),
        (None, b"dd", NOW),
    ]


def test_slices_of_headers_and_times():
    headers = pa.array([[("x", b"no")], [("a", b"1"), ("b", None)], None, [], [("c", b"")]], HEADERS_TYPE)
    times = pa.array([1, 2, None, 4, 5], pa.timestamp("ms"))
    builder = BatchBuilder(1 << 20, 1 << 20)
    builder.append(RecordColumns(None, pa.nulls(4), times[1:], headers[1:], 77), None, 0, 4)
    assert [(r.timestamp, r.headers) for r in read(builder.seal())] == [
        (2, (("a", b"1"), ("b", None))),
        (77, ()),
        (4, ()),
        (5, (("c", b""),)),
    ]


def test_rows_are_taken_by_number():
    columns = columns_of([Record(value=b"%d" % i) for i in range(6)])
    builder = BatchBuilder(1 << 20, 1 << 20)
    assert builder.append(columns, array("i", [9, 4, 1, 4, 9]), 1, 4) == 3
    assert [r.value for r in read(builder.seal())] == [b"4", b"1", b"4"]
    with pytest.raises(IndexError, match="row 9 of 6"):
        builder.append(columns, array("i", [9]), 0, 1)
    with pytest.raises(IndexError):
        builder.append(columns, None, 3, 7)
    with pytest.raises(TypeError):
        builder.append(columns, array("h", [1]), 0, 1)


def test_a_batch_ends_before_its_size_is_passed():
    columns = columns_of([Record(None, bytes(93)) for _ in range(25)])  # 101 to 102 bytes each
    builder = BatchBuilder(1020, 1 << 20)
    took = builder.append(columns, None, 0, 25)
    assert 9 <= took == builder.count <= 10
    assert 1020 - 102 < builder.size <= 1020
    assert builder.append(columns, None, took, 25) == 0
    size = builder.size
    assert len(builder.seal()) == 61 + size
    assert (builder.count, builder.size) == (0, 0)
    assert builder.append(columns, None, took, 25) == took


def test_the_first_record_always_fits():
    columns = columns_of([Record(None, bytes(5000)), Record(None, b"small")])
    builder = BatchBuilder(10, 1 << 20)
    assert builder.append(columns, None, 0, 2) == 1
    assert [len(r.value) for r in read(builder.seal())] == [5000]


@CODECS
def test_a_builder_makes_one_batch_after_the_other(codec):
    builder = BatchBuilder(2000, 1 << 20, codec)
    records = [Record(b"%d" % i, bytes(i), NOW - i) for i in range(200)]
    columns, taken, log = columns_of(records), 0, b""
    while taken < 200:
        first = taken
        taken += builder.append(columns, None, taken, 200)
        log += builder.seal(base_offset=first)
    assert len(scan(log, 0, len(log), check_crcs=True)) > 5
    assert read(log) == [Record(r.key, r.value, r.timestamp, (), i) for i, r in enumerate(records)]


def test_batch_above_the_limit_is_refused_and_dropped():
    builder = BatchBuilder(1000, 61 + 50)
    builder.append(columns_of([Record(None, bytes(100))]), None, 0, 1)
    with pytest.raises(RecordTooLargeError, match=r"170 bytes.*allows 111.*max\.message\.bytes"):
        builder.seal()
    assert builder.count == 0
    with pytest.raises(ValueError, match="at least one record"):
        builder.seal()


def test_the_limit_counts_compressed_bytes():
    builder = BatchBuilder(1 << 20, 1000, "zstd")
    builder.append(columns_of([Record(None, bytes(100_000))]), None, 0, 1)
    assert len(builder.seal()) < 1000


def test_max_timestamp_is_the_largest_and_base_is_the_first():
    data = build([Record(timestamp=5), Record(timestamp=9), Record(timestamp=-1), Record(timestamp=2)])
    (header,) = scan(data, 0, len(data))
    assert (header.base_timestamp, header.max_timestamp) == (5, 9)
    assert [r.timestamp for r in read(data)] == [5, 9, -1, 2]


@pytest.mark.parametrize("time", [-2, -(2**63), (2**63 - 1) // 1000 + 1, 2**63 - 1])
def test_impossible_times_are_refused(time):
    with pytest.raises(InvalidRecordError, match=f"row 1 has timestamp {time}"):
        RecordColumns(None, pa.nulls(2), pa.array([1, time]), None, NOW)


@pytest.mark.parametrize(
    ("column", "array"),
    [
        ("key", pa.array([1])),
        ("value", pa.array([[b"x"]])),
        ("timestamp", pa.array([1], pa.int32())),
        ("timestamp", pa.array([1], pa.timestamp("us"))),
        ("headers", pa.array([b"x"])),
        ("headers", pa.array([[b"x"]])),
        ("headers", pa.array([[{"key": b"x", "value": b""}]])),
        ("headers", pa.array([[{"key": "x", "value": 1}]])),
        ("headers", pa.array([[{"key": "x", "value": b"", "more": 1}]])),
        ("headers", pa.array([[{"key": None, "value": b""}]], HEADERS_TYPE)),
        ("headers", pa.array([[None]], HEADERS_TYPE)),
        ("key", pa.array([b"x", b"y"])),
    ],
)
def test_columns_that_are_no_records_are_refused(column, array):
    columns = {"key": None, "value": pa.array([b""]), "timestamp": None, "headers": None, column: array}
    with pytest.raises(InvalidRecordError):
        RecordColumns(*columns.values(), NOW)


@pytest.mark.parametrize("edges", [[0, 5, 2], [0, -1, 2]])
def test_columns_whose_offsets_leave_their_data_are_refused(edges):
    buffers = [None, pa.py_buffer(array("i", edges)), pa.py_buffer(b"abcd")]
    with pytest.raises(InvalidRecordError, match="offsets do not fit"):
        RecordColumns(pa.Array.from_buffers(pa.binary(), 2, buffers), None, None, None, NOW)


def test_columns_whose_buffers_are_too_short_are_refused():
    batch = pa.record_batch({"value": [b"xy"] * 77})
    true, false = (77).to_bytes(8, "little"), (7700).to_bytes(8, "little")
    claims_more = batch.serialize().to_pybytes().replace(true, false)
    value = pa.ipc.read_record_batch(pa.py_buffer(claims_more), batch.schema).column(0)
    assert len(value) == 7700
    with pytest.raises(InvalidRecordError, match="too short"):
        RecordColumns(None, value, None, None, NOW)


@pytest.mark.parametrize(("codec", "level"), [("lzo", None), ("none", 1), ("gzip", 10), ("zstd", 23), ("lz4", 18)])
def test_unknown_codecs_and_levels_are_refused(codec, level):
    with pytest.raises(InvalidConfigError):
        BatchBuilder(1, 1, codec, level)


# What the header says


def test_compacted_batch_keeps_its_offsets():
    data = bytes.fromhex(GOLDEN["21_compacted_gaps.json"]["hex"])
    chunk = decode(data, 0, len(data), **EVERYTHING)
    assert chunk.columns["offset"].to_pylist() == [102, 105]
    assert chunk.next_offset == 110


def test_empty_batch_of_the_cleaner():
    data = patched(patched(build(THREE)[:61], layout.COUNT_AT, 4, 0), layout.LAST_OFFSET_DELTA_AT, 4, 9)
    chunk = decode(data, 0, 61, **EVERYTHING)
    assert (chunk.num_rows, chunk.position, chunk.next_offset) == (0, 61, 10)


def test_log_append_time_is_the_time_of_all_records():
    stamped = patched(patched(build(THREE), layout.MAX_TIMESTAMP_AT, 8, 15), layout.ATTRIBUTES_AT, 2, 8)
    assert [(r.timestamp, r.timestamp_type) for r in read(stamped)] == [(15, 1)] * 3


def test_offset_and_epoch_are_outside_the_crc():
    log = bytearray(build(THREE) + build(THREE, "gzip") + build(THREE[:1]))
    assert assign_offsets(log, 0, len(log), 498, 7) == 505
    assert [(h.base_offset, h.leader_epoch) for h in scan(log, 0, len(log), check_crcs=True)] == [
        (498, 7),
        (501, 7),
        (504, 7),
    ]
    assert [r.offset for r in read(bytes(log))] == list(range(498, 505))


def test_stamp_of_a_part_changes_nothing_else():
    first, log = build(THREE), bytearray(build(THREE) * 3)
    assign_offsets(log, len(first), 2 * len(first), 1000, 1)
    assert log[: len(first)] == log[2 * len(first) :] == first
    assert scan(log, len(first), 2 * len(first))[0].base_offset == 1000


@pytest.mark.parametrize("cut", [1, 60, 70])
def test_stamp_refuses_a_torn_chain_and_leaves_it_alone(cut):
    log = bytearray(build(THREE) * 2)[:-cut]
    before = bytes(log)
    with pytest.raises(CorruptRecordError, match="not all there"):
        assign_offsets(log, 0, len(log), 10, 0)
    assert log == before


@pytest.mark.parametrize("base", [-1, 2**63 - 3])
def test_stamp_refuses_offsets_beyond_64_bits(base):
    log = bytearray(build(THREE))
    with pytest.raises(ValueError, match="base offset"):
        assign_offsets(log, 0, len(log), base, 0)


@CODECS
def test_restamp_gives_the_bytes_that_the_builder_would_have_made(codec):
    log = bytearray(build(THREE, codec) + build(THREE[:1], transactional=True))
    set_log_append_time(log, 0, len(log), 15)
    assert log == build(THREE, codec, log_append_time=15) + build(THREE[:1], transactional=True, log_append_time=15)
    assert [(r.timestamp, r.timestamp_type) for r in read(bytes(log))] == [(15, 1)] * 4


@pytest.mark.parametrize("damage", [slice(-1, None), slice(-3, -2)], ids=["torn", "wrong CRC"])
def test_restamp_refuses_damage_and_changes_nothing(damage):
    log = bytearray(build(THREE) * 2)
    log[damage] = b"?" if damage.stop else b""
    before = bytes(log)
    with pytest.raises(CorruptRecordError):
        set_log_append_time(log, 0, len(log), 15)
    assert log == before


@pytest.mark.parametrize("time", [-1, (2**63 - 1) // 1000 + 1])
def test_append_times_that_no_record_can_have_are_refused(time):
    with pytest.raises(ValueError, match=f"append time {time} ms"):
        build(THREE, log_append_time=time)
    with pytest.raises(ValueError, match=f"append time {time} ms"):
        set_log_append_time(bytearray(build(THREE)), 0, 1, time)


def test_ranges_outside_the_buffer_are_refused():
    for start, end in ((-1, 5), (3, 2), (0, 11)):
        with pytest.raises(ValueError, match="not inside"):
            decode(bytes(10), start, end, **EVERYTHING)


# Where a chunk ends


def log_of(*counts: int, codec: str = "none") -> bytes:
    """Batches with these numbers of records, with offsets from 0 on."""
    log, offset = b"", 0
    for count in counts:
        log += build([Record(None, b"%d" % (offset + i)) for i in range(count)], codec, base_offset=offset)
        offset += count
    return log


@CODECS
def test_range_of_offsets(codec):
    log = log_of(3, 3, 3, codec=codec)
    ends = [h.end for h in scan(log, 0, len(log))]
    chunk = decode(log, 0, len(log), from_offset=4, until_offset=6, max_bytes=1 << 20)
    assert chunk.columns["value"].to_pylist() == [b"4", b"5"]
    assert (chunk.position, chunk.next_offset) == (ends[1], 6)
    chunk = decode(log, 0, len(log), from_offset=4, until_offset=7, max_bytes=1 << 20)
    assert chunk.columns["offset"].to_pylist() == [4, 5, 6]
    assert (chunk.position, chunk.next_offset) == (ends[2], 9)


def test_skipped_batches_are_not_looked_at():
    log = bytearray(log_of(3, 3))
    log[70] ^= 1
    chunk = decode(log, 0, len(log), from_offset=3, until_offset=99, max_bytes=1)
    assert chunk.columns["value"].to_pylist() == [b"3", b"4", b"5"]


@pytest.mark.parametrize(("max_bytes", "rows"), [(0, 2), (16, 2), (17, 4), (32, 4), (33, 6), (1 << 40, 6)])
def test_chunk_ends_with_the_batch_that_reaches_max_bytes(max_bytes, rows):
    log = log_of(2, 2, 2)  # 16 bytes of records each
    assert decode(log, 0, len(log), from_offset=0, until_offset=99, max_bytes=max_bytes).num_rows == rows


@pytest.mark.parametrize("cut", [1, 40, 61, 75, 76])
def test_incomplete_tail_is_left_without_an_error(cut):
    whole = log_of(2)
    log = (whole + log_of(2))[:-cut]
    for end in (decode(log, 0, len(log), **EVERYTHING).position, scan(log, 0, len(log))[-1].end):
        assert end == len(whole)


def test_zeros_beyond_the_end_are_left_without_an_error():
    whole = log_of(2)
    log = whole + bytes(500)
    chunk = decode(log, 0, len(log), **EVERYTHING)
    assert (chunk.num_rows, chunk.position, chunk.next_offset) == (2, len(whole), 2)
    assert len(scan(log, 0, len(log))) == 1


def test_nothing_gives_an_empty_chunk():
    chunk = decode(b"", 0, 0, from_offset=7, until_offset=9, max_bytes=1, headers=True)
    assert (chunk.num_rows, chunk.position, chunk.next_offset) == (0, 0, 7)
    assert rows_of(chunk) == []


@CODECS
def test_batches_before_a_bad_one_come_first(codec):
    good = log_of(2, 1, codec=codec)
    bad = bytearray(build(THREE, codec, base_offset=3))
    bad[-1] ^= 0x55
    log = good + bytes(bad)
    chunk = decode(log, 0, len(log), headers=True, **EVERYTHING)
    assert [r.value for r in rows_of(chunk)] == [b"0", b"1", b"2"]
    assert (chunk.position, chunk.next_offset) == (len(good), 3)
    with pytest.raises(CorruptRecordError) as caught:
        decode(log, chunk.position, len(log), **EVERYTHING)
    assert (caught.value.position, caught.value.base_offset) == (len(good), 3)


@CODECS
def test_records_before_a_bad_one_in_its_batch_are_not_given(codec):
    """Its nulls and headers must leave no trace in the rows of the batches before it."""
    good = [Record(b"k", b"v", NOW, (("h", b"x"),)), Record(None, b"w")]
    three = build([Record(None, None, NOW, (("h", None),)), *good], codec, base_offset=2)
    bad = patched(three, layout.COUNT_AT, 4, 4)
    log = build(good, codec) + bad
    chunk = decode(log, 0, len(log), headers=True, **EVERYTHING)
    assert rows_of(chunk) == [Record(b"k", b"v", NOW, (("h", b"x"),), 0), Record(None, b"w", NOW, (), 1)]
    assert len(chunk.columns["headers"].values) == 1
    with pytest.raises(CorruptRecordError, match="record 3 of 4"):
        decode(log, chunk.position, len(log), **EVERYTHING)


def test_control_batches_give_no_rows():
    marker = bytes.fromhex(GOLDEN["kafka-java/19_control_commit.json"]["hex"])
    log = marker + build(THREE, base_offset=56)
    assert [r.offset for r in read(log)] == [56, 57, 58]
    chunk = decode(log, 0, len(marker), **EVERYTHING)
    assert (chunk.num_rows, chunk.position, chunk.next_offset) == (0, len(marker), 56)


# Damage


def refuse(data: bytes, match: str, **options) -> None:
    with pytest.raises(CorruptRecordError, match=match):
        decode(data, 0, len(data), headers=True, **{**EVERYTHING, **options})


@CODECS
@pytest.mark.parametrize("at", [17, 21, 30, 60, 61, 75])
def test_any_changed_byte_under_the_crc_is_found(codec, at):
    data = bytearray(build(THREE, codec))
    data[at] ^= 0x04
    refuse(bytes(data), "CRC")
    with pytest.raises(CorruptRecordError, match="CRC"):
        scan(data, 0, len(data), check_crcs=True)


@pytest.mark.parametrize(
    ("at", "width", "value", "match"),
    [
        (layout.LENGTH_AT, 4, 13, "length is smaller than any batch"),
        (layout.LENGTH_AT, 4, -1, "length is smaller than any batch"),
        (layout.LENGTH_AT, 4, 48, "smaller than a batch header"),
        (layout.MAGIC_AT, 1, 3, "no message format"),
        (layout.MAGIC_AT, 1, -1, "no message format"),
        (layout.BASE_OFFSET_AT, 8, -1, "base offset is negative"),
        (layout.BASE_OFFSET_AT, 8, 2**63 - 1, "beyond 64 bits"),
        (layout.LAST_OFFSET_DELTA_AT, 4, -1, "last offset delta is negative"),
        (layout.ATTRIBUTES_AT, 2, 5, "no codec"),
        (layout.ATTRIBUTES_AT, 2, 7, "no codec"),
        (layout.COUNT_AT, 4, -1, "count is negative"),
    ],
)
def test_headers_that_make_no_sense(at, width, value, match):
    data = bytearray(build(THREE))
    data[at : at + width] = value.to_bytes(width, "big", signed=True)
    refuse(bytes(data), match, check_crcs=False)
    with pytest.raises(CorruptRecordError, match=match):
        scan(data, 0, len(data))


@CODECS
@pytest.mark.parametrize(("count", "match"), [(4, "too early"), (2, "bytes remain"), (2**31 - 1, "do not fit")])
def test_wrong_record_count(codec, count, match):
    data = patched(build(THREE, codec), layout.LAST_OFFSET_DELTA_AT, 4, 2**31 - 1)
    refuse(patched(data, layout.COUNT_AT, 4, count), match)


def batch_around(records: str, count: int = 1) -> bytes:
    """A batch whose uncompressed records are these bytes."""
    header = patched(build(THREE)[:61], layout.LAST_OFFSET_DELTA_AT, 4, 2**31 - 1)
    return with_crc(patched(header, layout.COUNT_AT, 4, count) + bytes.fromhex(records))


@pytest.mark.parametrize(
    ("records", "key", "value"),
    [
        ("0c 00 00 00 01 01 00", None, None),
        ("0c 00 00 00 03 01 00", None, None),
        ("14 00 00 00 fdffffff0f 01 00", None, None),
        ("10 00 00 00 8000 8000 00", b"", b""),
        ("0e ff 00 00 02 6b 01 00", b"k", None),
    ],
    ids=["null", "any-negative-length", "large-negative-length", "long-zero", "attributes"],
)
def test_odd_records_that_kafka_reads(records, key, value):
    assert [(r.key, r.value) for r in read(batch_around(records))] == [(key, value)]


@pytest.mark.parametrize(
    ("records", "match"),
    [
        ("01 00 00 00 01 01 00", "length is not inside"),
        ("00 00 00 00 01 01 00", "length is not inside"),
        ("0a 00 00 00 01 01 00", "length is not inside"),
        ("0e 00 00 00 01 01 00", "length is not inside"),
        ("ffffffff0f 00 00 00 01 01 00", "length is not inside"),
        ("ffffffffff01 00 00 00 01 01 00", "length is damaged"),
        ("0e 00 00 00 01 01 00 00", "shorter than its length"),
        ("0e 00 00 00 02 6b 02 76", "header count is damaged"),
        ("20 00 ffffffffffffffffffff01 00 01 01 00", "timestamp delta is damaged"),
        ("16 00 00 ffffffffff01 01 01 00", "offset delta is damaged"),
        ("0c 00 00 01 01 01 00", "between those of its neighbours"),
        ("0c 00 00 00 06 01 00", "key length is not inside"),
        ("14 00 00 00 feffffff0f 01 00", "key length is not inside"),
        ("0c 00 00 00 01 04 00", "value length is not inside"),
        ("0c 00 00 00 01 01 01", "header count is not inside"),
        ("0e 00 00 00 01 01 8c02", "header count is not inside"),
        ("10 00 00 00 01 01 02 01 01", "header key's length is not inside"),
        ("10 00 00 00 01 01 02 04 01", "header key's length is not inside"),
        ("10 00 00 00 01 01 02 00 04", "header value's length is not inside"),
        ("10 00 00 00 01 01 02 02 61", "header value's length is damaged"),
        ("1e 00 feffffffffffffffff01 00 01 01 00", "microseconds"),
    ],
)
def test_records_that_make_no_sense(records, match):
    refuse(batch_around(records), match)
    squeezed = with_crc(
        patched(batch_around(records)[:61], layout.ATTRIBUTES_AT, 2, 4)
        + bytes(compress("zstd", bytes.fromhex(records)))
    )
    refuse(squeezed, match)


@pytest.mark.parametrize("second", ["00", "01"])
def test_offsets_in_a_batch_must_rise(second):
    records = "0c 00 00 02 01 01 00" + f"0c 00 00 {second} 01 01 00"
    refuse(batch_around(records, 2), "record 1 of 2: its offset delta")


def test_offsets_in_a_batch_must_not_pass_its_last_one():
    data = patched(build(THREE), layout.LAST_OFFSET_DELTA_AT, 4, 1)
    refuse(data, "record 2 of 3: its offset delta")


@pytest.mark.parametrize("base", [(2**63 - 1) // 1000 + 1, -(2**63), 2**63 - 1])
def test_times_beyond_microseconds_name_their_offset(base):
    data = patched(build(THREE, base_offset=70), layout.BASE_TIMESTAMP_AT, 8, base)
    refuse(data, "record 0 of 3: its timestamp")


def test_the_last_time_that_fits_microseconds_is_read_and_the_next_is_refused():
    data = patched(build(THREE), layout.BASE_TIMESTAMP_AT, 8, (2**63 - 1) // 1000 - 1)
    refuse(data, "record 2 of 3: its timestamp")


def test_header_key_that_is_no_utf8_is_replaced():
    records = "18 00 00 00 01 01 02 06 61ff62 02 78"
    assert read(batch_around(records))[0].headers == (("a\ufffdb", b"x"),)


@pytest.mark.parametrize("codec", layout.CODECS[1:])
def test_compressed_stream_that_is_none(codec):
    data = patched(batch_around("0c 00 00 00 01 01 00"), layout.ATTRIBUTES_AT, 2, layout.CODECS.index(codec))
    refuse(data, codec)


@pytest.mark.parametrize("values", [[b"a"], [None], [b"", b"abc", None, b"d"], [b"x", None] * 20])
def test_pairs_are_written_as_columns_are(values):
    keys = [None if row == 2 else str(row).encode() for row in range(len(values))]
    pairs = RecordColumns.of_pairs(keys, values, NOW)
    columns = RecordColumns(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), None, None, NOW)
    assert (pairs.num_rows, pairs.size, pairs.largest()) == (columns.num_rows, columns.size, columns.largest())
    batches = []
    for records in (pairs, columns):
        builder = BatchBuilder(1 << 20, 1 << 20)
        assert builder.append(records, None, 0, len(values)) == len(values)
        batches.append(builder.seal())
    assert batches[0] == batches[1]


def test_pairs_of_other_things():
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        RecordColumns.of_pairs([b"a", b"b"], [b""], NOW)
    with pytest.raises(TypeError):
        RecordColumns.of_pairs([b"a"], ["text"], NOW)
