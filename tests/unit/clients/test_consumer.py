"""The consumer: what it hands out, its positions, and its partitions; on a store of either kind."""

import itertools
import pickle

import pyarrow as pa
import pytest

from pyspark_log import Consumer, ConsumerRecord, Producer, Store, TopicPartition
from pyspark_log.clients import ConsumerRebalanceListener
from pyspark_log.clients.consuming import fetching
from pyspark_log.errors import (
    InvalidConfigError,
    InvalidTopicError,
    NoOffsetError,
    OffsetOutOfRangeError,
    PublishPendingError,
    ReadOnlyError,
    UnknownTopicError,
)
from pyspark_log.types import OffsetAndTimestamp
from tests.store_tools import new_store, open_files, rows, stage

PATIENCE_MS = 120_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def store(place):
    store = Store.create(place, {"offsets.topic.num.partitions": "1"})
    store.create_topic("t", 2, {"retention.ms": "-1"})
    return store


@pytest.fixture
def consumer(store):
    with Consumer(store, auto_offset_reset="earliest", metadata_max_age_ms=0) as consumer:
        yield consumer


def fill(store, count, partition=0, first=0, topic="t"):
    store.append(topic, rows(*(b"%d" % number for number in range(first, first + count))), partition=partition)


def values(polled):
    return {at: [record.value for record in records] for at, records in polled.items()}


def offsets(records):
    return [record.offset for record in records]


# ---- what is handed out


def test_all_of_a_record_is_there(store):
    with Producer(store) as producer:
        sent = {"key": b"k", "headers": [("a", b"1"), ("a", None), ("ä", b"")], "timestamp_ms": 1_700_000_000_123}
        producer.send("t", b"v", partition=1, **sent)
        producer.send("t", None, partition=1, timestamp_ms=5)
        producer.send("t", b"", key=b"", partition=1, timestamp_ms=6)
    with Consumer(store, "t", auto_offset_reset="earliest") as consumer:
        consumer.stop_at()
        first, second, third = consumer
    assert (first.topic, first.partition, first.offset, first.timestamp, first.timestamp_type) == (
        "t", 1, 0, 1_700_000_000_123, 0,
    )  # fmt: skip
    assert (first.key, first.value, first.headers) == (b"k", b"v", [("a", b"1"), ("a", None), ("ä", b"")])
    assert (second.key, second.value, second.headers, second.timestamp) == (None, None, [], 5)
    assert (third.key, third.value, third.headers) == (b"", b"", [])
    assert (
        first
        == pickle.loads(pickle.dumps(first))
        == ConsumerRecord("t", 1, 0, 1_700_000_000_123, 0, b"k", b"v", first.headers)
    )
    assert first not in (second, "first")
    assert len({first, pickle.loads(pickle.dumps(first)), second}) == 2
    assert eval(repr(first)) == first


def test_iterating_polling_and_batches_continue_each_other(store, consumer):
    fill(store, 1000)
    consumer.assign([T0])
    assert offsets(next(consumer) for _ in range(3)) == [0, 1, 2]
    assert consumer.position(T0) == 3
    assert offsets(consumer.poll(max_records=5)[T0]) == [3, 4, 5, 6, 7]
    assert next(iter(consumer)).offset == 8
    assert (consumer.position(T0), consumer.lag(T0)) == (9, 991)
    batch = consumer.poll_arrow()
    assert batch.schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert batch["offset"].to_pylist() == list(range(9, 1000))
    assert batch["value"].to_pylist()[0] == b"9"
    assert (consumer.position(T0), consumer.lag(T0)) == (1000, 0)
    assert (consumer.poll(), consumer.poll_arrow()) == ({}, None)
    fill(store, 2, first=1000)
    assert values(consumer.poll(PATIENCE_MS)) == {T0: [b"1000", b"1001"]}


def test_a_poll_has_so_many_records_of_several_partitions(store, consumer):
    for partition in (0, 1):
        fill(store, 700, partition)
    consumer.assign([T0, T1])
    polls = []
    while polled := consumer.poll():
        polls.append(sum(map(len, polled.values())))
    assert polls == [500, 500, 400]
    with pytest.raises(InvalidConfigError, match="max_records 0"):
        consumer.poll(max_records=0)


def test_a_batch_of_several_partitions(store, consumer):
    for partition in (0, 1):
        fill(store, 3, partition, first=10 * partition)
    consumer.assign([T0, T1])
    batch = consumer.poll_arrow(max_bytes=10_000, headers=True)
    assert isinstance(batch, pa.RecordBatch)
    found = sorted(zip(*(batch[name].to_pylist() for name in ("partition", "offset", "value")), strict=True))
    assert found == [(0, 0, b"0"), (0, 1, b"1"), (0, 2, b"2"), (1, 0, b"10"), (1, 1, b"11"), (1, 2, b"12")]
    assert batch.schema.names[-1] == "headers"
    consumer.seek_to_beginning()
    assert {consumer.poll_arrow(max_bytes=1).num_rows for _ in range(2)} == {3}


def test_a_batch_is_no_larger_than_arrow_allows(store, monkeypatch):
    monkeypatch.setattr(fetching, "_MOST_JOINED", 250_000)
    for number in range(10):
        store.append("t", rows(b"%d" % number * 100_000), partition=number % 2)
    sizes = []
    with Consumer(store, auto_offset_reset="earliest", max_partition_fetch_bytes=1) as consumer:
        consumer.assign([T0, T1])
        while (batch := consumer.poll_arrow(max_bytes=1 << 40)) is not None:
            sizes.append(batch.num_rows)
            assert sum(consumer.position(at) for at in (T0, T1)) == sum(sizes)
    assert sizes == [2] * 5


def test_few_files_are_open_however_many_partitions(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_MOST_OPEN", 3, raising=False)
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 20)
        for number in range(60):
            store.append("t", rows(b"%02d" % number * 10_000), partition=number % 20)
    found, most = {}, 0
    with Store.open(store.path) as store, Consumer(
        store, "t", auto_offset_reset="earliest", max_partition_fetch_bytes=1
    ) as consumer:  # fmt: skip
        while polled := consumer.poll(max_records=1):
            for at, [record] in polled.items():
                found.setdefault(at.partition, []).append(int(record.value[:2]))
            most = max(most, open_files(store.path))
    assert found == {number: [number, number + 20, number + 40] for number in range(20)}
    assert most <= 5


def test_partitions_take_turns(store):
    for number in range(20):
        for partition in (0, 1):
            fill(store, 10, partition, first=10 * number)
    with Consumer(store, "t", auto_offset_reset="earliest", max_partition_fetch_bytes=1) as consumer:
        consumer.stop_at()
        turns = [record.partition for record in consumer]
    assert len(turns) == 400
    changes = sum(one != other for one, other in itertools.pairwise(turns))
    assert changes == 39


def test_all_up_to_now_and_no_more(store, consumer):
    fill(store, 5)
    fill(store, 5, 1)
    consumer.subscribe(["t"])
    consumer.stop_at()
    fill(store, 5)
    store.add_partitions("t", 3)
    fill(store, 5, 2)
    assert len(list(consumer)) == 10
    assert consumer.is_finished
    assert (list(consumer), consumer.poll(PATIENCE_MS), consumer.poll_arrow(PATIENCE_MS)) == ([], {}, None)
    consumer.assign({T0: 2, T1: 1})
    assert consumer.assignment() == {T0, T1}
    consumer.stop_at({T0: 4})
    assert offsets(consumer) == [2, 3]
    assert (consumer.position(T1), consumer.is_finished) == (1, True)
    consumer.stop_at({T0: 9})
    assert offsets(consumer) == [4, 5, 6, 7, 8]
    with pytest.raises(InvalidConfigError, match="t-2 is not assigned"):
        consumer.stop_at({TopicPartition("t", 2): 1})


def test_iterating_ends_when_nothing_has_come_for_a_while(store):
    fill(store, 3)
    with Consumer(store, "t", auto_offset_reset="earliest", consumer_timeout_ms=1) as consumer:
        assert offsets(consumer) == [0, 1, 2]
        fill(store, 1)
        assert offsets(consumer) == [3]


def test_closing_ends_an_iteration(store, consumer):
    fill(store, 3)
    consumer.assign([T0])
    for record in consumer:
        if record.offset == 1:
            consumer.close()
    assert record.offset == 1
    consumer.close()
    for call in (consumer.poll, consumer.poll_arrow, consumer.unsubscribe, consumer.seek_to_end, consumer.stop_at):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert list(consumer) == []
    assert "closed" in repr(consumer)
    consumer.wakeup()


# ---- positions


def test_where_reading_begins(store):
    fill(store, 3)
    for reset, position in (("earliest", 0), ("latest", 3)):
        with Consumer(store, "t", auto_offset_reset=reset) as consumer:
            assert consumer.position(T0) == position
    with Consumer(store, "t") as consumer:
        assert consumer.position(T0) == 3
        fill(store, 1)
        assert offsets(consumer.poll()[T0]) == [3]
    with Consumer(store, auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        for call in (lambda: consumer.position(T0), consumer.poll, lambda: next(consumer), consumer.poll_arrow):
            with pytest.raises(NoOffsetError, match=r"t-0: the consumer has no group.*call seek"):
                call()
        consumer.seek(T0, 2)
        assert offsets(consumer.poll()[T0]) == [2, 3]
    with pytest.raises(InvalidConfigError, match="auto_offset_reset 'smallest'"):
        Consumer(store, auto_offset_reset="smallest")


def test_seeking(store, consumer):
    fill(store, 10)
    consumer.assign([T0, T1])
    assert next(consumer).offset == 0
    consumer.seek(T0, 7)
    assert consumer.position(T0) == 7
    assert offsets(next(consumer) for _ in range(2)) == [7, 8]
    consumer.seek_to_beginning(T0)
    assert consumer.position(T0) == 0
    consumer.seek_to_end()
    assert (consumer.position(T0), consumer.position(T1), consumer.poll()) == (10, 0, {})
    with pytest.raises(InvalidConfigError, match="offset -1"):
        consumer.seek(T0, -1)
    other = TopicPartition("u", 0)
    for call in (lambda: consumer.seek(other, 0), lambda: consumer.position(other), lambda: consumer.pause(other)):
        with pytest.raises(InvalidConfigError, match="u-0 is not assigned"):
            call()


def test_pausing(store, consumer):
    for partition in (0, 1):
        fill(store, 3, partition)
    consumer.assign([T0, T1])
    first = next(consumer)
    one, other = (T0, T1) if first.partition == 0 else (T1, T0)
    consumer.pause(one)
    assert consumer.paused() == {one}
    assert values(consumer.poll()) == {other: [b"0", b"1", b"2"]}
    assert (consumer.poll(), consumer.position(one)) == ({}, 1)
    consumer.resume(one)
    assert (values(consumer.poll()), consumer.paused()) == ({one: [b"1", b"2"]}, set())


def test_questions_about_the_store(store, consumer):
    with Producer(store) as producer:
        for number in range(5):
            producer.send("t", b"v", partition=0, timestamp_ms=1000 + number)
    store.delete_records("t", 0, 2)
    assert consumer.beginning_offsets([T0, T1]) == {T0: 2, T1: 0}
    assert consumer.end_offsets([T0, T1]) == {T0: 5, T1: 0}
    assert consumer.offsets_for_times({T0: 1003, T1: 0}) == {T0: OffsetAndTimestamp(3, 1003), T1: None}
    assert (consumer.topics(), consumer.partitions_for_topic("t"), consumer.partitions_for_topic("u")) == (
        {"t"}, {0, 1}, None,
    )  # fmt: skip


def test_records_that_were_deleted_before_they_were_read(store, consumer, caplog):
    fill(store, 10)
    consumer.assign([T0])
    assert next(consumer).offset == 0
    store.delete_records("t", 0, 6)
    consumer.seek(T0, 1)
    assert offsets(consumer.poll()[T0]) == [6, 7, 8, 9]
    assert "t-0: the position 1 is out of range: the log holds offsets 6 to 10" in caplog.text
    assert "reading continues at 6: 5 offsets are skipped" in caplog.text


def test_all_records_were_deleted(store):
    fill(store, 10)
    with Consumer(store, "t", auto_offset_reset="none") as consumer:
        consumer.assign({T0: 3})
        store.delete_records("t", 0, 10)
        consumer.seek(T0, 3)
        with pytest.raises(OffsetOutOfRangeError, match=r"t-0: offset 3 .*10 to 10.*; call seek, or set auto_offset"):
            consumer.poll()
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll()
    with Consumer(store, auto_offset_reset="latest") as consumer:
        consumer.assign({T0: 3})
        assert consumer.poll() == {}
        assert consumer.position(T0) == 10


def test_a_position_beyond_the_end(store, caplog):
    fill(store, 3)
    with Consumer(store, auto_offset_reset="none") as consumer:
        consumer.assign({T0: 7})
        with pytest.raises(OffsetOutOfRangeError, match="offset 7 is out of range"):
            consumer.poll()
        consumer.seek(T0, 3)
        assert consumer.poll() == {}
    with Consumer(store, auto_offset_reset="earliest") as consumer:
        consumer.assign({T0: 7})
        assert offsets(consumer.poll()[T0]) == [0, 1, 2]
        assert "records may be read again" in caplog.text


# ---- which partitions


def test_assigning(store, consumer):
    fill(store, 3)
    consumer.assign([T0])
    assert next(consumer).offset == 0
    consumer.assign([T0, T1])
    assert (consumer.position(T0), consumer.assignment(), consumer.subscription()) == (1, {T0, T1}, set())
    consumer.assign([T1])
    assert (consumer.assignment(), consumer.poll()) == ({T1}, {})
    for unknown in (TopicPartition("t", 2), TopicPartition("u", 0)):
        with pytest.raises(UnknownTopicError):
            consumer.assign([unknown])
    assert consumer.assignment() == {T1}
    consumer.assign([])
    assert (consumer.assignment(), consumer.poll(), consumer.poll_arrow()) == (set(), {}, None)


def test_topics_and_partitions_that_come_later(store):
    with Consumer(store, "t", "later", metadata_max_age_ms=0) as consumer:
        fill(store, 1)
        assert values(consumer.poll()) == {T0: [b"0"]}
        store.add_partitions("t", 3)
        store.create_topic("later", 1)
        fill(store, 2, 2)
        fill(store, 2, topic="later")
        # They are new, so they are read from the start.
        assert values(consumer.poll()) == {
            TopicPartition("t", 2): [b"0", b"1"], TopicPartition("later", 0): [b"0", b"1"],
        }  # fmt: skip
        assert consumer.subscription() == {"t", "later"}


def test_topics_that_match_a_pattern(store, consumer):
    store.create_topic("log-a", 1)
    consumer.subscribe(pattern="log-.*")
    assert (consumer.subscription(), consumer.assignment()) == ({"log-a"}, {TopicPartition("log-a", 0)})
    for name in ("log-b", "a-log-"):
        store.create_topic(name, 1)
        fill(store, 1, topic=name)
    assert values(consumer.poll()) == {TopicPartition("log-b", 0): [b"0"]}
    store.delete_topic("log-a")
    consumer.poll()
    assert (consumer.subscription(), consumer.assignment()) == ({"log-b"}, {TopicPartition("log-b", 0)})
    with pytest.raises(InvalidConfigError, match="expected names of topics, or a pattern"):
        consumer.subscribe()
    with pytest.raises(InvalidConfigError, match="no regular expression"):
        consumer.subscribe(pattern="log-(")
    with pytest.raises(InvalidTopicError):
        consumer.subscribe(["a/b"])


class Calls(ConsumerRebalanceListener):
    def __init__(self):
        self.calls = []

    def on_partitions_assigned(self, assigned):
        self.calls.append(("assigned", assigned))

    def on_partitions_revoked(self, revoked):
        self.calls.append(("revoked", revoked))

    def on_partitions_lost(self, lost):
        self.calls.append(("lost", lost))


def test_a_listener_is_called(store, consumer):
    store.create_topic("u", 1)
    listener, u0, u1 = Calls(), TopicPartition("u", 0), TopicPartition("u", 1)
    consumer.subscribe(["t", "u"], listener=listener)
    store.add_partitions("u", 2)
    consumer.poll()
    store.delete_topic("u")
    consumer.poll()
    fill(store, 2)
    assert next(consumer).offset == 0
    other = Calls()
    consumer.subscribe(["t"], listener=other)
    assert consumer.position(T0) == 1
    consumer.unsubscribe()
    assert listener.calls == [("assigned", {T0, T1, u0}), ("assigned", {u1}), ("lost", {u0, u1})]
    assert other.calls == [("revoked", {T0, T1})]
    with Consumer(store) as short:
        short.subscribe(["t"], listener=(third := Calls()))
    assert third.calls == [("assigned", {T0, T1}), ("revoked", {T0, T1})]


def test_a_topic_that_is_recreated_is_read_from_its_start(store, consumer):
    fill(store, 5)
    consumer.subscribe("t", listener=(listener := Calls()))
    assert len(consumer.poll()[T0]) == 5
    store.delete_topic("t")
    store.create_topic("t", 1)
    fill(store, 9, first=100)
    assert values(consumer.poll()) == {T0: [b"%d" % number for number in range(100, 109)]}
    assert [what for what, _ in listener.calls] == ["assigned", "lost", "assigned"]


def test_an_assigned_topic_that_is_recreated(store, consumer, caplog):
    fill(store, 5)
    consumer.assign([T0])
    assert next(consumer).offset == 0
    store.delete_topic("t")
    store.create_topic("t", 1)
    fill(store, 9, first=100)
    assert len(consumer.poll()[T0]) == 9
    assert "topic t was deleted and recreated" in caplog.text
    fill(store, 1, first=200)
    assert next(consumer).value == b"200"


def test_a_deleted_or_recreated_topic_is_found_when_it_is_read(store):
    store.create_topic("u", 1)
    fill(store, 2, topic="u")
    with Consumer(store, "t", "u", metadata_max_age_ms=PATIENCE_MS) as consumer:
        store.delete_topic("u")
        fill(store, 3)
        assert values(consumer.poll()) == {T0: [b"0", b"1", b"2"]}
        assert consumer.assignment() == {T0, T1}
        store.delete_topic("t")
        store.create_topic("t", 1)
        fill(store, 5, first=100)
        assert values(consumer.poll()) == {T0: [b"%d" % number for number in range(100, 105)]}


def test_a_recreated_topic_is_not_read_from_what_is_committed(store, consumer):
    fill(store, 2)
    with Consumer(store, group_id="g", auto_offset_reset="earliest") as member:
        member.assign([T0])
        assert len(member.poll()[T0]) == 2
        member.commit()
        store.delete_topic("t")
        store.create_topic("t", 1)
        fill(store, 3, first=100)
        assert values(member.poll()) == {T0: [b"100", b"101", b"102"]}


@pytest.mark.parametrize("group", [None, "g"])
def test_a_topic_that_is_missing_is_named(store, caplog, group):
    """Once until it is there, and again once it is deleted; its consumer shows it."""
    if group and "://" in store.path:
        pytest.skip("a group in an object store has no members")

    def said():
        return [record.getMessage() for record in caplog.records if "there is no topic" in record.getMessage()]

    store.create_topic("orders")
    with Consumer(
        store, "ordres", "orders", group_id=group, metadata_max_age_ms=0, auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(2):
            assert consumer.poll() == {}
        assert said() == ["there is no topic 'ordres' yet: nothing is read of it; did you mean 'orders'?"]
        assert "no topic 'ordres'" in repr(consumer)
        store.create_topic("ordres")
        fill(store, 1, topic="ordres")
        assert offsets(itertools.islice(consumer, 1)) == [0]
        assert "no topic" not in repr(consumer)
        store.delete_topic("ordres")
        consumer.poll()
        consumer.poll()
        assert len(said()) == 2


def test_an_assigned_topic_that_is_deleted_is_an_error(store, consumer):
    consumer.assign([T0])
    assert consumer.poll() == {}
    store.delete_topic("t")
    for _ in range(2):
        with pytest.raises(UnknownTopicError):
            consumer.poll(PATIENCE_MS)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("max_poll_records", 0), ("max_partition_fetch_bytes", 0), ("isolation_level", "none"), ("key_deserializer", 5)],
)
def test_arguments_that_are_refused(store, argument, value):
    with pytest.raises(InvalidConfigError):
        Consumer(store, **{argument: value})


# ---- committed offsets


def test_commits_by_hand(store):
    fill(store, 10)
    with Consumer(store, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.assign([T0, T1])
        assert consumer.committed(T0) is None
        consumer.poll(max_records=4)
        consumer.commit()
        assert (consumer.committed(T0), consumer.committed(T1)) == (4, 0)
        consumer.commit({T0: 2})
    with Consumer(store, group_id="g", auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        assert offsets(consumer.poll()[T0])[0] == 2
    assert {at: one.offset for at, one in store.groups["g"].committed().items()} == {T0: 10, T1: 0}
    with Consumer(store, group_id="new", auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        with pytest.raises(NoOffsetError, match=r"t-0: group 'new' has no committed offset.*none"):
            consumer.poll()


def test_a_poll_commits_what_the_one_before_has_handed_out(store):
    fill(store, 10)
    with Consumer(
        store, group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=0, max_poll_records=3
    ) as consumer:
        consumer.assign([T0])
        consumer.poll()
        assert consumer.committed(T0) == 0
        consumer.poll()
        assert consumer.committed(T0) == 3
        assert next(consumer).offset == 6
        assert consumer.committed(T0) == 6
        while consumer.committed(T0) == 6:
            fill(store, 1)
            last = next(consumer).offset
        # That one may not have been processed yet.
        assert consumer.committed(T0) == last
    assert store.groups["g"].committed()[T0].offset == last + 1


def test_what_may_not_have_been_processed_is_not_committed(store):
    fill(store, 10)
    settings = {"group_id": "g", "auto_offset_reset": "earliest"}

    def fail():
        with Consumer(store, **settings) as consumer:
            consumer.assign([T0])
            for record in consumer:
                assert record.offset < 5

    with pytest.raises(AssertionError):
        fail()
    assert T0 not in store.groups["g"].committed()
    with Consumer(store, **settings) as consumer:
        consumer.assign([T0])
        consumer.poll()
        consumer.close(autocommit=False)
    assert T0 not in store.groups["g"].committed()


def test_partitions_that_are_given_up_are_committed(store):
    fill(store, 10)
    with Consumer(store, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        consumer.poll(max_records=3)
        consumer.assign([T1])
        assert consumer.committed(T0) == 3


def test_offsets_of_a_consumer_that_waits_do_not_expire(store):
    fill(store, 3)
    with Consumer(store, group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=0) as consumer:
        consumer.assign([T0])
        consumer.poll()
        consumer.poll()
        store.groups["g"].delete_offsets([T0])
        consumer.poll()
        assert consumer.committed(T0) is None
        consumer._commits._log.retention_ms = 0
        consumer.poll()
        assert consumer.committed(T0) == 3


def test_a_publish_whose_process_has_died_is_finished(tmp_path, monkeypatch):
    store = new_store(tmp_path)
    staged = stage(store, rows(b"v"))
    with monkeypatch.context() as broken:
        broken.setattr("pyspark_log.storage.publish.publishing.apply_decision", fail)
        with pytest.raises(PublishPendingError):
            store.publishes.publish("p", 0, staged)
    with Consumer(store, auto_offset_reset="earliest", metadata_max_age_ms=0) as consumer:
        consumer.assign([T0])
        assert values(consumer.poll(PATIENCE_MS)) == {T0: [b"v"]}


def fail(*_, **__):
    raise OSError("no space")


def test_what_needs_a_group(store, consumer):
    for call in (consumer.commit, lambda: consumer.committed(T0), consumer.progress, consumer.rewind):
        with pytest.raises(InvalidConfigError, match="pass group_id"):
            call()
    with Consumer(store, group_id="g") as member, pytest.raises(InvalidConfigError, match="enable_auto_commit=False"):
        member.progress()


def test_transactions_move_the_groups_offsets(store):
    from pyspark_log import Transactions  # noqa: PLC0415

    fill(store, 10)
    store.create_topic("out", 1)
    settings = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    transactions = Transactions(store, "id")

    def copy(consumer, most, *, abort=False):
        with transactions.begin() as transaction:
            for records in consumer.poll(max_records=most).values():
                transaction.append("out", rows(*(record.value for record in records)))
            steps = consumer.progress()
            transaction.send_offsets("g", steps)
            if abort:
                transaction.abort()
        return steps

    with Consumer(store, **settings) as consumer:
        consumer.assign([T0, T1])
        assert copy(consumer, 3, abort=True) == {T0: (None, 3)}
        consumer.rewind()
        assert copy(consumer, 3) == {T0: (None, 3)}
        assert copy(consumer, 2) == {T0: (3, 5)}
        assert consumer.progress() == {}
        copy(consumer, 2, abort=True)
        consumer.rewind()
        assert consumer.position(T0) == 5
    with Consumer(store, **settings) as consumer:
        consumer.assign([T0, T1])
        consumer.seek(T0, 6)
        assert copy(consumer, 2) == {T0: (5, 8)}
    with Consumer(store, **settings) as consumer:
        consumer.assign([T0])
        assert copy(consumer, 10) == {T0: (8, 10)}
    with Consumer(store, "out", auto_offset_reset="earliest") as consumer:
        consumer.stop_at()
        assert [record.value for record in consumer] == [b"%d" % number for number in (0, 1, 2, 3, 4, 6, 7, 8, 9)]


def test_a_brokers_folder_is_read_and_never_committed_to(root):
    store = Store.open(root)
    with pytest.raises(ReadOnlyError, match="enable_auto_commit=False"):
        Consumer(store, group_id="g")
    with Consumer(store, group_id="g", enable_auto_commit=False, auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        consumer.poll()
        with pytest.raises(ReadOnlyError):
            consumer.commit()
        assert consumer.committed(T0) is None


def test_an_iteration_has_nothing_of_partitions_that_a_poll_has_lost(store):
    fill(store, 5)
    with Consumer(store, "t", auto_offset_reset="earliest", metadata_max_age_ms=PATIENCE_MS) as consumer:
        assert next(consumer).value == b"0"
        store.delete_topic("t")
        store.create_topic("t", 1)
        consumer._holding.subscription.due = 0
        assert consumer.poll() == {}
        fill(store, 1, first=100)
        assert next(consumer).value == b"100"
