"""Merging, compaction and retention of a store in an object store: the records stay what they are."""

import functools
import os
import random

import pyarrow as pa
import pytest

from pyspark_log import Store, admin
from pyspark_log.errors import InvalidConfigError, OffsetOutOfRangeError, OutdatedReadError, UnknownTopicError
from pyspark_log.storage.compaction import compact as compact_folder
from pyspark_log.storage.objects.observer import set_observer
from pyspark_log.storage.publish_log import checkpoint, naming, proposals
from pyspark_log.storage.publish_log.maintenance import compact, compacting, merge, merging, rewriting
from pyspark_log.storage.publish_log.maintenance.cleaning import clean
from pyspark_log.storage.publish_log.parts import staging
from pyspark_log.types import LATEST
from tests.store_tools import rows, values

# The tests' records are of a year long ago; nothing is looked at but differences.
NOW = 1_000_000_000_000
HOUR = 60 * 60 * 1000


def clock():
    return NOW


@pytest.fixture
def little(monkeypatch):
    """Objects of some kilobytes."""
    for module in (staging, rewriting, merging, compacting):
        monkeypatch.setattr(module, "OBJECT_BYTES", 8192)
    for module in (rewriting, merging):
        monkeypatch.setattr(module, "SETTLED_BYTES", 4096)
    for module in (rewriting, merging, compacting):
        monkeypatch.setattr(module, "DECISION_BYTES", 20_000)


@pytest.fixture
def store(object_url):
    return Store.create(object_url)


def batch(values, timestamps=None, partition=None):
    columns = {"value": values, "timestamp": pa.array(timestamps or [NOW] * len(values), pa.timestamp("ms"))}
    if partition is not None:
        columns["partition"] = pa.array(partition, pa.int32())
    return pa.record_batch(columns)


def pieces(store, partition=0, topic="t"):
    state = store.log.follow()
    return state.partitions[state.topics[topic].topic_id, partition].pieces


def everything(store, topic="t"):
    partitions = range(store.describe_topic(topic).partitions)
    return [[row for part in store.read(topic, p, headers=True) for row in part.to_pylist()] for p in partitions]


def merged(store, topic=None, now=NOW):
    return merge(store.log, store.configs, lambda: now, topic)


def delete_late(monkeypatch, store, before_offset):
    """Has another process delete the first records of t-0 when they are rewritten, and nothing is decided yet."""
    write = rewriting.Rewrites.write

    def write_late(self):
        found = write(self)
        Store.open(store.path).delete_records("t", 0, before_offset)
        return found

    monkeypatch.setattr(rewriting.Rewrites, "write", write_late)


# ---- merging


def test_small_pieces_become_few_and_the_records_stay(store):
    store.create_topic("t", 3)
    for number in range(40):
        store.append("t", batch([b"%d-%d" % (number, p) for p in range(3)], partition=range(3)))
    before = everything(store)
    with Store.open(store.path).log.looking():
        planned = store.log.follow()
    assert merged(store) == (120, 3, sum(one.size for p in planned.partitions.values() for one in p.pieces))
    assert [len(pieces(store, p)) for p in range(3)] == [1, 1, 1]
    # One object for all, and one request for each.
    assert len({pieces(store, p)[0].object for p in range(3)}) == 1
    assert everything(store) == before == everything(Store.open(store.path))
    for offset in (0, 17, 39, 40):
        assert [row["offset"] for part in store.read("t", 1, offset) for row in part.to_pylist()] == [
            *range(offset, 40)
        ]
    # Nothing is left to do; what comes after is merged with it only once it is as large.
    assert merged(store) == (0, 0, 0)
    store.append("t", batch([b"more"] * 3, partition=range(3)))
    assert merged(store) == (0, 0, 0)
    assert store.append("t", batch([b"end"], partition=[0]))[0].base_offset == 41


def test_a_reader_that_has_planned_before_still_reads(store):
    store.create_topic("t", 1)
    for number in range(10):
        store.append("t", rows(b"%d" % number))
    late = store.read("t", 0)
    merged(store)
    clean(store.log, store.configs, clock)
    assert [value for part in late for value in part["value"].to_pylist()] == [b"%d" % n for n in range(10)]


def test_a_reader_that_has_planned_too_long_ago(store):
    """What is missing was replaced, so nothing is damaged, and nothing may be left out."""
    store.create_topic("t", 1, {"retention.ms": "-1"})
    for number in range(20):
        store.append("t", rows(b"%d" % number))
        if number == 9:
            merged(store)
            plans = [store.read("t", 0, on_damage=noted) for noted in (None, [].append, None, None)]
    merged(store)
    for days in (8, 10):
        clean(store.log, store.configs, lambda now=NOW + days * 24 * HOUR: now)
    for plan in plans[:2]:
        with pytest.raises(
            OutdatedReadError, match=r"^t-0: .*/segments/\S+ was replaced .* a day later: read again from offset 0$"
        ):
            list(plan)
    assert values(store) == [b"%d" % number for number in range(20)]
    store.delete_records("t", 0, -1)
    with pytest.raises(OffsetOutOfRangeError):
        list(plans[2])
    store.delete_topic("t")
    with pytest.raises(UnknownTopicError):
        list(plans[3])


@pytest.mark.usefixtures("little")
def test_pieces_of_all_sizes(store):
    """Large ones stay; a group is no larger than an object; a record is not rewritten with each merge."""
    store.create_topic("t", 2)
    chance, written = random.Random(5), 0
    set_observer(lambda request: sizes.append(request.size) if request.kind == "put" and request.is_done else None)
    sizes = []
    try:
        for number in range(300):
            size = chance.choice([1, 10, 100, 1000, 5000])
            store.append("t", batch([os.urandom(size), b"%d" % number], partition=[number % 2] * 2))
            written += size
            if number % 20 == 19:
                merged(store)
    finally:
        set_observer(None)
    before = everything(store)
    assert sum(map(len, before)) == 600
    assert max(piece.size for p in range(2) for piece in pieces(store, p)) <= 8192
    assert sum(len(pieces(store, p)) for p in range(2)) < written / 2000
    assert sum(sizes) < 4 * written
    assert everything(Store.open(store.path)) == before


def test_pieces_that_become_smaller_are_merged(store):
    store.create_topic("t", 1)
    for size in range(40, 0, -1):
        store.append("t", batch([b"x" * size]))
    assert merged(store)[:2] == (40, 1)


def test_time_bounds_a_piece(store):
    """As it bounds a segment: else records would stay for as long as the newest one beside them."""
    store.create_topic("t", 1, {"segment.ms": str(HOUR)})
    for number in range(6):
        store.append("t", batch([b"x"], [NOW + number * HOUR // 2]))
    merged(store)
    assert [(piece.base_offset, piece.next_offset) for piece in pieces(store)] == [(0, 3), (3, 6)]


def test_what_is_deleted_meanwhile_does_not_return(store, monkeypatch):
    store.create_topic("t", 2)
    for number in range(10):
        store.append("t", batch([b"%d" % number] * 2, partition=[0, 1]))
    delete_late(monkeypatch, store, 5)
    # The other partition is merged all the same.
    assert merged(store)[:2] == (10, 1)
    assert (len(pieces(store, 0)), len(pieces(store, 1))) == (5, 1)
    assert values(store, 0) == [b"%d" % n for n in range(5, 10)]
    with pytest.raises(OffsetOutOfRangeError):
        values(store, 0, start=4)


def test_damage_is_left_where_it_is(store, caplog):
    store.create_topic("t", 2)
    for number in range(4):
        store.append("t", batch([b"value %d" % number] * 2, partition=[0, 1]))
    piece, objects = pieces(store)[2], store.log.objects
    data = bytearray(objects.get(piece.object).data)
    data[piece.position + piece.size - 3] ^= 1
    objects.put(piece.object, bytes(data))
    assert merged(store)[:2] == (4, 1)
    assert len(pieces(store, 0)) == 4
    assert f"t-0 is not merged: t-0: {objects.address}/{piece.object} at byte" in caplog.text


def test_a_merged_segment_is_kafkas(store, tmp_path, monkeypatch):
    monkeypatch.setattr(rewriting, "SETTLED_BYTES", 100)
    store.create_topic("t", 1)
    for number in range(10):
        store.append("t", rows(b"%d" % number))
    merged(store)
    [piece] = pieces(store)
    assert piece.object.startswith("segments/t-0/00000000000000000000-")
    assert naming.staged_time(piece.object) == NOW
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(store.log.objects.get(piece.object).data)
    assert values(Store.open(tmp_path / "t-0")) == [b"%d" % n for n in range(10)]


def test_the_process_that_decides_merges_a_part(store, monkeypatch):
    monkeypatch.setattr(checkpoint, "EVERY", 100)
    store.create_topic("t", 2)
    for number in range(98):
        store.append("t", batch([b"%d" % number], partition=[number % 2 if number < 30 else 0]))
    assert (len(pieces(store, 0)), len(pieces(store, 1))) == (83, 15)
    store.append("t", batch([b"98"], partition=[0]))
    assert (len(pieces(store, 0)), len(pieces(store, 1))) == (1, 15)
    assert len(values(store, 0)) == 84


def test_an_unknown_topic(store):
    for call in (merged, lambda store, topic: list(compact(store.log, store.configs, clock, topic))):
        with pytest.raises(UnknownTopicError):
            call(store, "missing")
    with pytest.raises(UnknownTopicError):
        clean(store.log, store.configs, clock, "missing")


# ---- compaction

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": str(HOUR)}


def keyed(pairs, now=NOW):
    keys, values = zip(*pairs, strict=True)
    return pa.record_batch({
        "key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()),
        "timestamp": pa.array([now] * len(keys), pa.timestamp("ms")),
        "partition": pa.array([0] * len(keys), pa.int32()),
    })  # fmt: skip


def compacted(store, topic="t", now=NOW):
    return list(compact(store.log, store.configs, lambda: now, topic))


@pytest.mark.usefixtures("little")
def test_the_same_records_stay_as_in_a_folder(store, tmp_path):
    """Of random keys, with deletions; round after round, with merges between them."""
    folder = Store.create(tmp_path / "store")
    for one in (folder, store):
        one.create_topic("t", 1, {**COMPACTED, "segment.bytes": "20000"})
    chance = random.Random(7)
    for turn in range(4):
        for _ in range(15):
            pairs = [
                (b"%d" % chance.randrange(50), chance.choice([None, chance.randbytes(chance.randrange(300))]))
                for _ in range(chance.randrange(1, 9))
            ]
            for one in (folder, store):
                one.append("t", keyed(pairs))
        if turn % 2:
            merged(store)
        newest = {row["key"]: row["value"] for row in everything(folder)[0]}
        # All that has no later record for its key.
        last = {row["key"]: row["offset"] for row in everything(folder)[0]}
        [outcome] = compacted(store)
        assert not outcome.problem
        assert outcome.total.cleaned_to == store.latest_offset("t", 0)
        found = everything(store)[0]
        assert {row["key"]: row["offset"] for row in found} == last
        assert {row["key"]: row["value"] for row in found} == newest
        assert len(found) == len(last)
    # What a folder keeps, whose last segment is not compacted, is in it.
    assert all(not one.problem for one in compact_folder(folder.logs, "t"))
    kept = {row["offset"]: row for row in everything(folder)[0]}
    assert all(kept[row["offset"]] == row for row in found)
    # Deletions go when their time is over; offsets stay.
    compacted(store, now=NOW + HOUR // 2)
    assert len(everything(store)[0]) == len(found)
    store.append("t", keyed([(b"new", b"x")]))
    compacted(store, now=NOW + 2 * HOUR)
    assert [row["key"] for row in everything(store)[0]] == [
        *[row["key"] for row in found if row["value"] is not None], b"new"
    ]  # fmt: skip
    assert everything(store) == everything(Store.open(store.path))
    assert store.append("t", keyed([(b"a", b"b")]))[0].base_offset == found[-1]["offset"] + 2


def test_a_call_compacts_by_itself(store, tmp_path):
    with Store.create(tmp_path / "store") as folder:
        for where, call in ((store, store.compact), (folder, functools.partial(admin.compact, folder))):
            where.create_topic("t", 1, {**COMPACTED, "segment.bytes": "120", "min.cleanable.dirty.ratio": "1"})
            for value in (b"1", b"2", b"3"):
                where.append("t", keyed([(b"a", value)]))
            assert b"1" in values(where)
            call("t")
            assert b"1" not in values(where)


def test_what_is_due(store):
    store.create_topic("t", 1, {**COMPACTED, "min.cleanable.dirty.ratio": "0.5"})
    store.create_topic("lag", 1, {**COMPACTED, "min.compaction.lag.ms": str(HOUR)})
    store.create_topic("plain", 1)
    for topic in ("t", "lag"):
        store.append(topic, keyed([(b"a", b"1"), (b"a", b"2")], NOW - 2 * HOUR))
        store.append(topic, keyed([(b"a", b"3")]))
    assert [str(one.at) for one in compacted(store, None)] == ["lag-0", "t-0"]
    assert (values(store), values(store, topic="lag")) == ([b"3"], [b"2", b"3"])
    assert compacted(store, None) == []
    store.append("t", keyed([(b"b", b"4")]))
    # A third of it is dirty.
    assert compacted(store, None) == []
    assert [one.total.cleaned_to for one in compacted(store, "t")] == [4]
    with pytest.raises(InvalidConfigError, match="not compacted"):
        compacted(store, "plain")


@pytest.mark.usefixtures("little")
def test_compaction_of_records_that_change_meanwhile_is_not_done(store, monkeypatch):
    """Else a key that is deleted in one part would be back by an earlier record in another."""
    store.create_topic("t", 1, {**COMPACTED, "cleanup.policy": "compact,delete"})
    for number in range(20):
        store.append("t", keyed([(b"a", os.urandom(1500)), (b"%d" % number, b"")]))
    delete_late(monkeypatch, store, 2)
    [outcome] = compacted(store)
    # The first round has found other records than it had read.
    assert [one.finished for one in outcome.rounds] == [False, True]
    assert [row["key"] for row in everything(store)[0]] == [
        *[b"%d" % n for n in range(1, 19)], b"a", b"19"
    ]  # fmt: skip


def test_damage_ends_the_compaction_of_a_partition(store):
    store.create_topic("t", 1, COMPACTED)
    for _ in range(3):
        store.append("t", keyed([(b"a", b"value")]))
    piece, objects = pieces(store)[1], store.log.objects
    data = bytearray(objects.get(piece.object).data)
    data[piece.position + piece.size - 3] ^= 1
    objects.put(piece.object, bytes(data))
    before = store.log.follow()
    [outcome] = compacted(store)
    assert outcome.total is None
    assert piece.object in outcome.problem
    assert store.log.follow() == before


def test_more_keys_than_memory(object_url):
    store = Store.create(object_url, {"log.cleaner.dedupe.buffer.size": "1048576"})
    store.create_topic("t", 1, COMPACTED)
    for _ in range(2):
        for first in range(0, 60_000, 20_000):
            store.append("t", keyed([(b"%d" % number, b"x") for number in range(first, first + 20_000)]))
    [outcome] = compacted(store)
    assert len(outcome.rounds) > 1
    assert outcome.total.finished
    assert [row["offset"] for row in everything(store)[0]] == [*range(60_000, 120_000)]


# ---- retention


def test_retention_by_time_and_size(store):
    store.create_topic("t", 1, {"retention.ms": str(10 * HOUR)})
    store.create_topic("size", 1, {"retention.ms": "-1", "retention.bytes": "1000"})
    store.create_topic("compacted", 1, COMPACTED)
    for number in range(20):
        store.append("t", batch([b"%d" % number], [NOW - (20 - number) * HOUR]))
        store.append("size", batch([b"x" * 200]))
        store.append("compacted", keyed([(b"a", b"b")], 5))
    assert clean(store.log, store.configs, clock).pieces == 10 + 20 - 4
    assert values(store) == [b"%d" % n for n in range(10, 20)]
    assert store.earliest_offset("t", 0) == 10
    assert sum(piece.size for piece in pieces(store, topic="size")) >= 1000
    assert sum(piece.size for piece in pieces(store, topic="size")[1:]) < 1000
    assert len(values(store, topic="compacted")) == 20
    # All of it, in time. The offsets continue.
    assert clean(store.log, store.configs, lambda: NOW + 24 * HOUR, "t").pieces == 10
    assert (store.earliest_offset("t", 0), store.latest_offset("t", 0), values(store)) == (20, 20, [])
    assert pieces(store) == []
    assert store.append("t", rows(b"next"))[0].base_offset == 20
    assert values(Store.open(store.path)) == [b"next"]


def test_deleting_all_records_leaves_no_piece(store):
    store.create_topic("t", 1)
    store.append("t", rows(b"a", b"b"))
    assert store.delete_records("t", 0, LATEST) == 2
    assert pieces(store) == []
    assert store.latest_offset("t", 0) == 2
    assert proposals.log_of(Store.open(store.path).log.follow(), "t", 0).log_end == 2
