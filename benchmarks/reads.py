"""Reads of one partition into Arrow, with checksums verified, compared with a copy of the same bytes of the file.

    python benchmarks/reads.py [--mb 24] [--rounds 7] [--folder FOLDER] [--document]

Logs of values of 100 B, 1 KB and 10 KB in batches of 16 KiB and 512 KiB, without compression, with lz4 and with zstd;
half of each value is noise. All is in the page cache. What is compared takes turns in one process and one thread, and
its processor time is counted, so that other work on the machine changes the ratios less; medians, a ratio within each
round. The copy reads the file into memory that was never used before, 1 MiB at a time, and drops it; `reused` reads
into one buffer. Of a compressed log the codec's library alone decompresses all batches. MB/s (10**6 bytes) count
uncompressed batches.
"""

from __future__ import annotations

import mmap
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable

import lz4.frame
import pyarrow as pa
import tables
import zstandard

from pyspark_log import Store
from pyspark_log.storage.record import scan
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.record.layout import HEADER_SIZE
from pyspark_log.storage.segment.file_names import LOG, segment_path

PIECE = 1024 * 1024
NOW = 1_700_000_000_000
CODECS: dict[str, Callable[[memoryview], object]] = {
    "lz4": lz4.frame.decompress,
    "zstd": zstandard.ZstdDecompressor().decompress,
}

#: What is measured, and its heading.
COLUMNS = {"read": "read", "fresh": "fresh copy", "reused": "reused copy", "codec": "codec alone"}


def rows(size: int, count: int) -> pa.RecordBatch:
    source = random.Random(7)
    words = [b"%-10d" % source.randrange(500) for _ in range(1000)]
    values = [b"".join(source.choices(words, k=size // 20)) + source.randbytes(size // 2) for _ in range(count)]
    return pa.record_batch({"key": pa.array([b"%08d" % number for number in range(count)]), "value": pa.array(values)})


def copy_fresh(fd: int, size: int) -> None:
    for start in range(0, size, PIECE):
        os.preadv(fd, [mmap.mmap(-1, min(PIECE, size - start))], start)


def copy_reused(fd: int, size: int) -> None:
    target = memoryview(bytearray(PIECE))
    for start in range(0, size, PIECE):
        os.preadv(fd, [target[: min(PIECE, size - start)]], start)


def in_turns(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of processor time in each round, by name, after a first round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            start = time.thread_time()
            work()
            if turn:
                times[name].append(time.thread_time() - start)
    return times


def measure(
    store: Store, data: pa.RecordBatch, size: int, batch_size: int, codec: str, rounds: int
) -> tuple[dict[str, float], float]:
    """MB/s by name, and how fast the read is relative to the fresh copy, or the codec."""
    topic = f"values-{size}-{batch_size}-{codec}"
    store.create_topic(topic, 1)
    columns = RecordColumns(data["key"], data["value"], None, None, NOW)
    builder, taken = BatchBuilder(batch_size, 1 << 30, codec), 0
    while taken < data.num_rows:
        taken += builder.append(columns, None, taken, data.num_rows)
        store.append_batch(topic, 0, builder.seal())
    with open(segment_path(store.logs.reader(topic, 0).place.folder, 0, LOG), "rb", buffering=0) as file:
        log = file.read()
        headers = scan(log, 0, len(log))
        streams = [memoryview(log)[header.position + HEADER_SIZE : header.end] for header in headers]
        plain = len(log)

        def decompress() -> None:
            for stream in streams:
                CODECS[codec](stream)

        def read() -> None:
            for _ in store.read(topic, 0, 0, data.num_rows):
                pass

        works: dict[str, Callable[[], object]] = {
            "read": read,
            "fresh": lambda: copy_fresh(file.fileno(), len(log)),
            "reused": lambda: copy_reused(file.fileno(), len(log)),
        }
        if codec in CODECS:
            works["codec"] = decompress
            plain = sum(len(CODECS[codec](stream)) + HEADER_SIZE for stream in streams)
        times = in_turns(works, rounds)
    speeds = {name: plain / statistics.median(times[name]) / 1e6 for name in times}
    return speeds, tables.ratio(times["codec" if codec in CODECS else "fresh"], times["read"])


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--mb", type=int, default=24)
    given = parser.parse_args()
    lines = []
    for size, value in ((100, "100 B"), (1000, "1 KB"), (10_000, "10 KB")):
        data = rows(size, given.mb * 1_000_000 // size)
        for batch_size in (16 * 1024, 512 * 1024):
            for codec in ("none", "lz4", "zstd"):
                with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                    store = Store.create(f"{folder}/store")
                    speeds, ratio = measure(store, data, size, batch_size, codec, given.rounds)
                shown = (f"{speeds[name]:,.0f}" if name in speeds else "" for name in COLUMNS)
                lines.append([f"{value}, {batch_size // 1024} KiB, {codec}", *shown, f"{ratio:.2f}"])
    tables.show(
        "reads",
        ["value, batch, codec", *COLUMNS.values(), "read of the fresh copy, or of the codec"],
        lines,
        document=given.document,
    )


if __name__ == "__main__":
    main()
