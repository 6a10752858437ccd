"""Kafka's clients, measured at a server: its own tools, and librdkafka in processes of Python."""

from __future__ import annotations

import multiprocessing
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyspark_log.kafka import decode_response
from pyspark_log.kafka import messages as m
from pyspark_log.storage.record import headers_in

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.kafka.kafka_tools import run
from tests.server_tools import Peer

_TOOLS = "org.apache.kafka.tools"
# The options of Java, in place of those for a quick start.
_JAVA = {"memory": "1g", "options": ()}
_PATIENCE = 60
# Records that a consumer in Python takes at once.
_TAKEN = 10_000

# The API of fetch, and the last version that names topics.
_FETCH, _FETCH_VERSION = 1, 12
# What is sent at once, as much as Java's consumer asks for of a partition.
_PIECE = 1024 * 1024

# The most processes of clients that run at once.
_PROCESSES = 4

#: What a process of clients does: yields when it is ready to begin, and ends when it is done.
Work = Callable[..., Iterator[None]]


class Load(NamedTuple):
    """Records that are sent or fetched.

    Attributes:
        topic: where.
        size: bytes of a value.
        count: how many records.
    """

    topic: str
    size: int
    count: int


class Produced(NamedTuple):
    """What kafka-producer-perf-test says: records a second, and the times until records are acknowledged (ms)."""

    speed: float
    median: float
    p99: float


class Consumed(NamedTuple):
    """What kafka-consumer-perf-test says: records a second, without and with the time to join its group."""

    fetched: float
    whole: float


class Taken(NamedTuple):
    """Times from a record to its consumer, in ms."""

    average: float
    median: float
    p99: float


#: Settings of librdkafka beside its defaults.
Settings = Mapping[str, str]
_DEFAULTS: Settings = {}


def create_topic(bootstrap: str, name: str, partitions: int = 1, settings: Settings = _DEFAULTS) -> None:
    """Makes a topic."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3, **settings})
    client.create_topics([NewTopic(name, partitions, 1)])[name].result(_PATIENCE)


def delete_topic(bootstrap: str, name: str, settings: Settings = _DEFAULTS) -> None:
    """Deletes a topic."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3, **settings})
    client.delete_topics([name])[name].result(_PATIENCE)


def java_producer(
    bootstrap: str, load: Load, settings: Sequence[str], throughput: int = -1, warm_up: float = 1 / 6
) -> Produced:
    """Runs kafka-producer-perf-test; `throughput`: records a second, -1: as many as it can.

    A part of the records, which are the first, only warms the client up.
    """
    said = run(
        f"{_TOOLS}.ProducerPerformance", "--bootstrap-server", bootstrap, "--topic", load.topic, "--num-records",
        load.count, "--warmup-records", round(load.count * warm_up), "--record-size", load.size, "--throughput",
        throughput, "--command-property", f"client.id={load.topic}", *settings, **_JAVA,
    )  # fmt: skip
    [line] = [line for line in said.splitlines() if "steady state records sent" in line]
    numbers = re.search(r"([\d.]+) records/sec .*?(\d+) ms 50th, .*?(\d+) ms 99th", line)
    assert numbers is not None, said
    return Produced(*map(float, numbers.groups()))


def java_consumer(bootstrap: str, load: Load, settings: Sequence[str] = ()) -> Consumed:
    """Runs kafka-consumer-perf-test; `settings` are the consumer's."""
    said = run(
        f"{_TOOLS}.ConsumerPerformance", "--bootstrap-server", bootstrap, "--topic", load.topic, "--num-records",
        load.count, "--command-property", f"client.id={load.topic}", *settings, **_JAVA,
    )  # fmt: skip
    heading, *_, line = [line for line in said.splitlines() if ", " in line]
    found = dict(zip(heading.split(", "), line.split(", "), strict=True))
    return Consumed(float(found["fetch.nMsg.sec"]), float(found["nMsg.sec"]))


def java_end_to_end(bootstrap: str, load: Load) -> Taken:
    """Runs kafka-e2e-latency with acks=all, whose percentiles are whole ms."""
    said = run(f"{_TOOLS}.EndToEndLatency", bootstrap, load.topic, load.count, "all", load.size, **_JAVA)
    found = re.search(r"Avg latency: ([\d.]+) ms\s+Percentiles: 50th = (\d+), 99th = (\d+)", said)
    assert found is not None, said
    return Taken(*map(float, found.groups()))


def python_end_to_end(bootstrap: str, load: Load) -> Taken:
    """The times from `produce` until the consumer of the same process has the record, one record at a time."""
    consumer = _consumer(bootstrap, load.topic, [0], OFFSET_END)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.list_topics(load.topic)
    value, times = bytes(load.size), []
    # The first ones come after connections are made, and the end of the log is found.
    consumer.poll(1)
    for _ in range(load.count + load.count // 10):
        started = time.perf_counter()
        producer.produce(load.topic, value)
        producer.poll(0)
        message = consumer.poll(_PATIENCE)
        times.append((time.perf_counter() - started) * 1e3)
        assert message is not None, f"a record does not come from {load.topic}"
        assert message.error() is None, message.error()
    producer.flush()
    consumer.close()
    times = sorted(times[load.count // 10 :])
    return Taken(sum(times) / len(times), times[len(times) // 2], times[int(len(times) * 0.99)])


def produce(bootstrap: str, topic: str, partitions: Sequence[int], count: int, size: int) -> Iterator[None]:
    """Connects a producer for each of some partitions; then sends `count` records to each, all acknowledged."""
    producers = [(Producer({"bootstrap.servers": bootstrap}), partition) for partition in partitions]
    for producer, _ in producers:
        producer.list_topics(topic)
    value = bytes(size)
    yield
    for _ in range(count):
        for producer, partition in producers:
            while not _is_taken(producer, topic, value, partition):
                producer.poll(0.01)
    for producer, _ in producers:
        assert producer.flush(_PATIENCE) == 0


def produce_steadily(bootstrap: str, load: Load, throughput: int) -> Produced:
    """Sends `throughput` records a second with acks=all, and takes the time of each hundredth until it is acknowledged.

    The first tenth is not counted.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.list_topics(load.topic)
    value, times, ignored = bytes(load.size), [], load.count // 10
    started = time.perf_counter()

    def note(at: float, number: int) -> Callable[[object, object], None]:
        def acknowledged(error: object, _message: object) -> None:
            assert error is None, error
            if number >= ignored:
                times.append((time.perf_counter() - at) * 1e3)

        return acknowledged

    for number in range(load.count):
        on_delivery = None
        if number % 100 == 0:
            now = time.perf_counter()
            ahead = number / throughput - (now - started)
            if ahead > 0.001:
                time.sleep(ahead)
                now = time.perf_counter()
            on_delivery = note(now, number)
        while not _is_taken(producer, load.topic, value, 0, on_delivery):
            producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(_PATIENCE) == 0
    speed = load.count / (time.perf_counter() - started)
    times.sort()
    return Produced(speed, times[len(times) // 2], times[int(len(times) * 0.99)])


def fetch_plainly(bootstrap: str, load: Load, most: int) -> float:
    """Records a second of a client that only receives: it asks for up to `most` bytes at a time, one after the other.

    Of what it gets it reads the headers of the batches.
    """
    host, port = bootstrap.split(":")
    buffer = memoryview(bytearray(2 * most))
    with Peer(SimpleNamespace(host=host, port=int(port))) as peer:
        offset, started = 0, time.perf_counter()
        while offset < load.count:
            part = m.FetchRequest.FetchPartition(0, -1, offset, -1, -1, most)
            topic = m.FetchRequest.FetchTopic(load.topic, bytes(16), [part])
            peer.send(m.FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=most, topics=[topic]), _FETCH_VERSION)
            size, received = int.from_bytes(peer.receive(4), "big"), 0
            while received < size:
                received += peer.socket.recv_into(buffer[received:size])
            _, response = decode_response(_FETCH, _FETCH_VERSION, buffer[:size])
            records = response.responses[0].partitions[0].records
            offset = headers_in(records, 0, len(records))[-1].next_offset
        return load.count / (time.perf_counter() - started)


def send_plainly(path: Path, amount: int) -> float:
    """MB a second of a file that the system sends to a client which only receives, 1 MiB at a time."""
    with path.open("rb") as file, socket.create_server(("127.0.0.1", 0)) as server:
        receiver = multiprocessing.get_context("spawn").Process(target=_receive, args=(server.getsockname(),))
        receiver.start()
        sender, _ = server.accept()
        with sender:
            started, sent, size = time.perf_counter(), 0, path.stat().st_size
            while sent < amount:
                begin = sent % (size - _PIECE)
                sent += os.sendfile(sender.fileno(), file.fileno(), begin, _PIECE)
            speed = sent / (time.perf_counter() - started) / 1e6
        receiver.join()
    return speed


def _receive(address: tuple[str, int]) -> None:
    buffer = memoryview(bytearray(_PIECE))
    with socket.create_connection(address) as receiver:
        while receiver.recv_into(buffer):
            pass


def _is_taken(
    producer: Producer,
    topic: str,
    value: bytes,
    partition: int,
    on_delivery: Callable[[object, object], None] | None = None,
) -> bool:
    """Whether a producer has taken a record; else its queue is full."""
    try:
        producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
    except BufferError:
        return False
    return True


def consume(bootstrap: str, topic: str, partitions: Sequence[int], count: int, size: int) -> Iterator[None]:
    """Connects a consumer for each of some partitions; then each fetches `count` records of `size` bytes."""
    consumers = [(_consumer(bootstrap, topic, []), partition) for partition in partitions]
    for consumer, _ in consumers:
        consumer.list_topics(topic)
    yield
    left = dict.fromkeys(consumers, count)
    for consumer, partition in consumers:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    while left:
        for one in list(left):
            found = one[0].consume(min(_TAKEN, left[one]), 0.001 if len(left) > 1 else 0.05)
            assert all(message.error() is None and len(message.value()) == size for message in found[:1])
            left[one] -= len(found)
            if not left[one]:
                del left[one]


def _consumer(bootstrap: str, topic: str, partitions: Sequence[int], offset: int = OFFSET_BEGINNING) -> Consumer:
    # By default a consumer whose queue is full waits a second.
    settings = {"bootstrap.servers": bootstrap, "group.id": "measured", "fetch.queue.backoff.ms": 10}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, one, offset) for one in partitions])
    return consumer


def in_processes(work: Work, bootstrap: str, load: Load, partitions: int) -> float:
    """Records a second of clients, one for each partition of a topic, in up to four processes."""
    context, count = multiprocessing.get_context("spawn"), min(partitions, _PROCESSES)
    ready, pipes = context.Barrier(count), [context.Pipe(duplex=False) for _ in range(count)]
    processes = [
        context.Process(
            target=_run,
            args=(work, (bootstrap, load.topic, range(at, partitions, count), load.count // partitions, load.size)),
            kwargs={"ready": ready, "result": result},
        )
        for at, (_, result) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0, work
    starts, ends = zip(*(found.recv() for found, _ in pipes), strict=True)
    return load.count // partitions * partitions / (max(ends) - min(starts))


def _run(work: Work, arguments: tuple[Any, ...], ready: Barrier, result: Connection) -> None:
    steps = work(*arguments)
    next(steps)
    ready.wait()
    started = time.monotonic()
    for _ in steps:
        pass
    result.send((started, time.monotonic()))
