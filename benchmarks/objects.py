"""A store in an object store beside a Delta table there, and many publishers at once.

    python benchmarks/objects.py [--rounds 3] [--only small] [--quick] [--document]

The object store is versitygw (`make object-servers`), on loopback; and the same through a relay in which a put takes 40
ms more and a get 15 ms, as in S3. Delta is delta-rs, since there is no Delta for this Spark. Rows have keys of 8 bytes
and values of 100, half text and half noise, compressed in the log by lz4 and in Parquet by snappy. Both take turns;
figures are medians of the rounds, and a ratio is taken within a round. `--quick` only shows that all of it works.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import re
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import tables
from deltalake import DeltaTable, write_deltalake

from pyspark_log import Store
from pyspark_log.storage.objects.observer import set_observer
from pyspark_log.storage.publish import StagedPart, StagingPlan

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.object_server import ObjectServer, Versitygw

if TYPE_CHECKING:
    from pyspark_log.storage.object_store import ObjectStore

#: What the relay adds to requests, in seconds.
DELAYS = {"PUT": 0.040, "GET": 0.015, "HEAD": 0.015}
PARTITIONS, FEW = 100, 8
PIECE = 200_000
#: How many publishers publish at once, how often each, in seconds, and how many times.
PUBLISHERS, EACH, TIMES = 50, 10.0, 6
_numbers = itertools.count()


def rows(count: int) -> pa.Table:
    """Rows of a table."""
    text, noise = b"all happy families are alike; each unhappy family."[:50], os.urandom(50 * count)
    return pa.table({
        "key": pa.array([b"%08d" % (number % 99_999_999) for number in range(count)], pa.binary()),
        "value": pa.array([text + noise[50 * at : 50 * at + 50] for at in range(count)], pa.binary()),
        "timestamp": pa.array([int(time.time() * 1000)] * count, pa.timestamp("ms")),
    })  # fmt: skip


class Ours:
    """A store, and two processes that do the tasks of jobs, as Spark's workers."""

    def __init__(self, url: str) -> None:
        self.store = Store.create(url)
        self._number = 0
        self._workers = multiprocessing.get_context("spawn").Pool(2, _begin, (url,))

    def topic(self, name: str, partitions: int) -> None:
        """A new topic."""
        self.store.create_topic(name, partitions, {"retention.ms": "-1", "compression.type": "lz4"})

    def publish(self, topic: str, data: pa.Table) -> None:
        """Publishes rows, which one task stages."""
        plan = self.store.publishes.plan([topic])
        self._publish(_stage(self.store, plan, topic, data, 1))

    def publish_many(self, topic: str, rows: int, times: int) -> None:
        """Publishes rows several times over; two tasks stage them."""
        plan = self.store.publishes.plan([topic])
        shares = [(plan, topic, rows, times // 2)] * 2
        self._publish([part for found in self._workers.starmap(_stage_rows, shares) for part in found])

    def _publish(self, parts: list[StagedPart]) -> None:
        self.store.publishes.publish("benchmark", self._number, parts)
        self._number += 1

    def read(self, topic: str) -> int:
        """Reads all, by two tasks; how many rows."""
        partitions = self.store.describe_topic(topic).partitions
        halves = [(topic, [*range(first, partitions, 2)]) for first in range(2)]
        return sum(self._workers.starmap(_count, halves))

    def receive(self, topic: str) -> None:
        """Only receives the same bytes, in as many requests."""
        partitions = self.store.describe_topic(topic).partitions
        self._workers.starmap(_receive, [(topic, [*range(first, partitions, 2)]) for first in range(2)])


_opened: list[Store] = []
_data: dict[int, pa.Table] = {}


def _begin(url: str) -> None:
    _opened.append(Store.open(url))


def _stage(store: Store, plan: StagingPlan, topic: str, data: pa.Table, times: int) -> list[StagedPart]:
    writer = store.publishes.writer(plan)
    for _ in range(times):
        for batch in data.to_batches():
            writer.append(topic, batch)
    return writer.finish()


def _stage_rows(plan: StagingPlan, topic: str, count: int, times: int) -> list[StagedPart]:
    data = _data.get(count) or _data.setdefault(count, rows(count))
    return _stage(_opened[0], plan, topic, data, times)


def _receive(topic: str, partitions: list[int]) -> None:
    log = cast("ObjectStore", _opened[0]).log
    state = log.follow()
    for partition in partitions:
        for piece in state.partitions[state.topics[topic].topic_id, partition].pieces:
            log.objects.get_ranges(piece.object, [(piece.position, piece.size)])


def _count(topic: str, partitions: list[int]) -> int:
    return sum(part.num_rows for partition in partitions for part in _opened[0].read(topic, partition))


class Delta:
    """Delta tables."""

    def __init__(self, server: ObjectServer, url: str) -> None:
        self._url = url
        self._options = {f"aws_{name}": value for name, value in server.options.items()}
        self._options |= {"aws_allow_http": "true", "aws_conditional_put": "etag"}
        self._tables: dict[str, DeltaTable] = {}

    def write(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Appends rows to a table."""
        known = self._tables.get(name)
        if known is None:
            write_deltalake(f"{self._url}/{name}", data, mode="append", storage_options=self._options)
            self._tables[name] = DeltaTable(f"{self._url}/{name}", storage_options=self._options)
        else:
            write_deltalake(known, data, mode="append")

    def read(self, name: str) -> int:
        """Reads all; how many rows."""
        found = DeltaTable(f"{self._url}/{name}", storage_options=self._options)
        return sum(batch.num_rows for batch in found.to_pyarrow_dataset().to_batches())


class Comparison:
    """Both, on one server."""

    def __init__(self, server: ObjectServer, name: str, rounds: int, records: int, batches: int) -> None:
        self._name, self._rounds, self._records, self._batches = name, rounds, records, batches
        os.environ.update(server.environment)
        where = f"s3://{server.bucket}/{next(_numbers)}"
        self._ours, self._delta = Ours(f"{where}/store"), Delta(server, f"{where}/tables")
        self.lines: list[list[object]] = []

    def _compare(self, what: str, ours: Callable[[int], object], delta: Callable[[int], object], amount: int) -> None:
        took: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(-1, self._rounds):  # The first one is to warm up.
            for is_ours in (True, False) if turn % 2 else (False, True):
                begun = time.perf_counter()
                (ours if is_ours else delta)(turn)
                if turn >= 0:
                    took[is_ours].append(time.perf_counter() - begun)
        ratios = [other / one for one, other in zip(took[True], took[False], strict=True)]
        medians = [statistics.median(took[is_ours]) for is_ours in (True, False)]
        shown = (
            [f"{amount / seconds / 1e6:.2f} M rows/s" for seconds in medians]
            if amount >= 1_000_000
            else [f"{seconds * 1000 / self._batches:.1f} ms" for seconds in medians]
        )
        self.lines.append([
            f"{what}, {self._name}", *shown, f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        ])  # fmt: skip
        print(*self.lines[-1], flush=True)

    def small(self) -> None:
        """Micro-batches."""
        for count in (1000, 190_000):
            data, name = rows(count), f"small{count}"
            self._ours.topic(name, PARTITIONS)
            self._compare(
                f"a micro-batch of {count:,} rows",
                lambda _, data=data, name=name: [self._ours.publish(name, data) for _ in range(self._batches)],
                lambda _, data=data, name=name: [self._delta.write(name, data) for _ in range(self._batches)],
                0,
            )

    def large(self) -> None:
        """A batch write and a batch read."""
        data, times = rows(min(PIECE, self._records // 2)), self._records // min(PIECE, self._records // 2)

        def write(turn: int) -> None:
            self._ours.topic(f"large{turn}", FEW)
            self._ours.publish_many(f"large{turn}", data.num_rows, times)

        def write_delta(turn: int) -> None:
            reader = pa.RecordBatchReader.from_batches(
                data.schema, (b for _ in range(times) for b in data.to_batches())
            )
            self._delta.write(f"large{turn}", reader)

        amount = max(self._records, 1_000_000)
        self._compare("a batch write", write, write_delta, amount)
        last = f"large{self._rounds - 1}"
        assert self._ours.read(last) == self._delta.read(last) == data.num_rows * times
        self._compare("a batch read", lambda _: self._ours.read(last), lambda _: self._delta.read(last), amount)
        self._compare(
            "ours only received", lambda _: self._ours.receive(last), lambda _: self._delta.read(last), amount
        )


# ---- many publishers


def _publish(url: str, number: int, times: int, each: float, out: multiprocessing.Queue[tuple[float, int]]) -> None:
    """Some publishers of one process: each publishes a small batch now and then."""
    seen: Counter[str] = Counter()
    set_observer(lambda request: None if request.is_done else seen.update([request.kind]))

    def one(name: int) -> list[float]:
        store, took = Store.open(url), list[float]()
        begun = time.monotonic() + each * name / PUBLISHERS
        data = rows(10)
        for turn in range(times):
            time.sleep(max(begun + turn * each - time.monotonic(), 0))
            start = time.perf_counter()
            writer = store.publishes.writer(store.publishes.plan(["t"]))
            for batch in data.to_batches():
                writer.append("t", batch)
            store.publishes.publish(f"p{name}", turn, writer.finish())
            took.append(time.perf_counter() - start)
        return took[1:]  # The first one begins with all that the others have decided.

    with ThreadPoolExecutor(PUBLISHERS // 5) as pool:
        for took in pool.map(one, range(number, PUBLISHERS, 5)):
            for seconds in took:
                out.put((seconds, 0))
    out.put((0.0, sum(seen.values())))


def many(server: ObjectServer, times: int, each: float) -> list[list[object]]:
    """How long a publish takes among fifty publishers."""
    os.environ.update(server.environment)
    url = f"s3://{server.bucket}/many"
    Store.create(url).create_topic("t", PARTITIONS, {"retention.ms": "-1"})
    context = multiprocessing.get_context("spawn")
    out: multiprocessing.Queue[tuple[float, int]] = context.Queue()
    processes = [context.Process(target=_publish, args=(url, number, times, each, out)) for number in range(5)]
    for process in processes:
        process.start()
    found = [out.get() for _ in range(PUBLISHERS * (times - 1) + len(processes))]
    for process in processes:
        process.join()
    took = sorted(seconds * 1000 for seconds, _ in found if seconds)
    requests = sum(count for _, count in found) / (PUBLISHERS * times)
    return [[
        f"{PUBLISHERS} publishers, one publish each {each:.0f} s", f"{statistics.median(took):.0f}",
        f"{took[int(len(took) * 0.99)]:.0f}", f"{took[-1]:.0f}", f"{requests:.1f}",
    ]]  # fmt: skip


# ---- servers


def _relay(target: tuple[str, int], ready: multiprocessing.Queue[int]) -> None:
    """Passes connections on, and delays requests by their methods."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        ready.put(listening.getsockname()[1])
        while True:
            client, _ = listening.accept()
            server = socket.create_connection(target)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_pass_requests, args=(client, server), daemon=True).start()
            threading.Thread(target=_pass_bytes, args=(server, client), daemon=True).start()


def _pass_requests(client: socket.socket, server: socket.socket) -> None:
    buffer = b""
    with contextlib.suppress(OSError):
        while True:
            while b"\r\n\r\n" not in buffer:
                more = client.recv(1 << 16)
                if not more:
                    server.shutdown(socket.SHUT_WR)
                    return
                buffer += more
            head, _, body = buffer.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            left = int(length[1]) if length else 0
            time.sleep(DELAYS.get(head.split(b" ", 1)[0].decode(), 0))
            server.sendall(head + b"\r\n\r\n" + body[:left])
            buffer, left = body[left:], max(left - len(body), 0)
            while left:
                more = client.recv(min(left, 1 << 20))
                if not more:
                    return
                server.sendall(more)
                left -= len(more)


def _pass_bytes(server: socket.socket, client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while more := server.recv(1 << 20):
            client.sendall(more)
        client.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def delayed(server: Versitygw) -> Iterator[ObjectServer]:
    """The server through a relay, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ready: multiprocessing.Queue[int] = context.Queue()
    process = context.Process(target=_relay, args=(("127.0.0.1", server.port), ready))
    process.start()
    try:
        yield ObjectServer(f"http://127.0.0.1:{ready.get()}", server.bucket)
    finally:
        process.kill()
        process.join()


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--only", choices=("small", "large", "many"), default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.set_defaults(rounds=3)
    given = parser.parse_args()
    rounds, records, batches = (1, 2000, 2) if given.quick else (given.rounds, given.records, 20)
    lines: list[list[object]] = []
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        server = Versitygw(Path(folder))
        server.start()
        try:
            with delayed(server) as slow:
                for name, one in (("directly", server), ("as in S3", slow)):
                    for part in ("small", "large"):
                        if given.only in ("", part):
                            compared = Comparison(one, name, rounds, records, batches)
                            getattr(compared, part)()
                            lines += compared.lines
                if given.only in ("", "many"):
                    times, each = (2, 1.0) if given.quick else (TIMES, EACH)
                    shown = many(slow, times, each)
                    tables.show(
                        "objects: publishers",
                        ["ms", "half", "99 in 100", "the longest", "requests a publish"],
                        shown,
                        document=given.document,
                    )
        finally:
            server.kill()
    if lines:
        header = ["", "ours", "delta-rs", "delta-rs's time by ours"]
        tables.show("objects: beside Delta", header, lines, document=given.document)


if __name__ == "__main__":
    main()
