"""Consumers that share the partitions of topics, as members of a group without a server."""

import json
import signal
import subprocess
import sys
import threading
import time

import pytest
from cli_tools import pylog

from pyspark_log import Consumer, Store, TopicPartition, Transactions
from pyspark_log.clients import ConsumerRebalanceListener
from pyspark_log.clients.consuming.membership import Membership
from pyspark_log.errors import (
    FencedMemberError,
    InvalidConfigError,
    LockTimeoutError,
    OffsetConflictError,
    ReadOnlyError,
)
from pyspark_log.storage.groups import GroupState
from tests.processes import forked
from tests.store_tools import rows

COUNT = 4
PATIENCE = 240


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store", {"offsets.topic.num.partitions": "1"}) as store:
        store.create_topic("t", COUNT)
        for number in range(COUNT):
            fill(store, number, 10)
        yield store


@pytest.fixture
def join(store):
    """Makes members of the group."""
    made = []

    def join(*topics, **settings):
        begin = {"group_id": "g", "auto_offset_reset": "earliest", "max_poll_records": 3}
        made.append(Consumer(store, *(topics or ["t"]), **begin | settings))
        return made[-1]

    yield join
    for consumer in made:
        consumer.close(autocommit=False)


def fill(store, partition, count, topic="t"):
    store.append(topic, rows(*(b"%d" % number for number in range(count))), partition=partition)


def poll_until(holds, *consumers, take=lambda records: None):
    """Polls consumers by turns until something holds."""
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until
        for consumer in consumers:
            for records in consumer.poll(10).values():
                take(records)


def share(*consumers, **how):
    """Polls until each has its part."""
    poll_until(lambda: all(len(one.assignment()) == COUNT // len(consumers) for one in consumers), *consumers, **how)


def test_each_record_comes_to_one_member_once(store, join):
    seen = []

    def take(records):
        seen.extend((one.partition, one.offset) for one in records)

    first = join()
    take(record for records in first.poll(1000).values() for record in records)
    second = join()
    share(first, second, take=take)
    third = join()
    poll_until(third.assignment, first, second, third, take=take)
    second.close()
    poll_until(lambda: len(seen) >= 10 * COUNT, first, third, take=take)
    assert sorted(seen) == [(partition, offset) for partition in range(COUNT) for offset in range(10)]
    assert first.assignment().isdisjoint(third.assignment())


def test_a_member_without_partitions_waits(store, join, monkeypatch):
    store.create_topic("one", 1)
    idle = join("one")
    busy = join("one", group_instance_id="first")  # Those that have one are first.
    poll_until(busy.assignment, idle, busy)
    busy.commit()
    looks = []
    monkeypatch.setattr(Membership, "look", lambda self, look=Membership.look: looks.append(look(self)))
    assert idle.poll(300) == {}
    assert len(looks) < 20


@pytest.mark.parametrize("commits", [True, False])
def test_the_next_owner_begins_where_the_first_one_did(store, join, commits):
    first = join(auto_offset_reset="latest", enable_auto_commit=commits)
    assert first.poll() == {}
    fill(store, 1, 5)
    first._holding.subscription._membership._file.close()  # as if it was killed
    second, seen = join(auto_offset_reset="latest"), []
    poll_until(lambda: len(seen) == 5, second, take=seen.extend)
    assert [one.offset for one in seen] == [10, 11, 12, 13, 14]


class Noted(ConsumerRebalanceListener):
    def __init__(self):
        self.calls, self.consumer, self.committed = [], None, {}

    def on_partitions_revoked(self, revoked):
        self.calls.append(("revoked", set(revoked)))
        # They are the consumer's still.
        self.committed |= {at: self.consumer.position(at) for at in revoked}
        self.consumer.commit(self.committed)

    def on_partitions_assigned(self, assigned):
        self.calls.append(("assigned", set(assigned)))

    def on_partitions_lost(self, lost):
        self.calls.append(("lost", set(lost)))


def test_a_listener_may_commit_what_is_given_up(store, join):
    listener = Noted()
    first = Consumer(store, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
    listener.consumer = first
    first.subscribe(["t"], listener=listener)
    first.poll()
    second = join()
    share(first, second)
    assert [word for word, _ in listener.calls] == ["assigned", "revoked"]
    assert listener.calls[1][1] == second.assignment()
    assert {at: second.position(at) for at in second.assignment()} == listener.committed
    first.close()


def test_partitions_are_taken_again_if_their_begin_is_not_committed(store, monkeypatch):
    errors, listener = [LockTimeoutError("not now")], Noted()

    def commit(member, offsets, commit=Membership.commit):
        if errors:
            raise errors.pop()
        commit(member, offsets)

    monkeypatch.setattr(Membership, "commit", commit)
    with Consumer(store, group_id="g") as consumer:
        listener.consumer = consumer
        with pytest.raises(LockTimeoutError):
            consumer.subscribe(["t"], listener=listener)
        assert (consumer.assignment(), listener.calls) == (set(), [])
        consumer.poll()
        assert listener.calls == [("assigned", consumer.assignment())]
        assert [consumer.committed(TopicPartition("t", number)) for number in range(COUNT)] == [10] * COUNT


def test_a_process_that_dies_is_replaced_long_before_its_session_ends(store, join):
    code = """
import sys
from pyspark_log import Consumer, Store
with Consumer(Store.open(sys.argv[1]), 't', group_id='g') as consumer:
    print('on', flush=True)
    while True:
        consumer.poll(100)
"""
    process = subprocess.Popen([sys.executable, "-c", code, store.path], stdout=subprocess.PIPE)
    assert process.stdout.readline()
    consumer = join()
    poll_until(consumer.assignment, consumer)
    assert len(consumer.assignment()) == COUNT // 2
    process.kill()
    process.wait()
    process.stdout.close()
    poll_until(lambda: len(consumer.assignment()) == COUNT, consumer)


def test_a_process_that_is_stopped_is_removed_and_joins_again(store, join):
    code = """
import logging, sys
from pyspark_log import Consumer, Store
logging.basicConfig(stream=sys.stdout, format="%(message)s")
with Consumer(Store.open(sys.argv[1]), 't', group_id='g', max_poll_interval_ms=500, enable_auto_commit=False) as c:
    while True:
        c.poll(50)
        print(sorted(at.partition for at in c.assignment()), flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code, store.path], stdout=subprocess.PIPE)
    assert process.stdout.readline().startswith(b"[0, 1, 2, 3]")
    try:
        process.send_signal(signal.SIGSTOP)
        consumer = join()
        poll_until(lambda: len(consumer.assignment()) == COUNT, consumer)
        process.send_signal(signal.SIGCONT)
        poll_until(lambda: len(consumer.assignment()) == COUNT // 2, consumer)
        lines = iter(process.stdout.readline, b"")
        assert any(b"silent for too long" in line for line in lines)
        assert any(line.count(b",") == 1 for line in lines)
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_a_removed_member_commits_is_refused(store, join, caplog):
    first = join(enable_auto_commit=False)
    first.poll()
    store.groups.log.membership.change_members("g", lambda group: group.leave(list(group.members), lambda members: {}))
    with pytest.raises(FencedMemberError):
        first.commit()
    poll_until(lambda: "it joins again" in caplog.text, first)
    assert len(first.assignment()) == COUNT


def test_a_second_consumer_with_an_instance_id_fences_the_first(store, join):
    first = join(group_instance_id="a")
    again = join(group_instance_id="a")
    assert len(again.assignment()) == COUNT
    with pytest.raises(FencedMemberError, match="group_instance_id"):
        poll_until(lambda: False, first)


@pytest.mark.parametrize("group", [None, "g"])
def test_another_subscription_begins_where_the_settings_say(store, group):
    store.create_topic("u", 1)
    fill(store, 0, 3, "u")
    with Consumer(store, "t", group_id=group) as consumer:
        consumer.subscribe(["u"])
        assert consumer.position(TopicPartition("u", 0)) == 3


def test_a_pattern_that_matches_nothing_at_first(store):
    with Consumer(store, group_id="g", metadata_max_age_ms=0) as consumer:
        consumer.subscribe(pattern="later")
        consumer.poll()
        store.create_topic("later", 1)
        fill(store, 0, 3, "later")
        poll_until(consumer.assignment, consumer)
        assert consumer.committed(TopicPartition("later", 0)) == 0


def test_a_member_takes_at_once_what_another_gives_up(store, join, monkeypatch):
    store.create_topic("one", 1)
    first = join("one")
    with monkeypatch.context() as patched:
        patched.setattr(Membership, "LOOK", 2 * PATIENCE)
        second = join("one", group_instance_id="first")  # Those that have one are first.
    assert first.assignment()
    assert not second.assignment()

    def give_up():
        poll_until(lambda: not first.assignment(), first)
        fill(store, 0, 1, "one")

    thread = threading.Timer(0.1, give_up)
    thread.start()
    try:
        started = time.monotonic()
        assert second.poll(PATIENCE * 1000)
        assert time.monotonic() - started < PATIENCE / 2
    finally:
        thread.join()


def test_topics_that_match_and_come_later_are_read_from_their_start(store):
    with Consumer(store, group_id="g", metadata_max_age_ms=0) as consumer:
        consumer.subscribe(pattern="t.*")
        consumer.poll()
        assert consumer.subscription() == {"t"}
        store.create_topic("t2", 2)
        fill(store, 1, 5, "t2")
        store.add_partitions("t", COUNT + 1)
        fill(store, COUNT, 5)
        seen = []
        poll_until(lambda: len(seen) == 10, consumer, take=seen.extend)
        assert {(one.topic, one.partition) for one in seen} == {("t2", 1), ("t", COUNT)}


@pytest.mark.parametrize("age", [0, PATIENCE * 1000])
def test_topics_that_are_deleted_and_recreated(store, age):
    store.create_topic("u", 1)
    listener = Noted()
    with Consumer(store, group_id="g", metadata_max_age_ms=age) as consumer:
        listener.consumer = consumer
        consumer.subscribe(["t", "u"], listener=listener)
        consumer.seek_to_beginning()
        seen = []
        poll_until(lambda: len(seen) == 10 * COUNT, consumer, take=seen.extend)
        store.delete_topic("u")
        consumer.commit()
        poll_until(lambda: len(consumer.assignment()) == COUNT, consumer)
        store.delete_topic("t")
        store.create_topic("t", COUNT)
        for count in (20, 1):
            seen.clear()
            fill(store, 2, count)
            poll_until(lambda count=count: len(seen) == count, consumer, take=seen.extend)
        assert consumer.position(TopicPartition("t", 2)) == 21
        store.create_topic("u", 1)
        fill(store, 0, 5, "u")
        poll_until(lambda: len(seen) == 6, consumer, take=seen.extend)
    lost = [partitions for what, partitions in listener.calls if what == "lost"]
    assert lost == [{TopicPartition("u", 0)}, {TopicPartition("t", number) for number in range(COUNT)}]


def test_a_group_without_members_reads_a_recreated_topic_from_its_begin(store):
    def read():
        with Consumer(store, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            seen = []
            poll_until(lambda: len(seen) == 10 * COUNT, consumer, take=seen.extend)
            consumer.commit()

    read()
    store.delete_topic("t")
    store.create_topic("t", COUNT)
    for number in range(COUNT):
        fill(store, number, 10)
    read()


def test_another_subscription_keeps_what_stays(store, join):
    store.create_topic("other", 1)
    consumer = join()
    consumer.poll(max_records=2)
    positions = {at: consumer.position(at) for at in consumer.assignment()}
    consumer.subscribe(["t", "other"])
    poll_until(lambda: len(consumer.assignment()) == COUNT + 1, consumer)
    assert {at: consumer.position(at) for at in positions}.keys() == positions.keys()
    consumer.subscribe(["other"])
    poll_until(lambda: consumer.assignment() == {TopicPartition("other", 0)}, consumer)
    consumer.unsubscribe()
    assert store.groups["g"].describe().state is GroupState.EMPTY
    consumer.assign([TopicPartition("t", 0)])
    consumer.poll()
    consumer.commit()


def test_a_transaction_of_a_member_that_was_replaced_is_refused(store, join):
    store.create_topic("out", 1)
    transactions = Transactions(store, "worker")
    first = join(enable_auto_commit=False)
    found = first.poll()
    [(at, records)] = found.items()
    store.groups.log.membership.change_members("g", lambda group: group.leave(list(group.members), lambda members: {}))
    second = join(enable_auto_commit=False)
    second.poll()
    second.commit({at: len(records)})
    transaction = transactions.begin()
    transaction.append("out", [{"value": "x"}])
    transaction.send_offsets("g", first.progress())
    with pytest.raises(OffsetConflictError):
        transaction.commit()
    assert store.latest_offset("out", 0) == 0


def test_the_command_line_shows_members_and_resets_no_group_that_has_some(store, join):
    first, second = join(client_id="billing"), join(client_id="billing")
    share(first, second)

    def run(*words):
        return pylog(store, "groups", *words)

    [one, other] = json.loads(run("describe", "g", "--members", "--json").output)
    assert (one["client_id"], one["partitions"], other["partitions"]) == ("billing", 2, 2)
    [state] = json.loads(run("describe", "g", "--state", "--json").output)
    assert (state["state"], state["members"], state["assignment_strategy"]) == ("Stable", 2, "range")
    owners = json.loads(run("describe", "g", "--json").output)
    assert {row["consumer_id"] for row in owners} == {one["consumer_id"], other["consumer_id"]}
    refused = run("reset-offsets", "g", "--topic", "t", "--to-earliest", "--execute")
    assert refused.exit_code != 0
    assert "has 2 members" in refused.output
    first.close()
    second.close()
    assert run("reset-offsets", "g", "--topic", "t", "--to-earliest", "--execute").exit_code == 0


def test_a_brokers_folder_has_no_members(root):
    with pytest.raises(ReadOnlyError):
        Consumer(Store.open(root), "t", group_id="g", enable_auto_commit=False)


def test_a_child_has_no_part_of_its_parents_membership(store, join):
    consumer = join()

    def poll():
        with pytest.raises(ValueError, match="a forked child makes its own"):
            consumer.poll()

    with forked(poll):
        pass
    other = join()
    share(consumer, other)


def test_an_iteration_hands_over_too(store, join):
    first = join(consumer_timeout_ms=300)
    next(first)
    second = join(consumer_timeout_ms=300)
    seen = list(first)
    poll_until(lambda: len(second.assignment()) == 2, first, second, take=seen.extend)
    seen += list(second)
    assert len({(one.partition, one.offset) for one in seen}) == len(seen)
    assert len(seen) == 10 * COUNT - 1


def test_an_object_store_has_no_members(object_url):
    store = Store.create(object_url)
    store.create_topic("t", 1)
    with pytest.raises(InvalidConfigError, match=r"Consumer\.assign"):
        Consumer(store, "t", group_id="g")


def test_the_names_of_what_is_wrong_come_before_anything_is_done(store):
    for settings, what in (
        ({"partition_assignment_strategy": "best"}, "there is no assignor"),
        ({"max_poll_interval_ms": 0}, "max_poll_interval_ms"),
        ({"session_timeout_ms": -1}, "session_timeout_ms"),
        ({"group_instance_id": ""}, "group_instance_id"),
    ):
        with pytest.raises(InvalidConfigError, match=what):
            Consumer(store, "t", group_id="g", **settings)
    assert store.groups["g"].describe().state is GroupState.DEAD
