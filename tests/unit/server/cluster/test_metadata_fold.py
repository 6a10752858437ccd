"""Records of a cluster's metadata become images: each kind, transactions, snapshots, and what is refused."""

import random
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log.kafka import MessageError
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.errors import UnknownRecordError
from pyspark_log.server.cluster.batches import read_batches
from pyspark_log.server.cluster.draft import _APPLY
from pyspark_log.server.cluster.errors import MetadataError
from pyspark_log.server.cluster.fold import Fold, differing
from pyspark_log.server.cluster.image import LOST, MIGRATING, START, Image, Position, Resource
from tests.message_values import all_records
from tests.metadata_tools import Scribe, batch_of, batch_of_values, control_batch, records_of

ID, DIR = b"t" * 16, b"d" * 16
TOPIC = m.TopicRecord("t", ID)
PARTITION = m.PartitionRecord(0, ID, [1, 2, 3], [1, 2], [], [3], 1, 0, 5, 7, [DIR, MIGRATING, LOST], [3], None)
BROKER = m.RegisterBrokerRecord(
    1, False, b"i" * 16, 40, [m.RegisterBrokerRecord.BrokerEndpoint("PLAINTEXT", "h", 9092, 0)],
    [m.RegisterBrokerRecord.BrokerFeature("metadata.version", 7, 30)], "r1", True, False, [DIR],
)  # fmt: skip
_NO_END = 1 << 60


def folded(*batches, fold=None):
    """The fold after some batches, each a list of records."""
    fold = fold or Fold()
    for values in batches:
        offset = fold.position.offset + 1
        fold.apply(read_batches(batch_of(values, offset), offset, _NO_END)[0])
    return fold


def image_of(*values):
    return folded(values).image


def partition_of(*values):
    return image_of(TOPIC, PARTITION, *values).topics[ID].partitions[0]


# ---- each kind of record


def test_each_type_of_record_has_its_rule():
    transactions = {"BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"}
    assert set(_APPLY) == {name for name, _ in all_records()} - transactions


def test_features():
    image = image_of(m.FeatureLevelRecord("a", 3), m.FeatureLevelRecord("b", 1), m.FeatureLevelRecord("b", 0))
    assert image.features == {"a": 3}


def test_a_broker_is_registered_changed_and_gone():
    fold = folded([BROKER])
    broker = fold.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.rack, broker.log_dirs) == (40, True, "r1", (DIR,))
    assert broker.cordoned_log_dirs is None
    assert broker.endpoints == (("PLAINTEXT", "h", 9092, 0),)
    assert broker.features == {"metadata.version": (7, 30)}
    change = m.BrokerRegistrationChangeRecord
    folded([change(1, 40, -1, 1), change(1, 40, cordoned_log_dirs=[DIR])], fold=fold)
    changed = fold.image.brokers[1]
    assert changed == broker._replace(fenced=False, in_controlled_shutdown=True, cordoned_log_dirs=(DIR,))
    folded([change(1, 40, 1, log_dirs=[b"e" * 16], cordoned_log_dirs=[])], fold=fold)
    assert fold.image.brokers[1] == changed._replace(fenced=True, log_dirs=(b"e" * 16,), cordoned_log_dirs=())
    folded([m.UnfenceBrokerRecord(1, 40)], fold=fold)
    assert not fold.image.brokers[1].fenced
    folded([m.FenceBrokerRecord(1, 40)], fold=fold)
    assert fold.image.brokers[1].fenced
    folded([m.UnregisterBrokerRecord(1, 40)], fold=fold)
    assert fold.image.brokers == {}


def test_a_partition_as_it_is():
    assert partition_of() == (
        (1, 2, 3), (DIR, MIGRATING, LOST), (1, 2), (3,), (), (), (3,), 1, False, 5, 7,
    )  # fmt: skip
    assert partition_of().directory_of(3) == LOST
    old = PARTITION._replace(directories=[], eligible_leader_replicas=None, leader_recovery_state=1)
    found = partition_of(old)
    assert (found.directories, found.elr, found.is_recovering) == ((MIGRATING,) * 3, (), True)


def test_a_change_of_a_partition_moves_its_epoch_and_an_election_the_leaders():
    of = partition_of()
    changed = partition_of(m.PartitionChangeRecord(0, ID, isr=[1]))
    assert changed == of._replace(isr=(1,), partition_epoch=8)
    for leader in (-1, 1, 2):  # the same leader can be elected again
        elected = partition_of(m.PartitionChangeRecord(0, ID, leader=leader))
        assert elected == of._replace(leader=leader, leader_epoch=6, partition_epoch=8)
    everything = m.PartitionChangeRecord(
        0, ID, [4], 4, [4, 5], [5], [], 1, [DIR, DIR], [5], [1],
    )  # fmt: skip
    assert partition_of(everything) == (
        (4, 5), (DIR, DIR), (4,), (5,), (1,), (5,), (), 4, True, 6, 8,
    )  # fmt: skip
    assert not partition_of(everything, m.PartitionChangeRecord(0, ID, leader_recovery_state=0)).is_recovering
    unsaid = partition_of(PARTITION._replace(directories=[]), m.PartitionChangeRecord(0, ID, replicas=[1, 2]))
    assert unsaid.directories == (MIGRATING,) * 2


def test_elrs_are_cleared_by_name_or_all():
    other = [m.TopicRecord("u", b"u" * 16), PARTITION._replace(topic_id=b"u" * 16)]
    for name, left in (("t", (3,)), ("", ())):
        image = image_of(TOPIC, PARTITION, *other, m.ClearElrRecord(name))
        assert image.topics[ID].partitions[0].elr == ()
        assert image.topics[ID].partitions[0].partition_epoch == 8
        assert image.topics[b"u" * 16].partitions[0].elr == left
    without = PARTITION._replace(eligible_leader_replicas=None)
    assert image_of(TOPIC, without, m.ClearElrRecord("t")).topics[ID].partitions[0].partition_epoch == 7


def test_a_topic_is_gone_with_its_configs_and_its_name_is_free():
    config = m.ConfigRecord(2, "t", "retention.ms", "1")
    fold = folded([TOPIC, PARTITION, config, m.ConfigRecord(4, "1", "x", "y")])
    assert fold.image.topic("t").id == ID
    folded([m.RemoveTopicRecord(ID)], fold=fold)
    assert (fold.image.topics, fold.image.topic_ids, fold.image.topic("t")) == ({}, {}, None)
    assert fold.image.configs == {Resource(4, "1"): {"x": "y"}}
    # A new topic may take the name before the old one is gone, in a log that was put together so.
    image = image_of(TOPIC, m.TopicRecord("t", b"n" * 16), m.RemoveTopicRecord(ID))
    assert image.topic("t").id == b"n" * 16


def test_configs_and_quotas_are_set_and_taken_away():
    config = m.ConfigRecord
    gone = config(2, "t", "a", "1"), config(2, "t", "a", None)
    image = image_of(config(2, "t", "b", ""), *gone, config(4, "", "c", "x"))
    assert image.configs == {(2, "t"): {"b": ""}, (4, ""): {"c": "x"}}
    assert image_of(*gone).configs == {}
    quota, part = m.ClientQuotaRecord, m.ClientQuotaRecord.EntityData
    pair = [part("user", "u"), part("client-id", None)]
    image = image_of(quota(pair, "p", 1.5, False), quota(pair[::-1], "q", 2, False), quota(pair, "p", 0, True))
    assert image.quotas == {(("client-id", None), ("user", "u")): {"q": 2.0}}
    assert image_of(quota(pair, "p", 0, False), quota(pair, "p", 0, True)).quotas == {}


def test_what_is_kept_as_its_record():
    scram = m.UserScramCredentialRecord("u", 1, b"s", b"k", b"v", 4096)
    acl = m.AccessControlEntryRecord(b"a" * 16, 2, "t", 3, "User:u", "*", 3, 3)
    token = m.DelegationTokenRecord("User:u", "User:u", [], 1, 2, 3, "id")
    controller = m.RegisterControllerRecord(3000, ID, False, [], [])
    fold = folded([scram, acl, token, controller, m.ProducerIdsRecord(1, 40, 2000)])
    image = fold.image
    assert image.scram == {("u", 1): scram}
    assert image.acls == {b"a" * 16: acl}
    assert image.tokens == {"id": token._replace(renewers=())}
    assert image.controllers == {3000: controller._replace(end_points=(), features=())}
    assert image.next_producer_id == 2000
    gone = [m.RemoveUserScramCredentialRecord("u", 1), m.RemoveAccessControlEntryRecord(b"a" * 16)]
    folded([*gone, m.RemoveDelegationTokenRecord("id")], fold=fold)
    assert (fold.image.scram, fold.image.acls, fold.image.tokens) == ({}, {}, {})


def test_records_that_say_nothing():
    image = image_of(m.NoOpRecord(), m.ZkMigrationStateRecord(0))
    assert image == replace(Image(), position=Position(1, 1))


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (PARTITION, "of the topic with id 7474.* changes, but there is no such topic"),
        (m.PartitionChangeRecord(0, ID), "of the topic with id 7474.* changes, but there is no such topic"),
        (m.RemoveTopicRecord(ID), "with id 7474.* is deleted, but there is none"),
        (m.ClearElrRecord("t"), "the ELR of topic 't' is cleared, but there is no such topic"),
        (m.RemoveAccessControlEntryRecord(ID), "the ACL with id 7474.* is deleted, but there is none"),
        (m.FenceBrokerRecord(1, 40), "broker 1 with epoch 40 changes, but no such broker is registered"),
        (m.UnfenceBrokerRecord(1, 40), "broker 1 with epoch 40 changes, but no such broker is registered"),
        (m.BrokerRegistrationChangeRecord(1, 40), "broker 1 with epoch 40 changes, but no such broker is registered"),
        (m.EndTransactionRecord(), "ends that has not begun"),
        (m.AbortTransactionRecord(), "ends that has not begun"),
    ],
)
def test_what_does_not_follow_is_refused(record, why):
    with pytest.raises(MetadataError, match=why):
        image_of(record)


def test_what_contradicts_is_refused():
    with pytest.raises(MetadataError, match="broker 1 with epoch 41 changes, but its epoch is 40"):
        image_of(BROKER, m.BrokerRegistrationChangeRecord(1, 41, -1))
    with pytest.raises(MetadataError, match=r"partition 3 of the topic with id 7474.* changes, but it is not there"):
        image_of(TOPIC, PARTITION, m.PartitionChangeRecord(3, ID))
    with pytest.raises(MetadataError, match="3 replicas in 1 log dirs"):
        image_of(TOPIC, PARTITION._replace(directories=[DIR]))
    with pytest.raises(MetadataError, match="begins in another one"):
        image_of(m.BeginTransactionRecord(), m.BeginTransactionRecord())


# ---- bytes


def test_batches_are_read_up_to_an_offset():
    data = batch_of([TOPIC, PARTITION], 10, 3) + control_batch(12, 4) + batch_of([m.NoOpRecord()], 13, 4)
    batches, size = read_batches(data, 10, _NO_END)
    assert [one[:3] for one in batches] == [(10, 11, 3), (12, 12, 4), (13, 13, 4)]
    assert [one.name for batch in batches for one in batch.records] == ["TopicRecord", "PartitionRecord", "NoOpRecord"]
    assert size == len(data)
    for end, count in ((10, 0), (11, 0), (12, 1), (13, 2), (14, 3)):
        assert len(read_batches(data, 10, end)[0]) == count
    # A part of a batch that is there already is left out, and so is what is not there as a whole.
    assert [one[:3] for one in read_batches(data, 11, 13)[0]] == [(11, 11, 3), (12, 12, 4)]
    assert read_batches(data, 11, 12)[0][0].records[0].name == "PartitionRecord"
    assert len(read_batches(data[:-1], 10, _NO_END)[0]) == 2
    assert read_batches(b"", 0, _NO_END) == ([], 0)


def test_a_record_that_is_not_known_is_not_skipped():
    data = bytearray(batch_of([m.NoOpRecord()], 0))
    unknown = batch_of([m.ZkMigrationStateRecord(1)], 0)
    assert read_batches(unknown, 0, _NO_END)[0][0].records[0].value.zk_migration_state == 1
    with pytest.raises(UnknownRecordError):
        read_batches(batch_of_values([b"\1\x7f\0"], 0), 0, _NO_END)
    with pytest.raises(MessageError):
        read_batches(batch_of_values([None], 0), 0, _NO_END)
    data[-3] ^= 1
    with pytest.raises(Exception, match="CRC"):
        read_batches(data, 0, _NO_END)


# ---- steps


def test_an_image_never_changes():
    fold = folded([TOPIC, PARTITION, BROKER, m.ConfigRecord(2, "t", "a", "1")])
    image, before = fold.image, repr(fold.image)
    records = [
        m.PartitionChangeRecord(0, ID, isr=[1]), PARTITION._replace(partition_id=1), m.ConfigRecord(2, "t", "a", "2"),
        m.UnregisterBrokerRecord(1, 40), m.RemoveTopicRecord(ID),
    ]  # fmt: skip
    for one in records:
        change = fold.apply(read_batches(batch_of([one], fold.position.offset + 1), 0, _NO_END)[0])
        assert change.after is fold.image
    assert repr(image) == before
    assert fold.image.topics == {}


def test_what_is_the_same_is_shared():
    fold = folded([TOPIC, PARTITION, BROKER])
    before = fold.image
    other = b"u" * 16
    change = fold.apply(read_batches(batch_of([m.TopicRecord("u", other)], 3), 3, _NO_END)[0])
    assert set(change.topics) == {other}
    assert change.after.topics[ID] is before.topics[ID]
    same = {one.name for one in fields(Image) if getattr(change.after, one.name) is getattr(before, one.name)}
    assert same == {one.name for one in fields(Image)} - {"position", "topics", "topic_ids"}


def test_a_transaction_is_applied_when_it_ends():
    fold = folded([BROKER], [m.BeginTransactionRecord("x"), TOPIC], [PARTITION])
    assert (fold.image.topics, fold.image.position) == ({}, Position(0, 1))
    assert fold.position == Position(3, 1)
    change = fold.apply(read_batches(batch_of([m.EndTransactionRecord()], 4), 4, _NO_END)[0])
    assert set(change.topics) == set(fold.image.topics) == {ID}
    assert fold.image.position == fold.position == Position(4, 1)


def test_a_transaction_that_is_aborted_was_never_there():
    fold = folded([BROKER, m.BeginTransactionRecord(), TOPIC])
    assert (fold.image.position, set(fold.image.brokers)) == (Position(0, 1), {1})
    folded([m.AbortTransactionRecord("why"), m.FeatureLevelRecord("a", 1)], fold=fold)
    assert (fold.image.topics, fold.image.features) == ({}, {"a": 1})
    assert fold.image.position == Position(4, 1)


def test_a_snapshot_replaces_everything_and_what_differs_is_found():
    gone, same = b"g" * 16, b"s" * 16
    fold = folded(
        [TOPIC, PARTITION, m.TopicRecord("gone", gone), m.TopicRecord("same", same), BROKER],
        [m.BeginTransactionRecord(), m.FeatureLevelRecord("x", 1)],
    )
    new = [TOPIC, PARTITION._replace(isr=[1]), m.TopicRecord("same", same), m.TopicRecord("new", b"n" * 16)]
    data = control_batch(0) + batch_of(new, 1) + control_batch(5)
    change = fold.load(read_batches(data, 0, _NO_END)[0], Position(70, 9))
    assert set(change.topics) == {ID, gone, b"n" * 16}
    assert fold.image.brokers == {}
    assert fold.image.position == fold.position == Position(70, 9)
    folded([m.FeatureLevelRecord("y", 1)], fold=fold)  # the transaction is forgotten
    assert fold.image.features == {"y": 1}
    with pytest.raises(MetadataError, match="a snapshot of the cluster's metadata ends in a transaction"):
        fold.load(read_batches(batch_of([m.BeginTransactionRecord()], 0), 0, _NO_END)[0], Position(80, 9))


def test_what_differs_between_mappings():
    assert sorted(differing({1: "a", 2: "b", 3: "c"}, {1: "a", 2: "x", 4: "d"})) == [2, 3, 4]
    one = {1: "a"}
    assert differing(one, one) == differing(one, dict(one)) == []


@given(st.integers(0, 2**32))
def test_the_image_does_not_depend_on_how_it_came_about(seed):
    """Record by record, in one piece, from any snapshot, and from bytes cut anywhere: the same image."""
    chance = random.Random(seed)
    scribe, batches, offset = Scribe(chance), [], 0
    for _ in range(chance.randint(1, 25)):
        values = scribe.batch(offset)
        batches.append(batch_of(values, offset))
        offset += len(values)
        scribe.finish()
    data = b"".join(batches)
    whole = Fold()
    whole.apply(read_batches(data, 0, _NO_END)[0])
    fold, at, snapshot = Fold(), 0, chance.randrange(offset)
    while fold.position.offset < offset - 1:
        end = chance.randint(0, offset)
        found, size = read_batches(data[at : at + chance.randint(0, 2000)], fold.position.offset + 1, end)
        fold.apply(found)
        at += size
        if fold.position.offset >= snapshot:
            taken, fold, snapshot = fold.image, Fold(), offset
            loaded = read_batches(batch_of(records_of(taken), 0), 0, _NO_END)[0]
            fold.load(loaded, taken.position)
            assert fold.image == taken
    assert fold.image == whole.image
    assert START != whole.image.position == Position(offset - 1, 1)
