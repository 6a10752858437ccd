"""Batches in zstd frames: one whole frame, as Kafka's clients write it, and all others."""

from __future__ import annotations

import random

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from record_tools import EVERYTHING, Record, build, framed, read, stream_of, with_crc
from searching import examples

from pyspark_log.config import MAX_BATCH_BYTES
from pyspark_log.errors import BatchTooLargeError, CorruptRecordError
from pyspark_log.storage.record import layout
from pyspark_log.storage.record.codecs.compression import decompress
from pyspark_log.storage.record.decoding.decoder import decode
from pyspark_log.storage.record.layout import ROW_BYTES

# So large that it is decompressed into the column of values, and so small that it is not.
LARGE = [Record(b"%d" % number, random.Random(number).randbytes(9_000), offset=number) for number in range(20)]
SMALL = LARGE[:2]
BOTH = pytest.mark.parametrize("records", [SMALL, LARGE], ids=["small", "large"])


def outcome(data: bytes, **options) -> object:
    try:
        chunk = decode(data, 0, len(data), **{**EVERYTHING, **options})
    except CorruptRecordError as error:
        return error.reason
    return chunk.columns, chunk.num_rows, chunk.position == len(data)


@pytest.fixture
def without_loop(monkeypatch):
    """What reads frames of any kind fails."""

    def fail(*_: object) -> None:
        raise AssertionError("a usual frame is read as an unusual one")

    monkeypatch.setattr("pyspark_log.storage.record.codecs.unpacked.decompress", fail)


@pytest.mark.usefixtures("without_loop")
@pytest.mark.parametrize("says_size", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("size", [0, 1, 200, 255, 256, 257, 5_000, 65_791, 65_792, 70_000, 400_000])
@pytest.mark.parametrize("kind", ["noise", "zeros"])
def test_usual_frames_of_all_sizes(kind, size, checksum, says_size):
    value = random.Random(1).randbytes(size) if kind == "noise" else bytes(size)
    records = [Record(b"key", value), Record(None, None, offset=1)]
    options = {"write_checksum": checksum, "write_content_size": says_size}
    data = framed("zstd", records, zstandard.ZstdCompressor(**options).compress(stream_of(records)))
    assert read(data) == records
    assert outcome(data)[0]["value"].to_pylist() == [value, None]


@BOTH
def test_other_frames_are_read_and_what_follows_them_is_refused(records):
    stream, writer = stream_of(records), zstandard.ZstdCompressor()
    sizeless = zstandard.ZstdCompressor(write_content_size=False)
    expected = outcome(build(records))
    for frame in (sizeless.compress(stream), writer.compress(stream[:99]) + writer.compress(stream[99:])):
        assert outcome(framed("zstd", records, frame)) == expected
    for tail in (b"\0", b"garbage"):
        assert "zstd" in outcome(framed("zstd", records, writer.compress(stream) + tail))


@BOTH
def test_a_wrong_checksum_is_found(records):
    frame = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(stream_of(records)))
    frame[-1] ^= 1
    assert "zstd" in outcome(framed("zstd", records, bytes(frame)))


@pytest.mark.parametrize("says_size", [True, False])
@BOTH
def test_the_limit_is_that_of_the_decompressed_bytes(records, says_size):
    stream = stream_of(records)
    data = framed("zstd", records, zstandard.ZstdCompressor(write_content_size=says_size).compress(stream))
    limit = len(stream) + ROW_BYTES * len(records)
    assert decode(data, 0, len(data), max_batch_bytes=limit, **EVERYTHING).num_rows == len(records)
    for less in (limit - 1, len(stream) - 1, 1000, 1):
        with pytest.raises(BatchTooLargeError, match=f"more than {less} bytes"):
            decode(data, 0, len(data), max_batch_bytes=less, **EVERYTHING)


@pytest.mark.parametrize("change", [-1, 1, -100, 1000, 1 << 24, 1 << 30])
@BOTH
def test_a_frame_that_lies_about_its_size_is_refused(records, change):
    """The records of the batch before it are not touched."""
    stream = stream_of(records)
    frame = bytearray(zstandard.ZstdCompressor().compress(stream))
    width = 1 << (frame[4] >> 6)
    at, bias = (5 if frame[4] & 0x20 else 6), 256 if width == 2 else 0
    assert int.from_bytes(frame[at : at + width], "little") + bias == len(stream)
    frame[at : at + width] = (len(stream) - bias + change & (1 << 8 * width) - 1).to_bytes(width, "little")
    good = framed("zstd", records, zstandard.ZstdCompressor().compress(stream))
    bad = framed("zstd", records, bytes(frame), base_offset=len(records))
    chunk = decode(log := good + bad, 0, len(log), **EVERYTHING)
    if change % (1 << 8 * width):
        assert chunk.position == len(good)
        with pytest.raises(CorruptRecordError):
            decode(log, len(good), len(log), **EVERYTHING)
    assert chunk.columns["value"].to_pylist()[: len(records)] == [record.value for record in records]


@pytest.mark.parametrize("window", [0, 17 << 3 | 1, 19 << 3, 31 << 3], ids=["1 KiB", "144 MiB", "512 MiB", "2 TiB"])
@BOTH
def test_a_window_that_is_smaller_than_a_block_or_too_large_is_refused(records, window):
    frame = bytearray(zstandard.ZstdCompressor(write_content_size=False).compress(stream_of(records)))
    assert not frame[4] & 0x20
    frame[5] = window
    assert "zstd" in outcome(framed("zstd", records, bytes(frame)))


def test_a_compressed_block_that_is_larger_than_the_window_is_refused():
    """Also where the frame says its size, which would be enough to read it."""
    records = [Record(None, b"ab" * 3000)]
    stream = stream_of(records)
    blocks = zstandard.ZstdCompressor(write_content_size=False).compress(stream)[6:]
    size_of_two_bytes, window = b"\x40", b"\0"
    size = (len(stream) - 256).to_bytes(2, "little")
    frame = zstandard.MAGIC_NUMBER.to_bytes(4, "little") + size_of_two_bytes + window + size + blocks
    assert zstandard.get_frame_parameters(frame).content_size == len(stream)
    assert "zstd" in outcome(framed("zstd", records, frame))


@pytest.mark.sampled
@settings(max_examples=examples(400), deadline=None)
@given(
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.one_of(st.integers(0, 20), st.integers(0, 200_000)), st.integers(1, 255)), max_size=3),
    st.integers(0, 10),
)
def test_a_changed_frame_holds_what_the_library_says(large, checksum, says_size, changes, cut):
    records = LARGE if large else SMALL
    writer = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=says_size)
    frame = bytearray(writer.compress(stream_of(records)))
    for at, flip in changes:
        frame[at % len(frame)] ^= flip
    frame = bytes(frame[: len(frame) - cut])
    try:
        found = decompress("zstd", frame, MAX_BATCH_BYTES)
    except CorruptRecordError:
        assert isinstance(outcome(framed("zstd", records, frame)), str)
        return
    assert outcome(framed("zstd", records, frame)) == outcome(with_crc(build(records)[: layout.HEADER_SIZE] + found))
