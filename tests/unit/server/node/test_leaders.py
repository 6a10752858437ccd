"""What a node leads, without a cluster: when waiting requests are woken, and what answers meet."""

import errno

import pytest

from pyspark_log.errors import PartitionOwnedError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import AlterPartitionRequest, AlterPartitionResponse
from pyspark_log.replication import CopiedPartition, Rules
from pyspark_log.server.cluster.image import Broker, Image, Partition, Topic
from pyspark_log.server.cluster.leading import Fetched
from pyspark_log.server.node import leaders
from pyspark_log.server.node.leaders import Leaders
from pyspark_log.storage.catalog.topics import id_bytes
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.log import Turnstile
from pyspark_log.storage.log.state.partition_state import of_node
from pyspark_log.storage.log_manager import TopicAdmin
from pyspark_log.types import TopicPartition
from tests.store_tools import rows

NODE, FOLLOWER, EPOCH, BROKER_EPOCH = 7, 1, 3, 5
AT = TopicPartition("t", 0)


class Led:
    """A partition that a node leads, with a follower in sync."""

    def __init__(self, store):
        self.changed = []
        store.create_topic("t", 1)
        self.store, self.topic_id = store, id_bytes(store.describe_topic("t").topic_id)
        self.leaders = Leaders(store, NODE, lambda at: self.changed.append(self.wait()), lambda action: action())
        both = (NODE, FOLLOWER)
        self.partition = partition = Partition(both, (bytes(16),) * 2, both, (), (), (), (), NODE, False, EPOCH, 0)
        brokers = {one: Broker(one, BROKER_EPOCH, bytes(16), (), {}, None, False, False, (), None) for one in both}
        topic = Topic("t", self.topic_id, {0: partition})
        self.leaders.follow(Image(brokers=brokers, topics={self.topic_id: topic}, topic_ids={"t": self.topic_id}))
        CopiedPartition(store, AT, self.topic_id, Rules(), of_node(NODE))
        self.leaders.lead(AT, self.topic_id, partition)

    def lead(self, epoch):
        self.changed.clear()
        self.leaders.lead(AT, self.topic_id, self.partition._replace(leader_epoch=epoch, partition_epoch=epoch))

    def wait(self):
        """What a producer sees that waits for the first record since the first epoch."""
        return self.leaders.is_replicated(AT, EPOCH, 1)

    def state(self):
        return self.store.logs.reader("t", 0).state()


@pytest.fixture
def led(tmp_path):
    with FolderStore.open_or_create(tmp_path / "store") as store:
        yield Led(store)


def test_the_high_watermark_is_noted_before_the_log_wakes_what_waits(led, monkeypatch):
    led.store.append("t", rows(b"a"))
    state, found, raise_at_once = led.state(), [], Turnstile.raise_at_once

    def raised(writer, mark):
        found.append(led.leaders.is_replicated(AT, EPOCH, state.next_offset))
        return raise_at_once(writer, mark)

    monkeypatch.setattr(Turnstile, "raise_at_once", raised)
    assert led.leaders.is_replicated(AT, EPOCH, state.next_offset) is None
    assert led.leaders.fetched(AT, Fetched(FOLLOWER, BROKER_EPOCH, state.next_offset, 0), state)
    assert found == [ErrorCode.NONE]
    assert led.state().high_watermark == state.next_offset == 1


def test_an_answer_of_the_controllers_meets_a_topic_that_was_just_deleted(led):
    TopicAdmin(led.store.logs).delete("t")
    of, answer = AlterPartitionRequest, AlterPartitionResponse
    request = of(NODE, BROKER_EPOCH, [of.TopicData(led.topic_id, [of.PartitionData(0)])])
    led.leaders.answered(request, answer(topics=[answer.TopicData(led.topic_id, [answer.PartitionData(0)])]))
    assert list(led.leaders.leads()) == [AT]


def test_a_new_epoch_of_the_same_leader_is_nothing_to_what_waits_for_followers(led):
    """A producer without sequences would write its records twice."""
    led.store.append("t", rows(b"a"))
    led.lead(EPOCH + 1)
    assert led.wait() is None
    assert led.changed == [None]
    assert led.leaders.fetched(AT, Fetched(FOLLOWER, BROKER_EPOCH, 1, 0), led.state())
    assert led.wait() == ErrorCode.NONE
    led.leaders.resign(AT)
    led.lead(EPOCH + 2)
    assert led.wait() == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_that_cannot_be_led_in_a_new_epoch_is_led_no_more(led, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "no disk")

    monkeypatch.setattr(leaders, "begin_to_lead", fail)
    with pytest.raises(OSError, match="no disk"):
        led.lead(EPOCH + 1)
    assert led.leaders.epoch(AT) is None
    with pytest.raises(PartitionOwnedError):
        led.store.append("t", rows(b"a"))


def test_what_another_thread_notes_meanwhile_is_proposed_later(led):
    class Meanwhile(set):
        """The thread that asks the controllers comes between a look at the set and what is added to it."""

        def add(self, at):
            led.leaders.proposals(BROKER_EPOCH)
            super().add(at)

    led.leaders._dirty = Meanwhile()
    led.partition = led.partition._replace(isr=(NODE,))
    led.lead(EPOCH + 1)
    assert led.leaders._dirty == {AT}
