"""Message formats 0 and 1: bytes that Kafka wrote, sets that are compressed, and bytes that are damaged."""

from __future__ import annotations

import json

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_peer import LegacyRecordBatchBuilder
from record_tools import EVERYTHING, NOW, Record, build, read
from searching import examples

from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.fs import files
from pyspark_log.storage.record.decoding.decoder import decode
from pyspark_log.storage.record.headers import assign_offsets, scan, set_log_append_time
from pyspark_log.storage.record.layout import CODECS, UNKNOWN_COUNT
from pyspark_log.storage.segment.batch_stream import batch_at
from pyspark_log.storage.segment.segment import read_headers
from tests.old_messages import BOTH, SET_CODECS, message, message_set, three, with_wrong_checksum
from tests.paths import KAFKA_JAVA

GOLDEN = {
    f"{folder}/{path.stem}": json.loads(path.read_text(encoding="utf-8"))
    for folder in ("magic0", "magic1")
    for path in sorted((KAFKA_JAVA / folder).glob("*.json"))
}


def refuse(data: bytes, match: str, **options) -> None:
    with pytest.raises(CorruptRecordError, match=match) as caught:
        decode(data, 0, len(data), **options, **EVERYTHING)
    assert caught.value.position == 0


# What Kafka wrote


def test_there_are_golden_messages():
    assert len(GOLDEN) == 10


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_messages_decode_to_what_kafka_says(name):
    golden = GOLDEN[name]
    kinds = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}
    expected = [
        Record(
            None if r["key"] is None else bytes.fromhex(r["key"]),
            None if r["value"] is None else bytes.fromhex(r["value"]),
            r["timestamp"],
            (),
            r["offset"],
            kinds[batch["timestampType"]],
        )
        for batch in golden["decoded_by_kafka"]
        for r in batch["records"]
    ]
    assert read(bytes.fromhex(golden["hex"])) == expected


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_headers(name):
    golden = GOLDEN[name]
    headers = scan(bytes.fromhex(golden["hex"]), 0, golden["size"], check_crcs=True)
    assert [
        (h.magic, h.last_offset, h.codec, h.max_timestamp, h.size, h.crc, h.producer_id, h.leader_epoch, h.is_control)
        for h in headers
    ] == [
        (b["magic"], b["lastOffset"], b["compression"], b["maxTimestamp"], b["size"], b["crc"], -1, -1, False)
        for b in golden["decoded_by_kafka"]
    ]
    assert {h.count for h in headers} == {1 if headers[0].codec == "none" else UNKNOWN_COUNT}


@pytest.mark.parametrize(
    ("magic", "crc", "hexed"),
    [
        (0, 1978725405, "0000000000000000 00000018 75f0f41d 00 00 00000004 6b657931 00000006 76616c756531"),
        (
            1,
            109425508,
            "0000000000000000 00000020 0685b364 01 00 00000000000454c3 00000004 6b657931 00000006 76616c756531",
        ),
    ],
)
def test_vectors_of_kafkas_own_tests(magic, crc, hexed):
    data = message(magic, b"key1", b"value1", time=283843)
    assert data == bytes.fromhex(hexed)
    assert scan(data, 0, len(data), check_crcs=True)[0].crc == crc
    time, kind = (283843, 0) if magic else (-1, -1)
    assert read(data) == [Record(b"key1", b"value1", time, (), 0, kind)]


# Offsets and times


@BOTH
def test_nulls_and_empties(magic):
    data = message(magic, None, b"") + message(magic, b"", None, offset=1)
    assert [(r.key, r.value) for r in read(data)] == [(None, b""), (b"", None)]


@SET_CODECS
def test_offsets_in_a_set_of_format_1_are_counted_back_from_its_own(codec):
    assert [r.offset for r in read(message_set(1, codec, three(1), offset=102))] == [100, 101, 102]


@SET_CODECS
def test_offsets_in_a_set_of_format_0_are_their_own(codec):
    assert [(r.offset, r.timestamp) for r in read(message_set(0, codec, three(0, 100), offset=102))] == [
        (100, -1),
        (101, -1),
        (102, -1),
    ]


@BOTH
def test_offsets_in_a_set_that_no_broker_has_numbered_are_kept(magic):
    assert [r.offset for r in read(message_set(magic, "gzip", three(magic), offset=0))] == [0, 1, 2]


def test_cleaning_leaves_gaps_in_a_set():
    inside = message(1, b"a", b"", offset=2) + message(1, b"b", b"", offset=7)
    assert [r.offset for r in read(message_set(1, "gzip", inside, offset=107))] == [102, 107]


@pytest.mark.parametrize(("attributes", "times"), [(0, [NOW, NOW + 1, NOW + 2]), (8, [77, 77, 77])])
def test_times_in_a_set_are_their_own_unless_it_says_append_time(attributes, times):
    data = message_set(1, "gzip", three(1), offset=2, time=77, attributes=attributes)
    assert [(r.timestamp, r.timestamp_type) for r in read(data)] == [(t, attributes >> 3) for t in times]
    assert scan(data, 0, len(data))[0].timestamp_type == attributes >> 3


def test_append_time_of_a_plain_message():
    assert [(r.timestamp, r.timestamp_type) for r in read(message(1, b"", b"", attributes=8))] == [(NOW, 1)]


def test_bits_that_a_format_does_not_know_mean_nothing():
    data = message(0, b"k", b"v", attributes=0x78) + message(1, b"k", b"v", offset=1, attributes=0x70)
    assert len(read(data)) == 2
    for header in scan(data, 0, len(data)):
        assert (header.is_control, header.is_transactional, header.delete_horizon) == (False, False, None)


MIXED = (
    three(0)
    + message_set(0, "lz4", three(0, 3), offset=5)
    + message_set(1, "snappy", three(1), offset=8)
    + build([Record(b"new", b"v")], base_offset=9)
    + message(1, b"old", b"w", offset=10)
)


def test_formats_may_be_mixed():
    assert [r.offset for r in read(MIXED)] == list(range(11))
    assert [r.offset for r in read(MIXED, dense=True, follows=0)] == list(range(11))


@pytest.mark.parametrize("start", range(12))
@pytest.mark.parametrize("until", [3, 4, 6, 7, 9, 11])
def test_ranges_may_begin_and_end_inside_of_sets(start, until):
    chunk = decode(MIXED, 0, len(MIXED), from_offset=start, until_offset=until, max_bytes=1 << 20)
    assert chunk.columns["offset"].to_pylist() == list(range(start, until))
    assert chunk.next_offset >= min(start, until)


def test_a_gap_before_a_set_is_found():
    first, then = message(1, b"", b""), message_set(1, "gzip", three(1), offset=4)
    chunk = decode(first + then, 0, len(first + then), dense=True, **EVERYTHING)
    assert (chunk.num_rows, chunk.position, chunk.follows) == (1, len(first), 1)
    refuse(then, "ends at offset 1", dense=True, follows=1)


@pytest.mark.parametrize("sized", [False, True])
def test_lz4_header_checksum_counts_from_format_1_on(sized):
    wrong = with_wrong_checksum(lz4.frame.compress(three(1), block_linked=False, store_size=sized))
    refuse(message(1, None, wrong, offset=2, attributes=3), "lz4 stream is damaged")
    assert len(read(message(0, None, wrong, offset=2, attributes=3))) == 3


# In files


@pytest.fixture
def mixed_file(tmp_path):
    (tmp_path / "log").write_bytes(MIXED)
    file = files.open_read(str(tmp_path / "log"))
    yield file
    file.close()


def test_headers_in_a_file_are_those_in_memory(mixed_file, monkeypatch):
    headers = scan(MIXED, 0, len(MIXED), check_crcs=True)
    for window in (61, 70, 1 << 14):
        monkeypatch.setattr("pyspark_log.storage.segment.segment._HEADER_WINDOW", window)
        assert list(read_headers(mixed_file, 0, len(MIXED))) == headers
    for header in headers:
        assert batch_at(mixed_file, header.position, len(MIXED)) == header
        assert batch_at(mixed_file, header.position, header.end - 1) is None
        assert batch_at(mixed_file, header.position + 1, len(MIXED)) is None


def test_headers_before_a_torn_end_come_first(mixed_file):
    headers = read_headers(mixed_file, 0, len(MIXED) - 1)
    for _ in range(6):
        next(headers)
    with pytest.raises(CorruptRecordError, match="no whole batch"):
        next(headers)


# Damage


@BOTH
@pytest.mark.parametrize("at", [12, 17, 20, -1])
def test_any_changed_byte_under_the_crc_is_found(magic, at):
    data = bytearray(message(magic, b"key", b"value"))
    data[at] ^= 0x10
    refuse(bytes(data), "CRC")


def test_crcs_inside_a_set_are_checked():
    inside = bytearray(three(1))
    inside[-1] ^= 1
    data = message_set(1, "gzip", bytes(inside), offset=2)
    refuse(data, "message 2 inside has a wrong CRC")
    assert len(read(data, check_crcs=False)) == 3


@BOTH
@pytest.mark.parametrize(
    ("inside", "match"),
    [
        (lambda m: message_set(m, "gzip", three(m), offset=2), "compressed message inside"),
        (lambda m: three(m)[:-1], "end within one"),
        (lambda m: three(m) + b"x", "end within one"),
        (lambda m: three(m, 1) + message(m, b"", b"", offset=3), "offset 3, after one of 3"),
        (lambda m: message(m, b"", b"", offset=-1), "offset -1"),
        (lambda m: message(m, b"", b"", offset=9), "up to offset 8 holds offset 9"),
        (lambda m: b"", "without messages"),
        (lambda m: build([Record()]), "another format"),
        (lambda m: three(m)[:11] + b"\x05" + three(m)[12:], "shorter than any message"),
        (lambda m: three(m)[:11] + b"\xff" + three(m)[12:], "end within one"),
    ],
    ids=["nested", "torn", "tail", "offsets", "negative", "beyond", "empty", "format 2", "short", "long"],
)
def test_sets_that_make_no_sense(magic, inside, match):
    refuse(message_set(magic, "gzip", inside(magic), offset=8), match, check_crcs=False)


@BOTH
@pytest.mark.parametrize("value", [None, b""])
def test_a_set_needs_a_value(magic, value):
    refuse(message(magic, None, value, attributes=1), "without a value")


@BOTH
def test_zstd_is_none_of_their_codecs(magic):
    refuse(message_set(magic, "zstd", three(magic), offset=2), "zstd")


@BOTH
@pytest.mark.parametrize("attributes", [0, 1])
@pytest.mark.parametrize(("field", "length"), [("key", 9), ("value", 3), ("key", 2**31 - 1), ("value", -1)])
def test_lengths_that_are_wrong(magic, attributes, field, length):
    data = bytearray(message(magic, b"kk", b"vv", attributes=attributes))
    at = len(data) - (12 if field == "key" else 6)
    data[at : at + 4] = length.to_bytes(4, "big", signed=True)
    refuse(bytes(data), "key|value|shorter than its length", check_crcs=False)


@BOTH
def test_too_many_messages_for_the_memory(magic):
    data = message_set(magic, "gzip", three(magic), offset=2)
    needed = len(three(magic)) + 3 * 32
    assert len(read(data, max_batch_bytes=needed)) == 3
    refuse(data, f"more than {needed - 1} bytes", max_batch_bytes=needed - 1)


@pytest.mark.parametrize(("change", "arguments"), [(assign_offsets, (0, 0)), (set_log_append_time, (0,))])
def test_they_are_never_changed(change, arguments):
    log = bytearray(build([Record()]) + message(1, b"", b"", offset=1))
    before = bytes(log)
    with pytest.raises(CorruptRecordError, match="format 1 is read, but never changed"):
        change(log, 0, len(log), *arguments)
    assert log == before


# kafka-python

fields = st.one_of(st.none(), st.binary(max_size=30), st.binary(max_size=9).map(lambda piece: piece * 2000))
rows = st.lists(st.tuples(fields, fields, st.integers(-1, 1 << 50)), min_size=1, max_size=20)


@pytest.mark.sampled
@settings(max_examples=examples(200), deadline=None)
@given(rows, st.sampled_from([0, 1]), st.sampled_from(["none", "gzip", "lz4"]), st.integers(0, 1 << 40))
def test_we_read_what_kafka_python_writes(rows, magic, codec, base):
    if (magic, codec) == (0, "lz4"):
        codec = "gzip"  # needs another package
    peer = LegacyRecordBatchBuilder(magic, CODECS.index(codec), 1 << 30)
    # As a broker numbers them: all that are alone or are in a set of format 0, else the set.
    first = 0 if codec != "none" and magic == 1 else base
    for index, (key, value, time) in enumerate(rows):
        peer.append(first + index, time, key, value)
    data = bytearray(peer.build())
    if codec != "none":
        data[:8] = (base + len(rows) - 1).to_bytes(8, "big")
    assert read(bytes(data)) == [
        Record(key, value, time if magic else -1, (), base + index, 0 if magic else -1)
        for index, (key, value, time) in enumerate(rows)
    ]
