"""Three nodes of ours beside three brokers of Kafka in one cluster: producers with acks=all, and time to a new leader.

    python benchmarks/cluster.py [--rounds 3] [--quick] [--document]

Topics with three replicas and min.insync.replicas=2, on the nodes or on the brokers, under the same controller. Records
of 1 KB, by Kafka's own tool. Then the leader is killed, and a producer's longest time without an answer is measured;
the controller fences a broker after 3 seconds. Medians.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import confluent_kafka
import tables
from node import SIZE, Measured, processor, produced, row

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kafka"))
from kafka_cluster import Cluster, wait_until
from node_tools import NodeServer

from tests.kafka.kafka_tools import missing

_AMOUNT, _QUICK = 200_000_000, 0.02
_OURS, _KAFKA = "pylog serve", "Kafka"
_NODES, _BROKERS = (11, 12, 13), (1, 2, 3)
_PATIENCE = 60.0


class _Side:
    """Three brokers of one kind."""

    def __init__(self, cluster: Cluster, numbers: Sequence[int], nodes: dict[int, NodeServer]) -> None:
        self.cluster, self.numbers, self._nodes = cluster, numbers, nodes

    def pids(self) -> list[int]:
        return [(self._nodes.get(one) or self.cluster[one]).process.pid for one in self.numbers]

    def create(self, topic: str) -> None:
        self.cluster.create_topic(topic, assignment=[self.numbers], configs={"min.insync.replicas": 2})
        self.cluster.wait_for_isr(topic, 0, self.numbers)

    def kill(self, number: int) -> None:
        (self._nodes.get(number) or self.cluster[number]).kill()

    def start(self, number: int) -> None:
        if number in self._nodes:
            self._nodes[number].start()
        else:
            self.cluster.start()

    def bootstrap(self) -> str:
        return ",".join(self.cluster.bootstrap_of("PLAINTEXT", one) for one in self.numbers)


def _throughput(side: _Side, topic: str, records: int) -> Measured:
    side.create(topic)
    before = sum(map(processor, side.pids()))
    speed, latency = produced(side.bootstrap(), topic, records)
    taken = sum(map(processor, side.pids())) - before
    side.cluster.delete_topic(topic)
    return Measured(speed, latency, taken)


def _failover(side: _Side, topic: str) -> float:
    """A producer's longest time without an answer around the end of its leader, in seconds."""
    side.create(topic)
    answers = list[float]()
    producer = confluent_kafka.Producer({
        "bootstrap.servers": side.bootstrap(), "acks": "all", "enable.idempotence": True, "linger.ms": 0,
        "topic.metadata.refresh.interval.ms": 100, "retry.backoff.ms": 20, "log_level": 0,
    })  # fmt: skip

    def note(error: object, _message: object) -> None:
        if error is None:
            answers.append(time.monotonic())

    def produce(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            producer.produce(topic, b"x", on_delivery=note)
            producer.poll(0.01)

    produce(1.0)
    wait_until(lambda: producer.poll(0.1) or answers, "the producer gets answers")
    leader = side.cluster.leader_of(topic)
    killed = time.monotonic()
    side.kill(leader)
    while answers[-1] < killed + 0.5 and time.monotonic() < killed + _PATIENCE:
        produce(0.2)
    producer.flush(_PATIENCE)
    gap = max(after - before for before, after in pairwise(answers))
    side.start(leader)
    side.cluster.wait_for_isr(topic, 0, side.numbers)
    return gap


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="as little as possible, one round")
    parser.set_defaults(rounds=3)
    given = parser.parse_args()
    if problem := missing():
        raise SystemExit(problem)
    records, rounds = (round(_AMOUNT * _QUICK / SIZE), 1) if given.quick else (_AMOUNT // SIZE, given.rounds)
    speeds: dict[str, list[Measured]] = {_OURS: [], _KAFKA: []}
    gaps: dict[str, list[float]] = {_OURS: [], _KAFKA: []}
    with tempfile.TemporaryDirectory(dir=given.folder) as name, Cluster(Path(name), brokers=3) as cluster:
        nodes = {one: NodeServer(cluster, Path(name) / f"node{one}", number=one) for one in _NODES}
        try:
            for number, node in nodes.items():
                node.start().wait_for("unfenced")
                cluster.join(number, node.port)
            sides = {_OURS: _Side(cluster, _NODES, nodes), _KAFKA: _Side(cluster, _BROKERS, {})}
            for number in range(-1, rounds):
                # The first one is not counted: Java's code is not compiled yet.
                for side in sides if number % 2 == 0 else reversed(sides):
                    measured = _throughput(sides[side], f"t{number + 1}-{len(side)}", records)
                    speeds[side] += [measured] if number >= 0 else []
            for number in range(rounds):
                for side in sides if number % 2 == 0 else reversed(sides):
                    gaps[side].append(_failover(sides[side], f"f{number}-{len(side)}"))
        finally:
            for node in nodes.values():
                node.kill()
    size = records * SIZE
    rows = []
    for what, left, right in (
        ("producer, MB/s", *([one.speed for one in speeds[side]] for side in (_OURS, _KAFKA))),
        ("99th of 100 answers, ms", *([one.latency for one in speeds[side]] for side in (_OURS, _KAFKA))),
        (
            "seconds of the processor a GB, of all three",
            *([one.processor / size * 1e9 for one in speeds[side]] for side in (_OURS, _KAFKA)),
        ),
        ("without an answer when the leader is killed, s", gaps[_OURS], gaps[_KAFKA]),
    ):
        rows.append(row(what, left, right))
    header = ["acks=all, three replicas", _OURS, _KAFKA, "ratio"]
    tables.show("cluster", header, rows, document=given.document)


if __name__ == "__main__":
    main()
