"""The decoder of record batches, and what finds and changes their headers.

Inputs are Kafka's own batches and messages of all formats, cut, joined and changed at random. Some are changed
before they are compressed, or compressed and then changed, and get the right CRC, so that the damage reaches the
readers of frames and records with checks on, too. Each input is decoded with a choice of options, scanned and stamped.
"""

from __future__ import annotations

import contextlib
import json
import random
import struct
import zlib
from collections import Counter
from pathlib import Path

import lz4.frame
from family import Family
from mutations import changed

from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.record import layout
from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.storage.record.codecs.compression import compress, decompress
from pyspark_log.storage.record.decoding.decoder import decode
from pyspark_log.storage.record.end_txn_marker import decode_end_txn_marker
from pyspark_log.storage.record.headers import assign_offsets, headers_in, scan, set_log_append_time
from pyspark_log.storage.record.layout import BatchHeader
from pyspark_log.storage.record.walk import read_pairs, record_times

GOLDEN = Path(__file__).parents[1] / "golden"
# Small, so that the limit is met; what an honest input needs is far less.
LIMIT = 1 << 18


def seeds() -> list[bytes]:
    """Kafka's own batches and messages."""
    found = []
    for path in sorted(GOLDEN.glob("**/[0-9][0-9]_*.json")):
        found.append(bytes.fromhex(json.loads(path.read_text(encoding="utf-8"))["hex"]))
    return found


def with_right_crc(batch: bytearray) -> bytes:
    """A batch of format 2 with the length and the CRC that its bytes have."""
    struct.pack_into(">i", batch, layout.LENGTH_AT, len(batch) - layout.LENGTH_PREFIX)
    struct.pack_into(">I", batch, layout.CRC_AT, crc32c(bytes(batch[layout.ATTRIBUTES_AT :])))
    return bytes(batch)


class Decoder(Family):
    """Bytes, and bits that pick CRC checks, headers and density."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._seeds = seeds()

    # ---- feeding

    def feed(self, data: tuple[bytes, int], counts: Counter[str]) -> None:
        batches, options = data
        self._decode(batches, options, counts)
        for work in (
            lambda: [self._marker(batches, header) for header in scan(batches, 0, len(batches))],
            lambda: scan(batches, 0, len(batches), check_crcs=True),
            lambda: headers_in(batches, 0, 2 * len(batches)),
            lambda: read_pairs(batches, 0, len(batches), from_offset=0, until_offset=1 << 62, max_batch_bytes=LIMIT),
            lambda: record_times(batches, LIMIT),
            lambda: assign_offsets(bytearray(batches), 0, len(batches), 7, 1),
            lambda: set_log_append_time(bytearray(batches), 0, len(batches), 7),
        ):
            with contextlib.suppress(CorruptRecordError):
                work()

    def _decode(self, data: bytes, options: int, counts: Counter[str]) -> None:
        check_crcs, headers, dense = bool(options & 1), bool(options & 2), bool(options & 4)
        position, follows, misplaced = 0, -1, False
        try:
            while True:
                chunk = decode(
                    data, position, len(data), from_offset=0, until_offset=1 << 62, max_bytes=1 << 12,
                    check_crcs=check_crcs, headers=headers, dense=dense, follows=follows, max_batch_bytes=LIMIT,
                )  # fmt: skip
                for column in chunk.columns.values():
                    column.validate(full=True)
                    assert len(column) == chunk.num_rows
                counts["rows"] += chunk.num_rows
                if chunk.position == position:
                    break
                assert position < chunk.position <= len(data)
                position, follows = chunk.position, chunk.follows
            counts["read to their end"] += position == len(data)
            counts["with a tail left"] += position < len(data)
        except CorruptRecordError as error:
            counts["refused"] += 1
            misplaced = error.position != position
        assert not misplaced

    def _marker(self, data: bytes, header: BatchHeader) -> None:
        if header.magic == layout.MAGIC:
            with contextlib.suppress(CorruptRecordError):
                decode_end_txn_marker(data[header.position : header.end], header)

    # ---- making

    def input(self, pick: random.Random) -> tuple[bytes, int]:
        data = b"".join(self._piece(pick) for _ in range(pick.choice((1, 1, 1, 2, 3))))
        if pick.random() < 0.5:
            data = changed(pick, data, 4)
        if pick.random() < 0.1:
            data = data[: pick.randrange(len(data) + 1)]
        return data, pick.randrange(8)

    def _piece(self, pick: random.Random) -> bytes:
        data = pick.choice(self._seeds)
        if pick.random() < 0.3:
            return data
        return _batch(pick, data) if data[layout.MAGIC_AT] == layout.MAGIC else _message(pick, data)


def _batch(pick: random.Random, data: bytes) -> bytes:
    """A batch whose records and header are changed, compressed by any codec, with a CRC that fits."""
    codec = layout.CODECS[data[layout.ATTRIBUTES_AT + 1] & layout.CODEC_MASK]
    records = changed(pick, bytes(decompress(codec, data[layout.HEADER_SIZE :], 1 << 20)), 3)
    codec = pick.choice(layout.CODECS)
    header = bytearray(data[: layout.HEADER_SIZE])
    if pick.random() < 0.3:
        header[layout.ATTRIBUTES_AT :] = changed(pick, bytes(header[layout.ATTRIBUTES_AT :]), 1, in_place=True)
    kept = header[layout.ATTRIBUTES_AT + 1] & ~layout.CODEC_MASK
    header[layout.ATTRIBUTES_AT + 1] = kept | layout.CODECS.index(codec)
    stream = bytes(compress(codec, records))
    if codec == "lz4" and pick.random() < 0.5:
        stream = lz4.frame.compress(records, block_linked=False, store_size=False, content_checksum=pick.random() < 0.2)
    if pick.random() < 0.3:
        stream = changed(pick, stream, 3)
    return with_right_crc(header + stream)


def _message(pick: random.Random, data: bytes) -> bytes:
    """Messages that are changed, perhaps compressed as a set, with a CRC that fits."""
    magic = data[layout.MAGIC_AT]
    if pick.random() < 0.3:
        return changed(pick, data, 2)
    inside = data
    if data[17] & layout.CODEC_MASK:
        value = data[34 if magic else 26 :]
        inside = bytes(decompress(layout.CODECS[data[17] & layout.CODEC_MASK], value, 1 << 20))
    codec = pick.choice(layout.CODECS[1:4])
    value = bytes(compress(codec, changed(pick, inside, 2)))
    body = bytes([magic, layout.CODECS.index(codec) | pick.choice((0, 8))])
    body += bytes(8) if magic else b""
    body += struct.pack(">ii", -1, len(value)) + value
    offset = pick.choice((0, 1, 600, 1 << 40))
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
