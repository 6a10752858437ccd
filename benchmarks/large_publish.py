"""How long a large publish keeps the writers of a partition out.

    python benchmarks/large_publish.py [--gb 0.5] [--rounds 7] [--folder DIR] [--other DIR] [--document]

0.5 GB for one partition, staged by one task, or by 250 tasks in little pieces. Published as usual, and with everything
copied while the lock is held. With `--other`, a folder on another device, the partition is there. Meanwhile another
process appends a record to the partition every millisecond; its longest call is how long a concurrent writer waits.
The ways take turns; medians of the rounds.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import statistics
import tempfile
import time

import pyarrow as pa
import tables

from pyspark_log import Store
from pyspark_log.storage.fs import FileLock
from pyspark_log.storage.publish import StagedWriter, StagingPlan, prepare
from pyspark_log.storage.publish.staging import staged_file

CHUNK = 16_000  # rows, of 8 and 100 bytes
TASKS = 250
PROCESSES = multiprocessing.get_context("spawn")


def rows() -> pa.RecordBatch:
    data = random.Random(1).randbytes(CHUNK * 100)
    return pa.record_batch(
        {
            "key": pa.array([b"%08d" % number for number in range(CHUNK)]),
            "value": pa.array([data[at : at + 100] for at in range(0, len(data), 100)]),
        }
    )


def append_beside(path: str, stop, results) -> None:
    store, longest = Store.open(path), 0.0
    record = pa.record_batch({"value": [b"x"]})
    store.append("t", record)
    results.put(None)
    while not stop.is_set():
        started = time.perf_counter()
        store.append("t", record)
        longest = max(longest, time.perf_counter() - started)
        time.sleep(0.001)
    results.put(longest)


class Holds:
    """How long this process holds each lock."""

    def __enter__(self) -> Holds:
        self.longest: dict[str, float] = {}
        self._acquire, self._release = FileLock.acquire, FileLock.release
        since: dict[str, float] = {}

        def acquire(lock, *args, **kwargs):
            self._acquire(lock, *args, **kwargs)
            since[lock.path] = time.perf_counter()

        def release(lock, *args):
            held = time.perf_counter() - since[lock.path]
            self.longest[lock.path] = max(held, self.longest.get(lock.path, 0))
            self._release(lock, *args)

        FileLock.acquire, FileLock.release = acquire, release
        return self

    def __exit__(self, *_) -> None:
        FileLock.acquire, FileLock.release = self._acquire, self._release


def measure(folder: str, other: str | None, size: int, tasks: int, *, copied: bool) -> tuple[float, float, float]:
    """Seconds of the publish, of the time that the partition's lock is held, and of the longest concurrent append."""
    store = Store.create(f"{folder}/store", {"log.dirs": f"data,{other}/logs"} if other else {})
    store.create_topic("t", 1)
    if other:
        store.move_partition("t", 0, f"{other}/logs")
    plan, data, parts = StagingPlan.make(store.logs, ["t"]), rows(), []
    chunks = size // data.nbytes
    for task in range(tasks):
        writer = StagedWriter(store.logs, plan)
        for _ in range(chunks * task // tasks, chunks * (task + 1) // tasks):
            writer.append("t", data)
        parts += writer.finish()
    os.sync()
    stop, results = PROCESSES.Event(), PROCESSES.Queue()
    beside = PROCESSES.Process(target=append_beside, args=(store.path, stop, results))
    beside.start()
    results.get()
    limit = staged_file.copy_limit
    staged_file.copy_limit = prepare.copy_limit = (lambda _: 1 << 62) if copied else limit
    try:
        with Holds() as holds:
            started = time.perf_counter()
            store.publishes.publish("q", 0, parts)
            took = time.perf_counter() - started
    finally:
        staged_file.copy_limit = prepare.copy_limit = limit
        stop.set()
    waited = results.get()
    beside.join()
    return took, holds.longest[os.path.realpath(store.logs.reader("t", 0).place.state_path)], waited


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--gb", type=float, default=0.5)
    parser.add_argument("--other", help="where the partition is, on another device; else in the store")
    given = parser.parse_args()
    ways = [(tasks, copied) for tasks in (1, TASKS) for copied in (True, False)]
    found: dict[tuple[int, bool], list[tuple[float, float, float]]] = {way: [] for way in ways}
    for _ in range(given.rounds):
        for tasks, copied in ways:
            with contextlib.ExitStack() as folders:
                folder, other = (
                    path and folders.enter_context(tempfile.TemporaryDirectory(dir=path))
                    for path in (given.folder or tempfile.gettempdir(), given.other)
                )
                found[tasks, copied].append(measure(folder, other, int(given.gb * 1e9), tasks, copied=copied))
    lines = [
        [
            f"{'one task' if tasks == 1 else f'{tasks} tasks'}, {'copied under the lock' if copied else 'as it is'}",
            *(f"{statistics.median(times) * 1000:,.0f}" for times in zip(*taken, strict=True)),
        ]
        for (tasks, copied), taken in found.items()
    ]
    tables.show(
        "large publish: to another device" if given.other else "large publish",
        [f"{given.gb:g} GB, ms", "the publish", "lock held", "longest append beside"],
        lines,
        document=given.document,
    )


if __name__ == "__main__":
    main()
