"""What each codec writes, and what it reads of other writers' streams."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import threading
import zlib

import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from pyspark_log.errors import CorruptRecordError, InvalidConfigError
from pyspark_log.storage.record.codecs.compression import LEVELS, compress, decompress
from pyspark_log.storage.record.layout import CODECS, HEADER_SIZE
from tests.paths import KAFKA_JAVA
from tests.processes import run_at_once

LIMIT = 1 << 24
TEXT = b"".join(b"line %d of some text\n" % i for i in range(10_000))  # more than three snappy blocks
NOISE = random.Random(1).randbytes(100_000)
ALL = pytest.mark.parametrize("codec", CODECS)
REAL = pytest.mark.parametrize("codec", CODECS[1:])


def plain(codec: str, data: bytes, limit: int = LIMIT) -> bytes:
    return bytes(decompress(codec, data, limit))


@ALL
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, bytes(300_000)], ids=["empty", "x", "text", "noise", "zeros"])
def test_round_trip(codec, data):
    squeezed = bytes(compress(codec, memoryview(data)))
    assert plain(codec, squeezed) == data
    assert plain(codec, squeezed, max(len(data), 1)) == data
    if codec != "none" and len(data) > 1 and data is not NOISE:
        assert len(squeezed) < len(data) / 2


@ALL
def test_output_is_bounded(codec):
    squeezed = bytes(compress(codec, TEXT))
    for limit in (0, 1, 40_000, len(TEXT) - 1):
        with pytest.raises(CorruptRecordError, match=f"more than {limit} bytes"):
            decompress(codec, squeezed, limit)


@pytest.mark.parametrize(("codec", "level"), [(c, level) for c, span in LEVELS.items() for level in span])
def test_levels_of_kafka(codec, level):
    assert plain(codec, bytes(compress(codec, TEXT, level))) == TEXT


def test_levels_change_the_output():
    for codec, low, high in (("gzip", 1, 9), ("lz4", 9, 17), ("zstd", -5, 19)):
        assert len(compress(codec, TEXT, high)) < len(compress(codec, TEXT, low))


def test_default_level_is_kafkas():
    assert compress("gzip", TEXT) == compress("gzip", TEXT, 6)
    assert compress("zstd", TEXT) == compress("zstd", TEXT, 3)
    assert compress("lz4", TEXT) == compress("lz4", TEXT, 9)


@pytest.mark.parametrize("call", [lambda: compress("brotli", b""), lambda: decompress("brotli", b"", 1)])
def test_unknown_codec(call):
    with pytest.raises(InvalidConfigError, match="brotli"):
        call()


@REAL
@pytest.mark.parametrize("data", [b"", b"\x05", b"\xff" * 40, TEXT[:500], bytes(16)], ids=range(5))
def test_what_is_no_stream(codec, data):
    with pytest.raises(CorruptRecordError, match=codec):
        decompress(codec, data, LIMIT)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_every_truncation_is_refused(codec):
    squeezed = bytes(compress(codec, TEXT[:3000]))
    for size in range(len(squeezed)):
        with pytest.raises(CorruptRecordError):
            decompress(codec, squeezed[:size], LIMIT)


def test_snappy_truncation_is_refused_inside_a_block():
    squeezed = bytes(compress("snappy", TEXT[:3000]))
    for size in range(len(squeezed)):
        if size != len(xerial(b"", 1)):  # xerial's framing has no end mark: its header alone is whole
            with pytest.raises(CorruptRecordError):
                decompress("snappy", squeezed[:size], LIMIT)


@pytest.mark.sampled
@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(CODECS[1:]),
    st.binary(max_size=300),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=5),
)
def test_damage_gives_bounded_bytes_or_the_one_error(codec, data, changes):
    squeezed = bytearray(compress(codec, data * 3))
    for at, flip in changes:
        squeezed[at % len(squeezed)] ^= flip
    with contextlib.suppress(CorruptRecordError):
        assert len(decompress(codec, squeezed, 5000)) <= 5000


def test_threads_do_not_share_contexts():
    wrong = []

    def work(seed: int) -> None:
        data = random.Random(seed).randbytes(2000) * 10
        for _ in range(50):
            wrong.extend(c for c in CODECS if plain(c, bytes(compress(c, data))) != data)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    run_at_once(threads)
    assert wrong == []


# gzip


def test_gzip_is_deterministic_and_has_no_time():
    assert compress("gzip", TEXT)[:8] == bytes.fromhex("1f8b080000000000")


def test_gzip_members_are_read_as_one():
    assert plain("gzip", gzip.compress(b"one") + gzip.compress(b"") + gzip.compress(TEXT)) == b"one" + TEXT


def test_gzip_many_small_members():
    assert plain("gzip", gzip.compress(b"ab") * 20_000) == b"ab" * 20_000


@pytest.mark.parametrize("tail", [b"\x00" * 8, b"garbage", b"\x1f"])
def test_gzip_ignores_what_follows(tail):
    assert plain("gzip", gzip.compress(b"data") + tail) == b"data"


def test_gzip_refuses_zlib():
    with pytest.raises(CorruptRecordError):
        decompress("gzip", zlib.compress(TEXT), LIMIT)


# snappy


def raw_snappy(data: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(data, asbytes=True))


def xerial(data: bytes, block: int) -> bytes:
    pieces = [raw_snappy(data[i : i + block]) for i in range(0, len(data), block)]
    return b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1" + b"".join(len(p).to_bytes(4, "big") + p for p in pieces)


def test_snappy_is_written_in_blocks_of_32_kib():
    stream, blocks = bytes(compress("snappy", TEXT))[len(xerial(b"", 1)) :], []
    while stream:
        end = 4 + int.from_bytes(stream[:4], "big")
        size = min(32 * 1024, len(TEXT) - 32 * 1024 * len(blocks))
        blocks.append(pa.Codec("snappy").decompress(stream[4:end], size, asbytes=True))
        stream = stream[end:]
    assert len(blocks) == 1 + len(TEXT) // (32 * 1024)
    assert b"".join(blocks) == TEXT


def test_snappy_gives_the_bytes_that_kafka_wrote():
    path = KAFKA_JAVA / "03_snappy_basic.json"
    written = bytes.fromhex(json.loads(path.read_text(encoding="utf-8"))["hex"])[HEADER_SIZE:]
    assert compress("snappy", plain("snappy", written)) == written


@pytest.mark.parametrize("block", [1, 1024, 64 * 1024, 1 << 20])
def test_snappy_blocks_of_any_size(block):
    data = TEXT[: 2000 * block]
    assert plain("snappy", xerial(data, block)) == data


def test_snappy_raw_block_without_a_header():
    assert plain("snappy", raw_snappy(TEXT)) == TEXT


def test_snappy_empty_block():
    assert plain("snappy", xerial(b"", 1) + b"\0\0\0\1\0") == b""


@pytest.mark.parametrize(
    ("stream", "match"),
    [
        (b"\xff\x06\x00\x00sNaPpY" + bytes(20), "official framing"),
        (xerial(TEXT, 1024)[:-1], "not there"),
        (xerial(TEXT, 1024) + b"\0\0", "too early"),
        (xerial(b"", 1) + b"\xff\xff\xff\xff" + bytes(9), "not there"),
        (xerial(b"", 1)[:10], "too early"),
        (xerial(b"", 1) + b"\0\0\0\5" + b"\xff\xff\xff\xff\xff", "does not say its size"),
        (b"\x80\x80\x40" + bytes(20), "claims to hold"),
    ],
)
def test_snappy_framing_errors(stream, match):
    with pytest.raises(CorruptRecordError, match=match):
        decompress("snappy", stream, LIMIT)


# lz4


def test_lz4_frame_is_one_that_kafka_reads():
    frame = compress("lz4", TEXT)
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0b1110_0001 == 0b0110_0000  # version 1, independent blocks, no dictionary
    assert frame[5] == 0x40  # blocks of 64 KiB


@pytest.mark.parametrize("store_size", [True, False])
@pytest.mark.parametrize("block", [lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB])
@pytest.mark.parametrize("checks", [True, False])
def test_lz4_frames_of_others(store_size, block, checks):
    frame = lz4.frame.compress(
        TEXT, block_linked=False, store_size=store_size, block_size=block, content_checksum=checks
    )
    assert plain("lz4", frame) == TEXT


def test_lz4_linked_blocks_are_refused():
    with pytest.raises(CorruptRecordError, match="linked blocks"):
        decompress("lz4", lz4.frame.compress(TEXT, block_linked=True), LIMIT)


def test_lz4_second_frame_is_not_read():
    assert plain("lz4", bytes(compress("lz4", b"one")) + bytes(compress("lz4", b"two"))) == b"one"


@pytest.mark.parametrize(
    ("at", "value", "match"),
    [
        (0, 0x05, "does not start"),
        (4, 0x61, "dictionary"),
        (6, 0x00, "damaged"),
        (5, 0x70, "damaged"),
        (4, 0x68, "damaged"),
    ],
)
def test_lz4_header_errors(at, value, match):
    frame = bytearray(lz4.frame.compress(TEXT, block_linked=False, store_size=False))
    frame[at] = value
    with pytest.raises(CorruptRecordError, match=match):
        decompress("lz4", frame, LIMIT)


# zstd


def test_zstd_frame_declares_its_size():
    assert zstandard.frame_content_size(compress("zstd", TEXT)) == len(TEXT)


def test_zstd_frames_without_a_size():
    sizeless = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
    assert plain("zstd", sizeless.compress(TEXT)) == TEXT
    assert plain("zstd", sizeless.compress(bytes(LIMIT))) == bytes(LIMIT)


@pytest.mark.parametrize("first", [b"", b"one"])
def test_zstd_frames_are_read_as_one(first):
    sized, sizeless = zstandard.ZstdCompressor(), zstandard.ZstdCompressor(write_content_size=False)
    frames = sized.compress(first) + sizeless.compress(TEXT) + sized.compress(b"three")
    assert plain("zstd", frames) == first + TEXT + b"three"


def test_zstd_sum_of_frames_is_bounded():
    with pytest.raises(CorruptRecordError, match="more than 5 bytes"):
        decompress("zstd", bytes(compress("zstd", b"abc")) * 2, 5)


def test_zstd_garbage_after_a_frame_is_refused():
    with pytest.raises(CorruptRecordError):
        decompress("zstd", bytes(compress("zstd", TEXT)) + b"garbage", LIMIT)
