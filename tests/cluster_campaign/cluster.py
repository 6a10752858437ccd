"""The cluster that is attacked: members of Kafka and of ours, each on a host and with a disk of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.errors import ClusterError
from pyspark_log.storage.catalog import store_json
from pyspark_log.types import LATEST, TopicPartition
from tests.kafka.kafka_tools import (
    FAILOVER,
    NEWEST,
    OLDER,
    QUICK,
    SHARED_VERSION,
    Node,
    format_all,
    new_cluster_id,
    node_settings,
)
from tests.server_tools import PATIENCE, Server

KAFKAS = {"kafka": NEWEST, "kafka39": OLDER}
OURS = "ours"
TOPICS, PARTITIONS = ("t", "u"), 3
ALL = [TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
CONFIGS = {"min.insync.replicas": "2", "retention.ms": "-1", "segment.bytes": str(2**20)}

_LAG_MAX = "replica.lag.time.max.ms"
_PORT, _CONTROLLER_PORT = 9092, 9093
_CONTROLLERS = (101, 102, 103)
# What each member can store, in bytes: more than a campaign of some hours writes.
_DISK = 256 << 20
# How long is waited for an answer, in seconds.
_ANSWER = 5
# Seconds that a member may take to end in order, while others are away that it wants to hand over to.
_ORDERLY = 15


class KafkaNode(Node):
    """A broker or a controller of Kafka, on a host.

    Attributes:
        number: its id.
        address: where it listens: a host and a port.
        disk: the folder of its file system.
        ends_alone: how it may end by itself; "": not at all.
    """

    def __init__(self, number, port, host, folder, settings, **how):
        super().__init__(folder, settings, enter=host.enter, **how)
        self.number, self.address, self.disk = number, (host.address, port), self.log_dir

    def folder_of(self, at):
        """The folder of a partition."""
        return self.log_dir / f"{at.topic}-{at.partition}"

    def finish(self):
        """Waits until it has ended, after SIGTERM."""
        end_within(self.process, _ORDERLY)

    def trouble(self):
        """What it has said that it must not say; "": nothing."""
        return ""


class OurNode(Server):
    """`pylog serve` as a node, on a host; attributes and methods as KafkaNode's."""

    def __init__(self, number, host, folder, controllers):
        self.disk = folder / "disk"
        where = ",".join(f"{host}:{port}" for host, port in controllers)
        super().__init__(
            self.disk / "store", folder, "--node-id", number, "--controllers", where, "--take-new-topics",
            "--allow-anonymous",
        )  # fmt: skip
        self.interpreter = (*host.enter, *Server.interpreter)
        self.number, self.host, self.port, self.address = number, host.address, _PORT, (host.address, _PORT)
        self.bootstrap = f"{self.host}:{self.port}"
        self._seen = 0

    def folder_of(self, at):
        return self.path / "data" / f"{at.topic}-{at.partition}"

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def finish(self):
        end_within(self.process, _ORDERLY)

    def trouble(self):
        output = self.output()
        new, self._seen = output[self._seen :], len(output)
        return new[new.index("Traceback") :][:2000] if "Traceback" in new else ""


class View(NamedTuple):
    """What a member says of a partition: which one leads (-1: none), since which epoch, and the ids in sync."""

    leader: int
    epoch: int
    isr: frozenset[int]


class Cluster:
    """Three controllers of Kafka, and members.

    Attributes:
        members: by their ids, from 1 on.
        controllers: by their ids.
        bootstrap: where clients find the members.
    """

    def __init__(self, folder, network, kinds):
        """Formats all; `kinds`: of each member, the keys of KAFKAS or OURS."""
        self._network, self._connections, self.members, self.controllers = network, {}, {}, {}
        hosts, is_mixed = network.hosts, "kafka39" in kinds
        voters = dict.fromkeys(_CONTROLLERS, _CONTROLLER_PORT)
        for number in (*_CONTROLLERS, *(number for number, kind in enumerate(kinds, 1) if kind != OURS)):
            is_controller, home = number in _CONTROLLERS, folder / f"node{number}"
            (home / "logs").mkdir(parents=True)
            network.disk(home / "logs", _DISK)
            port = _CONTROLLER_PORT if is_controller else _PORT
            settings = node_settings(number, voters, {} if is_controller else {"PLAINTEXT": _PORT}, len(kinds))
            settings |= {
                **QUICK,
                **FAILOVER,
                "controller.quorum.voters": ",".join(
                    f"{voter}@{hosts[voter].address}:{_CONTROLLER_PORT}" for voter in voters
                ),
                "listeners": f"{'CONTROLLER' if is_controller else 'PLAINTEXT'}://{hosts[number].address}:{port}",
            }
            version = NEWEST if is_controller else KAFKAS[kinds[number - 1]]
            made = KafkaNode(
                number, port, hosts[number], home, settings, version=version,
                memory="160m" if is_controller else "300m",
            )  # fmt: skip
            (self.controllers if is_controller else self.members)[number] = made
        cluster_id, options = new_cluster_id(), SHARED_VERSION if is_mixed else ()
        at = [one.address for one in self.controllers.values()]
        for number in (number for number, kind in enumerate(kinds, 1) if kind == OURS):
            home = folder / f"node{number}"
            (home / "disk").mkdir(parents=True)
            network.disk(home / "disk", _DISK)
            made = self.members[number] = OurNode(number, hosts[number], home, at)
            store_json.make(str(made.path), {_LAG_MAX: str(FAILOVER[_LAG_MAX])}, cluster_id)
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in (one.address for one in self.members.values()))
        format_all([one for one in self.all() if isinstance(one, KafkaNode)], cluster_id, *options)

    def all(self):
        """Controllers, then members."""
        return [*self.controllers.values(), *self.members.values()]

    def start(self):
        """Starts all; makes the topics, each partition led by another member."""
        for some in (self.controllers, self.members):
            for one in some.values():
                one.launch()
            for one in some.values():
                one.await_start()
        of = m.CreateTopicsRequest
        topics = [
            of.CreatableTopic(
                topic, -1, -1,
                [
                    of.CreatableReplicaAssignment(number, rotated([*self.members], number))
                    for number in range(PARTITIONS)
                ],
                [of.CreatableTopicConfig(*one) for one in CONFIGS.items()],
            )
            for topic in TOPICS
        ]  # fmt: skip
        # A member that is unfenced may not be known to all controllers yet.
        deadline = time.monotonic() + PATIENCE
        while (known := self.brokers(1)) != set(self.members):
            assert time.monotonic() < deadline, f"the members are {known}"
            time.sleep(0.1)
        made = self.ask(1, of(topics, 30_000)).topics
        assert not any(one.error_code for one in made), made

    def close(self):
        """Kills all."""
        self.forget()
        for one in self.all():
            one.kill()

    # ---- questions

    def ask(self, number, request):
        """The answer of a node. OSError, ClusterError: it gives none."""
        node = self.members.get(number) or self.controllers[number]
        connection = self._connections.pop(number, None)
        if connection is None:
            connection = Connection(*node.address, ClientConfig(), timeout=_ANSWER)
        try:
            answer = connection.ask(request)
        except BaseException:
            connection.close()
            raise
        self._connections[number] = connection
        return answer

    def forget(self):
        """Closes the connections."""
        for one in self._connections.values():
            one.close()
        self._connections.clear()

    def active_controller(self):
        """The id of the controller that leads the others; None: none that answers does."""
        of = m.DescribeQuorumRequest
        wanted = of([of.TopicData("__cluster_metadata", [of.PartitionData(0)])])
        for number, node in self.controllers.items():
            if node.is_running():
                with contextlib.suppress(OSError, ClusterError):
                    [topic] = self.ask(number, wanted).topics
                    [part] = topic.partitions
                    if part.error_code == 0 and part.leader_id == number:
                        return number
        return None

    def brokers(self, number):
        """The ids of the members that one names to clients."""
        return {one.node_id for one in self.ask(number, m.MetadataRequest([])).brokers}

    def views(self, number):
        """What a member says of all partitions: views; one that it does not know is missing. OSError."""
        of = m.MetadataRequest
        answer = self.ask(number, of([of.MetadataRequestTopic(name=name) for name in TOPICS], False))
        return {
            TopicPartition(topic.name, one.partition_index): View(
                one.leader_id, one.leader_epoch, frozenset(one.isr_nodes)
            )
            for topic in answer.topics
            for one in topic.partitions
        }

    def agreed(self):
        """The views that all members have; of partitions on which they differ, none. OSError."""
        first, *others = [self.views(number) for number in self.members]
        return {at: view for at, view in first.items() if all(one.get(at) == view for one in others)}

    def high_watermark(self, at, view):
        """Of a partition, by its leader; -1: it does not say so. OSError."""
        of = m.ListOffsetsRequest
        wanted = of(-1, 0, [of.ListOffsetsTopic(at.topic, [of.ListOffsetsPartition(at.partition, view.epoch, LATEST)])])
        [topic] = self.ask(view.leader, wanted).topics
        [part] = topic.partitions
        return -1 if part.error_code else part.offset

    def elect_preferred(self):
        """Moves the leaders to where they were in the beginning, as far as that goes."""
        of, by = m.ElectLeadersRequest, {topic: [*range(PARTITIONS)] for topic in TOPICS}
        wanted = of(0, [of.TopicPartitions(*one) for one in by.items()], 5000)
        self.ask(1, wanted)


def rotated(numbers, by):
    """The same numbers, another one first."""
    by %= len(numbers)
    return [*numbers[by:], *numbers[:by]]


def end_within(process, seconds):
    """Waits for the end of a process, and kills it then if need be."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def segments_of(folder):
    """The segment files of a partition, in order."""
    return sorted(Path(folder).glob("*.log"))


def free_bytes(folder):
    """The room that a file system has."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
