"""The replicas of a node follow the image of a cluster; its only broker is a server of ours."""

import errno
import signal
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pyspark_log.errors import CorruptRecordError
from pyspark_log.kafka.connection import TIMEOUT
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.errors import LoginError
from pyspark_log.kafka.fetcher import Fetched
from pyspark_log.replication import copied_partition
from pyspark_log.replication.broker_thread import BrokerThread
from pyspark_log.server.cluster.image import NO_LEADER, Image, Resource, Topic
from pyspark_log.server.cluster.registration import NO_EPOCH
from pyspark_log.server.node import replicas as node_replicas
from pyspark_log.server.node.replicas import NodeReplicas
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.log_manager import TopicAdmin
from pyspark_log.types import TopicPartition
from tests.store_tools import rows
from tests.unit.mirror.conftest import LEADER, NODE, has, replicas_in
from tests.waiting import wait_until


@pytest.fixture
def node(tmp_path):
    """The replicas of a node in a new store."""
    crashes = []
    with FolderStore.open_or_create(tmp_path / "node") as store:
        made = replicas_in(store, crashes.append)
        yield made
        made.close()
    assert crashes == []


def test_a_replica_is_whole_before_any_thread_sees_it(node, image, first):
    class Watched:
        """A lock; what another thread would do next comes at once when it is free."""

        def __init__(self):
            self._lock = threading.Lock()

        def __enter__(self):
            self._lock.acquire()

        def __exit__(self, *_):
            self._lock.release()
            if node._mutex is self:
                node._mutex = self._lock
                node.end([one for one, _ in node.begin(LEADER).values()])
                node._mutex = self

    node._mutex = Watched()
    node.follow(image, image.topics, ())
    assert node.has(first)


def test_nothing_is_fetched_before_the_node_is_registered(image, first, tmp_path, monkeypatch):
    """Another process may have its id: what this one fetches would count for that, as it names no epoch."""
    monkeypatch.setattr(NodeReplicas, "_fetch_from", lambda *_: None)  # no thread comes in between
    epochs = [NO_EPOCH]
    with FolderStore.open_or_create(tmp_path / "node") as store:
        made = replicas_in(store, pytest.fail, lambda: epochs[-1])
        made.follow(image, image.topics, ())
        assert made.has(first)
        assert made.begin(LEADER) == {}
        epochs.append(5)
        assert first in made.begin(LEADER)


def test_a_partition_with_an_error_holds_back_no_other(node, image, first, topic, monkeypatch):
    """As one that its leader cannot lead for now, on a full disk, say."""
    monkeypatch.setattr(NodeReplicas, "_fetch_from", lambda *_: None)  # the test is the thread
    monkeypatch.setattr(copied_partition, "_BACKOFF", 3600.0)
    errors, other = {first: ErrorCode.NOT_LEADER_OR_FOLLOWER}, TopicPartition(topic, 1)

    class Answers:
        """A broker."""

        def send(self, wanted):
            self._wanted = wanted

        def receive(self):
            return [
                Fetched(at, one, errors.get(at, 0), 0, 0, None, memoryview(b"")) for at, one in self._wanted.items()
            ]

    node.follow(image, image.topics, ())
    thread = BrokerThread(LEADER, node.connect, node)
    thread._fetcher = Answers()
    wanted = node.begin(LEADER)
    assert wanted.keys() == {first, other}
    assert thread._round(wanted), "the next round comes at once"
    node.end([one for one, _ in wanted.values()])
    assert node.begin(LEADER).keys() == {other}
    wanted[first][0].not_before = 0.0
    assert node.begin(LEADER).keys() == {first}
    errors[other] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not thread._round(wanted), "none is answered"


def test_what_could_not_be_made_is_tried_again(node, image, upstream, topic, first, tmp_path, monkeypatch):
    upstream.append(topic, rows(b"a", b"b"), partition=0)
    upstream.append(topic, rows(b"c"), partition=1)
    make_state, full = node._store.logs.make_state, [True]

    def make(opened, partition, **given):
        if partition == 0 and full:
            raise OSError(errno.ENOSPC, "no space")
        make_state(opened, partition, **given)

    monkeypatch.setattr(node._store.logs, "make_state", make)
    monkeypatch.setattr(node_replicas, "_RETRY", 0)
    node.follow(image, image.topics, ())
    wait_until(lambda: has(tmp_path / "node", TopicPartition(topic, 1), 1), "the other partition is there")
    assert not node.has(first)
    full.clear()
    node.follow(image, node.undone(), ())
    wait_until(lambda: has(tmp_path / "node", first, 2), "the partition is there")
    assert not node.undone()


def test_topics_of_kafka_itself_are_followed_after_a_restart_too(image, topic, tmp_path):
    [known] = image.topics.values()
    one = Topic("__consumer_offsets", bytes(range(16)), known.partitions)
    own = Image(brokers=image.brokers, topics={one.id: one}, topic_ids={one.name: one.id})
    changed = replace(own, configs={Resource(2, one.name): {"segment.bytes": "1048576"}})
    for wanted in (own, own, changed):
        with FolderStore.open_or_create(tmp_path / "node") as store:
            made = replicas_in(store, pytest.fail)
            made.follow(wanted, {*made.known_ids(), one.id}, ())
            assert not made._undone
            assert made.has(TopicPartition(one.name, 0))
            made.close()
    with FolderStore.open_or_create(tmp_path / "node") as store:
        assert store.describe_topic(one.name).configs == {"segment.bytes": "1048576"}
        made = replicas_in(store, pytest.fail)
        made.follow(Image(), made.known_ids(), ())
        assert one.name not in store.topics(internal=True)
        made.close()


def test_what_is_set_for_brokers_counts_for_topics(node, image, topic):
    of_all, of_this, own = Resource(4, ""), Resource(4, str(NODE)), Resource(2, topic)
    node.follow(image, image.topics, ())

    def follow(configs):
        node.follow(replace(image, configs=configs), (), configs)
        return node._store.describe_topic(topic).configs

    defaults = {"log.retention.ms": "7000", "log.segment.bytes": "1048576", "min.insync.replicas": "2"}
    assert follow({of_all: defaults}) == {"retention.ms": "7000", "segment.bytes": "1048576"}
    assert follow({
        of_all: defaults, of_this: {"log.retention.ms": "8000"}, own: {"segment.bytes": "2097152"},
    }) == {"retention.ms": "8000", "segment.bytes": "2097152"}  # fmt: skip


def test_a_topic_that_could_not_be_deleted_is_deleted_later(node, image, topic, monkeypatch):
    node.follow(image, image.topics, ())
    delete = TopicAdmin.delete
    monkeypatch.setattr(node_replicas, "_RETRY", 0)

    def fail(*_):
        raise OSError(errno.EIO, "no disk")

    monkeypatch.setattr(TopicAdmin, "delete", fail)
    node.follow(Image(brokers=image.brokers), image.topics, ())
    assert topic in node._store.topics()
    monkeypatch.setattr(TopicAdmin, "delete", delete)
    node.follow(Image(brokers=image.brokers), node.undone(), ())
    assert topic not in node._store.topics()
    assert not node.undone()


@pytest.mark.parametrize("error", [LoginError("not yet"), CorruptRecordError("bits", 0, 0, "")])
def test_a_replica_is_continued_after_any_error(node, image, upstream, topic, first, tmp_path, monkeypatch, error):
    monkeypatch.setattr(node_replicas, "_RETRY", 0)
    node.follow(image, image.topics, ())
    wait_until(lambda: node.has(first), "there is a replica")
    node.fail(first, error)
    # What is fetched when it fails may still come.
    for end in range(1, 4):
        upstream.append(topic, rows(b"a"), partition=0)
        wait_until(partial(has, tmp_path / "node", first, end), "the partition is there")


def test_a_damaged_replica_leaves_the_others_alone(image, upstream, topic, first, tmp_path):
    """It is not copied again, as no broker leads it."""
    other = TopicPartition(topic, 1)
    [(topic_id, known)] = image.topics.items()
    parts = {0: known.partitions[0]._replace(leader=NO_LEADER), 1: known.partitions[1]}
    image = replace(image, topics={topic_id: known._replace(partitions=parts)})
    for number in range(2):
        upstream.append(topic, rows(b"a"), partition=1)
        with FolderStore.open_or_create(tmp_path / "node") as store:
            made = replicas_in(store, pytest.fail)
            made.follow(image, {*made.known_ids(), *image.topics}, ())
            wait_until(partial(has, tmp_path / "node", other, number + 1), "the other partition is there")
            made.close()
            state = Path(store.logs.topic(topic).state_path(0))
        state.write_bytes(bytes(4096))
    assert not made.has(first)


def test_a_broker_that_does_not_answer_is_named_once(node, image, monkeypatch, caplog):
    attempts = []

    def connect(_self, broker, **_how):
        attempts.append(broker)
        raise ConnectionRefusedError("nobody is there")

    monkeypatch.setattr(NodeReplicas, "connect", connect)
    for count in range(1, 4):
        node.follow(replace(image), image.topics, ())
        wait_until(lambda count=count: len(attempts) > count, "it is tried again")
    assert caplog.text.count("broker 1 does not answer") == 1
    node.follow(replace(image, brokers={**image.brokers}), image.topics, ())
    wait_until(lambda: caplog.text.count("broker 1 does not answer") == 2, "the cluster has changed")


@pytest.mark.parametrize("follows_before", [True, False])
def test_the_end_waits_for_no_answer_of_a_broker_that_is_frozen(
    image, server, upstream, topic, first, tmp_path, follows_before
):
    upstream.append(topic, rows(b"a"), partition=0)
    with FolderStore.open_or_create(tmp_path / "node") as store:
        made = replicas_in(store, pytest.fail)
        if follows_before:
            made.follow(image, image.topics, ())
            wait_until(partial(has, tmp_path / "node", first, 1), "the partition is there")
        server.process.send_signal(signal.SIGSTOP)
        try:
            if not follows_before:
                made.follow(image, image.topics, ())
                wait_until(partial(has_unread, server.port), "it waits for the broker")
            began = time.monotonic()
            made.close()
            assert time.monotonic() - began < TIMEOUT / 2
        finally:
            server.process.send_signal(signal.SIGCONT)


def has_unread(port):
    """Whether a client of a port has sent what the server has not read."""
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return any(
        int(local.rpartition(":")[2], 16) == port and int(queued.rpartition(":")[2], 16)
        for _, local, _, state, queued, *_ in sockets
        if state == "01"
    )
