"""Appends compared with what the machine does with the same bytes: Arrow batches, records, Kafka clients' batches.

    python benchmarks/append.py [--folder FOLDER] [--rounds 7] [--mb 60] [--document]

The ways take turns; each figure is the median of the rounds, and a ratio is taken within each round. A plain write is
`pwrite` of the same number of bytes in pieces of 1 MiB into an empty file. Before each way a file of that size is
written and cut, so that both get memory that was in use a moment ago. Nothing is synced but what an append syncs
without being asked for it; what others left unwritten is synced before.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable

import pyarrow as pa
import tables

from pyspark_log import Producer, Store
from pyspark_log.config import TopicConfig
from pyspark_log.storage.ingest.encoder import BatchEncoder
from pyspark_log.storage.record.codecs.compression import compress

PIECE = 1 << 20
# Calls a round; records a round by the producer; batches of a client at once.
CALLS, SENDS, TOGETHER = 1000, 50_000, 8
CONFIG, NOW = TopicConfig.resolve({}, {}), time.time_ns() // 1_000_000


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

    def warm(self, data: bytes) -> None:
        """Writes the bytes and cuts the file, so that the next way gets memory that was in use a moment ago."""
        os.ftruncate(self._fd, 0)
        self.write(data)
        os.ftruncate(self._fd, 0)
        os.sync()


def ready(folder: str, partitions: int, codec: str) -> Store:
    """A new store with a topic that has a record in each partition, so that its files are there.

    The store before it is removed: its memory in the page cache is used again, as that of the plain file is.
    """
    shutil.rmtree(f"{folder}/store", ignore_errors=True)
    store = Store.create(f"{folder}/store")
    store.create_topic("t", partitions, {"compression.type": codec})
    for partition in range(partitions):
        store.append("t", pa.record_batch({"value": [b"first"]}), partition=partition)
    return store


def encoded(data: pa.RecordBatch) -> list[bytes]:
    """The record batches of rows."""
    encoder = BatchEncoder("t", 1, CONFIG)
    return list(encoder.batches(0, [encoder.assign(data, NOW, 0)]))


def large(folder: str, rounds: int, size_mb: int) -> dict[str, list[float]]:
    """Appends of Arrow batches: ms, MB/s, million records a second, and the ratio to the plain way, by name."""
    plain, found = Plain(f"{folder}/plain"), {}
    for size in (100, 1000, 10_000):
        data = rows(size, size_mb * 1_000_000 // size)
        payload = b"".join(encoded(data))
        found[f"{size:,} bytes, 1 partition"] = beside(folder, plain, rounds, data, payload, 1, "uncompressed")
        if size == 100:
            found["100 bytes, 6 partitions"] = beside(folder, plain, rounds, data, payload, 6, "uncompressed")
            for codec in ("lz4", "zstd"):
                found[f"100 bytes, 1 partition, {codec}"] = beside(folder, plain, rounds, data, payload, 1, codec)
    return found


def beside(
    folder: str, plain: Plain, rounds: int, data: pa.RecordBatch, payload: bytes, partitions: int, codec: str
) -> list[float]:
    """Appends compared with the codec and a plain write of what the codec leaves."""
    taken, ratios = [], []

    def written() -> None:
        parts = [payload]
        if codec != "uncompressed":
            parts = [compress(codec, payload[at : at + PIECE // 2], None) for at in range(0, len(payload), PIECE // 2)]
        plain.write(b"".join(parts) if len(parts) > 1 else payload)

    for number in range(rounds + 1):
        store = ready(folder, partitions, codec)
        plain.warm(payload)
        least = timed(written)
        plain.warm(payload)
        took = timed(lambda store=store: store.append("t", data))
        del store
        if number:
            taken.append(took)
            ratios.append(least / took)
    took = statistics.median(taken)
    return [took * 1e3, len(payload) / took / 1e6, data.num_rows / took / 1e6, statistics.median(ratios)]


def small(folder: str, rounds: int) -> dict[str, float]:
    """Calls with little data: seconds a call."""
    one = pa.record_batch({"key": [b"12345678"], "value": [b"v" * 100]})
    batch = encoded(rows(100, 130))[0]
    store = ready(folder, 1, "producer")
    producer = Producer(store)

    def send() -> None:
        for _ in range(SENDS):
            producer.send("t", b"v" * 100, key=b"12345678")
        producer.flush()

    calls = {
        "one record": lambda: store.append("t", one),
        "one record, the partition given": lambda: store.append("t", one, partition=0),
        f"a client's batch of {len(batch):,} bytes": lambda: store.append_batch("t", 0, batch),
    }
    found = {
        name: statistics.median(timed(lambda call=call: [call() for _ in range(CALLS)]) / CALLS for _ in range(rounds))
        for name, call in calls.items()
    }
    together = [batch] * TOGETHER
    found[f"{TOGETHER} such batches together, each"] = statistics.median(
        timed(lambda: store.append_batches("t", 0, together)) / TOGETHER for _ in range(rounds * 10)
    )
    found["one record by Producer.send, with the flush"] = statistics.median(timed(send) / SENDS for _ in range(rounds))
    producer.close()
    return found


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--mb", type=int, default=60)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        found = large(folder, given.rounds, given.mb)
        tables.show(
            "append: Arrow batches",
            ["", "ms", "MB/s", "M records/s", "of the plain way"],
            [[name, f"{a:.0f}", f"{b:,.0f}", f"{c:.2f}", f"{d:.2f}"] for name, (a, b, c, d) in found.items()],
            document=given.document,
        )
        tables.show(
            "append: small calls",
            ["", "us a call", "calls/s"],
            [[name, f"{took * 1e6:.1f}", f"{1 / took:,.0f}"] for name, took in small(folder, given.rounds).items()],
            document=given.document,
        )


if __name__ == "__main__":
    main()
