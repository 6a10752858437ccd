"""What the transactions are made at, and what is killed of it: one server, or the members of a cluster."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path

import confluent_kafka
import pyarrow as pa

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.errors import ClusterError
from pyspark_log.storage.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, store_json
from pyspark_log.storage.transactions import TransactionLog, TransactionState
from pyspark_log.types import LATEST
from tests.kafka.kafka_tools import FAILOVER, QUICK, Node, format_all, new_cluster_id, node_settings
from tests.ports import HOST, free_ports
from tests.server_tools import Server
from tests.store_tools import damages, faults

PARTITIONS = 3
TOPICS = ("in", "out", "lists")

_CONTROLLER, _MEMBERS = 101, (1, 2, 3)
_OWN = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
_OF_OWN = {"min.insync.replicas": "2", "cleanup.policy": "compact"}
_OF_OTHERS = {"min.insync.replicas": "2", "retention.ms": "-1"}
_LAG_MAX = "replica.lag.time.max.ms"
# How long all members may take to be in sync, and transactions to end: their clients may be gone; in seconds.
_HEALED, _ENDED = 240, 300
_ANSWER = 5  # seconds
_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class OneServer:
    """`pylog serve` over a store of its own.

    Attributes:
        bootstrap: where clients find it.
    """

    def __init__(self, folder):
        self._path = folder / "store"
        self._store = Store.create(self._path)
        for topic in TOPICS:
            self._store.create_topic(topic, PARTITIONS, {"retention.ms": "-1", "segment.bytes": "100000"})
        self._server = Server(self._path, folder)
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
        yield from map(str, faults(str(self._path)))

    def kill(self):
        """Ends it at once."""
        self._server.kill()


class _KafkaMember(Node):
    """A broker of Kafka; attributes and methods as those of _OurMember."""

    def __init__(self, number, port, folder, voters):
        settings = _settings(number, voters, {"PLAINTEXT": port})
        super().__init__(folder, settings, memory="300m")
        self.number, self.address = number, (HOST, port)

    def folder_of(self, topic, partition):
        return self.log_dir / f"{topic}-{partition}"


class _OurMember(Server):
    """`pylog serve` as a node.

    Attributes:
        number: its id.
        address: where it listens.
    """

    def __init__(self, number, folder, voters, cluster_id):
        where = ",".join(f"{HOST}:{port}" for port in voters.values())
        super().__init__(
            folder / "store", folder, "--node-id", number, "--controllers", where, "--take-new-topics"
        )  # fmt: skip
        self.number, self.address = number, (self.host, self.port)
        store_json.make(str(self.path), {_LAG_MAX: str(FAILOVER[_LAG_MAX])}, cluster_id)

    def folder_of(self, topic, partition):
        """The folder of a partition."""
        return self.path / "data" / f"{topic}-{partition}"

    def pause(self):
        """Stops it where it is."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        """Lets it continue."""
        self.process.send_signal(signal.SIGCONT)


def _settings(number, voters, listeners):
    given = node_settings(number, voters, listeners, len(_MEMBERS)) | QUICK | FAILOVER
    return given | {
        "offsets.topic.num.partitions": PARTITIONS,
        "transaction.state.log.num.partitions": PARTITIONS,
        "transaction.state.log.min.isr": 2,
    }


class Cluster:
    """A controller of Kafka and three members, each of which has all partitions.

    Attributes:
        bootstrap: where clients find them.
    """

    def __init__(self, folder, kind):
        """Formats all; `kind`: `ours`, or `mixed` for two brokers of Kafka and one node."""
        ports = free_ports(1 + len(_MEMBERS))
        voters, cluster_id = {_CONTROLLER: ports[0]}, new_cluster_id()
        homes = {number: Path(folder) / f"member{number}" for number in (_CONTROLLER, *_MEMBERS)}
        for home in homes.values():
            home.mkdir()
        self._controller = Node(homes[_CONTROLLER], _settings(_CONTROLLER, voters, {}), memory="160m")
        kafkas = _MEMBERS[1:] if kind == "mixed" else ()
        self._members = {
            number: _KafkaMember(number, ports[number], homes[number], voters)
            if number in kafkas
            else _OurMember(number, homes[number], voters, cluster_id)
            for number in _MEMBERS
        }
        format_all([one for one in (self._controller, *self._members.values()) if isinstance(one, Node)], cluster_id)
        self.bootstrap = ",".join("{}:{}".format(*one.address) for one in self._members.values())
        self._ours = [one for one in self._members.values() if isinstance(one, _OurMember)]
        self._found, self._producer = [], None

    def start(self):
        """Starts all; makes the topics, each partition led by another member."""
        self._controller.start()
        for one in self._members.values():
            one.launch()
        for one in self._members.values():
            one.await_start()
        self._await(lambda: {one.node_id for one in self._ask(1, m.MetadataRequest([])).brokers} == set(_MEMBERS), "up")
        of = m.CreateTopicsRequest
        topics = [
            of.CreatableTopic(
                topic, -1, -1,
                [of.CreatableReplicaAssignment(number, _rotated(number)) for number in range(PARTITIONS)],
                [of.CreatableTopicConfig(*one) for one in (_OF_OWN if topic in _OWN else _OF_OTHERS).items()],
            )
            for topic in (*TOPICS, *_OWN)
        ]  # fmt: skip
        made = self._ask(1, of(topics, 30_000)).topics
        assert not any(one.error_code for one in made), made
        self._await(self._is_in_sync, "all partitions are in sync")
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
            self._heal()
        number = chance.choice(_MEMBERS)
        member, kind = self._members[number], chance.choice(["kill", "kill", "freeze", "blink", "restart", "elect"])
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
            self._elect()
        else:
            member.pause()
            time.sleep(chance.uniform(3.5, 5.5) if kind == "freeze" else chance.uniform(0.2, 2))
            member.resume()
        return f"{kind} of a {'node' if isinstance(member, _OurMember) else 'broker'}"

    def _heal(self):
        """Waits until all are in sync, and lets the first ones lead."""
        self._await(self._is_in_sync, "all partitions are in sync")
        self._elect()

    def _elect(self):
        of = m.ElectLeadersRequest
        wanted = of(0, [of.TopicPartitions(topic, [*range(PARTITIONS)]) for topic in (*TOPICS, *_OWN)], 5000)
        with contextlib.suppress(OSError, ClusterError):
            self._ask(self._some(), wanted)

    def committed(self, topic, partition):
        """As OneServer's, by the files of a node."""
        with Store.open(self._ours[0].path) as store:
            return _committed(store, topic, partition)

    def finish(self):
        """Waits until all transactions have ended and all replicas are equal, and ends all; gives what is wrong."""
        for what, condition, seconds in (
            ("all partitions are in sync", self._is_in_sync, _HEALED),
            ("all transactions have ended", lambda: not self._open(), _ENDED),
            ("all replicas are equal", lambda: not self._unequal(), _HEALED),
            # The checks read files, up to there.
            ("all nodes have the high watermarks", self._has_high_watermarks, _HEALED),
        ):
            self._await(condition, what, seconds)
        self._found += [*self._open(), *self._unequal()]
        for one in self._ours:
            if one.stop():
                self._found.append(f"member {one.number} has ended with an error")
            for word in ("Traceback", "unclean election"):
                if word in (said := one.output()):
                    self._found.append(f"member {one.number} has said: {said[said.index(word) :][:3000]}")
        return self._found

    def check(self):
        """What is wrong with the files."""
        for one in self._ours:
            with Store.open(one.path) as store:
                for name, known in TransactionLog(store.logs).load().items():
                    if known.state in _PREPARED:
                        yield f"member {one.number}: the transaction of {name} is {known.state.name}"
            yield from (f"member {one.number}: {damage}" for damage in damages(str(one.path)))

    def kill(self):
        """Ends all at once."""
        for one in (*self._members.values(), self._controller):
            one.kill()

    # ---- questions

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

    def _ask(self, number, request):
        """The answer of a member. OSError, ClusterError: it gives none."""
        with Connection(*self._members[number].address, ClientConfig(), timeout=_ANSWER) as connection:
            return connection.ask(request)

    def _some(self):
        """A member that answers. OSError: none does."""
        for number in _MEMBERS:
            with contextlib.suppress(OSError, ClusterError):
                self._ask(number, m.MetadataRequest([]))
                return number
        raise ConnectionRefusedError("no member answers")

    def _partitions(self):
        """All partitions, as all members know them: topics, and what Metadata says. OSError: they differ."""
        of = m.MetadataRequest
        wanted = of([of.MetadataRequestTopic(name=topic) for topic in (*TOPICS, *_OWN)], False)
        first, *others = [
            sorted((topic.name, one) for topic in self._ask(number, wanted).topics for one in topic.partitions)
            for number in _MEMBERS
        ]
        if any(one != first for one in others):
            raise ConnectionRefusedError("members do not know the same of the partitions")
        return first

    def _is_in_sync(self):
        found = self._partitions()
        is_whole = all({*one.isr_nodes} == {*_MEMBERS} and one.leader_id > 0 for _, one in found)
        return len(found) == PARTITIONS * (len(TOPICS) + len(_OWN)) and is_whole

    def _open(self):
        """Partitions in which a transaction is open: where it begins, and the end."""
        found = []
        for topic, one in self._partitions():
            end, stable = (self._end(topic, one, level) for level in (0, 1))
            if stable != end:
                found.append(f"{topic}-{one.partition_index}: a transaction is open from {stable} on; the end is {end}")
        return found

    def _end(self, topic, one, level):
        of = m.ListOffsetsRequest
        part = of.ListOffsetsPartition(one.partition_index, one.leader_epoch, LATEST)
        [found] = self._ask(one.leader_id, of(-1, level, [of.ListOffsetsTopic(topic, [part])])).topics
        [answer] = found.partitions
        if answer.error_code:
            raise ConnectionRefusedError(ErrorCode(answer.error_code).name)
        return answer.offset

    def _has_high_watermarks(self):
        """Whether all that nodes have is committed, as far as each of them knows."""
        for one in self._ours:
            with Store.open(one.path) as store:
                for topic in (*TOPICS, *_OWN):
                    states = (store.logs.reader(topic, number).state() for number in range(PARTITIONS))
                    if any(state.high_watermark != state.next_offset for state in states):
                        return False
        return True

    def _unequal(self):
        """Partitions whose replicas differ: of their bytes, which are all committed now."""
        found = []
        for topic in (*TOPICS, *_OWN):
            for number in range(PARTITIONS):
                sides = {one.number: _whole(one.folder_of(topic, number)) for one in self._members.values()}
                if len({*sides.values()}) > 1:
                    sizes = {member: len(data) for member, data in sides.items()}
                    found.append(f"{topic}-{number}: the replicas differ; their bytes: {sizes}")
        return found


def _rotated(by):
    return [_MEMBERS[(by + place) % len(_MEMBERS)] for place in range(len(_MEMBERS))]


def _whole(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def _committed(store, topic, partition):
    found = store.read(topic, partition, isolation_level="read_committed")
    return [(row["offset"], row["value"].decode()) for rows in found for row in rows.to_pylist()]


def system(folder, kind):
    """A system: `server`, or a cluster of that kind."""
    return OneServer(folder) if kind == "server" else Cluster(folder, kind)


#: The kinds of systems.
KINDS = ("server", "ours", "mixed")
