"""`pylog serve` over an object store: how late, how much, and how many requests, by one server and by three.

    python benchmarks/served.py [--rounds 3] [--seconds 20] [--quick] [--document]

The object store is versitygw (`make object-servers`) through a relay in which a put takes 40 ms more and a get 15 ms,
as in S3. Clients are librdkafka's: a producer of 200 records of 1 KB a second with acks=all, idempotent, linger.ms=25,
and a consumer at the end; and producers at full speed, four processes with batches of 1 MB in 16 partitions. Client,
servers and object store share the machine. Medians of the rounds; requests are those that reach the object store.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import tables
from confluent_kafka import Consumer, Producer, TopicPartition
from objects import delayed

from pyspark_log import Store

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.object_server import Versitygw
from tests.server_tools import Server

PARTITIONS, SIZE, RATE, PROCESSES = 16, 1000, 200, 4
#: Prices of S3 for a put and a get, in dollars.
PUT, GET = 5e-6, 4e-7
_numbers = itertools.count()


class House:
    """Servers over a new store; `requests` counts those that have reached the object store."""

    def __init__(self, gateway: Versitygw, folder: Path, count: int) -> None:
        self._gateway, number = gateway, next(_numbers)
        self.url = f"s3://{gateway.bucket}/served{number}"
        with Store.create(self.url) as store:
            store.create_topic("t", PARTITIONS, {"retention.ms": "-1"})
        self.servers = []
        for place in range(count):
            own = folder / f"{number}-{place}"
            own.mkdir()
            self.servers.append(Server(self.url, own))
        began = time.monotonic()
        for server in self.servers:
            server.start()
        self.start = (time.monotonic() - began) / count
        self.bootstrap = ",".join(server.bootstrap for server in self.servers)

    def requests(self) -> Counter[str]:
        """How many of each kind there were so far."""
        lines = (self._gateway.folder / "versitygw").read_text(errors="replace").splitlines()
        return Counter(line.split("|")[5].strip() for line in lines if self.url[5:] in line and line.count("|") > 5)

    def close(self) -> None:
        """Ends the servers."""
        for server in self.servers:
            server.kill()


class Latencies(NamedTuple):
    """How late records were acknowledged, and came out, in ms: sorted."""

    acknowledged: Sequence[float]
    received: Sequence[float]
    gets: int
    puts: int


def steadily(house: House, seconds: float) -> Latencies:
    """Sends records, each at its time, and reads them at the end."""
    acknowledged, received, ends = list[float](), list[float](), threading.Event()
    consumer = Consumer({"bootstrap.servers": house.bootstrap, "group.id": "g", "fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition("t", number, 0) for number in range(PARTITIONS)])

    def read() -> None:
        while not ends.is_set():
            for message in consumer.consume(1000, 0.02):
                value = message.value()
                if value is not None and message.error() is None:
                    received.append((time.time_ns() - int(value.split()[0])) / 1e6)

    reading = threading.Thread(target=read)
    reading.start()
    producer = Producer({"bootstrap.servers": house.bootstrap, "enable.idempotence": True, "linger.ms": 25})

    def send(count: int) -> None:
        begin = time.time()
        for number in range(count):
            while (wait := begin + number / RATE - time.time()) > 0:
                producer.poll(wait)
            sent = time.time_ns()

            def note(error: object, _: object, sent: int = sent) -> None:
                assert error is None, error
                acknowledged.append((time.time_ns() - sent) / 1e6)

            producer.produce("t", b"%d" % sent + b" " + os.urandom(SIZE - 20), on_delivery=note)
        producer.flush(60)

    send(3 * RATE)
    time.sleep(2)
    acknowledged.clear()
    received.clear()
    before = house.requests()
    send(int(seconds * RATE))
    time.sleep(2)
    after = house.requests()
    ends.set()
    reading.join()
    consumer.close()
    assert len(received) == len(acknowledged) == int(seconds * RATE), (len(received), len(acknowledged))
    return Latencies(sorted(acknowledged), sorted(received), after["GET"] - before["GET"], after["PUT"] - before["PUT"])


def _produce(bootstrap: str, ready: multiprocessing.synchronize.Barrier, count: int) -> None:
    producer = Producer({
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 50, "batch.size": 1_000_000,
        "queue.buffering.max.kbytes": 64_000,
    })  # fmt: skip
    values = [os.urandom(SIZE) for _ in range(100)]
    producer.list_topics("t")
    ready.wait()
    for number in range(count):
        while True:
            try:
                producer.produce("t", values[number % 100], partition=number // 100 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(300) == 0


def at_full_speed(house: House, count: int) -> float:
    """MB a second of all producers."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(PROCESSES + 1)
    processes = [context.Process(target=_produce, args=(house.bootstrap, ready, count)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    ready.wait()
    began = time.monotonic()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return PROCESSES * count * SIZE / (time.monotonic() - began) / 1e6


@contextlib.contextmanager
def house_of(gateway: Versitygw, folder: Path, count: int) -> Iterator[House]:
    """Servers, ended at last."""
    house = House(gateway, folder, count)
    try:
        yield house
    finally:
        house.close()


def percentile(values: Sequence[float], part: float) -> float:
    """Of sorted values."""
    return values[min(int(len(values) * part), len(values) - 1)]


def measure(gateway: Versitygw, folder: Path, count: int, seconds: float, records: int) -> list[float]:
    """The figures of one round."""
    with house_of(gateway, folder, count) as house:
        time.sleep(6)
        before = house.requests()
        time.sleep(seconds)
        rest = house.requests() - before
        late = steadily(house, seconds)
        speed_before = house.requests()
        speed = at_full_speed(house, records)
        time.sleep(1)
        busy = house.requests() - speed_before
        gigabytes = PROCESSES * records * SIZE / 1e9
        per_day = 86_400 / seconds
        return [
            percentile(late.acknowledged, 0.5), percentile(late.acknowledged, 0.99), percentile(late.received, 0.5),
            percentile(late.received, 0.99), speed, busy["PUT"] / gigabytes, busy["GET"] / gigabytes,
            max(server.resident() for server in house.servers) / 1e6, house.start,
            (rest["PUT"] * PUT + rest["GET"] * GET) * per_day, (late.puts * PUT + late.gets * GET) * per_day,
        ]  # fmt: skip


ROWS = (
    ("acknowledged, ms: half", 0), ("acknowledged, ms: 99 in 100", 0), ("end to end, ms: half", 0),
    ("end to end, ms: 99 in 100", 0), ("all producers, MB/s", 1), ("puts a GB", 0), ("gets a GB", 0),
    ("memory of a server, MB", 0), ("start to first answer, s", 2), ("at rest, $ a day", 2),
    ("at 200 KB/s, $ a day", 2),
)  # fmt: skip


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--quick", action="store_true")
    parser.set_defaults(rounds=3)
    given = parser.parse_args()
    rounds, seconds, records = (1, 3.0, 2_000) if given.quick else (given.rounds, given.seconds, 100_000)
    found: dict[int, list[list[float]]] = {1: [], 3: []}
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        gateway = Versitygw(Path(folder))
        gateway.start()
        try:
            with delayed(gateway) as slow:
                os.environ.update(slow.environment)
                for _, count in itertools.product(range(rounds), found):
                    found[count].append(measure(gateway, Path(folder), count, seconds, records))
        finally:
            gateway.kill()
    shown = [
        [name, *(f"{statistics.median(figures[place] for figures in found[count]):,.{digits}f}" for count in found)]
        for place, (name, digits) in enumerate(ROWS)
    ]
    tables.show("objects: served", ["", "one server", "three servers"], shown, document=given.document)


if __name__ == "__main__":
    main()
