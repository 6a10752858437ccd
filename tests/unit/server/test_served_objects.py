"""The logs of a store in an object store as a server's handlers ask for them."""

import contextlib
import os
import select
import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_tools import Record, build

from pyspark_log import Store, TopicPartition
from pyspark_log.errors import UnknownTopicError
from pyspark_log.server.network import Loop, Workers
from pyspark_log.server.served.logs import MustWaitError
from pyspark_log.server.served.objects import ObjectLogs, pieces
from pyspark_log.storage.objects.observer import set_observer
from pyspark_log.storage.publish_log.serving.incoming import Incoming, take_in
from pyspark_log.storage.publish_log.state import State
from pyspark_log.storage.record import scan
from tests.object_memory import BUCKET, keep_in_memory
from tests.store_tools import rows
from tests.waiting import PATIENCE

AT = TopicPartition("t", 0)


@pytest.fixture
def store(memory_url):
    store = Store.create(memory_url)
    store.create_topic("t", 2)
    return store


@contextlib.contextmanager
def running_loop():
    """A loop with a worker; `logs_of`: the logs of a store."""
    loop = Loop()
    workers = Workers(loop, 1)
    try:
        yield SimpleNamespace(logs_of=lambda store: ObjectLogs(store, workers, 0, None))
    finally:
        workers.close()
        loop.close()


@pytest.fixture
def house():
    with running_loop() as house:
        yield house


@pytest.fixture
def requests():
    """The kinds and keys of the requests from now on."""
    made = []
    set_observer(lambda request: None if request.is_done else made.append((request.kind, request.key)))
    yield made
    set_observer(None)


def look(logs):
    assert logs._follower.look()


def fetched(logs, start=0, max_bytes=1 << 20, partition=0):
    """The offsets and values from one on that fetches give, each as many as `max_bytes`, and how many they were."""
    found, fetches = [], 0
    view = logs.topic("t").view(partition, may_wait=True)
    while start < view.high_watermark:
        batches = view.batches(start, view.high_watermark, max_bytes)
        if batches is None:
            break
        assert len(batches.records) <= max_bytes or len(scan(batches.records, 0, len(batches.records))) == 1
        found.append(batches.records)
        assert batches.next_offset > start
        start, fetches = batches.next_offset, fetches + 1
    return b"".join(found), fetches


def offsets_in(records):
    return [
        offset for header in scan(records, 0, len(records)) for offset in range(header.base_offset, header.next_offset)
    ]


def test_a_client_that_knows_more_than_the_server(store, requests, house):
    logs = house.logs_of(store)
    Store.open(store.path).append("t", rows(b"a", b"b"), partition=0)
    requests.clear()
    # Not in the loop's thread, as that is a request.
    with pytest.raises(MustWaitError):
        logs.topic("t").view(0, may_wait=False, client_end=2)
    assert (logs.topic("t").view(0, may_wait=True).next_offset, requests) == (0, [])
    assert logs.topic("t").view(0, may_wait=True, client_end=2).next_offset == 2
    assert logs.topic("t").view(0, may_wait=False, client_end=2).next_offset == 2


def test_what_was_known_is_void_while_it_is_taken_in(store, house):
    """As after a sleep through a deletion of decisions: the log begins again with a checkpoint."""
    logs = house.logs_of(store)
    follower = logs._follower
    follower._log._has_begun, follower._log._state = False, State()
    thread = threading.Thread(target=follower._take_in, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_what_is_about_to_be_decided_is_kept(store, house):
    """While others decide: clients of this server need no request for it then."""
    logs, other = house.logs_of(store), Store.open(store.path)
    follower = logs._follower
    data = build([Record(value=b"mine", timestamp=5)])
    [header] = scan(data, 0, len(data))
    batch = Incoming(store.describe_topic("t"), 0, header, data, "data/0009999999999-" + "a" * 24)
    follower._log.objects.put(batch.object, data)
    for number in range(30):
        follower.keep(f"data/{number}", memoryview(b"never decided"))
    follower.keep(batch.object, memoryview(data))
    other.append("t", rows(b"another"), partition=0)
    look(logs)
    follower._log.decide(lambda state: take_in(state, [batch])[0])
    view = logs.topic("t").view(0, may_wait=False)
    assert (view.next_offset, view.is_near(1, committed=False)) == (2, True)
    assert len(follower._read) < 30


def test_a_fetch_at_the_end_makes_no_request(store, requests, house):
    logs = house.logs_of(store)
    Store.open(store.path).append("t", rows(b"a", b"b"), partition=0)
    requests.clear()
    look(logs)
    # The entry, and that there is none after it.
    assert [kind for kind, _ in requests] == ["get", "get"]
    requests.clear()
    view = logs.topic("t").view(0, may_wait=False)
    assert (view.log_start, view.next_offset, view.is_near(0, committed=True)) == (0, 2, True)
    assert offsets_in(view.batches(0, 2, 1 << 20).records) == [0, 1]
    assert requests == []


def test_history_is_read_in_few_requests(store, requests, house):
    for number in range(40):
        store.append("t", rows(b"%d" % number), partition=0)
    store.merge()
    logs = house.logs_of(Store.open(store.path))
    view = logs.topic("t").view(0, may_wait=True)
    assert not view.is_near(0, committed=False)
    requests.clear()
    records, _ = fetched(logs, max_bytes=200)
    assert offsets_in(records) == list(range(40))
    assert [kind for kind, _ in requests] == ["get_ranges"]
    assert logs.topic("t").view(0, may_wait=False).is_near(0, committed=False)


def test_what_is_kept_is_bounded(store, monkeypatch, house):
    monkeypatch.setattr(pieces, "_KEPT", 1000)
    for _ in range(5):
        store.append("t", rows(b"x" * 400), partition=0)
    logs = house.logs_of(Store.open(store.path))
    assert offsets_in(fetched(logs)[0]) == list(range(5))
    assert logs._pieces._size <= 1000
    assert [logs.topic("t").view(0, may_wait=False).is_near(offset, committed=False) for offset in (0, 4)] == [
        False,
        True,
    ]


@given(data=st.data())
def test_fetches_give_what_the_store_has(data):
    with pytest.MonkeyPatch.context() as patched, running_loop() as house:
        keep_in_memory(patched)
        patched.setattr("pyspark_log.storage.object_store.faulty_races", lambda *_: 0)
        store = Store.create(f"s3://{BUCKET}/fetches-{os.urandom(8).hex()}")
        store.create_topic("t", 1, {"max.message.bytes": "300"})
        logs = house.logs_of(store)
        for count in data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=8)):
            table = pa.record_batch({"key": [b"%d" % number for number in range(count)], "value": [b"v" * 90] * count})
            Store.open(store.path).append("t", table)
            if data.draw(st.booleans()):
                store.merge()
            if data.draw(st.booleans()):
                logs._follower.look()
        logs._follower.look()
        end = store.latest_offset("t", 0)
        if data.draw(st.booleans()):
            store.delete_records("t", 0, data.draw(st.integers(0, end)))
            logs._follower.look()
        first = store.earliest_offset("t", 0)
        start = data.draw(st.integers(first, end))
        records, _ = fetched(logs, start, data.draw(st.integers(0, 2000)))
        assert [offset for offset in offsets_in(records) if offset >= start] == list(range(start, end))
        view = logs.topic("t").view(0, may_wait=True)
        assert (view.log_start, view.next_offset) == (first, end)


def test_compacted_away_at_the_end_of_a_piece(store, house):
    store.create_topic("c", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    for value in (b"1", b"2", b"3"):
        store.append("c", pa.record_batch({"key": [b"k", b"k"], "value": [b"x", value]}))
    store.compact("c")
    logs = house.logs_of(Store.open(store.path))
    view, start, seen = logs.topic("c").view(0, may_wait=True), 0, []
    while (batches := view.batches(start, view.high_watermark, 1 << 20)) is not None:
        seen += offsets_in(batches.records)
        start = batches.next_offset
    kept = [batch["offset"].to_pylist() for batch in store.read("c", 0)]
    assert {offset for part in kept for offset in part} <= set(seen)
    assert start == view.next_offset


def test_events(store, house):
    logs = house.logs_of(store)
    events = logs.events()
    assert events.changed() == set()
    Store.open(store.path).append("t", rows(b"a"), partition=1)
    look(logs)
    assert select.select([events.fd], [], [], 0)[0]
    assert events.changed() == {(store.describe_topic("t").topic_id, 1)}
    assert not select.select([events.fd], [], [], 0)[0]
    events.close()
    Store.open(store.path).append("t", rows(b"a"), partition=1)
    look(logs)


def test_the_follower_goes_with_the_store(store, house):
    logs = house.logs_of(store)
    with logs.held(100):
        events = logs.events()
        Store.open(store.path).append("t", rows(b"a"), partition=0)
        assert select.select([events.fd], [], [], 60)[0]
        assert logs.topic("t").view(0, may_wait=False).next_offset == 1
        logs.close()


def test_a_store_that_does_not_answer_is_a_problem(store, house):
    logs = house.logs_of(store)
    with logs.held(100):

        def fail(_):
            raise OSError("no route to it")

        set_observer(fail)
        try:
            while not logs.problem():
                logs._follower._is_over.wait(0.01)
            assert (logs.problem(), logs.is_there()) == ("no route to it", False)
        finally:
            set_observer(None)
        while logs.problem():
            logs._follower._is_over.wait(0.01)
        logs.close()


def test_a_topic_has_so_many_partitions(store, house):
    with pytest.raises(UnknownTopicError):
        house.logs_of(store).topic("t").check(2)


def test_groups_and_sizes(store, house):
    store.groups["g"].commit({AT: 1})
    store.append("t", rows(b"a"), partition=0)
    logs = house.logs_of(Store.open(store.path))
    assert logs.groups.members() == ({"g": None}, {})
    assert {at: kept.offset for at, kept in logs.groups.fetch("g").items()} == {AT: 1}
    [log_dir] = logs.log_dirs()
    assert (log_dir.path, log_dir.partitions) == (store.path, {AT: store.partitions.size("t", 0)})
