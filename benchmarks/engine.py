"""The engine without Spark: appends and reads of one process, and publishes next to the syncs that they need.

    python benchmarks/engine.py [--rounds 7] [--folder FOLDER] [--document]

Keys of 8 bytes and values of 100. A publish has 20 rows for each partition. Its syncs alone take turns with it: as many
files, of which each gets 4 KB and is synced; a ratio is taken within each round.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pyarrow as pa
import tables

from pyspark_log import Store
from pyspark_log.storage.publish import StagedWriter, StagingPlan

ROWS = 500_000
#: Calls a round: appends of one record, publishes.
APPENDS, PUBLISHES = 300, 20
#: How many partitions a publish applies its decision to at a time.
THREADS = 4
BLOCK = bytes(4096)


def rows(number: int) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([b"%08d" % one for one in range(number)]),
            "value": pa.array([b"%0100d" % one for one in range(number)]),
        }
    )


def seconds(action: Callable[[], object], times: int = 1) -> float:
    """What one call takes, of several."""
    started = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - started) / times


class Syncs:
    """What a publish syncs, without the publish: the manifest and its folder, the decision, two files a partition."""

    def __init__(self, folder: str, partitions: int) -> None:
        self._folder, self._numbers = folder, count()
        os.mkdir(folder)
        self._decisions, self._end = self._open("decisions"), 0
        # A partition's state is written in place, and its log grows.
        self._places = [(self._open(f"{at}.state"), self._open(f"{at}.log")) for at in range(partitions)]
        self._threads = ThreadPoolExecutor(THREADS)

    def _open(self, name: str) -> int:
        return os.open(f"{self._folder}/{name}", os.O_RDWR | os.O_CREAT)

    def once(self) -> None:
        number = next(self._numbers)
        manifest = self._open(f"{number}.manifest")
        self._write(manifest, 0)
        os.close(manifest)
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        self._write(self._decisions, self._end)
        if number:
            os.unlink(f"{self._folder}/{number - 1}.manifest")
        if len(self._places) == 1:
            self._apply(self._places)
        else:
            list(self._threads.map(self._apply, [self._places[first::THREADS] for first in range(THREADS)]))
        self._end += len(BLOCK)

    def _apply(self, places: Iterable[tuple[int, int]]) -> None:
        for state, log in places:
            self._write(state, 0)
            self._write(log, self._end)

    def _write(self, fd: int, position: int) -> None:
        os.pwrite(fd, BLOCK, position)
        os.fdatasync(fd)


def publishes(store: Store, topic: str, partitions: int) -> Callable[[], None]:
    """What publishes 20 rows to each partition of a new topic."""
    store.create_topic(topic, partitions)
    plan, data, numbers = StagingPlan.make(store.logs, [topic]), rows(20 * partitions), count()

    def once() -> None:
        writer = StagedWriter(store.logs, plan)
        writer.append(topic, data)
        store.publishes.publish(topic, next(numbers), writer.finish(), run="run")

    return once


def main() -> None:
    given = tables.parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        store = Store.create(Path(folder) / "store")
        for topic in ("large", "small", "synced"):
            store.create_topic(topic, 1)
        many, one = rows(ROWS), rows(1)
        works: dict[str, tuple[Callable[[], object], int, int]] = {
            f"append, {ROWS:,} records a call": (lambda: store.append("large", many), 1, ROWS),
            f"read of {ROWS:,} records": (
                lambda: sum(batch.num_rows for batch in store.read("large", 0, 0, ROWS)),
                1,
                ROWS,
            ),
            "append, one record a call": (lambda: store.append("small", one), APPENDS, 1),
            "append, one record a call, synced": (lambda: store.append("synced", one, sync=True), APPENDS, 1),
        }
        taken = [[seconds(work, times) for work, times, _ in works.values()] for _ in range(given.rounds)]
        tables.show(
            "engine",
            ["", "records/s"],
            [
                [name, f"{records / statistics.median(found):,.0f}"]
                for (name, (_, _, records)), found in zip(works.items(), zip(*taken, strict=True), strict=True)
            ],
            document=given.document,
        )
        lines = []
        for partitions in (1, 8, 50):
            both = publishes(store, f"p{partitions}", partitions), Syncs(f"{folder}/{partitions}", partitions).once
            for work in both:
                work()  # The first publish makes the files of the partitions.
            taken = [[seconds(work, PUBLISHES) for work in both] for _ in range(given.rounds)]
            whole, syncs = zip(*taken, strict=True)
            lines.append(
                [
                    f"{partitions} partition{'s' * (partitions > 1)}",
                    f"{statistics.median(whole) * 1e3:.1f}",
                    f"{statistics.median(syncs) * 1e3:.1f}",
                    f"{tables.ratio(whole, syncs):.2f}",
                ]
            )
        tables.show(
            "engine: publishes",
            ["20 rows to each of", "a publish, ms", "its syncs alone, ms", "times as long"],
            lines,
            document=given.document,
        )


if __name__ == "__main__":
    main()
