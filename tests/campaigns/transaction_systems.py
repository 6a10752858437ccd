"""What the transactions are made at, and what is killed of it: servers of one store, or the members of a cluster."""

from __future__ import annotations

import contextlib
import signal
import time

import confluent_kafka
import pyarrow as pa

from pyspark_log import Store
from pyspark_log.kafka.errors import ClusterError
from pyspark_log.storage.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pyspark_log.storage.transactions import TransactionLog, TransactionState
from tests.campaigns import members
from tests.campaigns.faulty_objects import FaultyObjects
from tests.campaigns.members import OURS, PARTITIONS, OurNode, Place, segments_of
from tests.campaigns.server.queries import COPIED, THROUGH
from tests.campaigns.transaction_servers import Servers, ended
from tests.object_server import Versitygw
from tests.ports import HOST, free_ports
from tests.server_tools import Server
from tests.store_tools import damages, faults

#: The kinds of systems, with those of the members.
KINDS = {
    "server": (),
    "folder": (),
    "objects": (),
    "moto": (),
    "ours": (OURS, OURS, OURS),
    "mixed": (OURS, "kafka", "kafka"),
}
#: The topics, those that Spark writes to at last.
TOPICS = ("in", "out", "lists", COPIED, THROUGH)

_OBJECTS = {"objects": Versitygw, "moto": FaultyObjects}
_OWN = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
_CONFIGS = {name: {"min.insync.replicas": "2", "retention.ms": "-1"} for name in TOPICS} | {
    name: {"min.insync.replicas": "2", "cleanup.policy": "compact"} for name in _OWN
}
_SETTINGS = {
    "offsets.topic.num.partitions": PARTITIONS, "transaction.state.log.num.partitions": PARTITIONS,
    "transaction.state.log.min.isr": 2,
}  # fmt: skip
# How long all members may take to be in sync, and transactions to end: their clients may be gone; in seconds.
_HEALED, _ENDED = 240, 300
_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class OneServer:
    """`pylog serve` over a store of its own.

    Attributes:
        bootstrap: where clients find it.
        path: the store.
    """

    def __init__(self, folder):
        self.path = folder / "store"
        self._store = Store.create(self.path)
        for topic in TOPICS:
            self._store.create_topic(topic, PARTITIONS, {"retention.ms": "-1", "segment.bytes": "100000"})
        self._server = Server(self.path, folder)
        self.bootstrap = self._server.bootstrap

    def start(self):
        """Starts it."""
        self._server.start()

    def append(self, partition, values):
        """Appends to the topic that is copied, as a publish of Spark does."""
        rows = pa.record_batch({"value": values, "partition": pa.array([partition] * len(values), pa.int32())})
        self._store.append("in", rows)

    def hit(self, _chance):
        """Kills it, and starts it again; gives what was done."""
        self._server.kill()
        self._server.start()
        return "server"

    def end_of(self, topic, partition):
        """Where a partition ends."""
        return self._store.latest_offset(topic, partition)

    def committed(self, topic, partition):
        """Records of a partition that are committed: offsets and values."""
        return _committed(self._store, topic, partition)

    def finish(self):
        """Ends it in order; gives what is wrong by then."""
        return ["the server has ended with an error"] if self._server.stop() else []

    def check(self):
        """What is wrong with the files."""
        for topic in ("out", "lists"):
            for number in range(PARTITIONS):
                end = self._store.latest_offset(topic, number)
                stable = self._store.latest_offset(topic, number, isolation_level="read_committed")
                if stable != end:
                    yield f"{topic}-{number}: a transaction is open from {stable} on; the end is {end}"
        yield from map(str, faults(str(self.path)))

    def close(self):
        """Ends it at once."""
        self._server.kill()


class SeveralServers(OneServer):
    """Three servers of one store in a folder."""

    def __init__(self, folder):
        super().__init__(folder)
        self._servers = []
        for number in range(1, 4):
            (folder / f"server-{number}").mkdir()
            self._servers.append(Server(self.path, folder / f"server-{number}", "--node-id", number, "--shared"))
        self.bootstrap = ",".join(server.bootstrap for server in self._servers)

    def start(self):
        for server in self._servers:
            server.start()

    def hit(self, chance):
        """Attacks a server, which coordinates or not; gives what was done."""
        server, kind = chance.choice(self._servers), chance.choice(["kill"] * 4 + ["stop", "blink", "freeze"])
        if kind == "kill":
            server.kill()
            time.sleep(chance.choice([0, 0, 3]))
            server.start()
        elif kind == "stop":
            server.stop()
            server.start()
        else:
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(15 if kind == "freeze" else chance.uniform(0.2, 3))
            server.process.send_signal(signal.SIGCONT)
        return f"{kind} of a server"

    def finish(self):
        return ended(self._servers)

    def close(self):
        for server in self._servers:
            server.kill()


class Cluster(members.Cluster):
    """A controller of Kafka and three members; methods as OneServer's."""

    def __init__(self, folder, kinds):
        places = {number: Place(HOST, port) for number, port in zip((1, 2, 3, 101), free_ports(4), strict=True)}
        super().__init__(folder, kinds, places, _CONFIGS, settings=_SETTINGS)
        self._found, self._producer = [], None

    def start(self):
        super().start()
        self._await(self.is_in_sync, "all partitions are in sync")
        self._producer = confluent_kafka.Producer({
            "bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0,
            "message.timeout.ms": 300_000, "reconnect.backoff.max.ms": 500,
        })  # fmt: skip

    def append(self, partition, values):
        """Sends to the topic that is copied; returns when all of it is there."""
        failed = []
        for value in values:
            self._producer.produce("in", value, partition=partition, on_delivery=lambda error, _: failed.append(error))
        assert self._producer.flush(300) == 0, "records do not arrive"
        assert not any(failed), failed

    def hit(self, chance):
        """Attacks a member; gives what was done. Mostly the others are in sync by then."""
        if chance.random() < 0.8:
            self._await(self.is_in_sync, "all partitions are in sync")
            self.elect_preferred()
        number = chance.choice([*self.members])
        member, kind = self.members[number], chance.choice(["kill", "kill", "freeze", "blink", "restart", "elect"])
        if kind == "kill":
            member.kill()
            time.sleep(chance.choice([0, 0, 4]))
            member.start()
        elif kind == "restart":
            if member.stop():
                self._found.append(f"member {number} has ended with an error")
            member.kill()  # It has ended; this only takes away that it was ready.
            member.start()
        elif kind == "elect":
            self.elect_preferred()
        else:
            member.pause()
            time.sleep(chance.uniform(3.5, 5.5) if kind == "freeze" else chance.uniform(0.2, 2))
            member.resume()
        return f"{kind} of a {'node' if isinstance(member, OurNode) else 'broker'}"

    def committed(self, topic, partition):
        """As OneServer's, by the files of a node."""
        with Store.open(self.ours[0].path) as store:
            return _committed(store, topic, partition)

    def finish(self):
        """Waits until all transactions have ended and all replicas are equal, and ends all; gives what is wrong."""
        for what, condition, seconds in (
            ("all partitions are in sync", self.is_in_sync, _HEALED),
            ("all transactions have ended", lambda: not self._open(), _ENDED),
            ("all replicas are equal", lambda: not self._unequal(), _HEALED),
            # The checks read files, up to there.
            ("all nodes have the high watermarks", self._has_high_watermarks, _HEALED),
        ):
            self._await(condition, what, seconds)
        self._found += [*self._open(), *self._unequal()]
        for one in self.ours:
            if one.stop():
                self._found.append(f"member {one.number} has ended with an error")
            for word in ("Traceback", "unclean election"):
                if word in (said := one.output()):
                    self._found.append(f"member {one.number} has said: {said[said.index(word) :][:3000]}")
        return self._found

    def check(self):
        """What is wrong with the files."""
        for one in self.ours:
            with Store.open(one.path) as store:
                for name, known in TransactionLog(store.logs).load().items():
                    if known.state in _PREPARED:
                        yield f"member {one.number}: the transaction of {name} is {known.state.name}"
            yield from (f"member {one.number}: {damage}" for damage in damages(str(one.path)))

    def _await(self, condition, what, seconds=_HEALED):
        """Waits until something is so; that it is not is found to be wrong."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError, ClusterError):
                if condition():
                    return
            if time.monotonic() > deadline:
                self._found.append(f"after {seconds} s it is still not so that {what}")
                return
            time.sleep(0.1)

    def _open(self):
        """Partitions in which a transaction is open: where it begins, and the end."""
        views, found = self.agreed(), []
        if len(views) < len(self.all):
            raise ConnectionRefusedError("members do not know the same of the partitions")
        for at, view in views.items():
            end, stable = (self.end_of(at, view, level) for level in (0, 1))
            if stable != end or end < 0:
                found.append(f"{at}: a transaction is open from {stable} on; the end is {end}")
        return found

    def _has_high_watermarks(self):
        """Whether all that nodes have is committed, as far as each of them knows."""
        for one in self.ours:
            with Store.open(one.path) as store:
                states = (store.logs.reader(at.topic, at.partition).state() for at in self.all)
                if any(state.high_watermark != state.next_offset for state in states):
                    return False
        return True

    def _unequal(self):
        """Partitions whose replicas differ: of their bytes, which are all committed now."""
        found = []
        for at in self.all:
            sides = {
                number: b"".join(path.read_bytes() for path in segments_of(one.folder_of(at)))
                for number, one in self.members.items()
            }
            if len({*sides.values()}) > 1:
                sizes = {number: len(data) for number, data in sides.items()}
                found.append(f"{at}: the replicas differ; their bytes: {sizes}")
        return found


def _committed(store, topic, partition):
    found = store.read(topic, partition, isolation_level="read_committed")
    return [(row["offset"], row["value"].decode()) for rows in found for row in rows.to_pylist()]


def system(folder, kind):
    """A system, by its kind."""
    if kind in _OBJECTS:
        return Servers(folder, TOPICS, _OBJECTS[kind])
    if kind == "folder":
        return SeveralServers(folder)
    return Cluster(folder, KINDS[kind]) if KINDS[kind] else OneServer(folder)
