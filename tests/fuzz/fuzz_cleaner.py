"""The log cleaner: the map of keys, and what a batch filter makes of a log.

Inputs are those of the decoder, but batches of format 2 follow each other as in a dense log, so that most of them are
reached. Whatever is left of an input must be a dense chain of whole batches with right CRCs.
"""

from __future__ import annotations

import contextlib
import random
import struct
from collections import Counter

from fuzz_decoder import LIMIT, Decoder

from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.compaction.filter import BatchFilter, CleanedOutput
from pyspark_log.storage.compaction.offset_map import OffsetMap
from pyspark_log.storage.compaction.transactions import CleanedTransactions
from pyspark_log.storage.record import layout
from pyspark_log.storage.record.decoding.decoder import decode
from pyspark_log.storage.record.headers import scan
from pyspark_log.storage.segment.txn_index import AbortedTransaction

NOW = 1_700_000_000_000
_EVERYTHING = {"from_offset": 0, "until_offset": 1 << 62, "max_bytes": 1, "max_batch_bytes": LIMIT}


def _first_offset(data: bytes) -> int:
    """Where the first batch begins; that of a compressed set is known once it is decompressed."""
    if data[layout.MAGIC_AT : layout.MAGIC_AT + 1] in (b"\0", b"\1"):
        with contextlib.suppress(CorruptRecordError):
            chunk = decode(data, 0, len(data), **_EVERYTHING)
            if chunk.num_rows:
                return int(chunk.columns["offset"][0].as_py())
    return int.from_bytes(data[:8], "big", signed=True)


class Cleaner(Decoder):
    """Bytes, and bits that pick what is known of keys, transactions and producers."""

    def feed(self, data: tuple[bytes, int], counts: Counter[str]) -> None:
        log, options = data
        base = max(_first_offset(log), 0)
        keys = OffsetMap(1 << 16)
        with contextlib.suppress(CorruptRecordError):
            keys.take(
                log, 0, len(log), from_offset=0, until_offset=1 << 62, follows=base, max_batch_bytes=LIMIT,
                aborted=lambda producer, _: bool(options & 1 and producer & 1),
            )  # fmt: skip
        if options & 2:
            keys.latest_offset = base + 2
        output = CleanedOutput(base, 100)
        aborted = [AbortedTransaction(number, 0, 1 << 62, 0) for number in range(1, 5000, 2)] if options & 1 else []
        batches = BatchFilter(
            keys, output, now=NOW, delete_retention_ms=options * 1000, transactions=CleanedTransactions(aborted),
            is_last=lambda header: bool(options & 4), codec="zstd", level=1, max_batch_bytes=LIMIT,
        )  # fmt: skip
        try:
            end = batches.take(log, 0, len(log))
        except CorruptRecordError as error:
            counts["refused"] += 1
            self.must(0 <= error.position < max(len(log), 1), error)
            return
        left = bytes(output.piece())
        if batches.next_offset - base < 1 << 31:
            output.finish(batches.next_offset)
            left += bytes(output.piece())
        counts["read to their end"] += end == len(log)
        counts["with a tail left"] += end < len(log)
        counts["records taken out"] += batches.records_read - batches.records_kept
        headers = scan(left, 0, len(left), check_crcs=True)
        assert (headers[-1].end if headers else 0) == len(left) == output.size
        follows = base
        for header in headers:
            # A compressed set shows its last offset only.
            assert header.base_offset == follows or header.magic < layout.MAGIC
            follows = header.next_offset

    def input(self, pick: random.Random) -> tuple[bytes, int]:
        follows, pieces = pick.choice((0, 7, 1 << 40)), []
        for _ in range(pick.choice((1, 2, 3, 5))):
            piece = bytearray(self._piece(pick))
            if len(piece) > layout.HEADER_SIZE and piece[layout.MAGIC_AT] == layout.MAGIC:
                struct.pack_into(">q", piece, 0, follows)
                follows += max(struct.unpack_from(">i", piece, layout.LAST_OFFSET_DELTA_AT)[0], 0) + 1
            pieces.append(bytes(piece))
        return b"".join(pieces), pick.randrange(8)
