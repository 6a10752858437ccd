"""How long a record takes from an append to a reader that waits for it in another process.

    python benchmarks/latency.py [--records 2000] [--folder FOLDER] [--document]

The reader follows the topic. The writer appends a record, with the time in it, and pauses for a random time of up to
20 ms. Nothing is synced. Then look-ups: the log end, an offset, and the offset of a time.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import tables

from pyspark_log import Store


def follow(path: str, count: int, found: Connection) -> None:
    """Follows the topic, and sends how long each record took, in ms."""
    taken: list[float] = []
    for batch in Store.open(path).topic("t").follow(0):
        now = time.time_ns()
        if not taken:
            found.send("ready")
        taken += [(now - int(value)) / 1e6 for value in batch["value"].to_pylist()]
        if len(taken) > count:
            break
    found.send(taken[1:])


def append(store: Store) -> None:
    """Appends a record that is the time."""
    store.append("t", pa.record_batch({"value": [b"%d" % time.time_ns()]}))


def line(name: str, times: list[float]) -> list[str]:
    """A line of the table, of times in ms."""
    ordered = sorted(times)
    return [name, *(f"{one:.2f}" for one in (statistics.median(ordered), ordered[int(len(times) * 0.99)], ordered[-1]))]


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--records", type=int, default=2000)
    given = parser.parse_args()
    random.seed(1)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        store = Store.create(Path(folder) / "store")
        store.create_topic("t", 1)
        mine, others = multiprocessing.get_context("spawn").Pipe()
        reader = multiprocessing.get_context("spawn").Process(target=follow, args=(store.path, given.records, others))
        reader.start()
        append(store)
        mine.recv()
        for _ in range(given.records):
            append(store)
            time.sleep(random.uniform(0, 0.02))
        lines = [line("from an append to a reader that waits", mine.recv())]
        reader.join()
        end = store.latest_offset("t", 0)
        first = next(store.read("t", 0, 0, 1))["timestamp"][0].value // 1000
        last = next(store.read("t", 0, end - 1, end))["timestamp"][0].value // 1000
        looks = {
            "the log end": lambda: store.latest_offset("t", 0),
            "a record by its offset": lambda: next(store.read("t", 0, (at := random.randrange(end)), at + 1)),
            "the offset of a time": lambda: store.offset_for_timestamp("t", 0, random.randint(first, last)),
        }
        for name, look in looks.items():
            times = []
            for _ in range(given.records):
                started = time.perf_counter()
                look()
                times.append((time.perf_counter() - started) * 1e3)
            lines.append(line(name, times))
        tables.show("latency", ["ms", "half", "99 in 100", "the longest"], lines, document=given.document)


if __name__ == "__main__":
    main()
