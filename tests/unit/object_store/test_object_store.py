"""What only a store in an object store has: objects, their damage and loss, requests that fail, and forks."""

import contextlib
import json
import multiprocessing
import os
import threading
from collections import OrderedDict

import pyarrow as pa
import pytest

from pyspark_log import DefaultSource, Store
from pyspark_log.errors import (
    CorruptRecordError,
    DescriptionError,
    InvalidConfigError,
    LogDamagedError,
    ObjectStoreError,
    OutcomeUnknownError,
    PublisherFencedError,
    PublishFailedError,
    StoreExistsError,
    StoreNotFoundError,
)
from pyspark_log.spark_connector.reading.task_reader import read_partition
from pyspark_log.storage import object_store
from pyspark_log.storage import store as store_module
from pyspark_log.storage.objects import Objects, race
from pyspark_log.storage.objects import objects as objects_module
from pyspark_log.storage.publish_log import log as log_module
from pyspark_log.types import TopicPartition
from tests.amounts import few_or_many
from tests.object_proxy import Answer, ignore_the_condition, pass_on, proxy
from tests.store_tools import observed_requests, rows, values

PATIENCE = 120


@pytest.fixture
def store(object_url):
    store = Store.create(object_url)
    store.create_topic("t", 2, {"retention.ms": "-1", "max.message.bytes": "60000000"})
    return store


def data_objects(store):
    return [one.key for one in Objects(store.path).list("data")]


def stage(store, *wanted):
    writer = store.publishes.writer(store.publishes.plan(["t"]))
    writer.append("t", pa.record_batch({"value": list(wanted), "partition": pa.array([0] * len(wanted), pa.int32())}))
    return writer.finish()


def large(number):
    return b"%d" % number * 400_000


# ---- opening


def test_no_store_is_made_where_two_may_win(object_server, monkeypatch, object_url):
    monkeypatch.undo()
    # A round more would show the same.
    monkeypatch.setattr(race, "ROUNDS", 1)
    monkeypatch.setattr(race, "RACERS", 2)
    with proxy(object_server, ignore_the_condition) as careless:
        for name, value in careless.environment.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ObjectStoreError, match=rf"{object_url}: no store can be kept here: 1 of 50 races"):
            Store.create(object_url)
        assert list(Objects(object_url).list()) == []


def test_a_store_is_made_where_one_wins_and_the_race_leaves_nothing(object_server, monkeypatch, object_url):
    monkeypatch.undo()
    monkeypatch.setattr(race, "ROUNDS", 5)
    for name, value in object_server.environment.items():
        monkeypatch.setenv(name, value)
    store = Store.create(object_url)
    assert [one.key for one in Objects(object_url).list()] == ["store.json"]
    assert Store.open(object_url).cluster_id == store.cluster_id


@pytest.mark.parametrize("below", ["x", "log/inner", "sum/inner/deeper"])
def test_no_store_lies_within_another(served_url, below):
    """Each would find the other's objects below its prefix."""
    inner = f"{served_url}/{below}"
    Store.create(inner)
    with pytest.raises(StoreExistsError, match=f"^{served_url}: the store {inner} lies within it; take a prefix"):
        Store.create(served_url)
    outer = f"{served_url}{below.partition('/')[0]}"
    Store.create(outer)
    with pytest.raises(StoreExistsError, match=f"^{outer}/{below} lies within the store {outer}; take a prefix"):
        Store.open_or_create(f"{outer}/{below}")
    assert [one.key for one in Objects(outer).list()] == ["store.json"]


def test_of_two_that_make_a_store_one_does(object_url, monkeypatch):
    others = []

    def meanwhile(*_):
        monkeypatch.setattr(object_store, "faulty_races", lambda *_: 0)
        others.append(Store.create(object_url))
        return 0

    monkeypatch.setattr(object_store, "faulty_races", meanwhile)
    with pytest.raises(StoreExistsError, match="another process has just created a store there"):
        Store.create(object_url)
    monkeypatch.setattr(object_store, "faulty_races", meanwhile)
    assert Store.open_or_create(object_url).cluster_id == others[0].cluster_id


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 1, "cluster_id": "x", "settings": {}}']
)
def test_a_damaged_description(object_url, content):
    Objects(object_url).put("store.json", content)
    with pytest.raises(DescriptionError, match=f"{object_url}/store.json"):
        Store.open(object_url)


@pytest.mark.usefixtures("object_server")
def test_a_bucket_that_is_not_there_and_bad_credentials(object_url, monkeypatch):
    monkeypatch.setattr(objects_module, "_RETRIES", 0)
    with pytest.raises((ObjectStoreError, StoreNotFoundError), match="s3://no-such-bucket/x"):
        Store.open("s3://no-such-bucket/x")
    for url in ("s3://", "s3:///x", "s3://b/a//b", "s3://b/../x"):
        with pytest.raises(InvalidConfigError, match=url.replace(".", r"\.")):
            Store.open(url)
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(ObjectStoreError, match=f"{object_url}/store.json: get has failed"):
        Store.open(object_url)


def test_a_shared_store_that_was_recreated(store, monkeypatch):
    shared = Store.shared(store.path)
    assert Store.shared(store.path + "/") is Store.shared(store.path.replace("s3:", "s3a:")) is shared
    shared.append("t", rows(b"a"))
    objects = Objects(store.path)

    def remove():
        objects.delete([one.key for one in objects.list()])

    remove()
    # Another process makes it: it is noticed when it is time to look.
    objects.put("store.json", json.dumps({"version": 1, "cluster_id": "A" * 22, "settings": {}}).encode())
    assert Store.shared(store.path) is shared
    monkeypatch.setattr(object_store, "_CHECK_SECONDS", -1)
    again = Store.shared(store.path)
    assert (again.cluster_id, again.topics()) == ("A" * 22, [])
    assert Store.shared(store.path) is again
    remove()
    with pytest.raises(StoreNotFoundError):
        Store.shared(store.path)
    # This process makes it: it is noticed at once.
    objects.put("store.json", json.dumps({"version": 1, "cluster_id": "A" * 22, "settings": {}}).encode())
    Store.shared(store.path)
    monkeypatch.undo()
    remove()


def test_a_process_notices_at_once_that_it_has_recreated_the_store(store):
    before, objects = Store.shared(store.path), Objects(store.path)
    objects.delete([one.key for one in objects.list()])
    after = Store.create(store.path)
    assert Store.shared(store.path).cluster_id == after.cluster_id != before.cluster_id


# ---- sizes


def test_records_that_are_larger_than_an_object_should_be(store):
    """Sizes of objects are about what is read at once; a single record is in one piece."""
    record = b"r" * 20_000_000
    store.append("t", rows(b"a", record, b"b"), partition=0)
    store.publishes.publish("p", 0, stage(store, b"c", record, b"d"))
    assert values(store) == [b"a", record, b"b", b"c", record, b"d"]


def test_a_large_append_is_one_decision_with_objects_of_moderate_size(store):
    wanted = [b"%04d" % number + b"x" * 20_000 for number in range(2000)]
    (result,) = store.append("t", rows(*wanted), partition=0)
    assert (result.base_offset, result.next_offset) == (0, 2000)
    assert values(store) == wanted
    sizes = [one.size for one in Objects(store.path).list("data")]
    assert (len(sizes), max(sizes) < 18 << 20) == (3, True)
    assert len(list(Objects(store.path).list("log"))) == 2  # the topic, and this one


def test_a_task_that_stages_much_holds_little(store):
    writer, sizes = store.publishes.writer(store.publishes.plan(["t"])), []
    with observed_requests(lambda request: None if request.is_done else sizes.append(request.size)):
        for number in range(100):
            writer.append("t", rows(*[large(number)] * 2))
        parts = writer.finish()
    assert (len(sizes) > 3, max(sizes) < 18 << 20) == (True, True)
    store.publishes.publish("p", 0, parts)
    assert sum(map(len, [*values(store), *values(store, 1)])) == sum(len(large(number)) * 2 for number in range(100))


# ---- what is not published leaves nothing


def test_output_that_is_refused_is_deleted(store):
    store.publishes.claim("p", "new")
    parts = [part for number in range(10) for part in stage(store, b"%d" % number * 150_000)]
    assert {part.file for part in parts} == {""}  # Together they are more than a decision takes.
    staged = stage(store, large(1))
    assert len(data_objects(store)) == 1
    with pytest.raises(PublisherFencedError):
        store.publishes.publish("p", 0, [*parts, *staged], run="old", claimed=True)
    assert data_objects(store) == []
    assert not store.publishes.publish("p", 0, parts, run="new").replayed
    assert store.publishes.publish("p", 0, parts, run="new").replayed
    assert len(data_objects(store)) == 1
    assert len(values(store)) == 10


def test_output_that_is_published_is_not_deleted_by_a_replay(store):
    parts = stage(store, large(1))
    store.publishes.publish("p", 0, parts)
    assert store.publishes.publish("p", 0, parts).replayed
    store.publishes.discard(parts)
    assert values(store) == [large(1)]
    abandoned = stage(store, large(2))
    store.publishes.discard(abandoned)
    assert len(data_objects(store)) == 1


# ---- damage


def damaged(store, key, at):
    objects = Objects(store.path)
    data = bytearray(objects.get(key).data)
    data[at] ^= 1
    objects.put(key, bytes(data))


def without_environment(monkeypatch, server):
    for name in server.environment:
        monkeypatch.delenv(name)
    return server.options


def test_a_store_is_opened_where_no_thread_can_start(store, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert Store.open(store.path).cluster_id == store.cluster_id


def test_options_in_place_of_the_environment(object_url, object_server, monkeypatch):
    options = without_environment(monkeypatch, object_server)
    made = Store.create(object_url, {"num.partitions": "3"}, options=options)
    made.create_topic("t")
    made.append("t", rows(b"a"), partition=0)
    for opened in (
        Store.open(object_url, options=options),
        Store.open_or_create(object_url, options=options),
        Store.shared(object_url, options=options),
    ):
        assert opened.log.objects.options == options
        assert values(opened) == [b"a"]
        assert options["secret_access_key"] not in repr(opened)
    assert Store.open_or_create(f"{object_url}-other", {"num.partitions": "2"}, options=options).configs


def test_shared_stores_of_other_options_are_others(store, object_server, monkeypatch):
    mine, others = object_server.options, {**object_server.options, "access_key_id": "another"}
    shared = Store.shared(store.path)
    assert Store.shared(store.path, options=mine) is Store.shared(f"{store.path}/", options=dict(mine)) is not shared
    assert Store.shared(store.path, options=others).log.objects.options == others
    assert Store.shared(store.path, options={}) is shared
    # This process makes it again: that is noticed whatever the options are.
    objects = Objects(store.path)
    objects.delete([one.key for one in objects.list()])
    made = Store.create(store.path)
    for options in (None, mine, others):
        assert Store.shared(store.path, options=options).cluster_id == made.cluster_id


def test_a_process_shares_few_stores(store, object_server, monkeypatch):
    """Each new token makes another one."""
    monkeypatch.setattr(store_module, "_SHARED_STORES", 2)
    monkeypatch.setattr(store_module, "_shared", OrderedDict())
    options = [{**object_server.options, "access_key_id": str(number)} for number in range(3)]
    known = [Store.shared(store.path, options=one) for one in options]
    assert Store.shared(store.path, options=options[1]) is known[1]
    assert Store.shared(store.path, options=options[0]) is not known[0]
    # That of 2 was used longer ago than that of 1.
    assert Store.shared(store.path, options=options[1]) is known[1]


def test_a_folder_takes_no_options(tmp_path):
    path, options = tmp_path / "store", {"secret_access_key": "hush", "region": "x"}
    Store.create(path)
    for refused in (Store.open, Store.open_or_create, Store.shared, Store.create):
        with pytest.raises(InvalidConfigError, match="takes no options, as region, secret_access_key") as caught:
            refused(path, options=options)
        assert "hush" not in str(caught.value)


def test_damaged_bytes_are_kept_with_the_options_of_the_store(three_pieces, object_server, monkeypatch, tmp_path):
    (key,) = data_objects(three_pieces)
    damaged(three_pieces, key, 1000)
    options = {f"storage.{name}": one for name, one in without_environment(monkeypatch, object_server).items()}
    found = read_with(three_pieces, oncorruption="quarantine", quarantinepath=str(tmp_path / "kept"), **options)
    assert found == [b"0", b"0", b"1", b"2", b"2"]
    (stored,) = (tmp_path / "kept").glob("*.bytes")
    assert stored.stat().st_size > 0


@pytest.fixture
def three_pieces(store):
    """Three pieces of partition 0, each with two batches of one record; the one in the middle is an object."""
    for number in range(3):
        wanted = [b"%d" % number * 600_000] * 2 if number == 1 else [b"%d" % number] * 2
        store.publishes.publish("p", number, stage(store, *wanted))
    return store


def read_with(store, **options):
    source = DefaultSource({"path": store.path, "subscribe": "t", **options})
    tasks = source.reader(source.schema()).partitions()
    return [value[:1] for task in tasks for part in read_partition(task) for value in part["value"].to_pylist()]


@pytest.mark.usefixtures("object_server")  # Its bytes are read by an address of their own.
def test_a_damaged_batch(three_pieces, tmp_path):
    (key,) = data_objects(three_pieces)
    damaged(three_pieces, key, 1000)
    seen, damages = [], []
    with pytest.raises(CorruptRecordError, match=rf"t-0: {three_pieces.path}/{key} at byte 0 .*CRC"):
        seen.extend(value for part in three_pieces.read("t", 0) for value in part["value"].to_pylist())
    found = [value[:1] for value in values(three_pieces, on_damage=damages.append)]
    assert found == [b"0", b"0", b"1", b"2", b"2"]
    ((file, position, end, first, after, _),) = damages
    assert (file, position, first, after) == (f"{three_pieces.path}/{key}", 0, 2, 3)
    # In Spark, too, which keeps the bytes.
    kept = tmp_path / "kept"
    assert read_with(three_pieces, oncorruption="quarantine", quarantinepath=str(kept)) == found
    (stored,) = kept.glob("*.bytes")
    assert stored.read_bytes() == bytes(Objects(three_pieces.path).get(key).data[:end])


@pytest.mark.parametrize("how", ["missing", "short", "empty", "header"])
def test_an_object_that_is_lost_or_cut(three_pieces, how):
    objects, (key,) = Objects(three_pieces.path), data_objects(three_pieces)
    if how == "missing":
        objects.delete([key])
    elif how == "header":
        damaged(three_pieces, key, 11)  # the length of a batch
    else:
        objects.put(key, bytes(objects.get(key).data[:-5]) if how == "short" else b"")
    with pytest.raises((LogDamagedError, CorruptRecordError, ObjectStoreError), match=f"{three_pieces.path}/{key}"):
        values(three_pieces)
    assert values(three_pieces, end=2) == [b"0", b"0"]
    damages = []
    assert values(three_pieces, on_damage=damages.append) == [b"0", b"0", b"2", b"2"]
    assert [(one.first_offset, one.next_offset) for one in damages] == [(2, 4)]


def test_a_damaged_decision_is_said_and_nothing_is_decided_after_it(store):
    store.append("t", rows(b"a"))
    damaged(store, "log/00000000000000000001", 40)
    other = Store.open(store.path)
    for call in (other.topics, lambda: other.append("t", rows(b"b")), lambda: list(other.read("t", 0))):
        with pytest.raises(CorruptRecordError, match=rf"{store.path}/log/0+1 .*its head is damaged"):
            call()
    assert len(list(Objects(store.path).list("log"))) == 2


# ---- requests that fail


@contextlib.contextmanager
def reached_by_proxy(store, object_server, monkeypatch, behaviour):
    """The store, reached by a proxy that misbehaves."""
    monkeypatch.setattr(objects_module, "_RETRIES", 0)
    monkeypatch.setattr(log_module, "_PAUSE", 0)
    with proxy(object_server, behaviour) as unsure, monkeypatch.context() as patched:
        for name, value in unsure.environment.items():
            patched.setenv(name, value)
        yield Store.open(store.path)


def test_a_publish_whose_outcome_is_unknown_is_answered_by_the_same_call(store, object_server, monkeypatch):
    is_down = []

    def behaviour(exchange):
        if exchange.is_create:
            is_down.append(pass_on(exchange).status)
        return Answer(500) if is_down else pass_on(exchange)

    with reached_by_proxy(store, object_server, monkeypatch, behaviour) as other:
        parts = stage(other, b"a")
        finds_out = "a publish that is repeated with its number finds out; look for records"
        with pytest.raises(OutcomeUnknownError, match=f"{store.path}/log/.*{finds_out}"):
            other.publishes.publish("p", 0, parts)
        assert is_down[0] == 200
    assert store.publishes.publish("p", 0, parts).replayed
    assert values(store) == [b"a"]


@pytest.mark.parametrize("status", [403, 503])
def test_output_that_cannot_be_stored_is_certainly_not_published(store, object_server, monkeypatch, status):
    def behaviour(exchange):
        return Answer(status) if exchange.method == "PUT" and not exchange.is_create else pass_on(exchange)

    with reached_by_proxy(store, object_server, monkeypatch, behaviour) as other:
        with pytest.raises(ObjectStoreError, match=f"{store.path}/data/.* put (is not allowed|has failed)") as caught:
            stage(other, large(1))
        assert caught.value.retriable == (status == 503)
        parts = [part for number in range(10) for part in stage(other, b"%d" % number * 150_000)]
        with pytest.raises(PublishFailedError, match="number 0 of publisher 'p' was not published") as failed:
            other.publishes.publish("p", 0, parts)
        assert failed.value.retriable == (status == 503)
    assert store.publishes.publishers() == []
    assert not store.publishes.publish("p", 0, parts).replayed


# ---- processes


def _in_child(store, results):
    results.put(([value for part in store.read("t", 0) for value in part["value"].to_pylist()], store.topics()))
    store.append("t", rows(b"child"), partition=0)
    results.put(Store.open(store.path).latest_offset("t", 0))


@pytest.mark.usefixtures("object_server")
def test_a_store_that_was_used_before_a_fork_works_in_the_child(store):
    """Also while another thread waits for an answer: the child has its own locks and connections."""
    store.append("t", rows(b"a"), partition=0)
    context = multiprocessing.get_context("fork")
    results, waits, may_end = context.Queue(), threading.Event(), threading.Event()
    parent = os.getpid()

    def wait(request):
        if os.getpid() == parent and request.kind == "get" and not request.is_done:
            waits.set()
            assert may_end.wait(PATIENCE)

    with observed_requests(wait):
        busy = threading.Thread(target=store.topics)
        busy.start()
        assert waits.wait(PATIENCE)
        child = context.Process(target=_in_child, args=(store, results))
        child.start()
        assert results.get(timeout=PATIENCE) == ([b"a"], ["t"])
        assert results.get(timeout=PATIENCE) == 2
        child.join()
        may_end.set()
    busy.join()
    assert child.exitcode == 0
    assert values(store) == [b"a", b"child"]


@pytest.mark.parametrize("count", few_or_many(2_000, 10_000))
def test_a_state_of_many_partitions_is_that_of_one_moment(store, count):
    """What is read of a state while others decide is that of one moment."""
    store.create_topic("many", count)
    everywhere = pa.record_batch({"value": [b"v"] * count, "partition": pa.array(range(count), pa.int32())})
    store.append("many", everywhere)
    places = [TopicPartition("many", number) for number in range(count)]
    reader, done = Store.open(store.path), threading.Event()

    def read():
        while not done.is_set():
            assert len(set(reader.partitions.latest_offsets(places).values())) == 1

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(3):
        store.append("many", everywhere)
    done.set()
    thread.join()
    assert set(reader.partitions.latest_offsets(places).values()) == {4}
