"""`pylog serve` beside Kafka, at the same clients: throughput, times, processor time and memory.

    python benchmarks/server.py [--kafka] [--rounds 3] [--only producer] [--quick] [--document]

Kafka has its shipped settings and 2 GB (`make kafka-jars`, which also fetches the tools that measure). With `--kafka`
both servers run all the time, on the same disk, and take turns in the order A, B, B, A; what is fetched was written
before, which warms both up. Figures are medians of the rounds; a ratio is ours by Kafka's within a round, with the
least and the largest. `--quick` only shows that all of it works.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import tables
from server_clients import (
    Load,
    Work,
    consume,
    create_topic,
    delete_topic,
    fetch_plainly,
    in_processes,
    java_consumer,
    java_end_to_end,
    java_producer,
    produce,
    produce_steadily,
    python_end_to_end,
    send_plainly,
)

from pyspark_log import Store

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.kafka.kafka_tools import Broker, missing
from tests.server_tools import Server

OURS, KAFKA = "ours", "Kafka"
SIZES = {"100 B": 100, "1 KB": 1000}
#: What each producer of Kafka's tool is called, with the bytes of its values and its settings.
PRODUCERS = {
    "100 B, acks=all, idempotent": (100, ()),
    "1 KB, acks=all, idempotent": (1000, ()),
    "100 B, acks=all": (100, ("enable.idempotence=false",)),
    "100 B, acks=1": (100, ("acks=1",)),
    "1 KB, acks=1": (1000, ("acks=1",)),
}
#: Bytes of values in a run at full speed, by the bytes of one: as clients are slower with small ones.
AMOUNTS = {100: 100_000_000, 1000: 250_000_000}
#: How long a run at half load takes, in seconds, and which part of it only warms Java up; records of a run that sends
#: them one by one.
HALF_LOAD, WARM_UP, ONE_BY_ONE = 15, 0.5, 3000
#: What a client that only receives asks for at a time.
PLAIN = {"1 MiB": 1 << 20, "16 MiB": 16 << 20}
MANY = 20
#: How much `--quick` does of everything.
QUICK = 0.02
GROUPS = ("process", "producer", "consumer", "python", "many", "end-to-end")


class Side:
    """A server that is measured.

    Attributes:
        name: OURS or KAFKA.
        server: its process.
    """

    def __init__(self, name: str, server: Server | Broker, logs: Path) -> None:
        """`logs`: the folder with those of its partitions."""
        self.name, self.server, self._logs = name, server, logs

    def log(self, topic: str) -> Path:
        """The file with the records of a topic, which has one partition and one segment."""
        [file] = self._logs.glob(f"{topic}-0/*.log")
        return file

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return str(self.server.bootstrap)

    def processor_time(self) -> float:
        """What all its threads have used so far, in seconds (proc(5))."""
        fields = Path(f"/proc/{self.server.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, what: str) -> float:
        """VmRSS, what it has now, or VmHWM, the most that it had, in MB."""
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith(f"{what}:")]
        return int(line.split()[1]) * 1024 / 1e6


class Named(Protocol):
    """What figures are of."""

    @property
    def name(self) -> str:
        """OURS or KAFKA."""


class Figures:
    """What was measured: of each line the figures of each side, one for each round."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, list[float]]] = {}

    def add(self, line: str, side: Named, value: float) -> None:
        """Notes a figure of the round."""
        self._found.setdefault(line, {}).setdefault(side.name, []).append(value)

    def last(self, line: str) -> list[float]:
        """The newest figure of each side."""
        return [values[-1] for values in self._found[line].values()]

    def lines(self) -> list[str]:
        """The names of the lines."""
        return list(self._found)

    def cells(self, line: str, digits: int) -> list[str]:
        """The medians of both sides, and their ratio; "" for what was not measured."""
        sides = self._found.get(line, {})
        medians = [f"{statistics.median(sides[name]):,.{digits}f}" if name in sides else "" for name in (OURS, KAFKA)]
        pairs = zip(sides.get(OURS, ()), sides.get(KAFKA, ()), strict=False)
        # A time of 0 ms, which is less than what the tool measures, has no ratio.
        ratios = [ours / kafka for ours, kafka in pairs if kafka]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""
        return [*medians, spread]


class Benchmark:
    """Measures servers with clients.

    Attributes:
        speeds: records a second.
        rates: MB of values a second.
        costs: the server's processor time, ms for a MB of values.
        times: ms.
    """

    def __init__(self, sides: Sequence[Side], amount: float) -> None:
        """`amount`: how much of everything; 1 for figures that count."""
        self._sides, self._amount = sides, amount
        self._topics = 0
        self.speeds, self.rates, self.costs, self.times = Figures(), Figures(), Figures(), Figures()

    def prepare(self) -> None:
        """Writes what is fetched later."""
        for side in self._sides:
            for size in SIZES.values():
                load = self._load(f"fetched-{size}", size)
                create_topic(side.bootstrap, load.topic)
                java_producer(side.bootstrap, load, ())
            create_topic(side.bootstrap, "fetched-many", MANY)
            in_processes(produce, side.bootstrap, self._load("fetched-many", 1000), MANY)

    def measures(self, groups: Sequence[str]) -> Iterator[Callable[[Side], None]]:
        """What is measured in a round, in order."""
        if "producer" in groups:
            yield from (partial(self._java_producer, name, *what) for name, what in PRODUCERS.items())
            yield from (partial(self._half_load, *one) for one in SIZES.items())
        if "consumer" in groups:
            yield from (partial(self._java_consumer, *one) for one in SIZES.items())
            yield from (partial(self._plain, *one) for one in PLAIN.items())
            yield self._system
        if "python" in groups:
            for name, size in SIZES.items():
                yield partial(self._python, f"librdkafka's producer, {name}", produce, size, 1)
                yield partial(self._python, f"librdkafka's consumer, {name}", consume, size, 1)
            yield from (partial(self._steady, *one) for one in SIZES.items())
        if "many" in groups:
            yield partial(self._python, f"{MANY} producers, 1 KB", produce, 1000, MANY)
            yield partial(self._python, f"{MANY} consumers, 1 KB", consume, 1000, MANY)
        if "end-to-end" in groups:
            yield self._end_to_end

    def run(self, measures: Sequence[Callable[[Side], None]], rounds: int) -> None:
        """Measures all, side by side."""
        for number in range(rounds):
            for at, measure in enumerate(measures):
                for side in self._sides if (number + at) % 2 == 0 else reversed(self._sides):
                    measure(side)
                    print(".", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)

    def _load(self, topic: str, size: int) -> Load:
        return Load(topic, size, round(AMOUNTS[size] * self._amount / size))

    def _new_topic(self, side: Side, partitions: int = 1) -> str:
        self._topics += 1
        create_topic(side.bootstrap, f"t{self._topics}", partitions)
        return f"t{self._topics}"

    def _note(self, line: str, side: Side, load: Load, speed: float, cost: float | None = None) -> None:
        """Notes the speed of a run, and the server's processor time for all of it."""
        self.speeds.add(line, side, speed)
        self.rates.add(line, side, speed * load.size / 1e6)
        if cost is not None:
            self.costs.add(line, side, cost * 1e3 / (load.count * load.size / 1e6))

    def _java_producer(self, name: str, size: int, settings: Sequence[str], side: Side) -> None:
        load, before = self._load(self._new_topic(side), size), side.processor_time()
        found = java_producer(side.bootstrap, load, settings)
        self._note(f"Java's producer, {name}", side, load, found.speed, side.processor_time() - before)
        delete_topic(side.bootstrap, load.topic)

    def _half_load(self, name: str, size: int, side: Side) -> None:
        half = round(min(self.speeds.last(f"Java's producer, {name}, acks=all, idempotent")) / 2)
        load = Load(self._new_topic(side), size, max(round(half * HALF_LOAD * self._amount), 100))
        found = java_producer(side.bootstrap, load, (), half, WARM_UP)
        self.times.add(f"Java's producer at half load, {name}, acks=all: half", side, found.median)
        self.times.add(f"Java's producer at half load, {name}, acks=all: 99 in 100", side, found.p99)
        delete_topic(side.bootstrap, load.topic)

    def _steady(self, name: str, size: int, side: Side) -> None:
        half = round(min(self.speeds.last(f"librdkafka's producer, {name}")) / 2)
        load = Load(self._new_topic(side), size, max(round(half * HALF_LOAD / 3 * self._amount), 1000))
        found = produce_steadily(side.bootstrap, load, half)
        self.times.add(f"librdkafka's producer at half load, {name}, acks=all: half", side, found.median)
        self.times.add(f"librdkafka's producer at half load, {name}, acks=all: 99 in 100", side, found.p99)
        delete_topic(side.bootstrap, load.topic)

    def _plain(self, name: str, most: int, side: Side) -> None:
        load, before = self._load("fetched-1000", 1000), side.processor_time()
        speed = fetch_plainly(side.bootstrap, load, most)
        line = f"a client that only receives, {name} at a time, 1 KB"
        self._note(line, side, load, speed, side.processor_time() - before)

    def _system(self, side: Side) -> None:
        load = self._load("fetched-1000", 1000)
        speed = send_plainly(side.log(load.topic), load.count * load.size)
        self._note("the same file, which the system sends without a server", side, load, speed * 1e6 / load.size)

    def _java_consumer(self, name: str, size: int, side: Side) -> None:
        load, before = self._load(f"fetched-{size}", size), side.processor_time()
        found = java_consumer(side.bootstrap, load)
        self._note(f"Java's consumer, {name}", side, load, found.fetched, side.processor_time() - before)
        self._note(f"the same, with the start of its group, {name}", side, load, found.whole)

    def _python(self, line: str, work: Work, size: int, clients: int, side: Side) -> None:
        fetched = f"fetched-{size}" if clients == 1 else "fetched-many"
        load = self._load(fetched if work is consume else self._new_topic(side, clients), size)
        before = side.processor_time()
        speed = in_processes(work, side.bootstrap, load, clients)
        self._note(line, side, load, speed, side.processor_time() - before)
        if work is produce:
            delete_topic(side.bootstrap, load.topic)

    def _end_to_end(self, side: Side) -> None:
        load = Load(self._new_topic(side), 100, round(ONE_BY_ONE * self._amount))
        self.times.add("Java, from a producer to a consumer, acks=all: average", side, (
            found := java_end_to_end(side.bootstrap, load)
        ).average)  # fmt: skip
        self.times.add("the same: 99 in 100", side, found.p99)
        load = load._replace(topic=self._new_topic(side))
        found = python_end_to_end(side.bootstrap, load)
        self.times.add("librdkafka, from a producer to a consumer, acks=all: half", side, found.median)
        self.times.add("librdkafka, the same: 99 in 100", side, found.p99)


def start(sides: Sequence[Side], times: int, figures: Figures) -> None:
    """Starts the servers, several times; in the end they run."""
    for number in range(times):
        for side in sides:
            if number:
                side.server.stop()
            started = time.monotonic()
            side.server.start()
            figures.add("from the start until it serves, s", side, time.monotonic() - started)
            figures.add("memory at rest, MB", side, side.memory("VmRSS"))


def show(benchmark: Benchmark, processes: Figures, *, document: bool) -> None:
    """Prints the tables."""
    head = ["ours", "Kafka", "ratio"]
    speeds, rates, costs, times = benchmark.speeds, benchmark.rates, benchmark.costs, benchmark.times
    tables.show(
        "server: throughput",
        ["", *(f"{side}, records/s" for side in (OURS, KAFKA)), "ratio", *(f"{side}, MB/s" for side in (OURS, KAFKA))],
        [[line, *speeds.cells(line, 0), *rates.cells(line, 0)[:2]] for line in speeds.lines()],
        document=document,
    )
    tables.show(
        "server: processor time",
        ["ms of the server for a MB", *head],
        [[line, *costs.cells(line, 2)] for line in costs.lines()],
        document=document,
    )
    tables.show(
        "server: times", ["ms", *head], [[line, *times.cells(line, 2)] for line in times.lines()], document=document
    )
    tables.show(
        "server: process",
        ["", *head],
        [[line, *processes.cells(line, 2)] for line in processes.lines()],
        document=document,
    )


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--kafka", action="store_true", help="measure Kafka, too")
    parser.add_argument("--only", choices=GROUPS, help="measure a part")
    parser.add_argument("--quick", action="store_true", help="as little as possible of everything, one round")
    parser.set_defaults(rounds=3)
    given = parser.parse_args()
    if problem := missing():
        raise SystemExit(problem)
    rounds = 1 if given.quick else given.rounds
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        Store.create(f"{folder}/store").close()
        sides = [Side(OURS, Server(f"{folder}/store", folder), Path(folder, "store/data"))]
        if given.kafka:
            Path(folder, "broker").mkdir()
            broker = Broker(f"{folder}/broker", as_shipped=True)
            sides.append(Side(KAFKA, broker, broker.log_dir))
        processes, benchmark = Figures(), Benchmark(sides, QUICK if given.quick else 1)
        try:
            start(sides, rounds, processes)
            if given.only != "process":
                benchmark.prepare()
                benchmark.run(list(benchmark.measures([given.only] if given.only else GROUPS)), rounds)
            for side in sides:
                processes.add("the most memory, MB", side, side.memory("VmHWM"))
        finally:
            for side in sides:
                side.server.kill()
        show(benchmark, processes, document=given.document)


if __name__ == "__main__":
    main()
