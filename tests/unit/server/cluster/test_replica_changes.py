"""What a change of the image means for the replicas of a broker."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log.errors import CorruptRecordError
from pyspark_log.kafka import messages as m
from pyspark_log.server.cluster.batches import read_batches
from pyspark_log.server.cluster.fold import Fold
from pyspark_log.server.cluster.image import Position
from tests.metadata_tools import Scribe, batch_of, records_of
from tests.replica_changes import Action, replica_changes, replicas_of

ID = b"t" * 16
TOPIC = m.TopicRecord("t", ID)
#: Broker 1 follows 2.
FOLLOWS = m.PartitionRecord(0, ID, [2, 1, 3], [2, 1, 3], [], [], 2, 0, 5, 7, [bytes(16)] * 3)
_NO_END = 1 << 60


def change_of(fold, *values):
    offset = fold.position.offset + 1
    return fold.apply(read_batches(batch_of(values, offset), offset, _NO_END)[0])


def actions(*values, before=(TOPIC, FOLLOWS)):
    """What broker 1 does after some records."""
    fold = Fold()
    change_of(fold, *before)
    return [one.action for one in replica_changes(change_of(fold, *values), 1)]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (m.PartitionChangeRecord(0, ID, leader=1), [Action.LEAD]),
        (m.PartitionChangeRecord(0, ID, leader=3), [Action.FOLLOW]),
        (m.PartitionChangeRecord(0, ID, leader=2), [Action.FOLLOW]),  # in a new epoch
        (m.PartitionChangeRecord(0, ID, leader=-1), [Action.FOLLOW]),
        (m.PartitionChangeRecord(0, ID, isr=[2]), [Action.UPDATE]),
        (m.PartitionChangeRecord(0, ID, directories=[b"d" * 16] * 3), [Action.UPDATE]),
        (m.PartitionChangeRecord(0, ID, replicas=[2, 3], directories=[bytes(16)] * 2), [Action.STOP]),
        (m.RemoveTopicRecord(ID), [Action.DELETE]),
        (FOLLOWS._replace(partition_id=1), [Action.FOLLOW]),
        (FOLLOWS._replace(partition_id=1, leader=1), [Action.LEAD]),
        (FOLLOWS._replace(partition_id=1, replicas=[2, 3, 4]), []),
        (m.NoOpRecord(), []),
        (FOLLOWS, []),  # the same again
    ],
)
def test_a_record_for_a_follower(record, expected):
    assert actions(record) == expected


def test_a_reassignment_to_the_broker():
    elsewhere = FOLLOWS._replace(replicas=[2, 3, 4])
    added = m.PartitionChangeRecord(0, ID, replicas=[2, 3, 1], directories=[bytes(16)] * 3)
    assert actions(added, before=(TOPIC, elsewhere)) == [Action.FOLLOW]
    assert actions(added._replace(leader=1), before=(TOPIC, elsewhere)) == [Action.LEAD]


def test_a_leader_that_is_elected_again_leads_in_a_new_epoch():
    leads = FOLLOWS._replace(leader=1)
    assert actions(m.PartitionChangeRecord(0, ID, leader=1), before=(TOPIC, leads)) == [Action.LEAD]
    assert actions(m.PartitionChangeRecord(0, ID, isr=[1]), before=(TOPIC, leads)) == [Action.UPDATE]


def test_a_change_says_what_was_and_what_is():
    fold = Fold()
    begun = replica_changes(change_of(fold, TOPIC, FOLLOWS), 1)
    assert [(one.topic, one.topic_id, one.number, one.before) for one in begun] == [("t", ID, 0, None)]
    (led,) = replica_changes(change_of(fold, m.PartitionChangeRecord(0, ID, leader=1)), 1)
    assert (led.before, led.after.leader, led.after.leader_epoch) == (begun[0].after, 1, 6)
    (gone,) = replica_changes(change_of(fold, m.RemoveTopicRecord(ID)), 1)
    assert (gone.before, gone.after) == (led.after, None)


def test_what_is_given_up_comes_first_so_that_its_name_is_free():
    new = b"n" * 16
    records = [m.RemoveTopicRecord(ID), m.TopicRecord("t", new), FOLLOWS._replace(topic_id=new)]
    assert actions(*records) == [Action.DELETE, Action.FOLLOW]


def test_a_topic_that_came_and_went_in_one_step_is_nothing():
    assert actions(TOPIC, FOLLOWS, m.RemoveTopicRecord(ID), before=(m.NoOpRecord(),)) == []


@given(st.integers(0, 2**32))
def test_a_broker_that_follows_each_change_has_its_replicas(seed):
    """Over any steps, among them snapshots: what is there, in which role and epoch, is what the image says."""
    chance = random.Random(seed)
    scribe, fold = Scribe(chance), Fold()
    held = {}
    for _ in range(chance.randint(1, 20)):
        if chance.random() < 0.2:
            loaded, rest = Fold(), records_of(fold.image)
            for _ in range(chance.randint(0, 3)):
                rest += scribe.batch(len(rest))
            loaded.apply(read_batches(batch_of(rest, 0), 0, _NO_END)[0])
            data = batch_of(records_of(loaded.image), 0)
            position = Position(fold.position.offset + 10, 1)
            change = fold.load(read_batches(data, 0, _NO_END)[0], position)
        else:
            offset = fold.position.offset + 1
            values = [one for _ in range(chance.randint(1, 3)) for one in scribe.batch(offset)]
            change = change_of(fold, *values)
        scribe.finish()
        for one in replica_changes(change, 1):
            key = one.topic_id, one.number
            assert held.get(key) == one.before
            match one.action:
                case Action.DELETE | Action.STOP:
                    del held[key]
                    assert (one.action is Action.DELETE) == (one.topic_id not in change.after.topics)
                    continue
                case Action.UPDATE:
                    assert (held[key].leader, held[key].leader_epoch) == (one.after.leader, one.after.leader_epoch)
                case Action.LEAD:
                    assert one.after.leader == 1
                case Action.FOLLOW:
                    assert one.after.leader != 1
            held[key] = one.after
        assert held == {(one.topic_id, one.number): one.partition for one in replicas_of(fold.image, 1)}


def test_a_damaged_batch_of_metadata_is_not_read():
    data = bytearray(batch_of([TOPIC], 0))
    data[30] ^= 1  # its time, which only the checksum covers
    with pytest.raises(CorruptRecordError):
        read_batches(data, 0, _NO_END)
