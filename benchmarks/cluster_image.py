"""How long a node takes for the metadata of 100,000 partitions: for a snapshot, for the log, and for single changes.

    python benchmarks/cluster_image.py

Each partition has three replicas on six brokers. The rows differ in how many topics have them.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import tables

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.cluster import Change
from pyspark_log.server.cluster.batches import read_batches
from pyspark_log.server.cluster.fold import Fold
from pyspark_log.server.cluster.image import Position

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.metadata_tools import batch_of
from tests.replica_changes import replica_changes

_PARTITIONS = 100_000
_TOPICS = (100, 10_000, 100_000)
_FETCH = 1 << 20  # bytes of one answer, of the 8 MiB that a node asks for at most
_STEPS = 100
_NO_END = 1 << 60


def timed(call: Callable[[], object]) -> float:
    """How long a call takes, in seconds."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def topics_of(count: int, chance: random.Random) -> Iterator[list[Struct]]:
    """The records of each topic."""
    dirs = [chance.randbytes(16) for _ in range(6)]
    for number in range(count):
        topic_id, records = number.to_bytes(16, "big"), [m.TopicRecord(f"topic-{number}", number.to_bytes(16, "big"))]
        for partition in range(_PARTITIONS // count):
            replicas = chance.sample(range(6), 3)
            at = [dirs[one] for one in replicas]
            records.append(m.PartitionRecord(partition, topic_id, replicas, replicas, [], [], replicas[0], 0, 0, 0, at))
        yield records


def replay(data: bytes) -> Fold:
    """Applies a log as it is fetched: by whole batches, in pieces."""
    fold, view, at, piece = Fold(), memoryview(data), 0, _FETCH
    while at < len(data):
        batches, size = read_batches(view[at : at + piece], fold.position.offset + 1, _NO_END)
        if batches:
            fold.apply(batches)
        at, piece = at + size, _FETCH if size else 2 * piece  # a batch that is larger is sent as a whole
    return fold


def steps(fold: Fold, records: list[Struct]) -> Iterator[Change]:
    """Applies records one by one, as they come while a cluster runs."""
    for record in records:
        offset = fold.position.offset + 1
        yield fold.apply(read_batches(batch_of([record], offset), offset, _NO_END)[0])


def measure(count: int) -> list[object]:
    """A row."""
    chance = random.Random(count)
    data, offset, topics = bytearray(), 0, []
    for records in topics_of(count, chance):
        data += batch_of(records, offset)
        offset += len(records)
        topics.append(records[0].topic_id)
    fold = Fold()
    loaded = timed(lambda: fold.load(read_batches(data, 0, _NO_END)[0], Position(offset - 1, 1)))
    replayed = timed(lambda: replay(bytes(data)))
    changes = [m.PartitionChangeRecord(0, chance.choice(topics), isr=[1, 2], leader=1) for _ in range(_STEPS)]
    one = timed(lambda: [replica_changes(change, 1) for change in steps(fold, changes)]) / _STEPS
    none = timed(lambda: list(steps(fold, [m.NoOpRecord()] * _STEPS))) / _STEPS
    return [f"{count:,}", f"{loaded:.1f} s", f"{replayed:.1f} s", f"{1000 * one:.2f} ms", f"{1000 * none:.3f} ms"]


def main() -> None:
    tables.parser(__doc__).parse_args()
    rows = [measure(count) for count in _TOPICS]
    header = ["topics", "a snapshot", "the log, by 1 MiB", "one partition changes", "nothing changes"]
    tables.show("cluster: metadata", header, rows, document=False)


if __name__ == "__main__":
    main()
