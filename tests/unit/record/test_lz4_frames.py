"""Batches in lz4 frames: those that the kernel reads, and those that it leaves to the package lz4."""

from __future__ import annotations

import random
from collections.abc import Callable

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_tools import EVERYTHING, Record, build, framed, read, stream_of, with_crc
from searching import examples

from pyspark_log.config import MAX_BATCH_BYTES
from pyspark_log.errors import BatchTooLargeError, CorruptRecordError
from pyspark_log.storage.record import layout
from pyspark_log.storage.record.codecs.compression import compress, decompress
from pyspark_log.storage.record.codecs.lz4_frame import header_checksum
from pyspark_log.storage.record.decoding.decoder import decode
from pyspark_log.storage.record.layout import ROW_BYTES

NOISE = random.Random(1).randbytes(200_000)  # blocks that are stored as they are
TEXT = b"".join(b"line %d of some text\n" % i for i in range(20_000))
VALUES = {"x": b"x", "text": TEXT, "noise": NOISE, "mixed": TEXT[:70_000] + NOISE + TEXT, "zeros": bytes(300_000)}
RECORDS = [Record(b"key", VALUES["mixed"]), Record(None, b"", headers=(("h", b"1"), ("i", None)), offset=1)]
SIZE = len(build(RECORDS)) - layout.HEADER_SIZE


def frame_of(data: bytes, **options) -> bytes:
    return lz4.frame.compress(data, **{"block_linked": False, "store_size": False, **options})


@pytest.fixture
def without_package(monkeypatch):
    """The package's own reader of frames fails."""

    def fail() -> None:
        raise AssertionError("the package reads a usual frame")

    monkeypatch.setattr("lz4.frame.LZ4FrameDecompressor", fail)


@pytest.mark.usefixtures("without_package")
@pytest.mark.parametrize("store_size", [True, False])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_usual_frames_are_read_without_the_package(store_size, block_size, value):
    records = [Record(b"key", value), Record(None, None, offset=1)]
    frame = frame_of(stream_of(records), store_size=store_size, block_size=block_size)
    assert read(framed("lz4", records, frame)) == records


@pytest.mark.usefixtures("without_package")
def test_what_this_package_writes_is_a_usual_frame():
    assert read(build(RECORDS, "lz4")) == RECORDS


@pytest.mark.parametrize("options", [{"content_checksum": True}, {"block_checksum": True}])
@pytest.mark.parametrize("store_size", [True, False])
def test_frames_with_checksums_are_read_and_their_checksums_are_compared(options, store_size):
    frame = bytearray(frame_of(stream_of(RECORDS), store_size=store_size, **options))
    assert read(framed("lz4", RECORDS, bytes(frame))) == RECORDS
    frame[-9 if "block_checksum" in options else -1] ^= 1
    with pytest.raises(CorruptRecordError, match="lz4"):
        decode(data := framed("lz4", RECORDS, bytes(frame)), 0, len(data), **EVERYTHING)


@pytest.mark.parametrize("store_size", [True, False])
def test_the_limit_is_that_of_the_decompressed_bytes(store_size):
    data = framed("lz4", RECORDS, frame_of(stream_of(RECORDS), store_size=store_size))
    limit = SIZE + ROW_BYTES * (len(RECORDS) + 2)
    assert read(data, max_batch_bytes=limit) == RECORDS
    for less in (limit - 1, SIZE - 1, 100_000, 65_536, 1):
        with pytest.raises(BatchTooLargeError, match=f"more than {less} bytes"):
            decode(data, 0, len(data), headers=True, max_batch_bytes=less, **EVERYTHING)


def test_blocks_that_hold_less_than_they_might_follow_each_other():
    """As a client makes them that flushes: a block ends before its 64 KiB."""
    stream = stream_of(RECORDS)
    with lz4.frame.LZ4FrameCompressor(block_linked=False, auto_flush=True) as writer:
        frame = writer.begin()
        for at in range(0, len(stream), 10_007):
            frame += writer.compress(stream[at : at + 10_007])
        frame += writer.flush()
    assert read(framed("lz4", RECORDS, frame)) == RECORDS


def test_memory_is_used_again_for_batches_of_all_sizes_but_not_what_headers_are_in():
    records, log = [], b""
    for offset, size in enumerate([10, 100_000, 1, 300_000, 0, 70_000]):
        headers = (("h", b"%d" % offset),) if size % 3 else ()
        records.append(Record(b"k", TEXT[:size], headers=headers, offset=offset))
        log += framed("lz4", records[-1:], frame_of(stream_of(records[-1:])), base_offset=offset)
    chunk = decode(log, 0, len(log), headers=True, **EVERYTHING)
    assert chunk.num_rows == len(records)
    assert read(log) == records


SIZES = st.one_of(st.none(), st.integers(0, 40), st.sampled_from([225, 255, 256, 257, 5000]))


@pytest.mark.sampled
@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=12), min_size=1, max_size=4),
    st.integers(0, 8),
    st.integers(0, 8),
    st.booleans(),
)
def test_values_that_are_moved_within_their_column_stay_what_they_are(batches, left_out, right_out, keys):
    """Those of frames that say their size are decompressed into the column of values."""
    plain, packed, offset = b"", b"", 0
    for batch in batches:
        records = [
            Record(*(None if size is None else TEXT[number * 97 :][:size] for size in sizes))
            for number, sizes in enumerate(batch)
        ]
        plain += build(records, base_offset=offset)
        frame = frame_of(stream_of(records), store_size=True)
        packed += framed("lz4", records, frame, base_offset=offset)
        offset += len(records)
    options = {"from_offset": left_out, "until_offset": offset - right_out, "max_bytes": 1 << 20, "keys": keys}
    expected, found = (decode(log, 0, len(log), **options) for log in (plain, packed))
    for column in found.columns.values():
        column.validate(full=True)
    assert found.columns == expected.columns
    assert (found.num_rows, found.next_offset) == (expected.num_rows, expected.next_offset)


@pytest.mark.parametrize("claim", [1, 7, 8, 100, SIZE - 1, SIZE + 1, 10 * SIZE, 2**31, 2**32 + SIZE])
def test_a_frame_that_lies_about_its_size_is_refused(claim):
    """The records of the batch before it are not touched."""
    frame = bytearray(frame_of(stream_of(RECORDS), store_size=True))
    frame[6:14] = claim.to_bytes(8, "little")
    frame[14] = header_checksum(bytes(frame[4:14]))
    good = framed("lz4", RECORDS, frame_of(stream_of(RECORDS), store_size=True))
    bad = framed("lz4", RECORDS, bytes(frame), base_offset=len(RECORDS))
    chunk = decode(log := good + bad, 0, len(log), **EVERYTHING)
    assert chunk.position == len(good)
    assert chunk.columns["value"].to_pylist() == [record.value for record in RECORDS]
    with pytest.raises(CorruptRecordError, match="lz4"):
        decode(log, len(good), len(log), **EVERYTHING)


@pytest.mark.parametrize("tail", [b"\0", b"garbage", frame_of(b"another")])
def test_what_follows_a_frame_is_not_read(tail):
    assert read(framed("lz4", RECORDS, frame_of(stream_of(RECORDS)) + tail)) == RECORDS


@pytest.mark.parametrize("store_size", [True, False])
def test_every_truncation_is_refused(store_size):
    records = [Record(b"key", TEXT[:500])]
    frame = frame_of(stream_of(records), store_size=store_size)
    for size in range(len(frame)):
        with pytest.raises(CorruptRecordError, match="lz4"):
            decode(data := framed("lz4", records, frame[:size]), 0, len(data), **EVERYTHING)


def test_an_empty_frame_holds_no_record():
    with pytest.raises(CorruptRecordError, match="do not fit into 0 bytes"):
        decode(data := framed("lz4", RECORDS, frame_of(b"")), 0, len(data), **EVERYTHING)


@pytest.mark.sampled
@settings(max_examples=examples(500), deadline=None)
@given(
    st.lists(st.binary(max_size=200), min_size=1, max_size=4),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=3),
    st.integers(0, 10),
)
def test_a_changed_frame_holds_what_the_package_says(values, store_size, changes, cut):
    records = [Record(None, value * 5, offset=offset) for offset, value in enumerate(values)]
    frame = bytearray(frame_of(stream_of(records), store_size=store_size))
    for at, flip in changes:
        frame[at % len(frame)] ^= flip
    frame = bytes(frame[: len(frame) - cut])
    header = build(records)[: layout.HEADER_SIZE]
    assert outcome(lambda: read(framed("lz4", records, frame))) == outcome(
        lambda: read(with_crc(header + decompress("lz4", frame, MAX_BATCH_BYTES)))
    )


def outcome(work: Callable[[], object]) -> object:
    try:
        return work()
    except CorruptRecordError as error:
        return error.reason


def test_the_checksum_of_the_header_is_compared():
    frame = bytearray(compress("lz4", stream_of(RECORDS)))
    frame[14] ^= 1
    with pytest.raises(CorruptRecordError, match="lz4"):
        decode(data := framed("lz4", RECORDS, bytes(frame)), 0, len(data), **EVERYTHING)
