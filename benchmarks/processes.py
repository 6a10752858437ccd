"""`pylog serve` over a folder by one process and by two: what a request costs, and how many are answered.

    python benchmarks/processes.py [--rounds 7] [--quick] [--document]

The client leaves them the cores: it sends the same batch again and again, one and the same request for a partition,
without a look at it, and counts the answers. It has a connection to the leader of each of 16 partitions, with eight
requests on their way in each, and sends and reads four at once. One server and two take turns, in new stores; medians
of the rounds, and of the ratio within a round. Processor time is that of all servers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import tables
from confluent_kafka.admin import AdminClient

from pyspark_log import Store
from pyspark_log.kafka import encode_request
from pyspark_log.kafka.messages import ProduceRequest
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.server_tools import NewServer

PARTITIONS, RECORD, VERSION = 16, 1000, 9
#: Requests that are sent, and answered, at once; a connection has two such on their way.
AT_ONCE = 4
#: Bytes of an answer, with its size.
ANSWER = 52
#: Bytes of a request's values, and how many requests a round has.
REQUESTS = {"16 KB": (16_000, 20_000), "256 KB": (256_000, 1_600)}
_numbers = itertools.count()


def batch(size: int) -> bytes:
    """A record batch; `size`: the bytes of its values."""
    values = [os.urandom(RECORD) for _ in range(size // RECORD)]
    builder = BatchBuilder(2 * size + 1000, 2 * size + 1000)
    columns = RecordColumns.of_pairs([None] * len(values), values, 0)
    assert builder.append(columns, None, 0, len(values)) == len(values)
    return bytes(builder.seal())


@contextlib.contextmanager
def servers(folder: Path, count: int) -> Iterator[list[NewServer]]:
    """Servers of a new store with topic t."""
    own = folder / str(next(_numbers))
    own.mkdir()
    with Store.create(own / "store") as store:
        store.create_topic("t", PARTITIONS, {"retention.ms": "-1"})
    started = []
    for number in range(count):
        (own / str(number)).mkdir()
        started.append(NewServer(own / "store", own / str(number), *["--shared"] * (count > 1)))
    try:
        for server in started:
            server.start()
        time.sleep(2)  # They know of each other then.
        yield started
    finally:
        for server in started:
            server.kill()


def processor_time(server: NewServer) -> float:
    """What all its threads have used so far, in seconds (proc(5))."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connections(server: NewServer, data: bytes) -> list[tuple[socket.socket, bytes]]:
    """A connection to the leader of each partition, and the request that it takes."""
    request, cluster = ProduceRequest, AdminClient({"bootstrap.servers": server.bootstrap}).list_topics("t", 30)
    made = []
    for number, partition in cluster.topics["t"].partitions.items():
        leader = cluster.brokers[partition.leader]
        topic = request.TopicProduceData("t", bytes(16), [request.PartitionProduceData(number, data)])
        chunks = encode_request(request(None, 1, 30_000, [topic]), VERSION, number, "light")
        made.append((socket.create_connection((leader.host, leader.port)), b"".join(map(bytes, chunks))))
    return made


def send(opened: list[tuple[socket.socket, bytes]], count: int) -> None:
    """Sends requests in turn, and reads their answers."""
    sent = [(connection, request * AT_ONCE) for connection, request in opened]
    for connection, requests in sent * 2:
        connection.sendall(requests)
    for connection, requests in itertools.islice(itertools.cycle(sent), count // AT_ONCE):
        answers = connection.recv(AT_ONCE * ANSWER, socket.MSG_WAITALL)
        # After its size and the correlation id: tags, a topic of one letter, a partition, its number, and its error.
        assert all(answers[start + 17 : start + 19] == b"\0\0" for start in range(0, len(answers), ANSWER)), answers
        connection.sendall(requests)


def measure(folder: Path, processes: int, size: int, count: int) -> tuple[float, float]:
    """Requests a second, and processor time in ms a MB."""
    with servers(folder, processes) as started:
        opened = connections(started[0], batch(size))
        send(opened, count // 10)
        before, began = sum(map(processor_time, started)), time.monotonic()
        send(opened, count)
        seconds, used = time.monotonic() - began, sum(map(processor_time, started)) - before
        for connection, _ in opened:
            connection.close()
    return count / seconds, used * 1e9 / (count * size)


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    rows = []
    for name, (size, count) in REQUESTS.items():
        figures: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
        for number in range(1 if given.quick else given.rounds):
            for processes in sorted(figures, reverse=bool(number % 2)):
                with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                    amount = count // 20 if given.quick else count
                    figures[processes].append(measure(Path(folder), processes, size, amount))
        for what, place, digits in (("requests a second", 0, 0), ("processor time, ms a MB", 1, 2)):
            one, two = ([round_[place] for round_ in figures[processes]] for processes in (1, 2))
            ratios = [more / less for less, more in zip(one, two, strict=True)]
            rows.append([
                f"{name}: {what}", *(f"{statistics.median(values):,.{digits}f}" for values in (one, two)),
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            ])  # fmt: skip
    tables.show("server: processes", ["requests of", "one process", "two", "ratio"], rows, document=given.document)


if __name__ == "__main__":
    main()
