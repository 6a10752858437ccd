"""`back_up_store` from and to an object store: the copy is the store at one moment, and can be used."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from broker_tools import mirrored
from record_tools import Record, build
from transaction_tools import Log

from pyspark_log import Store, TopicPartition
from pyspark_log.clients.transactions import Transactions
from pyspark_log.errors import (
    CorruptRecordError,
    LogDamagedError,
    ObjectStoreError,
    PublisherFencedError,
    ReadOnlyError,
    StoreExistsError,
    StoreNotFoundError,
)
from pyspark_log.server.security.acls import Acl, Acls, Operation, Pattern, Permission, Resource
from pyspark_log.storage.maintenance import object_backup
from pyspark_log.storage.maintenance.object_backup import back_up_store
from pyspark_log.storage.maintenance.verify import verify
from pyspark_log.storage.objects.observer import set_observer
from pyspark_log.storage.publish_log import beginning, checkpoint
from pyspark_log.storage.publish_log.entries.changes import Place, Step, TransactionStep
from pyspark_log.storage.publish_log.proposals import Proposal
from pyspark_log.storage.publish_log.reading import bytes_of
from pyspark_log.storage.publish_log.serving import servers
from pyspark_log.storage.publish_log.serving.incoming import Incoming, take_in
from pyspark_log.storage.record import scan
from pyspark_log.types import READ_COMMITTED
from tests.documents import documents_at
from tests.old_messages import three
from tests.store_tools import faults, new_store, observed_requests, rows, values

AT = TopicPartition("t", 0)
RIGHT = Acl(Resource.TOPIC, "t", Pattern.LITERAL, "User:anna", "*", Operation.READ, Permission.ALLOW)


@pytest.fixture
def source(place):
    """A store of either kind with records, deleted ones, committed offsets and a publisher."""
    store = Store.create(place, {"num.partitions": "3"})
    store.create_topic("t", 3, {"retention.ms": "-1", "segment.bytes": "100000"})
    store.create_topic("keys", 1, {"cleanup.policy": "compact"})
    store.create_topic("empty", 2)
    for number in range(10):
        made = datetime(2026, 1, 1, number, tzinfo=UTC)
        record = {"key": b"k", "value": b"%d" % number, "timestamp": made, "headers": [("h", b"1")]}
        store.append("t", [record, record], partition=number % 2)
        store.append("keys", [{"key": b"%d" % (number % 3), "value": b"x" * 50_000}], compression_type="gzip")
    store.delete_records("t", 0, 3)
    store.delete_records("t", 1, 10)  # all of them
    publish(store, 0)
    store.groups["g"].commit({AT: 4, TopicPartition("keys", 0): 7}, "a text")
    store.groups["g"].commit({TopicPartition("t", 1): 10})
    return store


def publish(store, number):
    with Transactions(store, "p").begin() as transaction:
        transaction.append("t", pa.record_batch({"value": [b"p%d" % number], "partition": pa.array([2], pa.int32())}))
        before = store.groups["moved"].committed()
        offset = before[AT].offset if before else None
        transaction.send_offsets("moved", {AT: (offset, (offset or 0) + 1)})


@pytest.fixture(params=["folder", "objects"])
def into(request, tmp_path):
    """Where the copy is made."""
    return str(tmp_path / "copy") if request.param == "folder" else request.getfixturevalue("object_url") + "-copy"


def all_of(store):
    """All that a user sees: rows with their offsets and times, topics, and committed offsets."""
    topics = {name: store.describe_topic(name) for name in store.topics()}
    places = [(name, number) for name, topic in topics.items() for number in range(topic.partitions)]
    return (
        store.cluster_id,
        dict(store.configs),
        topics,
        {at: (store.earliest_offset(*at), store.latest_offset(*at)) for at in places},
        {at: [row for part in store.read(*at, headers=True) for row in part.to_pylist()] for at in places},
        {
            group: {at: (one.offset, one.metadata) for at, one in store.groups[group].committed().items()}
            for group in store.groups
        },
    )


def test_a_copy_has_everything(source, into):
    seen = []
    Acls(documents_at(source.path), ()).change(lambda _: [RIGHT])
    done = back_up_store(source, into, progress=lambda *one: seen.append(one))
    copy = Store.open(into)
    assert all_of(copy) == all_of(source)
    assert all_of(copy)[3]["t", 1] == (10, 10)
    assert (done.path, done.undone) == (copy.path, 0)
    assert done.bytes > 0
    assert seen[-1][0] == seen[-1][1]
    assert faults(into) == []
    # But for what is its servers': it may be secret, and the copy may be for others.
    assert not Acls(documents_at(into), ()).rules().acls
    times = {at: one.commit_timestamp for at, one in source.groups["g"].committed().items()}
    if source.path.startswith("s3://") or into.startswith("s3://"):
        kept = {at: one.commit_timestamp for at, one in copy.groups["g"].committed().items()}
        assert (kept == times) == into.startswith("s3://")


def test_a_copy_is_used(source, into):
    back_up_store(source, into)
    copy = Store.open(into)
    # Its publisher is known: number 0 is published, and the next is 1.
    [known] = copy.publishes.publishers()
    assert (known.publisher, known.number) == ("transaction-p", 0)
    publish(copy, 1)
    assert values(copy, 2) == [b"p0", b"p1"]
    # A run that was replaced stays fenced.
    with pytest.raises(PublisherFencedError):
        copy.publishes.publish("transaction-p", 7, [], run=known.run, location=known.location)
    copy.append("t", rows(b"next"), partition=1)
    assert (copy.earliest_offset("t", 1), values(copy, 1)) == (10, [b"next"])
    copy.groups["g"].commit({AT: 5})
    copy.create_topic("another")
    assert Store.open(into).topics() == ["another", "empty", "keys", "t"]
    assert faults(into) == []
    assert values(source, 2) == [b"p0"]


@pytest.mark.parametrize("place", ["objects"], indirect=True)
def test_a_copy_does_not_need_the_hint_nor_the_source(source, object_url):
    back_up_store(source, f"{object_url}-copy")
    before, copy = all_of(source), Store.open(f"{object_url}-copy")
    source.log.objects.delete([one.key for one in source.log.objects.list()])
    copy.log.objects.delete(["checkpoint/last"])
    again = Store.open(f"{object_url}-copy")
    assert all_of(again) == before
    again.append("t", rows(b"next"), partition=1)
    assert values(copy, 1) == [b"next"]


@pytest.mark.parametrize("place", ["objects"], indirect=True)
def test_a_copy_is_of_one_moment(source, into):
    """Publishes that come while it is made are not in it, nor a part of them; nor is it hurt by a merge."""
    before, is_done = all_of(source), []

    def change(*_):
        if not is_done:
            is_done.append(True)
            publish(source, 1)
            source.append("t", rows(b"late"), partition=0)
            source.merge()
            source.delete_topic("keys")

    back_up_store(source, into, progress=change)
    assert is_done
    assert all_of(Store.open(into)) == before


@pytest.mark.parametrize("place", ["objects"], indirect=True)
def test_there_and_back(source, object_url, tmp_path):
    back_up_store(source, tmp_path / "folder")
    back_up_store(Store.open(tmp_path / "folder"), f"{object_url}-back")
    assert all_of(Store.open(f"{object_url}-back")) == all_of(source)


def test_a_store_without_records(place, into):
    store = Store.create(place)
    back_up_store(store, into)
    copy = Store.open(into)
    assert all_of(copy) == all_of(store)
    copy.create_topic("t", 1)
    copy.append("t", rows(b"a"))
    assert values(Store.open(into)) == [b"a"]
    assert faults(into) == []


@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_objects_are_of_a_size_that_can_be_read(source, into, monkeypatch):
    """The pieces of a large partition are as large as segments; those of small ones share an object."""
    if not into.startswith("s3://"):
        pytest.skip("this is about objects")
    monkeypatch.setattr(beginning, "_OWN_BYTES", 60_000)
    source.append("keys", [{"key": b"%d" % number, "value": os.urandom(1000)} for number in range(300)])
    source.append("t", [{"value": os.urandom(1000)} for number in range(300)], partition=2)
    back_up_store(source, into)
    copy = Store.open(into)
    assert all_of(copy)[4] == all_of(source)[4]
    state = copy.log.follow()
    pieces = {
        at: state.partitions[state.topics[at[0]].topic_id, at[1]].pieces for at in (("t", 2), ("t", 0), ("keys", 0))
    }
    assert [piece.object.startswith("segments/t-2/") for piece in pieces["t", 2]][1:4] == [True] * 3
    assert all(50_000 < piece.size <= 100_000 for piece in pieces["t", 2][1:-1])
    # Those of two partitions are in one object.
    assert {pieces["t", 0][0].object} <= {piece.object for piece in (*pieces["t", 2], *pieces["keys", 0])}


# ---- transactions


def test_an_open_transaction_can_be_committed_in_the_copy(object_url):
    """And the copy has servers of its own."""
    store, run = Store.create(object_url), "r" * 22
    topic = store.create_topic("t", 1)
    store.append("t", rows(b"a"))
    data = build([Record(value=b"b", timestamp=5)], producer_id=7, producer_epoch=0, base_sequence=0)
    [header] = scan(data, 0, len(data))
    batch = Incoming(topic, 0, header, data, in_transaction=True)
    store.log.decide(lambda _: step(Step.BEGIN))
    store.log.decide(lambda state: take_in(state, [batch])[0])
    store.log.decide(lambda state: servers.register(state, None, run, Place("host", 9092)))
    back_up_store(store, f"{object_url}-copy")
    copy = Store.open(f"{object_url}-copy")
    assert (values(copy), copy.log.follow().servers, copy.log.follow().coordinator.run) == ([b"a"], {}, "")
    copy.log.decide(lambda _: step(Step.COMMIT))
    assert values(copy) == [b"a", b"b"]
    assert faults(copy.path) == []


def step(what):
    return Proposal(steps=(TransactionStep("tx", b"value", -1, 7, 0, what),))


@pytest.fixture
def transactions(tmp_path):
    """Committed, aborted and open transactions of producers, between other records."""
    log = Log(tmp_path / "kafka")
    for turn in range(3):
        log.plain(b"plain%d" % turn)
        log.write(1, b"a%d" % turn, b"b%d" % turn)
        log.write(2, b"c%d" % turn)
        log.finish(1, commit=turn != 1)
        log.write(2, b"d%d" % turn)
        log.finish(2, commit=turn == 1)
    log.write(3, b"open")
    log.write(1, b"later")
    log.finish(1, commit=True)
    return log


def test_only_committed_records_are_copied(transactions, object_url, tmp_path):
    store = transactions.store
    expected = sorted(transactions.rows.items())
    back_up_store(store, object_url)
    copy = Store.open(object_url)
    found = [(row["offset"], row["value"]) for part in copy.read("t", 0) for row in part.to_pylist()]
    assert found == expected
    assert copy.latest_offset("t", 0) == store.latest_offset("t", 0)
    assert faults(object_url) == []
    # No batch says any more that it is a producer's.
    for log in copy.log.follow().partitions.values():
        for piece in log.pieces:
            data = bytes_of(copy.log.objects, piece.object, [(AT, piece)])[0]
            for header in scan(data, 0, len(data), check_crcs=True):
                assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
                assert not header.is_transactional
                assert not header.is_control
    # Back in a folder no transaction is open, which no producer could end.
    back_up_store(copy, tmp_path / "back")
    back = Store.open(tmp_path / "back")
    assert back.latest_offset("t", 0, isolation_level=READ_COMMITTED) == store.latest_offset("t", 0)
    assert values(back, isolation_level=READ_COMMITTED) == [value for _, value in expected]


# ---- what is refused


def test_where_a_copy_cannot_be(source, into, tmp_path):
    Store.create(into)
    with pytest.raises(StoreExistsError, match="is not empty"):
        back_up_store(source, into)
    if source.path.startswith("s3://"):
        with pytest.raises(StoreNotFoundError):
            back_up_store(source, tmp_path / "missing/copy")
        with pytest.raises(StoreExistsError, match="outside of the store"):
            back_up_store(source, source.path + "/copy")


def test_a_folder_of_a_broker(source, object_url):
    if source.path.startswith("s3://"):
        pytest.skip("this is about folders")
    source.close()
    os.unlink(f"{source.path}/store.json")
    with pytest.raises(ReadOnlyError, match="pylog mirror"):
        back_up_store(Store.open(f"{source.path}/data"), f"{object_url}-copy")


def test_damage_is_not_copied(source, into):
    if source.path.startswith("s3://"):
        log = source.log.follow()
        piece = log.partitions[log.topics["t"].topic_id, 2].pieces[0]
        data = bytearray(source.log.objects.get(piece.object).data)
        data[piece.position + piece.size - 1] ^= 1
        source.log.objects.put(piece.object, data)
    elif into.startswith("s3://"):
        [segment] = source.segment_files("t", 2)
        data = bytearray(Path(segment).read_bytes())
        data[-1] ^= 1
        Path(segment).write_bytes(data)
    else:
        pytest.skip("this is a backup of folders, which copies files")
    with pytest.raises(CorruptRecordError):
        back_up_store(source, into)
    with pytest.raises(StoreNotFoundError):
        Store.open(into)


def test_messages_of_old_formats(tmp_path, object_url):
    folder = tmp_path / "broker/t-0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.log").write_bytes(three(1))
    store = Store.create(tmp_path / "store")
    mirrored(store, tmp_path / "broker", "t")
    with pytest.raises(CorruptRecordError, match="older formats"):
        back_up_store(store, object_url)


def test_a_publish_that_cannot_be_applied(tmp_path, object_url, monkeypatch):
    store = new_store(tmp_path)
    before = object_backup.back_up

    def undone(*given):
        done = before(*given)
        return type(done)(done.path, done.time, done.pause, done.partitions, done.bytes, 1)

    monkeypatch.setattr(object_backup, "back_up", undone)
    with pytest.raises(LogDamagedError, match="pylog recover"):
        back_up_store(store, object_url)
    with pytest.raises(StoreNotFoundError):
        Store.open(object_url)


def test_it_is_stopped(source, object_url):
    """Whatever is written by then is no store, and no copy is made over it."""
    url, count = f"{object_url}-copy", 0

    def observe(request):
        nonlocal count
        if request.kind in ("put", "create") and not request.is_done and store_of(request, source):
            count += 1
            if count == 2:
                raise ObjectStoreError("stopped", retriable=False)

    with observed_requests(observe), pytest.raises(ObjectStoreError):
        back_up_store(source, url)
    with pytest.raises(StoreNotFoundError):
        Store.open(url)
    with pytest.raises(StoreExistsError):
        back_up_store(source, url)


def store_of(request, source):
    return request.key.startswith(("segments/", "checkpoint/", "floor/", "store.json"))


def test_two_copies_in_one_place(source, object_url):
    """One is made."""
    url = f"{object_url}-copy"

    def meanwhile(*_):
        set_observer(None)
        back_up_store(source, url)

    with (
        observed_requests(
            lambda request: meanwhile() if request.key.startswith("segments/") and request.kind == "put" else None
        ),
        pytest.raises(StoreExistsError, match="another process is making a store"),
    ):
        back_up_store(source, url)
    assert all_of(Store.open(url)) == all_of(source)
    # What the other one has left is in no piece.
    assert not verify(url).damaged
    assert checkpoint.read_last(Store.open(url).log.objects).floors == 1
