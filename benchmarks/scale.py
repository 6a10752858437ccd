"""How costs grow with the amount stored, with partitions, and with writers; with plots in docs/.

    python benchmarks/scale.py [--folder FOLDER] [--gb 10] [--partitions 10000] [--document]

Values of 1,000 bytes, appends of 4 MB, nothing synced but what an append syncs unasked. Amounts: 1 MB to --gb, which is
more than the page cache holds if the machine has less memory. Writers are processes with a store of their own; they
append 20 records of 100 bytes a call, all to one partition, or each to one of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa
import tables
from matplotlib import pyplot

from pyspark_log import Store

DOCS = Path(__file__).parents[1] / "docs"
LOOKS, CALLS = 200, 500
#: What one append adds in the table of amounts.
PIECE = pa.record_batch({"value": pa.array([os.urandom(1000) for _ in range(4000)], pa.binary())})


def timed(action: Callable[[], object]) -> float:
    """Seconds of a call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def amounts(folder: str, most_gb: float) -> list[list[float]]:
    """Of a growing partition: GB stored, MB/s appended and read since the line before, ms to find an offset, a time."""
    store = Store.create(f"{folder}/amounts")
    store.create_topic("t", 1)
    lines, stored, goal = [], 0, 1_000_000
    while goal <= most_gb * 1e9:
        first, calls = store.latest_offset("t", 0), max(1, round((goal - stored) / PIECE.nbytes))
        append = timed(lambda calls=calls: [store.append("t", PIECE) for _ in range(calls)])
        end = store.latest_offset("t", 0)
        read = timed(lambda first=first: sum(batch.num_rows for batch in store.read("t", 0, first)))
        size = calls * PIECE.nbytes / 1e6
        stored += calls * PIECE.nbytes
        lines.append([stored / 1e9, size / append, size / read, *(one * 1e3 for one in looks(store, end))])
        goal *= 10 if goal < 1e9 else 2
    return lines


def looks(store: Store, end: int) -> tuple[float, float]:
    """Seconds to read a record by its offset, and to find the offset of a time; medians."""

    def record(at: int) -> pa.RecordBatch:
        return next(store.read("t", 0, at, at + 1))

    first, last = (record(at)["timestamp"][0].value // 1000 for at in (0, end - 1))
    by_offset, by_time = [], []
    for _ in range(LOOKS):
        at, when = random.randrange(end), random.randint(first, last)
        by_offset.append(timed(lambda at=at: record(at)))
        by_time.append(timed(lambda when=when: store.offset_for_timestamp("t", 0, when)))
    return statistics.median(by_offset), statistics.median(by_time)


def partitions(folder: str, most: int) -> list[list[float]]:
    """Of topics with more and more partitions: ms to create one, to append a row to each, and to ask for all ends."""
    lines, count = [], 1
    while count <= most:
        store = Store.create(f"{folder}/partitions{count}")
        create = timed(lambda count=count, store=store: store.create_topic("t", count))
        rows = pa.record_batch({"value": [b"v" * 100] * count, "partition": pa.array(range(count), pa.int32())})
        first = timed(lambda rows=rows, store=store: store.append("t", rows))
        again = timed(lambda rows=rows, store=store: store.append("t", rows))
        ends = timed(lambda path=store.path: Store.open(path).topic("t").latest_offsets())
        lines.append([count, create * 1e3, first * 1e3 / count, again * 1e3 / count, ends * 1e3 / count])
        count *= 10
    return lines


def _write(path: str, partition: int, ready: Barrier) -> None:
    store, rows = Store.open(path), pa.record_batch({"value": [b"v" * 100] * 20})
    store.append("t", rows, partition=partition)
    ready.wait()
    for _ in range(CALLS):
        store.append("t", rows, partition=partition)
    ready.wait()


def writers(folder: str) -> list[list[float]]:
    """Calls a second of 1 to 8 processes together: all to one partition, and each to its own."""
    lines, context = [], multiprocessing.get_context("spawn")
    for count in (1, 2, 4, 8):
        line: list[float] = [count]
        for own in (False, True):
            store = Store.create(f"{folder}/writers{count}{own}")
            store.create_topic("t", 8)
            ready = context.Barrier(count + 1)
            targets = range(count) if own else [0] * count
            processes = [context.Process(target=_write, args=(store.path, target, ready)) for target in targets]
            for process in processes:
                process.start()
            ready.wait()
            line.append(count * CALLS / timed(ready.wait))
            for process in processes:
                process.join()
        lines.append(line)
    return lines


def plot(name: str, across: str, up: str, lines: Sequence[Sequence[float]], curves: dict[str, int]) -> None:
    """A plot of some columns against the first one, as PNG and SVG."""
    pyplot.rcParams["svg.hashsalt"] = name
    figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    for label, column in curves.items():
        axes.plot([line[0] for line in lines], [line[column] for line in lines], marker="o", label=label)
    axes.set(xscale="log", xlabel=across, ylabel=up, ylim=(0, None))
    axes.legend()
    for kind in ("png", "svg"):
        figure.savefig(DOCS / f"{name}.{kind}", dpi=120, metadata={"Date": None} if kind == "svg" else None)


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--gb", type=float, default=10)
    parser.add_argument("--partitions", type=int, default=10_000)
    given = parser.parse_args()
    random.seed(1)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        by_amount = amounts(folder, given.gb)
        by_partitions = partitions(folder, given.partitions)
        by_writers = writers(folder)
    tables.show(
        "scale: amount", ["GB stored", "append, MB/s", "read, MB/s", "a record by offset, ms", "an offset by time, ms"],
        [[f"{one[0]:.3g}", f"{one[1]:.0f}", f"{one[2]:.0f}", f"{one[3]:.2f}", f"{one[4]:.2f}"] for one in by_amount],
        document=given.document,
    )  # fmt: skip
    tables.show(
        "scale: partitions", ["partitions", "create, ms", "first row of one, ms", "next row, ms", "its end, ms"],
        [[f"{one[0]:,}", f"{one[1]:.1f}", f"{one[2]:.2f}", f"{one[3]:.3f}", f"{one[4]:.3f}"] for one in by_partitions],
        document=given.document,
    )  # fmt: skip
    tables.show(
        "scale: writers", ["processes", "to one partition, calls/s", "each to its own, calls/s"],
        [[one[0], f"{one[1]:,.0f}", f"{one[2]:,.0f}"] for one in by_writers], document=given.document,
    )  # fmt: skip
    if given.document:
        plot("scale-amount", "GB stored", "MB/s", by_amount, {"append": 1, "read": 2})
        plot("scale-looks", "GB stored", "ms", by_amount, {"a record by its offset": 3, "an offset by a time": 4})
        plot("scale-partitions", "partitions", "ms for each", by_partitions, {"append": 3, "log end": 4})
        plot("scale-writers", "processes", "calls/s", by_writers, {"one partition": 1, "each its own": 2})


if __name__ == "__main__":
    main()
