"""`pyspark_log.Consumer`: records a second, times from `Producer.send` to a poll that waits, and what waiting costs.

    python benchmarks/consumer.py [--kafka] [--records 1000000] [--rounds 7] [--folder FOLDER] [--document]

Values have 100 bytes, keys 7. With `--kafka` confluent-kafka reads the same records from a Kafka with its shipped
settings (`make kafka-jars`), which runs all the time, in turn with ours: a ratio is ours by that within a round. Times
are taken in two processes: one sends a record with the time in it, and pauses for a random time of up to 20 ms; the
other one's poll waits. Processor time is that of a consumer whose poll waits for some seconds.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import tables

from pyspark_log import Consumer, Producer, Store

sys.path.insert(0, str(Path(__file__).parents[1]))

CODECS = ("none", "lz4")
SIZE, APPENDED = 100, 100_000
#: How long a consumer waits for its processor time to be measured, in seconds.
WAIT = 5


def fill(store: Store, codec: str, count: int) -> None:
    """Writes the records of a topic that has the codec's name."""
    store.create_topic(codec, 1, {"retention.ms": "-1"})
    for begin in range(0, count, APPENDED):
        numbers = range(begin, min(begin + APPENDED, count))
        batch = pa.record_batch({"key": [b"%07d" % one for one in numbers], "value": [value(one) for one in numbers]})
        store.append(codec, batch, compression_type=codec)


def value(number: int) -> bytes:
    """Of a record."""
    return (b"%020d" % number) * (SIZE // 20)


# ---- records a second


def read(how: str, store: Store, topic: str) -> int:
    """Reads a topic to its end; how many records that were."""
    with Consumer(store, topic, auto_offset_reset="earliest") as consumer:
        consumer.stop_at()
        count = 0
        if how == "record by record":
            for _ in consumer:
                count += 1
        elif how == "`poll`":
            while polled := consumer.poll():
                for records in polled.values():
                    for _ in records:
                        count += 1
        else:
            while (batch := consumer.poll_arrow()) is not None:
                count += batch.num_rows
        return count


WAYS = ("record by record", "`poll`", "`poll_arrow`")


def speed(work: Callable[[], int], count: int) -> float:
    """Records a second, in millions."""
    started = time.perf_counter()
    assert work() == count
    return count / (time.perf_counter() - started) / 1e6


@contextlib.contextmanager
def kafka(folder: str, count: int) -> Iterator[Callable[[str, bool], int]]:
    """A Kafka with the same records; gives a function that reads a topic with confluent-kafka, as `read` does."""
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition  # noqa: PLC0415  (only with --kafka)
    from confluent_kafka import Consumer as Confluent  # noqa: PLC0415
    from confluent_kafka import Producer as Sender  # noqa: PLC0415
    from server_clients import create_topic  # noqa: PLC0415

    from tests.kafka.kafka_tools import Broker  # noqa: PLC0415

    def consume(codec: str, one_by_one: bool) -> int:
        settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "group.id": "measured"}
        consumer = Confluent({**settings, "enable.auto.commit": False, "fetch.queue.backoff.ms": 10})
        consumer.assign([TopicPartition(codec, 0, OFFSET_BEGINNING)])
        found = 0
        while found < count:
            if one_by_one:
                message = consumer.poll(10)
                assert message is not None
                assert message.error() is None
                found += 1
            else:
                found += len(consumer.consume(500, 10))
        consumer.close()
        return found

    os.mkdir(f"{folder}/kafka")
    broker = Broker(f"{folder}/kafka", as_shipped=True)
    broker.start()
    try:
        for codec in CODECS:
            create_topic(broker.bootstrap, codec)
            sender = Sender(
                {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "queue.buffering.max.messages": 0}
            )
            for number in range(count):
                sender.produce(codec, value(number), b"%07d" % number)
                if number % 10_000 == 0:
                    sender.poll(0)
            assert sender.flush(120) == 0
        yield consume
    finally:
        broker.stop()


# ---- waiting


def wait_for_records(path: str, count: int, found: Connection) -> None:
    """Polls record by record, and sends how long each took, in ms."""
    taken: list[float] = []
    with Consumer(Store.open(path), "times") as consumer:
        consumer.poll()
        found.send("ready")
        consumer.poll(60_000)  # It is warm then.
        found.send("read")
        while len(taken) < count:
            for records in consumer.poll(60_000).values():
                now = time.time_ns()
                taken += [(now - int(record.value)) / 1e6 for record in records]
    found.send(taken)


def times(store: Store, count: int) -> list[float]:
    """From `send` until a poll in another process returns the record, in ms, ascending."""
    mine, others = multiprocessing.get_context("spawn").Pipe()
    reader = multiprocessing.get_context("spawn").Process(target=wait_for_records, args=(store.path, count, others))
    reader.start()
    mine.recv()
    with Producer(store) as producer:
        producer.send("times", b"0")
        mine.recv()
        for _ in range(count):
            producer.send("times", b"%d" % time.time_ns())
            time.sleep(random.uniform(0, 0.02))
        found = sorted(mine.recv())
    reader.join()
    assert isinstance(found, list)
    return found


def wait_in_vain(path: str, found: Connection) -> None:
    """Sends the part of a processor that a poll takes which waits, in percent."""
    with Consumer(Store.open(path), "times") as consumer:
        consumer.poll()
        found.send("ready")
        used, started = time.process_time(), time.perf_counter()
        consumer.poll(WAIT * 1000)
        found.send((time.process_time() - used) / (time.perf_counter() - started) * 100)


def used_while_waiting(store: Store, *, others_write: bool) -> float:
    """The part of a processor that a consumer takes whose topic is not written to, in percent."""
    mine, others = multiprocessing.get_context("spawn").Pipe()
    reader = multiprocessing.get_context("spawn").Process(target=wait_in_vain, args=(store.path, others))
    reader.start()
    mine.recv()
    end = threading.Event()

    def write() -> None:
        batch = pa.record_batch({"value": [b"v"]})
        while not end.is_set():
            store.append("others", batch, partition=0)
            store.append("others", batch, partition=1)

    writer = threading.Thread(target=write)
    if others_write:
        writer.start()
    used = mine.recv()
    end.set()
    if others_write:
        writer.join()
    reader.join()
    assert isinstance(used, float)
    return used


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kafka", action="store_true", help="read from a Kafka, too")
    given = parser.parse_args()
    random.seed(1)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder, contextlib.ExitStack() as stack:
        store = Store.create(Path(folder) / "store")
        for codec in CODECS:
            fill(store, codec, given.records)
        consume = stack.enter_context(kafka(folder, given.records)) if given.kafka else None
        lines = []
        for codec in CODECS:
            theirs: dict[bool, list[float]] = {True: [], False: []}
            ours: dict[str, list[float]] = {way: [] for way in WAYS}
            for _ in range(given.rounds):
                for way in WAYS:
                    ours[way].append(speed(lambda way=way, codec=codec: read(way, store, codec), given.records))
                for one_by_one in theirs if consume is not None else ():
                    call = consume
                    theirs[one_by_one].append(
                        speed(lambda codec=codec, one=one_by_one, call=call: call(codec, one), given.records)
                    )
            for way in WAYS:
                cells = [f"{statistics.median(ours[way]):.2f}"]
                other = theirs[way == "record by record"]
                if other and way != "`poll_arrow`":
                    cells += [f"{statistics.median(other):.2f}", f"{tables.ratio(ours[way], other):.1f}"]
                lines.append([f"{way}, {codec}", *cells, *[""] * (3 - len(cells))])
        header = ["million records a second", "ours", "confluent-kafka at Kafka", "ratio"]
        tables.show("consumer", header, lines, document=given.document)

        store.create_topic("times", 1)
        store.create_topic("others", 2)
        taken = times(store, 1000)
        waits = [
            ["from `send` to a poll that waits, ms: half", f"{statistics.median(taken):.2f}"],
            ["99 in 100", f"{taken[int(len(taken) * 0.99)]:.2f}"],
            ["a poll that waits, % of a processor", f"{used_while_waiting(store, others_write=False):.2f}"],
            ["while others write at full speed", f"{used_while_waiting(store, others_write=True):.2f}"],
        ]
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        waits.append(["load of the machine by its processors meanwhile", f"{load:.1f}"])
        tables.show("consumer-waiting", ["", ""], waits, document=given.document)


if __name__ == "__main__":
    main()
