"""A record that comes alone: from a producer's request to the consumer whose fetch waits for it, and to the answer.

    python benchmarks/alone.py [--kafka] [--rate 250] [--records 1000] [--rounds 3]

One connection produces records of 1 KB, of an idempotent producer with acks=all; another has a fetch session. Beside
`pylog serve`, and Kafka's broker with `--kafka` (`make kafka-jars`), there is the least that a loop in Python can do:
it receives, writes the bytes at an offset and sends, and looks at nothing. All run all the time and take turns.
Microseconds, medians of a round; processor time is that of a record and its fetch.
"""

from __future__ import annotations

import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, Protocol

import tables
from fetch_sessions import seconds_of
from server_clients import create_topic

from pyspark_log import Store
from pyspark_log.kafka import decode_response
from pyspark_log.kafka import messages as m

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))
from record_tools import Record, build

from tests.kafka.kafka_tools import Broker
from tests.ports import HOST, free_ports
from tests.server_tools import NewServer, Peer

TOPIC, VALUE = "t", os.urandom(1000)
#: The versions of Java's client: topics are named by their ids.
PRODUCE, FETCH, METADATA, IDS = 13, 13, 12, 4
NO_TOPIC = bytes(16)
#: A fetch waits until it is the turn of its side again.
WAIT_MS = 500_000
#: What the bare loop reads of a frame: its length, API and version, and the correlation id.
_HEAD = struct.Struct(">ihhi")


class Addressed(Protocol):
    """A server that listens at a port of this machine."""

    host: str
    port: int


class Times(NamedTuple):
    """Of a round: until the consumer has a record, until the producer has its answer, and processor time (us)."""

    consumer: float
    producer: float
    processor: float


def bare(port: int, path: str) -> None:
    """Serves one producer and one consumer until it is killed."""
    listener, file = socket.create_server((HOST, port)), os.open(path, os.O_RDWR | os.O_CREAT)
    poll, open_ = select.epoll(), dict[int, socket.socket]()
    poll.register(listener, select.EPOLLIN)
    print("listening", flush=True)
    buffer, waiting, end = memoryview(bytearray(1 << 16)), None, 0
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                accepted, _ = listener.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                open_[accepted.fileno()] = accepted
                poll.register(accepted, select.EPOLLIN)
                continue
            size = open_[fd].recv_into(buffer)
            if not size:
                poll.unregister(fd)
                open_.pop(fd).close()
                continue
            _, key, _, correlation_id = _HEAD.unpack_from(buffer)
            if key != 0:
                waiting = open_[fd], correlation_id
                continue
            data = bytes(buffer[:size])
            os.pwrite(file, data, end)
            end += size
            assert waiting is not None, "the consumer asks before the producer sends"
            waiting[0].send(struct.pack(">ii", 4 + size, waiting[1]) + data)
            open_[fd].send(struct.pack(">ii", 4, correlation_id))


class Bare:
    """That loop as a process."""

    def __init__(self, folder: str) -> None:
        self.host, [self.port] = HOST, free_ports(1)
        command = [sys.executable, __file__, "bare", str(self.port), f"{folder}/bare"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def kill(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.wait()


class Clients:
    """The producer and the consumer of a server; of the bare loop, which has no topic."""

    def __init__(self, server: Addressed, process: int, topic_id: bytes) -> None:
        self.producer, self.consumer, self._process, self._topic_id = Peer(server), Peer(server), process, topic_id
        self._sent = self._epoch = self._session = self._producer_id = 0
        if topic_id != NO_TOPIC:
            self._producer_id = self.producer.ask(m.InitProducerIdRequest(None, 60_000), IDS).producer_id
            self._session = self.consumer.ask(self._fetch(), FETCH).session_id
        self.consumer.send(self._fetch(), FETCH)

    def _fetch(self) -> m.FetchRequest:
        """The next one of the session: the first, and that after each record, names the partition with its offset."""
        part = m.FetchRequest.FetchPartition(0, -1, self._sent, -1, -1, 1 << 20)
        topics = [m.FetchRequest.FetchTopic("", self._topic_id, [part])] if self._epoch != 1 else []
        request = m.FetchRequest(
            max_wait_ms=WAIT_MS if self._epoch else 0, min_bytes=1, max_bytes=50 << 20, session_id=self._session,
            session_epoch=self._epoch, topics=topics,
        )  # fmt: skip
        self._epoch += 1
        return request

    def _produce(self) -> m.ProduceRequest:
        records = [Record(value=VALUE, timestamp=int(time.time() * 1000))]
        batch = build(records, producer_id=self._producer_id, producer_epoch=0, base_sequence=self._sent)
        part = m.ProduceRequest.PartitionProduceData(0, batch)
        return m.ProduceRequest(None, -1, 30_000, [m.ProduceRequest.TopicProduceData("", self._topic_id, [part])])

    def measure(self, records: int, rate: float) -> Times:
        """Sends records, `rate` a second; each is fetched before the next one."""
        until_consumer, until_producer = list[float](), list[float]()
        used, begun = seconds_of(self._process), time.perf_counter()
        for number in range(records):
            frame = self.producer.encoded(self._produce(), PRODUCE)
            time.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            sent = time.perf_counter()
            self.producer.socket.sendall(frame)
            self._sent += 1
            left = {self.producer.socket: until_producer, self.consumer.socket: until_consumer}
            while left:
                for ready in select.select(left, (), ())[0]:
                    answer = _frame(ready)
                    left.pop(ready).append((time.perf_counter() - sent) * 1e6)
                    if ready is self.consumer.socket:
                        self._check(answer)
            self.consumer.send(self._fetch(), FETCH)
        used = (seconds_of(self._process) - used) / records * 1e6
        return Times(statistics.median(until_consumer), statistics.median(until_producer), used)

    def _check(self, answer: bytes) -> None:
        """Whether the consumer has got the record, and nothing else."""
        if self._topic_id != NO_TOPIC:
            _, response = decode_response(1, FETCH, answer)
            [[part]] = [topic.partitions for topic in response.responses]
            assert int.from_bytes(bytes(part.records[:8]), "big") == self._sent - 1, part


def _frame(of: socket.socket) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        data += of.recv(1 << 16)
    return data[4:]


def id_of_topic(server: Addressed) -> bytes:
    """The id of the topic."""
    with Peer(server) as peer:
        asked = m.MetadataRequest([m.MetadataRequest.MetadataRequestTopic(name=TOPIC)])
        [topic] = peer.ask(asked, METADATA).topics
    return bytes(topic.topic_id)


def main() -> None:
    if sys.argv[1:2] == ["bare"]:
        bare(int(sys.argv[2]), sys.argv[3])
    parser = tables.parser(__doc__)
    parser.add_argument("--kafka", action="store_true", help="measure Kafka's broker, too")
    parser.add_argument("--rate", type=float, default=250.0, help="records a second")
    parser.add_argument("--records", type=int, default=1000, help="of a round")
    parser.set_defaults(rounds=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        Store.create(f"{folder}/store").close()
        servers: dict[str, NewServer | Broker | Bare] = {
            "`pylog serve`": NewServer(f"{folder}/store", folder).start(),
            "a bare loop in Python": Bare(folder),
        }
        try:
            if given.kafka:
                Path(folder, "broker").mkdir()
                servers["Kafka's broker"] = broker = Broker(f"{folder}/broker", as_shipped=True)
                broker.start()
                broker.prepare()
            sides = {}
            for name, server in servers.items():
                if not isinstance(server, Bare):
                    create_topic(server.bootstrap, TOPIC)
                topic_id = NO_TOPIC if isinstance(server, Bare) else id_of_topic(server)
                sides[name] = Clients(server, server.process.pid, topic_id)
            found: dict[str, list[Times]] = {name: [] for name in sides}
            for number in range(given.rounds + 1):
                for name, clients in sides.items():
                    times = clients.measure(given.records, given.rate)
                    if number:  # the first one warms up
                        found[name].append(times)
        finally:
            for server in servers.values():
                server.kill()
    rows = [
        (name, *(f"{statistics.median(column):.0f}" for column in zip(*times, strict=True)))
        for name, times in found.items()
    ]
    header = (f"{given.rate:.0f} records a second, us", "until the consumer", "until the producer", "processor time")
    tables.show("server: alone", header, rows, document=given.document)


if __name__ == "__main__":
    main()
