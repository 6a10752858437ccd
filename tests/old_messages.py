"""Messages of the formats 0 and 1, as clients and brokers of old have written them."""

from __future__ import annotations

import struct
import zlib

import pytest

from pyspark_log.storage.record.codecs.compression import compress
from pyspark_log.storage.record.layout import CODECS

NOW = 1_700_000_000_000
BOTH = pytest.mark.parametrize("magic", [0, 1])
SET_CODECS = pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])


def message(
    magic: int, key: bytes | None, value: bytes | None, *, offset: int = 0, time: int = NOW, attributes: int = 0
) -> bytes:
    """One message with the CRC that fits."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", time) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def three(magic: int, first: int = 0) -> bytes:
    return b"".join(message(magic, b"k", b"v%d" % i, offset=first + i, time=NOW + i) for i in range(3))


def with_wrong_checksum(frame: bytes) -> bytes:
    """An lz4 frame as the writers of format 0 made it; its header ends with a checksum of one byte."""
    at = 14 if frame[4] & 8 else 6
    return frame[:at] + bytes([frame[at] ^ 0x5A]) + frame[at + 1 :]


def message_set(magic: int, codec: str, inside: bytes, *, offset: int, attributes: int = 0, time: int = NOW) -> bytes:
    """A wrapper around messages."""
    squeezed = bytes(compress(codec, inside))
    if magic == 0 and codec == "lz4":
        squeezed = with_wrong_checksum(squeezed)
    attributes |= CODECS.index(codec)
    return message(magic, None, squeezed, offset=offset, time=time, attributes=attributes)
