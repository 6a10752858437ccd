"""`pylog serve` over a folder by one process and by two: what a request costs, and how many are answered.

    python benchmarks/processes.py [--rounds 7] [--quick] [--document]

The client leaves them the cores: it sends the same batch again and again, one and the same request for a partition,
without a look at it, and counts the answers. It has a connection to the leader of each of 16 partitions, with two
requests on their way in each. One server and two take turns, in new stores; medians of the rounds, and of the ratio
within a round. Processor time is that of all servers.
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
from collections import defaultdict
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

PARTITIONS, RECORD, ON_THEIR_WAY, VERSION = 16, 1000, 2, 9
#: Bytes of a request's values, and how many requests a round has.
REQUESTS = {"16 KB": (16_000, 20_000), "256 KB": (256_000, 1_600)}
KEPT = ("processor time, ms a MB",)
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
    for connection, request in opened:
        connection.sendall(request * ON_THEIR_WAY)
    for connection, request in itertools.islice(itertools.cycle(opened), count):
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        answer = connection.recv(size, socket.MSG_WAITALL)
        # After the correlation id: tags, a topic of one letter, a partition, its number, and its error.
        assert answer[13:15] == b"\0\0", answer
        connection.sendall(request)


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
    rows = defaultdict[str, list[list[str]]](list)
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
            rows[what].append([
                name, *(f"{statistics.median(values):,.{digits}f}" for values in (one, two)),
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            ])  # fmt: skip
    for what, table in rows.items():
        # Speeds are of use only where nothing else runs, so none is put into a page.
        is_kept = given.document and what in KEPT
        head = [f"{what}, requests of", "one process", "two", "ratio"]
        tables.show("server: processes", head, table, document=is_kept)


if __name__ == "__main__":
    main()
