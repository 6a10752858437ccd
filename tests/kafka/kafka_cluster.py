"""Clusters of real Kafka: controllers and brokers (KRaft), each a process here that can be ended or paused."""

import base64
import contextlib
from pathlib import Path
from types import SimpleNamespace

from kafka_clients import (
    ConfigResource,
    KafkaAdminClient,
    PreferredLeaderNotAvailableError,
    TopicPartition,
    UserScramCredentialUpsertion,
)
from kafka_tools import (
    FAILOVER,
    NEWEST,
    OLDER,
    QUICK,
    SHARED_VERSION,
    Node,
    format_all,
    new_cluster_id,
    node_settings,
    run,
)

from pyspark_log.kafka import messages as m
from tests import requests as r
from tests.ports import HOST, free_ports
from tests.security_tools import Authority
from tests.security_tools import name as subject
from tests.server_tools import Peer
from tests.waiting import wait_until

PLAIN = "PLAINTEXT"

_UNKNOWN_TOPIC = 3
# Kinds of elections.
_PREFERRED, _UNCLEAN = 0, 1

_FIRST_CONTROLLER = 101


SCRAM = "SCRAM-SHA-512"


def secured(folder, users):
    """An authority, and settings of brokers that serve TLS and SASL, too: by PLAIN for these users, and by SCRAM."""
    authority = Authority(folder)
    listed = " ".join(f'user_{user}="{password}"' for user, password in users.items())
    logins = {"plain": f"plain.PlainLoginModule required {listed}", SCRAM.lower(): "scram.ScramLoginModule required"}
    return authority, {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue_as_one("kafka", subject(CN="localhost")),
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
        **{
            f"listener.name.{protocol}.{mechanism}.sasl.jaas.config": f"org.apache.kafka.common.security.{login};"
            for protocol in ("sasl_plaintext", "sasl_ssl")
            for mechanism, login in logins.items()
        },
    }


class Cluster:
    """Nodes of Kafka. In a `with` block they run, those that it does not end; they are killed at its end.

    It can be asked and changed while a part of the brokers runs.

    Attributes:
        nodes: the nodes by their ids: brokers from 1 on, and controllers from 101 on.
        brokers: the ids of the brokers.
        controllers: the ids of the controllers.
        controller_addresses: their hosts and ports.
        joined: the ids of others that are a part of it, and may lead.
    """

    def __init__(self, folder, *, brokers=3, controllers=1, listeners=(), settings=None, single=None, versions=None):
        """Formats the folders of all nodes; starts nothing yet.

        Arguments:
            folder: where the nodes have their folders.
            listeners: protocols that each broker serves beside PLAINTEXT: SSL, SASL_PLAINTEXT, SASL_SSL.
            settings: of all nodes; None as a value: Kafka's default.
            single: settings of single nodes, by their ids, which win.
            versions: the versions of Kafka by ids; the newest where a node is not named.
        """
        self.brokers = range(1, brokers + 1)
        self.controllers = range(_FIRST_CONTROLLER, _FIRST_CONTROLLER + controllers)
        protocols, versions = (PLAIN, *listeners), versions or {}
        ports = iter(free_ports(controllers + brokers * len(protocols)))
        voters = {number: next(ports) for number in self.controllers}
        self.controller_addresses = [(HOST, port) for port in voters.values()]
        self._ports = {number: {protocol: next(ports) for protocol in protocols} for number in self.brokers}
        self.nodes, self.joined = {}, set()
        for number in (*self.brokers, *self.controllers):
            served = self._ports.get(number, {})
            given = node_settings(number, voters, served, max(1, min(brokers, 3))) | QUICK | FAILOVER | (settings or {})
            home = Path(folder) / f"node{number}"
            home.mkdir(parents=True)
            self.nodes[number] = Node(
                home, given | (single or {}).get(number, {}), version=versions.get(number, NEWEST),
                memory="300m" if served else "160m",
            )  # fmt: skip
        self.cluster_id, options = new_cluster_id(), SHARED_VERSION if OLDER in versions.values() else ()
        format_all(self.nodes.values(), self.cluster_id, *options)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()

    def start(self):
        """Starts the nodes that do not run; returns when all serve."""
        begun = [node for node in self.nodes.values() if not node.is_running()]
        try:
            for node in begun:
                node.launch()
            for node in begun:
                node.await_start()
        except BaseException:
            self.kill()
            raise

    def kill(self):
        """Ends all nodes at once."""
        for node in self.nodes.values():
            node.kill()

    def __getitem__(self, number):
        """The node of that id."""
        return self.nodes[number]

    @property
    def bootstrap(self):
        """Where clients find the brokers, without TLS and authentication."""
        return self.bootstrap_of(PLAIN)

    def bootstrap_of(self, protocol, number=None):
        """Where clients find all brokers, or one, by a protocol."""
        numbers = self.brokers if number is None else [number]
        return ",".join(f"{HOST}:{self._ports[one][protocol]}" for one in numbers)

    def run(self, main, *arguments, text=""):
        """Runs one of Kafka's classes as a client of this cluster on `text` as its input; what it prints."""
        return run(main, "--bootstrap-server", self.bootstrap, *arguments, text=text)

    def admin(self):
        """kafka-python's client for administration, which knows the brokers that run, for a `with`."""
        return KafkaAdminClient(bootstrap_servers=[self.bootstrap_of(PLAIN, number) for number in self.running()])

    def join(self, number, port):
        """Takes that another process is a broker of that id, with a port."""
        self.joined.add(number)
        self._ports[number] = {PLAIN: port}

    def running(self):
        """The ids of the brokers that run, and are not paused."""
        return [number for number in self.brokers if self.nodes[number].is_running()]

    def ask(self, number, request, version):
        """The answer of a broker to a request of Kafka's protocol."""
        with Peer(SimpleNamespace(host=HOST, port=self._ports[number][PLAIN])) as peer:
            return peer.ask(request, version)

    def folder_of(self, number, name, partition=0):
        """The folder of a partition at a broker."""
        return self.nodes[number].log_dir / f"{name}-{partition}"

    # --- topics -------------------------------------------------------------------------------------

    def create_topic(self, name, partitions=1, copies=1, *, assignment=None, configs=None):
        """Makes a topic; returns when it has leaders.

        `assignment`: the brokers of each partition, the preferred leader first, in place of the two numbers.
        """
        if assignment is None:
            wanted = {"num_partitions": partitions, "replication_factor": copies}
        else:
            wanted = {"assignments": dict(enumerate(assignment))}
        wanted["configs"] = {key: str(value) for key, value in (configs or {}).items()}
        with self.admin() as admin:
            admin.create_topics({name: wanted})
        self._wait_for_leaders(name, partitions if assignment is None else len(assignment))

    def delete_topic(self, name):
        """Deletes a topic; returns when no broker knows it."""
        with self.admin() as admin:
            admin.delete_topics([name])
        wait_until(lambda: not any(self._topic(name, number) for number in self.running()), f"{name} is gone")

    def add_partitions(self, name, assignment):
        """Adds partitions with these replicas; returns when they have leaders."""
        count = self.partitions_of(name) + len(assignment)
        with self.admin() as admin:
            admin.create_partitions({name: {"count": count, "assignments": assignment}})
        self._wait_for_leaders(name, count)

    def alter_configs(self, name, configs, kind="topic"):
        """Sets configs of a topic, or of a broker, whose id the name is then. None as a value takes one away."""
        entries = {key: ("DELETE", None) if value is None else str(value) for key, value in configs.items()}
        with self.admin() as admin:
            told = admin.alter_configs([ConfigResource(kind, str(name), entries)], raise_on_unknown=False)
        assert told == {kind: {str(name): "OK"}}

    def delete_records(self, name, partition, before):
        """Deletes the records of a partition before an offset."""
        with self.admin() as admin:
            admin.delete_records({TopicPartition(name, partition): before})

    def add_scram_users(self, users):
        """Adds users with passwords, which all brokers know then."""
        with self.admin() as admin:
            made = [UserScramCredentialUpsertion(user, SCRAM, password) for user, password in users.items()]
            assert admin.alter_user_scram_credentials(made) == dict.fromkeys(users)
        wanted = m.DescribeUserScramCredentialsRequest(
            [m.DescribeUserScramCredentialsRequest.UserName(user) for user in users]
        )
        for number in self.running():
            wait_until(
                lambda number=number: not any(one.error_code for one in self.ask(number, wanted, 0).results),
                f"broker {number} knows {[*users]}",
            )

    def topic_id(self, name):
        """The id of a topic, as Kafka prints it; None: there is no such topic."""
        found = self._topic(name)
        return found and base64.urlsafe_b64encode(bytes(found.topic_id)).decode().rstrip("=")

    def partitions_of(self, name):
        """How many partitions a topic has."""
        return len(self._topic(name).partitions)

    # --- leaders and replicas -----------------------------------------------------------------------

    def leader_of(self, name, partition=0):
        """The id of the leader; None: there is none now."""
        return self._leader_at(self.running()[0], name, partition)

    def wait_for_leader(self, name, partition=0, *, other_than=()):
        """The id of the leader, once one that runs leads, and all that run know it; it is none of `other_than`."""

        def agreed():
            [leader, *others] = {self._leader_at(number, name, partition) for number in self.running()}
            return leader if not others and leader in self.joined.union(self.running()).difference(other_than) else None

        return wait_until(agreed, f"{name}-{partition} is led by none of {[*other_than]}")

    def isr(self, name, partition=0):
        """The ids of the replicas that are in sync."""
        found = self._partition(name, partition)
        return set(found.isr_nodes) if found else set()

    def wait_for_isr(self, name, partition, wanted):
        """Returns when these replicas are in sync, and no others."""
        wait_until(lambda: self.isr(name, partition) == set(wanted), f"{name}-{partition} is in sync at {wanted}")

    def elect(self, name, partition=0, *, unclean=False):
        """Makes the preferred replica the leader; or, where there is no leader, one that is not in sync."""
        with self.admin() as admin:

            def elected():
                # On a slow machine it may not be in sync for a moment.
                with contextlib.suppress(PreferredLeaderNotAvailableError):
                    admin.elect_leaders(_UNCLEAN if unclean else _PREFERRED, {name: [partition]})
                    return True
                return False

            wait_until(elected, f"the preferred replica of {name}-{partition} can lead")

    def reassign(self, name, partition, replicas):
        """Moves a partition to these brokers, the preferred leader first; returns when they, and no others, have it."""
        place = TopicPartition(name, partition)
        with self.admin() as admin:
            assert admin.alter_partition_reassignments({place: replicas}) == {place: None}
            wait_until(
                lambda: place not in admin.list_partition_reassignments([place]), f"{place} is moved to {replicas}"
            )
        self.wait_for_isr(name, partition, replicas)

    def _wait_for_leaders(self, name, partitions):
        for partition in range(partitions):
            self.wait_for_leader(name, partition)

    def _topic(self, name, number=None):
        """What a broker, or one that runs, knows of a topic; None: nothing."""
        [found] = self.ask(self.running()[0] if number is None else number, r.metadata(name), 12).topics
        return None if found.error_code == _UNKNOWN_TOPIC else found

    def _partition(self, name, partition, number=None):
        found = self._topic(name, number)
        return next((one for one in found.partitions if one.partition_index == partition), None) if found else None

    def _leader_at(self, number, name, partition):
        found = self._partition(name, partition, number)
        return None if found is None or found.leader_id == -1 else found.leader_id
