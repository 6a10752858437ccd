"""How costs grow with the amount stored, with partitions, with writers and with readers; it plots them.

    python benchmarks/scale.py [--folder FOLDER] [--gb 10] [--cold-gb 3] [--partitions 10000] [--rounds 7] [--document]

Values of 1,000 bytes, appends of 4 MB, nothing synced but what an append syncs unasked. Amounts: 1 MB to --gb, which is
more than the page cache holds if the machine has less memory; each is there once, so there are no rounds. Past the page
cache: of a partition of --cold-gb, whose files are dropped from the cache before each read; a plain read, into one
buffer of 1 MiB, takes turns with the store's.

Writers and readers are processes with a store of their own, all at one partition, or each at one of its own; medians of
the rounds. Writers append 20 records of 100 bytes a call. Readers read 128 MB from the page cache, several times.
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

from pyspark_log import Store
from pyspark_log.storage.fs import files

IMAGES = Path(__file__).parents[1] / "docs" / "images"
LOOKS = 200
PROCESSES = (1, 2, 4, 8)
#: Of a writer and a reader in a round: calls; reads of its partition, and the appends of PIECE that are in it.
CALLS, READS, PIECES = 200, 4, 32
#: What a plain read reads at once.
BLOCK = 1 << 20
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


def past_the_cache(folder: str, gb: float, rounds: int) -> list[list[str]]:
    """Of a partition that is not in the page cache: MB/s of a read, and of a plain read of its files."""
    store = Store.create(f"{folder}/cold")
    store.create_topic("t", 1)
    for _ in range(round(gb * 1e9 / PIECE.nbytes)):
        store.append("t", PIECE)
    os.sync()
    opened = [files.open_read(path) for path in store.segment_files("t", 0)]
    size, buffer = store.size("t", 0) / 1e6, memoryview(bytearray(BLOCK))

    def plain() -> None:
        for file in opened:
            for at in range(0, file.size(), BLOCK):
                file.pread_into(buffer, at)

    def ours() -> None:
        for _ in store.read("t", 0):
            pass

    times: dict[Callable[[], None], list[float]] = {plain: [], ours: []}
    for _ in range(rounds):
        for read, taken in times.items():
            for file in opened:
                file.drop_cached()
            taken.append(timed(read))
    return [
        [name, f"{size / statistics.median(times[read]):,.0f}", f"{tables.ratio(times[plain], times[read]):.2f}"]
        for name, read in (("a plain read of its files", plain), ("a read of the partition", ours))
    ]


def _write(store: Store, partition: int) -> None:
    rows = pa.record_batch({"value": [b"v" * 100] * 20})
    for _ in range(CALLS):
        store.append("t", rows, partition=partition)


def _read(store: Store, partition: int) -> None:
    for _ in range(READS):
        assert sum(batch.num_rows for batch in store.read("t", partition)) == PIECES * PIECE.num_rows


def _repeat(work: Callable[[Store, int], None], path: str, partition: int, rounds: int, ready: Barrier) -> None:
    store = Store.open(path)
    work(store, partition)
    for _ in range(rounds):
        ready.wait()
        work(store, partition)
        ready.wait()


def at_once(store: Store, work: Callable[[Store, int], None], targets: Sequence[int], rounds: int) -> float:
    """Seconds until processes have done a work, each for one of the partitions; the median of the rounds."""
    context = multiprocessing.get_context("spawn")
    ready, taken = context.Barrier(len(targets) + 1), []
    processes = [context.Process(target=_repeat, args=(work, store.path, one, rounds, ready)) for one in targets]
    for process in processes:
        process.start()
    for _ in range(rounds):
        ready.wait()
        taken.append(timed(ready.wait))
    for process in processes:
        process.join()
    return statistics.median(taken)


def writers(folder: str, rounds: int) -> list[list[float]]:
    """Calls a second of several processes together: all to one partition, and each to its own."""
    lines = []
    for count in PROCESSES:
        line: list[float] = [count]
        for name, targets in (("one", [0] * count), ("own", range(count))):
            store = Store.create(f"{folder}/writers{count}-{name}")
            store.create_topic("t", max(PROCESSES))
            line.append(count * CALLS / at_once(store, _write, targets, rounds))
        lines.append(line)
    return lines


def readers(folder: str, rounds: int) -> list[list[float]]:
    """MB/s of several processes together: all of one partition, and each of its own."""
    store = Store.create(f"{folder}/readers")
    store.create_topic("t", max(PROCESSES))
    for partition in range(max(PROCESSES)):
        for _ in range(PIECES):
            store.append("t", PIECE, partition=partition)
    size = READS * PIECES * PIECE.nbytes / 1e6
    return [
        [count, *(count * size / at_once(store, _read, targets, rounds) for targets in ([0] * count, range(count)))]
        for count in PROCESSES
    ]


def plot(name: str, across: str, up: str, lines: Sequence[Sequence[float]], curves: dict[str, int]) -> None:
    """A plot of some columns against the first one."""
    from matplotlib import pyplot  # noqa: PLC0415  (writers and readers import this file, too)

    figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    for label, column in curves.items():
        axes.plot([line[0] for line in lines], [line[column] for line in lines], marker="o", label=label)
    axes.set(xscale="log", xlabel=across, ylabel=up, ylim=(0, None))
    axes.legend()
    figure.savefig(IMAGES / f"{name}.png", dpi=120)


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--gb", type=float, default=10)
    parser.add_argument("--cold-gb", type=float, default=3)
    parser.add_argument("--partitions", type=int, default=10_000)
    given = parser.parse_args()
    random.seed(1)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        by_amount = amounts(folder, given.gb)
        tables.show(
            "scale: amount",
            ["GB stored", "append, MB/s", "read, MB/s", "a record by offset, ms", "an offset by time, ms"],
            [
                [f"{gb:.3g}", f"{append:,.0f}", f"{read:,.0f}", f"{offset:.2f}", f"{when:.2f}"]
                for gb, append, read, offset, when in by_amount
            ],
            document=given.document,
        )
        tables.show(
            "scale: past the page cache",
            [f"{given.cold_gb:g} GB", "MB/s", "of the plain read"],
            past_the_cache(folder, given.cold_gb, given.rounds),
            document=given.document,
        )
        by_partitions = partitions(folder, given.partitions)
        tables.show(
            "scale: partitions",
            ["partitions", "create, ms", "first row of one, ms", "next row, ms", "its end, ms"],
            [[f"{one[0]:,}", f"{one[1]:.1f}", *(f"{cost:.3f}" for cost in one[2:])] for one in by_partitions],
            document=given.document,
        )
        by_writers = writers(folder, given.rounds)
        tables.show(
            "scale: writers",
            ["processes", "to one partition, calls/s", "each to its own, calls/s"],
            [[one[0], f"{one[1]:,.0f}", f"{one[2]:,.0f}"] for one in by_writers],
            document=given.document,
        )
        by_readers = readers(folder, given.rounds)
        tables.show(
            "scale: readers",
            ["processes", "of one partition, MB/s", "each of its own, MB/s"],
            [[one[0], f"{one[1]:,.0f}", f"{one[2]:,.0f}"] for one in by_readers],
            document=given.document,
        )
    if given.document:
        plot("scale-amount", "GB stored", "MB/s", by_amount, {"append": 1, "read": 2})
        plot("scale-looks", "GB stored", "ms", by_amount, {"a record by its offset": 3, "an offset by a time": 4})
        plot("scale-partitions", "partitions", "ms for each", by_partitions, {"append": 3, "log end": 4})
        plot("scale-writers", "processes", "calls/s", by_writers, {"one partition": 1, "each its own": 2})
        plot("scale-readers", "processes", "MB/s", by_readers, {"one partition": 1, "each its own": 2})


if __name__ == "__main__":
    main()
