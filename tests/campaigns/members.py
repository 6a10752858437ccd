"""Clusters that are attacked: controllers of Kafka, and members of Kafka and of ours, each with a folder of its own."""

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
PARTITIONS = 3

_LAG_MAX = "replica.lag.time.max.ms"
# The lowest id of a controller.
_CONTROLLERS = 101
# How long is waited for an answer, in seconds.
_ANSWER = 5
# Seconds that a member may take to end in order, while others are away that it wants to hand over to.
_ORDERLY = 15


class Place(NamedTuple):
    """Where a node is: a host and a port, and the words that run a command there."""

    host: str
    port: int
    enter: tuple[str, ...] = ()


class KafkaNode(Node):
    """A broker or a controller of Kafka.

    Attributes:
        number: its id.
        address: where it listens: a host and a port.
        disk: the folder with all that it stores.
    """

    def __init__(self, number, place, folder, settings, **how):
        super().__init__(folder, settings, enter=place.enter, **how)
        self.number, self.address, self.disk = number, (place.host, place.port), self.log_dir

    def folder_of(self, at):
        """The folder of a partition."""
        return self.log_dir / f"{at.topic}-{at.partition}"

    def finish(self):
        """Waits until it has ended, after SIGTERM."""
        end_within(self.process, _ORDERLY)


class OurNode(Server):
    """`pylog serve` as a node; attributes and methods as KafkaNode's."""

    def __init__(self, number, place, folder, controllers, cluster_id):
        self.disk = folder / "disk"
        where = ",".join(f"{one.host}:{one.port}" for one in controllers)
        super().__init__(
            self.disk / "store", folder, "--node-id", number, "--controllers", where, "--take-new-topics",
            *(["--allow-anonymous"] if place.enter else []),
        )  # fmt: skip
        self.interpreter = (*place.enter, *Server.interpreter)
        self.number, self.host, self.port, self.address = number, place.host, place.port, (place.host, place.port)
        self.bootstrap = f"{self.host}:{self.port}"
        store_json.make(str(self.path), {_LAG_MAX: str(FAILOVER[_LAG_MAX])}, cluster_id)

    def folder_of(self, at):
        return self.path / "data" / f"{at.topic}-{at.partition}"

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def finish(self):
        end_within(self.process, _ORDERLY)


class View(NamedTuple):
    """What a member says of a partition: which one leads (-1: none), since which epoch, and the ids in sync."""

    leader: int
    epoch: int
    isr: frozenset[int]


class Cluster:
    """Controllers of Kafka, and members, each of which has all partitions.

    Attributes:
        members: by their ids, from 1 on.
        controllers: by their ids, from 101 on.
        ours: the members that are nodes of ours.
        all: all partitions.
        bootstrap: where clients find the members.
    """

    def __init__(self, folder, kinds, places, topics, *, settings=None, disk=None):
        """Formats all.

        Args:
            folder: where the nodes have their folders.
            kinds: of each member, the keys of KAFKAS or OURS.
            places: of members and controllers, by their ids.
            topics: the configs of each topic, by its name.
            settings: of Kafka's nodes, beside others.
            disk: called with the empty folder of each node that is to be its disk.
        """
        self.members, self.controllers, self._connections, self._topics = {}, {}, {}, topics
        self.all = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
        cluster_id, options = new_cluster_id(), SHARED_VERSION if "kafka39" in kinds else ()
        voters = {number: place for number, place in places.items() if number >= _CONTROLLERS}
        quorum = ",".join(f"{number}@{place.host}:{place.port}" for number, place in voters.items())
        for number, place in sorted(places.items(), reverse=True):
            kind, home = "kafka" if number in voters else kinds[number - 1], Path(folder) / f"node{number}"
            own = home / ("disk" if kind == OURS else "logs")
            own.mkdir(parents=True)
            if disk is not None:
                disk(own)
            if kind == OURS:
                self.members[number] = OurNode(number, place, home, voters.values(), cluster_id)
                continue
            protocol, ports = "CONTROLLER" if number in voters else "PLAINTEXT", dict.fromkeys(voters, 0)
            listeners = {} if number in voters else {protocol: place.port}
            how = node_settings(number, ports, listeners, len(kinds)) | QUICK | FAILOVER | (settings or {})
            how |= {"controller.quorum.voters": quorum, "listeners": f"{protocol}://{place.host}:{place.port}"}
            memory = "160m" if number in voters else "300m"
            made = KafkaNode(number, place, home, how, version=KAFKAS[kind], memory=memory)
            (self.controllers if number in voters else self.members)[number] = made
        self.members = dict(sorted(self.members.items()))
        self.ours = [one for one in self.members.values() if isinstance(one, OurNode)]
        self.bootstrap = ",".join("{}:{}".format(*one.address) for one in self.members.values())
        format_all([one for one in self.nodes() if isinstance(one, KafkaNode)], cluster_id, *options)

    def nodes(self):
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
                [of.CreatableTopicConfig(*one) for one in configs.items()],
            )
            for topic, configs in self._topics.items()
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
        for one in self.nodes():
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
        answer = self.ask(number, of([of.MetadataRequestTopic(name=name) for name in self._topics], False))
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

    def is_in_sync(self):
        """Whether all members have all partitions, and say so. OSError."""
        found = self.agreed()
        return len(found) == len(self.all) and all(
            one.isr == {*self.members} and one.leader > 0 for one in found.values()
        )

    def end_of(self, at, view, level=0):
        """The offset after what readers of an isolation level get, by the leader; -1: it does not say so. OSError."""
        of, part = m.ListOffsetsRequest, m.ListOffsetsRequest.ListOffsetsPartition(at.partition, view.epoch, LATEST)
        [topic] = self.ask(view.leader, of(-1, level, [of.ListOffsetsTopic(at.topic, [part])])).topics
        [part] = topic.partitions
        return -1 if part.error_code else part.offset

    def elect_preferred(self):
        """Moves the leaders to where they were in the beginning, as far as that goes."""
        of = m.ElectLeadersRequest
        wanted = of(0, [of.TopicPartitions(topic, [*range(PARTITIONS)]) for topic in self._topics], 5000)
        for number in self.members:
            with contextlib.suppress(OSError, ClusterError):
                self.ask(number, wanted)
                return


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
