"""What a follower costs: a node of ours beside a broker of Kafka, for producers with acks=all, and in processor time.

    python benchmarks/node.py [--rounds 5] [--quick] [--document]

A cluster of two brokers and a node. Of each round's two topics one has its second replica at a broker, the other at the
node; both must have each record before a producer is answered. Records of 1 KB, by Kafka's own tool; medians.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import tables

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kafka"))
from kafka_cluster import Cluster
from node_tools import NODE, NodeServer

from tests.kafka.kafka_tools import missing, run

SIZE, _AMOUNT, _QUICK = 1000, 300_000_000, 0.02
_OURS, _KAFKA = "pylog serve", "Kafka"
_TICKS = 100  # of a second, in /proc


class Measured(NamedTuple):
    """A round: MB a second of the producer, its time to an answer (ms, 99th of 100), and what the brokers took (s)."""

    speed: float
    latency: float
    processor: float


def processor(pid: int) -> float:
    """Seconds of the processor that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def produced(bootstrap: str, topic: str, records: int) -> tuple[float, float]:
    """Has Kafka's tool produce with acks=all: MB a second, and the 99th of 100 times to an answer (ms)."""
    printed = run(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(records), "--record-size",
        str(SIZE), "--throughput", "-1", "--command-property", f"bootstrap.servers={bootstrap}", "acks=all",
        "batch.size=65536", "linger.ms=5",
    )  # fmt: skip
    found = re.search(r"\(([\d.]+) MB/sec\).*?(\d+) ms 99th", printed.splitlines()[-1])
    assert found is not None, printed
    return float(found[1]), float(found[2])


def row(what: str, left: Sequence[float], right: Sequence[float]) -> list[str]:
    """A row of the table: medians of both sides, and their ratio."""
    medians = (f"{statistics.median(side):,.1f}" for side in (left, right))
    return [what, *medians, f"{tables.ratio(left, right):.2f}"]


def _measure(cluster: Cluster, topic: str, follower: int, pid: int, records: int) -> Measured:
    cluster.create_topic(topic, assignment=[[1, follower]], configs={"min.insync.replicas": 2})
    cluster.wait_for_isr(topic, 0, {1, follower})
    before = processor(pid)
    speed, latency = produced(cluster.bootstrap, topic, records)
    taken = processor(pid) - before
    cluster.delete_topic(topic)
    return Measured(speed, latency, taken)


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="as little as possible, one round")
    parser.set_defaults(rounds=5)
    given = parser.parse_args()
    if problem := missing():
        raise SystemExit(problem)
    records, rounds = (round(_AMOUNT * _QUICK / SIZE), 1) if given.quick else (_AMOUNT // SIZE, given.rounds)
    found: dict[str, list[Measured]] = {_OURS: [], _KAFKA: []}
    with tempfile.TemporaryDirectory(dir=given.folder) as name, Cluster(Path(name), brokers=2) as cluster:
        node = NodeServer(cluster, Path(name) / "node").start()
        try:
            node.wait_for("unfenced")
            sides = {_OURS: (NODE, node.process.pid), _KAFKA: (2, cluster[2].process.pid)}
            for number in range(-1, rounds):
                # The first one is not counted: Java's code is not compiled yet.
                for side in sides if number % 2 == 0 else reversed(sides):
                    measured = _measure(cluster, f"t{number + 1}-{len(side)}", *sides[side], records)
                    found[side] += [measured] if number >= 0 else []
            node.stop()
        finally:
            node.kill()
    rows = []
    size = records * SIZE
    for what, each in (
        ("producer, MB/s", lambda one: one.speed),
        ("99th of 100 answers, ms", lambda one: one.latency),
        ("the follower's seconds of the processor a GB", lambda one: one.processor / size * 1e9),
    ):
        left, right = ([each(one) for one in found[side]] for side in (_OURS, _KAFKA))
        rows.append(row(what, left, right))
    header = ["acks=all, two replicas; the follower is", _OURS, _KAFKA, "ratio"]
    tables.show("node", header, rows, document=given.document)


if __name__ == "__main__":
    main()
