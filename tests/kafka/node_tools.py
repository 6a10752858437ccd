"""Nodes of ours in clusters of real Kafka, as processes."""

import contextlib

from mirror_tools import end_of, whole

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from tests.server_tools import Server
from tests.waiting import wait_until

NODE = 7
#: Of a cluster of nodes, beside one broker of Kafka.
RACKS = {1: "b", 11: "a", 12: "a", 13: "b"}


class NodeServer(Server):
    """`pylog serve` as a node of a cluster."""

    def __init__(self, cluster, folder, *options, number=NODE, login=None):
        """`login`: the lines of a client's settings by which it logs in to brokers, the first names the protocol."""
        folder.mkdir(exist_ok=True)
        controllers = ",".join(f"{host}:{port}" for host, port in cluster.controller_addresses)
        if login is not None:
            to_brokers, to_controllers = folder / "brokers.properties", folder / "controllers.properties"
            to_brokers.write_text("".join(f"{line}\n" for line in login))
            to_controllers.write_text("security.protocol=PLAINTEXT\n")
            options += ("--replication-listener", login[0].partition("=")[2], "--client-config", to_brokers)
            options += ("--controller-config", to_controllers)
        super().__init__(folder / "store", folder, "--node-id", number, "--controllers", controllers, *options)

    def folder_of(self, topic, partition=0):
        return self.path / "data" / f"{topic}-{partition}"

    def log_end(self, topic, partition=0):
        with Store.open(self.path) as store:
            return store.logs.reader(topic, partition).state().next_offset

    def latest(self, topic, partition=0):
        with Store.open(self.path) as store:
            return store.latest_offset(topic, partition)


@contextlib.contextmanager
def running_node(cluster, folder):
    """A node that runs, and that all brokers know; it must not have met an error that nothing expects."""
    made = NodeServer(cluster, folder).start()
    try:
        # A client may take any broker for the controller, and so this one as soon as it is unfenced.
        for number in cluster.running():
            wait_until(lambda number=number: NODE in known_brokers(cluster, number), f"broker {number} knows the node")
        cluster.join(NODE, made.port)
        yield made
        assert "Traceback" not in made.output(), made.output()
    finally:
        made.kill()


def known_brokers(cluster, number):
    """The ids of the brokers that a broker names to clients."""
    return {one.node_id for one in cluster.ask(number, m.MetadataRequest([]), 12).brokers}


def is_equal(cluster, node, topic, partition=0):
    """Whether a replica of the node has all that its leader has."""
    leader = cluster.wait_for_leader(topic, partition)
    return whole(cluster.folder_of(leader, topic, partition)) == whole(node.folder_of(topic, partition))


def await_equal(cluster, node, topic, partition=0):
    wait_until(
        lambda: node.folder_of(topic, partition).is_dir() and is_equal(cluster, node, topic, partition),
        f"{topic}-{partition} is equal",
    )


def await_equal_at(cluster, node, topic, *brokers):
    """The same of replicas that brokers have of a topic's first partition, which the node leads."""
    for number in brokers:
        wait_until(
            lambda number=number: whole(cluster.folder_of(number, topic)) == whole(node.folder_of(topic)),
            f"{topic}-0 is equal at broker {number}",
        )


def await_visible(cluster, node, topic, partition=0):
    """Returns when readers of the node see all that is in a partition."""
    wait_until(
        lambda: node.latest(topic, partition) == end_of(cluster, topic, partition), f"{topic}-{partition} is visible"
    )
