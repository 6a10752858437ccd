"""Appends beside what the machine does with the same bytes: Arrow batches, single records, batches of Kafka clients.

    python benchmarks/append.py [--folder FOLDER] [--rounds 7] [--mb 60]

The ways take turns; each figure is the median of the rounds, and a ratio is taken within each round. A plain write is
`pwrite` of the same number of bytes in pieces of 1 MiB into a file that was there before and is cut first, as the log
is. Nothing is synced but what an append syncs without being asked for it; what others left unwritten is synced before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from pyspark_log import Store
from pyspark_log.storage.ingest import encode
from pyspark_log.storage.record.compression import compress

PIECE = 1 << 20
ROUNDS_OF_CALLS = 2000


def timed(action: Callable[[], object]) -> float:
    """Seconds of a call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def rows(size: int, count: int) -> pa.RecordBatch:
    """Values that are half text and half noise, without keys."""
    text = (b"all happy families are alike; " * (size // 30 + 1))[: size - size // 2]
    noise = os.urandom(count * (size // 2))
    values = [text + noise[n * (size // 2) : (n + 1) * (size // 2)] for n in range(count)]
    return pa.record_batch({"value": pa.array(values, pa.binary())})


class Plain:
    """Plain writes into one file."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)

    def write(self, data: bytes) -> None:
        """Writes the bytes, piece by piece."""
        view = memoryview(data)
        for at in range(0, len(view), PIECE):
            os.pwrite(self._fd, view[at : at + PIECE], at)

    def cut(self) -> None:
        """Empties the file."""
        os.ftruncate(self._fd, 0)


def ready(store: Store, topic: str, partitions: int, codec: str) -> None:
    """A new topic with a record in each partition, so that its files are there and its offsets reserved."""
    if topic in store.topics():
        store.delete_topic(topic)
    store.create_topic(topic, partitions, {"compression.type": codec})
    for partition in range(partitions):
        store.append(topic, pa.record_batch({"value": [b"first"]}), partition=partition)


def large(store: Store, plain: Plain, given: argparse.Namespace) -> None:
    """Appends of Arrow batches."""
    print(f"{'Arrow batches':44}{'append ms':>10}{'MB/s':>8}{'M rec/s':>9}{'of the plain way':>18}")
    for size in (100, 1000, 10_000):
        data = rows(size, given.mb * 1_000_000 // size)
        payload = b"".join(encode("t", store.logs.topic_config("probe"), data, store.logs.clock()))
        show(store, plain, given, f"{size} bytes, 1 partition", data, payload, 1, "uncompressed")
    data = rows(100, given.mb * 10_000)
    payload = b"".join(encode("t", store.logs.topic_config("probe"), data, store.logs.clock()))
    show(store, plain, given, "100 bytes, 6 partitions", data, payload, 6, "uncompressed")
    for codec in ("lz4", "zstd"):
        show(store, plain, given, f"100 bytes, 1 partition, {codec}", data, payload, 1, codec)


def show(
    store: Store, plain: Plain, given: argparse.Namespace, name: str, data: pa.RecordBatch, payload: bytes,
    partitions: int, codec: str,
) -> None:  # fmt: skip
    """One line: the append, and how fast it is beside the codec and a plain write of what the codec leaves."""
    taken, ratios = [], []
    for number in range(given.rounds + 1):
        ready(store, "t", partitions, codec)
        plain.cut()

        def written() -> None:
            left = payload if codec == "uncompressed" else b"".join(
                compress(codec, payload[at : at + PIECE // 2], None) for at in range(0, len(payload), PIECE // 2)
            )
            plain.write(left)

        os.sync()
        least = timed(written)
        os.sync()
        took = timed(lambda: store.append("t", data))
        if number:
            taken.append(took)
            ratios.append(least / took)
    took = statistics.median(taken)
    print(
        f"{name:44}{took * 1e3:10.1f}{len(payload) / took / 1e6:8.0f}{data.num_rows / took / 1e6:9.2f}"
        f"{statistics.median(ratios):18.2f}"
    )


def small(store: Store, given: argparse.Namespace) -> None:
    """Calls with little data: microseconds a call."""
    config, now = store.logs.topic_config("probe"), store.logs.clock()
    one = pa.record_batch({"key": [b"12345678"], "value": [b"v" * 100]})
    batch = encode("t", config, rows(100, 130), now)[0]
    print(f"{'small calls':44}{'us a call':>10}{'calls/s':>10}")
    ready(store, "t", 1, "producer")
    calls = {
        "one record": lambda: store.append("t", one),
        "one record, the partition given": lambda: store.append("t", one, partition=0),
        f"a client's batch of {len(batch):,} bytes": lambda: store.append_batch("t", 0, batch),
    }
    for name, call in calls.items():
        taken = []
        for _ in range(given.rounds):
            taken.append(timed(lambda call=call: [call() for _ in range(ROUNDS_OF_CALLS)]) / ROUNDS_OF_CALLS)
        took = statistics.median(taken)
        print(f"{name:44}{took * 1e6:10.1f}{1 / took:10,.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where; a folder on the disk to be measured")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mb", type=int, default=60)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        store = Store.create(Path(folder) / "store")
        store.create_topic("probe", 1)
        large(store, Plain(f"{folder}/plain"), given)
        small(store, given)


if __name__ == "__main__":
    main()
