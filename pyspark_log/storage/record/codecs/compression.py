"""The codecs of record batches, as Kafka writes and reads them (KIP-98, KIP-110, KIP-390).

Native libraries do all the work. The size of their output is bounded, so that a few bytes cannot
become gigabytes; any invalid input gives a `CorruptRecordError` (without a
position, which only the caller knows).

What Kafka's readers require of each codec, and where libraries differ:

- gzip: several members are read as one; what follows the last one is ignored.
- snappy: the framing of xerial's snappy-java (a header of 16 bytes, then blocks of 32 KiB, each with
  its length before it), not the official framing format. One raw block without a header is read too.
- lz4: one frame of independent blocks. Linked blocks, the default of most libraries, are refused. In
  message format 0 the frame's header has a wrong checksum, which `repair_lz4_header` corrects.
- zstd: one frame or several, with or without their size in the header.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from struct import Struct
from typing import Final

import lz4.frame
import zstandard

from pyspark_log.errors import BatchTooLargeError, CorruptRecordError, InvalidConfigError
from pyspark_log.storage.record.codecs.lz4_frame import header_checksum

#: Any object with contiguous bytes.
BytesLike = bytes | bytearray | memoryview

#: Lowest, highest and default level of each codec that has levels, as in Kafka (KIP-390).
LEVELS: Final = {"gzip": (1, 9, -1), "lz4": (1, 17, 9), "zstd": (-131072, 22, 3)}

_GZIP_WINDOW: Final = 31  # the largest window, in a gzip container
_GZIP_MEMBER: Final = b"\x1f\x8b\x08"
_GZIP_STEP: Final = 1 << 16

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version, lowest reader
_XERIAL_BLOCK: Final = 32 * 1024
_SNAPPY_STREAM: Final = b"\xff\x06\x00\x00sNaPpY"
# The densest element of a raw snappy block is a copy of up to 64 bytes in 3 bytes.
_SNAPPY_RATIO: Final = 22
_INT32: Final = Struct(">i")

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_SHORTEST: Final = 11  # header and end mark
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_DICTIONARY: Final = 0x01
_LZ4_DESCRIPTOR_AT: Final = 4  # flags, block size, content size; then a byte of checksum
_LZ4_LONGEST_HEAD: Final = 15
_LZ4_FASTEST: Final = 0
_LZ4_HIGHEST: Final = 16

# A zstd block is at least 3 bytes and becomes at most 128 KiB, so one step adds at most 128 MiB.
_ZSTD_STEP: Final = 3 * 1024
_ZSTD_MAX_WINDOW: Final = 1 << 27

_FIRST_GUESS: Final = 1 << 16


class _Contexts(threading.local):
    """Reused by each thread: creating a context costs more than compressing a small batch."""

    def __init__(self) -> None:
        self.zstd_reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
        self.zstd_writers: dict[int, zstandard.ZstdCompressor] = {}


#: This thread's.
contexts: Final = _Contexts()


def check_codec(codec: str, level: int | None) -> None:
    """Raise InvalidConfigError unless `codec` is known and `level` is None or one of its levels."""
    if codec not in _COMPRESS:
        raise InvalidConfigError(f"no codec {codec!r}: choose one of {', '.join(_COMPRESS)}")
    if level is None:
        return
    if codec not in LEVELS:
        raise InvalidConfigError(f"codec {codec} has no levels, so level {level} has no meaning")
    lowest, highest, default = LEVELS[codec]
    if level != default and not lowest <= level <= highest:
        raise InvalidConfigError(f"{codec} level {level} is outside {lowest}..{highest}")


def compress(codec: str, data: BytesLike, level: int | None = None) -> BytesLike:
    """Compresses `data` into one stream.

    Args:
        codec: one of `layout.CODECS`.
        data: any contiguous bytes-like object.
        level: the codec's own level (`LEVELS`); None takes Kafka's default.

    Raises:
        InvalidConfigError: an unknown codec, or a level that it does not have.
    """
    check_codec(codec, level)
    return _COMPRESS[codec](data, level)


def decompress(codec: str, data: BytesLike, limit: int) -> BytesLike:
    """Decompresses `data`.

    Args:
        codec: one of `layout.CODECS`.
        data: any contiguous bytes-like object.
        limit: the largest output in bytes.

    Raises:
        CorruptRecordError: `data` is not such a stream; BatchTooLargeError: it holds more than `limit` bytes.
        InvalidConfigError: an unknown codec.
    """
    if codec not in _DECOMPRESS:
        check_codec(codec, None)
    try:
        return _DECOMPRESS[codec](data, limit)
    except _LIBRARY_ERRORS as error:
        raise CorruptRecordError(f"the {codec} stream is damaged: {error}") from error


# What the libraries raise for invalid bytes.
_LIBRARY_ERRORS: Final = (
    zlib.error, zstandard.ZstdError, RuntimeError, ValueError, EOFError, OverflowError,
)  # fmt: skip


def _cut_short(codec: str) -> CorruptRecordError:
    return CorruptRecordError(f"the {codec} stream ends too early")


def _same(data: BytesLike, _level: int | None) -> BytesLike:
    return data


def _same_bounded(data: BytesLike, limit: int) -> BytesLike:
    if len(data) > limit:
        raise BatchTooLargeError(len(data), limit)
    return data


def _gzip(data: BytesLike, level: int | None) -> bytes:
    # zlib writes no time into the header, so equal input gives equal bytes.
    writer = zlib.compressobj(LEVELS["gzip"][2] if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return writer.compress(data) + writer.flush()


def _gunzip(data: BytesLike, limit: int) -> bytes:
    source = memoryview(data)
    pieces: list[bytes] = []
    size = position = 0
    while True:
        member = zlib.decompressobj(_GZIP_WINDOW)
        # In steps, since the bytes after a member are copied each time one ends.
        while not member.eof:
            step = member.unconsumed_tail
            if not step:
                step = bytes(source[position : position + _GZIP_STEP])
                position += len(step)
                if not step:
                    raise _cut_short("gzip")
            piece = member.decompress(step, limit - size + 1)
            size += len(piece)
            if size > limit:
                raise BatchTooLargeError(len(data), limit)
            pieces.append(piece)
        position -= len(member.unused_data)
        if bytes(source[position : position + len(_GZIP_MEMBER)]) != _GZIP_MEMBER:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _snappy(data: BytesLike, _level: int | None) -> bytes:
    import cramjam  # noqa: PLC0415  (2 MB, for a codec that is rare)

    source = memoryview(data)
    pieces: list[BytesLike] = [_XERIAL_HEADER]
    for start in range(0, len(source), _XERIAL_BLOCK):
        block = memoryview(cramjam.snappy.compress_raw(source[start : start + _XERIAL_BLOCK]))
        pieces += (_INT32.pack(len(block)), block)
    return b"".join(pieces)


def _unsnappy(data: BytesLike, limit: int) -> BytesLike:
    source = memoryview(data)
    if bytes(source[: len(_SNAPPY_STREAM)]) == _SNAPPY_STREAM:
        raise CorruptRecordError("snappy's official framing format, which Kafka does not read")
    if bytes(source[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnappy_block(source, limit, limit)
    pieces: list[BytesLike] = []
    size, position = 0, len(_XERIAL_HEADER)
    if len(source) < position:
        raise _cut_short("snappy")
    while position < len(source):
        if len(source) - position < _INT32.size:
            raise _cut_short("snappy")
        (length,) = _INT32.unpack_from(source, position)
        position += _INT32.size
        if not 0 <= length <= len(source) - position:
            raise CorruptRecordError(f"a snappy block claims {length} bytes, which are not there")
        piece = _unsnappy_block(source[position : position + length], limit - size, limit)
        size += len(piece)
        position += length
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unsnappy_block(block: memoryview, room: int, limit: int) -> BytesLike:
    size = 0
    for index, byte in enumerate(block[:5]):  # a block starts with its uncompressed size, a varint
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise CorruptRecordError("a snappy block does not say its size")
    if size > room:
        raise BatchTooLargeError(len(block), limit)
    if size > len(block) * _SNAPPY_RATIO:
        raise CorruptRecordError(f"a snappy block of {len(block)} bytes claims to hold {size}")
    import cramjam  # noqa: PLC0415

    result = bytearray(size)
    try:
        filled = cramjam.snappy.decompress_raw_into(block, result)
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from None
    if filled != size:
        raise _cut_short("snappy")
    return result


def _lz4(data: BytesLike, level: int | None) -> bytes:
    # Kafka takes its default, 9, to mean the fast compressor; only other levels select the strong one.
    effort = _LZ4_FASTEST if level in (None, LEVELS["lz4"][2]) else min(level or 0, _LZ4_HIGHEST)
    result: bytes = lz4.frame.compress(
        data, compression_level=effort, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False
    )
    return result


def _unlz4(data: BytesLike, limit: int) -> bytes:
    head = bytes(data[:_LZ4_LONGEST_HEAD])
    if head[: len(_LZ4_MAGIC)] != _LZ4_MAGIC:
        raise CorruptRecordError("the lz4 stream does not start with an lz4 frame")
    if len(data) < _LZ4_SHORTEST:
        raise _cut_short("lz4")
    flags = head[_LZ4_DESCRIPTOR_AT]
    if not flags & _LZ4_INDEPENDENT:
        raise CorruptRecordError("the lz4 frame has linked blocks, which Kafka does not read")
    if flags & _LZ4_DICTIONARY:
        raise CorruptRecordError("the lz4 frame needs a dictionary")
    frame = lz4.frame.LZ4FrameDecompressor()
    pieces: list[bytes] = []
    size, step, guess = 0, data, max(4 * len(data), _FIRST_GUESS)  # doubles
    while not frame.eof:
        piece = frame.decompress(step, max_length=min(guess, limit - size) + 1)
        size += len(piece)
        if size > limit:
            raise BatchTooLargeError(len(data), limit)
        if not piece and not frame.eof:
            raise _cut_short("lz4")
        pieces.append(piece)
        step, guess = b"", 2 * guess
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def repair_lz4_header(data: BytesLike) -> BytesLike:
    """Returns an lz4 frame with the correct checksum in its header.

    Kafka's writers of format 0 computed it over the frame's magic number too, so its readers do not
    check it there (KIP-57). Input that is too short for a frame is returned as it is.
    """
    mended = bytearray(data)
    if len(mended) < _LZ4_SHORTEST:
        return data
    end = _LZ4_DESCRIPTOR_AT + (10 if mended[_LZ4_DESCRIPTOR_AT] & _LZ4_CONTENT_SIZE else 2)
    mended[end] = header_checksum(bytes(mended[_LZ4_DESCRIPTOR_AT:end]))
    return mended


def _zstd(data: BytesLike, level: int | None) -> bytes:
    effort = LEVELS["zstd"][2] if level is None else level
    writer = contexts.zstd_writers.get(effort)
    if writer is None:
        writer = contexts.zstd_writers[effort] = zstandard.ZstdCompressor(level=effort)
    return writer.compress(data)


def _unzstd(data: BytesLike, limit: int) -> bytes:
    if zstandard.frame_content_size(data) > limit:
        raise BatchTooLargeError(len(data), limit)
    source = memoryview(data)
    pieces: list[bytes] = []
    size = position = 0
    while position < len(source):
        frame = contexts.zstd_reader.decompressobj()
        while not frame.eof:
            step = source[position : position + _ZSTD_STEP]
            if not step:
                raise _cut_short("zstd")
            position += len(step)
            piece = frame.decompress(step)
            size += len(piece)
            if size > limit:
                raise BatchTooLargeError(len(source), limit)
            pieces.append(piece)
        position -= len(frame.unused_data)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


_COMPRESS: Final[dict[str, Callable[[BytesLike, int | None], BytesLike]]] = {
    "none": _same,
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
_DECOMPRESS: Final[dict[str, Callable[[BytesLike, int], BytesLike]]] = {
    "none": _same_bounded,
    "gzip": _gunzip,
    "snappy": _unsnappy,
    "lz4": _unlz4,
    "zstd": _unzstd,
}
