"""A cluster for all tests of a file, which is a server of ours, and a store for each test to mirror into."""

import itertools
import re

import pytest

from pyspark_log import Store
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.fetcher import Replica
from pyspark_log.mirror import ClusterSource, Mirror, MirrorPlan
from pyspark_log.replication import Rules
from pyspark_log.server.cluster.image import Broker, Endpoint, Image, Partition, Topic
from pyspark_log.server.node.leaders import Leaders
from pyspark_log.server.node.replicas import NodeReplicas
from pyspark_log.storage.catalog.topics import id_bytes
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.types import TopicPartition
from tests.server_fixtures import server

__all__ = ["server"]
_names = (f"mirrored{number}" for number in itertools.count())
# Many segments, and few index entries in each.
SMALL = {"segment.bytes": "4000", "index.interval.bytes": "1000", "retention.ms": "-1"}
# A broker, and a node of ours.
LEADER, NODE = 1, 7


@pytest.fixture
def upstream(server):
    """The store that is served."""
    with Store.open(server.path) as store:
        yield store


@pytest.fixture
def topic(upstream):
    """A topic of the cluster with two partitions and small segments."""
    name = next(_names)
    upstream.create_topic(name, 2, SMALL)
    return name


@pytest.fixture
def mirror(server, tmp_path):
    """Mirrors topics until now, into the store of the test; the results by partition."""

    def run(*patterns, groups=None, **rules):
        plan = MirrorPlan(
            [re.compile(pattern) for pattern in patterns], groups and re.compile(groups), True, Rules(**rules)
        )
        with (
            FolderStore.open_or_create(tmp_path / "mirror") as store,
            ClusterSource([(server.host, server.port)], ClientConfig()) as cluster,
        ):
            return {one.at: one for one in Mirror(store, cluster, plan).run()}

    run.path = tmp_path / "mirror"
    return run


@pytest.fixture
def first(topic):
    """The topic's first partition."""
    return TopicPartition(topic, 0)


@pytest.fixture
def image(server, upstream, topic):
    """The image of a cluster in which the node has replicas of both partitions of the topic."""
    endpoints = (Endpoint("PLAINTEXT", server.host, server.port, 0),)
    broker = Broker(LEADER, 0, bytes(16), endpoints, {}, None, False, False, (), None)
    one = Partition((LEADER, NODE), (bytes(16),) * 2, (LEADER,), (), (), (), (), LEADER, False, 0, 0)
    topic_id = id_bytes(upstream.describe_topic(topic).topic_id)
    topics = {topic_id: Topic(topic, topic_id, {0: one, 1: one})}
    return Image(brokers={LEADER: broker}, topics=topics, topic_ids={topic: topic_id})


def replicas_in(store, crashed, epoch=lambda: 0):
    """The replicas of a node in a store; `epoch`: of its registration."""
    leaders = Leaders(store, NODE, lambda at: None, lambda action: action())
    return NodeReplicas(
        store, NODE, "PLAINTEXT", ClientConfig(), lambda: Replica(NODE, epoch()), leaders, bytes(16), crashed
    )


def has(path, at, end):
    """Whether the store of a node has a partition up to an offset."""
    with Store.open(path) as store:
        return at.topic in store.topics() and store.latest_offset(at.topic, at.partition) == end
