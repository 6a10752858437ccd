"""Reads of a large partition against those of a small one: in sequence, and from anywhere in a process that comes new.

    python benchmarks/large_log.py [--gb 10] [--rounds 7] [--folder FOLDER] [--document]

The appends are there once. Reads from start to end take turns, and are medians of the rounds; those from anywhere are
medians of 200. Nothing is dropped from the page cache.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import tables

from pyspark_log import Store

SMALL_GB = 0.1
ROWS = 500_000
LOOKUPS = 200
RECORDS = 100
BEGIN = 1_600_000_000_000
LINES = (
    f"append, {ROWS:,} records a call",
    "read from start to end",
    f"{RECORDS} records from a random offset: median (95 %)",
    "reads of files for that, and their bytes",
    f"{RECORDS} records from a random time: median (95 %)",
    "reads of files for that, and their bytes",
    "records, and segments",
)


def rows(first: int) -> pa.RecordBatch:
    """Records with keys of 8 bytes and values of 100, one each millisecond."""
    return pa.record_batch(
        {
            "key": pa.array([b"%08d" % number for number in range(ROWS)]),
            "value": pa.array([b"%0100d" % number for number in range(ROWS)]),
            "timestamp": pa.array(range(BEGIN + first, BEGIN + first + ROWS), pa.int64()),
        }
    )


def write(store: Store, topic: str, gb: float) -> float:
    """Appends until the partition has its size; the records a second that the appends took."""
    store.create_topic(topic, 1, {"retention.ms": "-1"})
    data, taken, size, end = rows(0), 0.0, 0, 0
    while size < gb * 1e9:
        started = time.perf_counter()
        store.append(topic, data)
        taken += time.perf_counter() - started
        size, end = store.size(topic, 0), store.latest_offset(topic, 0)
        data = data.set_column(2, "timestamp", pa.array(range(BEGIN + end, BEGIN + end + ROWS), pa.int64()))
    return end / taken


def calls_and_bytes() -> tuple[int, int]:
    """What this process has read so far, by the kernel's count."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["syscr"]), int(fields["rchar"])


def look_up(path: str, topic: str) -> list[str]:
    """Cells of the table, for offsets, then for times; run in a process of its own.

    Before each read the store is opened again, so that nothing is known of it.
    """
    found: list[str] = []
    end = Store.open(path).latest_offset(topic, 0)
    choices = random.Random(5)
    list(Store.open(path).read(topic, 0, 0, 1))  # What the first use of a program costs: imports.
    own_calls, own_bytes = calls_and_bytes()
    own_calls, own_bytes = calls_and_bytes()[0] - own_calls, calls_and_bytes()[1] - own_bytes
    for by_time in (False, True):
        taken, before = [], calls_and_bytes()
        for _ in range(LOOKUPS):
            at = choices.randrange(end - RECORDS)
            started = time.perf_counter()
            store, start = Store.open(path), at
            if by_time:
                start = store.offset_for_timestamp(topic, 0, BEGIN + at).offset
            count = sum(batch.num_rows for batch in store.read(topic, 0, start, start + RECORDS))
            taken.append(1000 * (time.perf_counter() - started))
            assert (start, count) == (at, RECORDS)
        calls, size = (now - then for now, then in zip(calls_and_bytes(), before, strict=True))
        found += [
            f"{statistics.median(taken):.1f} ms ({statistics.quantiles(taken, n=20)[-1]:.1f})",
            f"{(calls - own_calls) / LOOKUPS:.0f}, {(size - own_bytes) / LOOKUPS / (1 << 20):.1f} MiB",
        ]
    return found


def compare(folder: str, gb: float, rounds: int) -> list[list[str]]:
    """Lines of the table, of the small and the large partition."""
    store = Store.create(Path(folder) / "store")
    sizes = {"small": SMALL_GB, "large": gb}
    columns = {topic: [f"{write(store, topic, size) / 1e6:.1f} M records/s"] for topic, size in sizes.items()}
    times: dict[str, list[float]] = {topic: [] for topic in columns}
    for _ in range(rounds):
        for topic, taken in times.items():
            started = time.perf_counter()
            count = sum(batch.num_rows for batch in store.read(topic, 0))
            taken.append(time.perf_counter() - started)
            assert count == store.latest_offset(topic, 0)
    for topic, column in columns.items():
        took, records, size = statistics.median(times[topic]), store.latest_offset(topic, 0), store.size(topic, 0)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            cells = pool.submit(look_up, store.path, topic).result()
        column += [f"{records / took / 1e6:.1f} M records/s, {size / took / 1e9:.1f} GB/s", *cells]
        column += [f"{records:,} in {len(store.segment_files(topic, 0))}"]
    return [list(line) for line in zip(LINES, *columns.values(), strict=True)]


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--gb", type=float, default=10, help="size of the large partition")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        tables.show(
            "large partition",
            ["", f"{SMALL_GB * 1000:.0f} MB", f"{given.gb:g} GB"],
            compare(folder, given.gb, given.rounds),
            document=given.document,
        )


if __name__ == "__main__":
    main()
