"""Feeds damaged bytes to the decoder: any input must give rows or a CorruptRecordError, in bounded time and memory.

    python tests/fuzz/fuzz_decoder.py [--inputs 20000] [--seed 1]

Inputs are Kafka's own batches and messages of all formats, cut, joined and changed at random. Some are changed
before they are compressed and get the right CRC, so that the damage reaches the parsers with checks on, too. Each
input is decoded with a choice of options, scanned and stamped. An error of any other kind ends the run with code 1
and prints the input.

If atheris is installed, it makes the inputs (`--inputs` of them); with a build that is not instrumented it only
sees the engine's Python code.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import random
import resource
import struct
import sys
import time
import zlib
from collections import Counter
from pathlib import Path

from pyspark_log.storage import batch as layout
from pyspark_log.storage.checksum import crc32c
from pyspark_log.storage.compression import compress, decompress
from pyspark_log.storage.errors import CorruptRecordError
from pyspark_log.storage.records import decode, headers_in, restamp, scan, stamp

GOLDEN = Path(__file__).parents[1] / "golden"
# Small, so that the limit is met; what an honest input needs is far less.
LIMIT = 1 << 18
OPTIONS = 8
HANG_SECONDS = 10
INTERESTING = (0, 1, 2, 4, 0x3F, 0x40, 0x7F, 0x80, 0xFE, 0xFF)


def one_input(data: bytes, options: int, counts: Counter[str]) -> None:
    """Everything that reads these bytes; `options` picks CRC checks, headers and density."""
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
        counts["inputs read to their end"] += position == len(data)
        counts["inputs with a tail left"] += position < len(data)
    except CorruptRecordError as error:
        counts["inputs refused"] += 1
        misplaced = error.position != position
    assert not misplaced
    for work in (
        lambda: scan(data, 0, len(data), check_crcs=check_crcs),
        lambda: headers_in(data, 0, 2 * len(data)),
        lambda: stamp(bytearray(data), 0, len(data), 7, 1),
        lambda: restamp(bytearray(data), 0, len(data), 7),
    ):
        with contextlib.suppress(CorruptRecordError):
            work()


def seeds() -> list[bytes]:
    """Kafka's own batches and messages."""
    found = []
    for path in sorted(GOLDEN.glob("**/[0-9][0-9]_*.json")):
        found.append(bytes.fromhex(json.loads(path.read_text(encoding="utf-8"))["hex"]))
    return found


class Mutator:
    """Makes inputs of seeds; the same ones for the same number."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._seeds = seeds()

    def reseed(self, seed: int) -> None:
        self._random.seed(seed)

    def next(self) -> bytes:
        pick = self._random
        pieces = [self._piece() for _ in range(pick.choice((1, 1, 1, 2, 3)))]
        data = b"".join(pieces)
        if pick.random() < 0.5:
            data = self._changed(data, pick.randint(1, 4))
        if pick.random() < 0.1:
            data = data[: pick.randrange(len(data) + 1)]
        return data

    def _piece(self) -> bytes:
        data = self._random.choice(self._seeds)
        if self._random.random() < 0.3:
            return data
        return self._batch(data) if data[layout.MAGIC_AT] == layout.MAGIC else self._message(data)

    def _batch(self, data: bytes) -> bytes:
        """A batch whose records and header are changed, compressed by any codec, with a CRC that fits."""
        codec = layout.CODECS[data[layout.ATTRIBUTES_AT + 1] & layout.CODEC_MASK]
        records = self._changed(bytes(decompress(codec, data[layout.HEADER_SIZE :], 1 << 20)), 3)
        codec = self._random.choice(layout.CODECS)
        header = bytearray(data[: layout.HEADER_SIZE])
        if self._random.random() < 0.3:
            header[layout.ATTRIBUTES_AT :] = self._changed(bytes(header[layout.ATTRIBUTES_AT :]), 1, in_place=True)
        kept = header[layout.ATTRIBUTES_AT + 1] & ~layout.CODEC_MASK
        header[layout.ATTRIBUTES_AT + 1] = kept | layout.CODECS.index(codec)
        result = header + bytes(compress(codec, records))
        struct.pack_into(">i", result, layout.LENGTH_AT, len(result) - layout.LENGTH_PREFIX)
        struct.pack_into(">I", result, layout.CRC_AT, crc32c(bytes(result[layout.ATTRIBUTES_AT :])))
        return bytes(result)

    def _message(self, data: bytes) -> bytes:
        """Messages that are changed, perhaps compressed as a set, with a CRC that fits."""
        magic = data[layout.MAGIC_AT]
        if self._random.random() < 0.3:
            return self._changed(data, 2)
        inside = data
        if data[17] & layout.CODEC_MASK:
            value = data[34 if magic else 26 :]
            inside = bytes(decompress(layout.CODECS[data[17] & layout.CODEC_MASK], value, 1 << 20))
        codec = self._random.choice(layout.CODECS[1:4])
        value = bytes(compress(codec, self._changed(inside, 2)))
        body = bytes([magic, layout.CODECS.index(codec) | self._random.choice((0, 8))])
        body += bytes(8) if magic else b""
        body += struct.pack(">ii", -1, len(value)) + value
        offset = self._random.choice((0, 1, 600, 1 << 40))
        return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body

    def _changed(self, data: bytes, most: int, *, in_place: bool = False) -> bytes:
        pick, changed = self._random, bytearray(data)
        for _ in range(pick.randint(0, most)):
            if not changed:
                break
            at, kind = pick.randrange(len(changed)), pick.randrange(4 if in_place else 7)
            if kind < 2:
                changed[at] = pick.choice(INTERESTING)
            elif kind == 2:
                changed[at] ^= 1 << pick.randrange(8)
            elif kind == 3:
                changed[at] = pick.randrange(256)
            elif kind == 4:
                del changed[at : at + pick.randint(1, 8)]
            elif kind == 5:
                changed[at:at] = pick.randbytes(pick.randint(1, 8))
            else:
                changed[at:at] = changed[at : at + pick.randint(1, 40)] * pick.choice((1, 2, 500))
        return bytes(changed)


def run(inputs: int, seed: int) -> None:
    mutator, counts, slowest, start = Mutator(seed), Counter[str](), 0.0, time.perf_counter()
    for number in range(inputs):
        data, before = mutator.next(), time.perf_counter()
        try:
            one_input(data, number % OPTIONS, counts)
        except BaseException:
            print(f"input {number} of seed {seed}, options {number % OPTIONS}: {data.hex()}", file=sys.stderr)
            raise
        took = time.perf_counter() - before
        assert took < HANG_SECONDS, f"input {number} of seed {seed} took {took:.1f} s: {data.hex()}"
        slowest = max(slowest, took)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 << 20 if sys.platform == "darwin" else 1 << 10)
    print(f"{inputs} inputs in {seconds:.0f} s, the slowest in {slowest * 1000:.0f} ms; peak memory {peak} MiB")
    for name, count in sorted(counts.items()):
        print(f"{name}: {count}")


def run_atheris(inputs: int, seed: int) -> None:
    import atheris  # noqa: PLC0415

    mutator, counts = Mutator(seed), Counter[str]()

    def test_one_input(data: bytes) -> None:
        if data:
            one_input(data[1:], data[0] % OPTIONS, counts)

    def mutate(data: bytes, max_size: int, number: int) -> bytes:
        if number % 2:
            return bytes(atheris.Mutate(data, max_size))
        mutator.reseed(number)
        return (bytes([number // 2 % OPTIONS]) + mutator.next())[:max_size]

    atheris.Setup([sys.argv[0], f"-runs={inputs}", f"-seed={seed}"], test_one_input, custom_mutator=mutate)
    atheris.instrument_all()
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    (run_atheris if importlib.util.find_spec("atheris") else run)(arguments.inputs, arguments.seed)


if __name__ == "__main__":
    main()
