"""`verify` of a store in an object store: each kind of damage is found, with its place."""

import itertools

import pytest

from pyspark_log import Store
from pyspark_log.errors import UnknownTopicError
from pyspark_log.storage.maintenance.verify import check_partition, verify, verify_elsewhere
from pyspark_log.storage.publish_log import checkpoint, floors
from pyspark_log.storage.publish_log.entries import sums
from pyspark_log.storage.publish_log.entries.entry import name_of
from pyspark_log.storage.publish_log.maintenance import clean, cleaning, merging, rewriting
from pyspark_log.storage.publish_log.serving.documents import Documents
from pyspark_log.types import TopicPartition
from tests.store_tools import rows

EVERY = 32


@pytest.fixture
def store(object_url, monkeypatch):
    """Two topics; 40 decisions with two sums and a checkpoint, and pieces in entries and in an object of their own."""
    monkeypatch.setattr(checkpoint, "EVERY", EVERY)
    monkeypatch.setattr(merging, "_RECENT_PIECES", 1_000_000)
    store = Store.create(object_url)
    store.create_topic("t", 2, {"retention.ms": "-1", "max.message.bytes": "2000000"})
    store.create_topic("other", 1, {"retention.ms": "-1"})
    for number in range(36):
        store.append("t", rows(b"%d" % number), partition=number % 2)
    store.append("t", rows(b"x" * 1_200_000), partition=0)
    store.append("other", rows(b"a", b"b"))
    return store


def found(store, topic=None):
    """What is found: severity, object, position and offsets of each."""
    return [
        (one.severity.value, one.file, one.position, one.first_offset, one.next_offset)
        for one in verify(store.path, topic).findings
    ]


def change(store, name, at, data=b"damage"):
    """Changes bytes of an object."""
    before = bytearray(store.log.objects.get(name).data)
    before[at : at + len(data)] = data
    store.log.objects.put(name, before)


def piece_of(store, topic, partition, number):
    state = store.log.follow()
    return state.partitions[state.topics[topic].topic_id, partition].pieces[number]


def test_nothing_is_wrong(store):
    report = verify(store.path)
    assert (report.findings, report.partitions, report.damaged) == ([], 3, False)
    totals = report.totals
    assert (totals.segments, totals.batches, totals.records) == (38, 38, 39)
    assert totals.bytes == sum(store.partitions.size("t", one) for one in (0, 1)) + store.partitions.size("other", 0)
    assert verify(store.path, "other").totals.records == 2
    with pytest.raises(UnknownTopicError):
        verify(store.path, "missing")


def test_progress_reaches_the_end(store):
    seen = []
    verify(store.path, jobs=1, progress=lambda *one: seen.append(one))
    assert seen[-1][0] == seen[-1][1] == verify(store.path).totals.bytes


def test_a_damaged_record(store):
    piece = piece_of(store, "t", 0, 18)
    assert piece.object.startswith("data/")
    change(store, piece.object, piece.position + 1000)
    assert found(store) == [("damage", piece.object, piece.position, 18, 19)]
    assert found(store, "other") == []
    assert "CRC" in verify(store.path).findings[0].what


def test_a_damaged_header(store):
    piece = piece_of(store, "t", 0, 18)
    change(store, piece.object, piece.position + 8)
    assert found(store) == [("damage", piece.object, piece.position, 18, 19)]


def test_a_damaged_batch_in_an_entry(store):
    piece = piece_of(store, "t", 1, 2)
    change(store, piece.object, piece.position + piece.size - 3, b"!")
    assert found(store) == [("damage", piece.object, piece.position, 2, 3)]


def test_the_second_batch_of_a_piece(store):
    merging.merge(store.log, store.configs, lambda: store.log.follow().time)
    piece = piece_of(store, "t", 1, 0)
    assert (piece.base_offset, piece.next_offset) == (0, 18)
    change(store, piece.object, piece.position + piece.size // 18 * 2 - 3, b"!")
    assert found(store) == [("damage", piece.object, piece.position + piece.size // 18, 1, 2)]
    assert verify(store.path).totals.records == 38


@pytest.mark.parametrize("left", [None, 1000, 0])
def test_an_object_that_is_missing_or_cut(store, left):
    piece = piece_of(store, "t", 0, 18)
    data = store.log.objects.get(piece.object).data
    store.log.objects.delete([piece.object])
    if left is not None:
        store.log.objects.put(piece.object, data[:left])
    assert found(store) == [("damage", piece.object, 0, 18, 19)]


def test_an_entry_that_is_missing(store):
    store.log.objects.delete([name_of(20)])
    # Its piece is missing, too: the checkpoint names it.
    assert [one[:2] for one in found(store)] == [("damage", name_of(20))] * 2
    store.log.objects.delete([checkpoint.name_of(EVERY - 1)])
    assert [one[:2] for one in found(store)] == [("damage", name_of(20))]


def test_an_entry_whose_head_is_damaged(store):
    change(store, name_of(20), 40)
    assert ("damage", name_of(20), -1, -1, -1) in found(store)


@pytest.mark.parametrize("left", [0, 10])
def test_an_entry_that_is_cut(store, left):
    store.log.objects.put(name_of(20), store.log.objects.get(name_of(20)).data[:left])
    assert [one[:2] for one in found(store)] == [("damage", name_of(20))] * 2


def test_the_last_entries_are_missing(store):
    last = store.log.follow().number
    store.log.objects.delete([name_of(number) for number in range(EVERY - 2, last + 1)])
    assert next(one[:2] for one in found(store)) == ("damage", name_of(EVERY - 2))


def test_an_entry_that_does_not_follow(store):
    """Another writer has replaced one."""
    store.log.objects.put(name_of(20), bytes(store.log.objects.get(name_of(20)).data).replace(b"20", b"21"))
    assert ("damage", name_of(20), -1, -1, -1) in found(store)


@pytest.mark.parametrize("how", ["damaged", "another"])
def test_a_checkpoint(store, how):
    name, number = checkpoint.name_of(EVERY - 1), EVERY - 1
    if how == "damaged":
        change(store, name, 30)
    else:
        state = checkpoint.read(store.log.objects, number)
        state.groups = {"g": {}}
        store.log.objects.put(name, checkpoint.encode(state))
    assert found(store) == [("damage", name, -1, -1, -1)]


def test_a_damaged_sum(store):
    change(store, sums.name_of(0), 30)
    assert found(store) == [("index", sums.name_of(0), -1, -1, -1)]
    store.log.objects.delete([sums.name_of(0)])
    assert found(store) == []


def test_a_sum_with_another_entry(store):
    """Both have their checksums; but the one is not what was decided."""
    objects, heads = store.log.objects, []
    other = Store.create(store.path + "-other")
    other.create_topic("t", 1)
    for number in range(16):
        source = other.log.objects if number == 0 else objects
        data = bytes(source.get(name_of(number)).data)
        heads.append(data[: 16 + int.from_bytes(data[8:12], "big")])
    sums.write(objects, 0, heads)
    assert found(store) == [("damage", sums.name_of(0), -1, -1, -1)]


def test_store_json(store):
    store.log.objects.put("store.json", b"{")
    assert found(store) == [("damage", "store.json", -1, -1, -1)]


def test_an_object_that_is_not_the_engines(store):
    store.log.objects.put("readme.txt", b"hello")
    assert found(store) == [("note", "readme.txt", -1, -1, -1)]
    assert not verify(store.path).damaged


# ---- floors


@pytest.fixture
def floored(store):
    """With three floors, each a checkpoint further, and without the entries up to the last one."""
    for days, _ in enumerate(range(3), 8):
        for number in range(EVERY):
            store.append("t", rows(b"%d" % number), partition=1)
        clean(store.log, store.configs, lambda days=days: store.log.follow().time + days * cleaning.DELAY_MS)
    return store


def test_floors(floored):
    state = floored.log.follow()
    assert state.floors >= 2
    listed = sorted(one.key for one in floored.log.objects.list("log"))
    assert found(floored) == []
    # Where the entries are gone, the fold begins with the floor's checkpoint.
    used = {piece.object for log in state.partitions.values() for piece in log.pieces}
    gone = [name for name in listed if int(name[4:]) <= state.floor and name not in used]
    floored.log.objects.delete([*gone, checkpoint.name_of(EVERY - 1)])
    assert found(floored) == []


def test_the_floors_checkpoint(floored):
    state = floored.log.follow()
    floored.log.objects.delete([checkpoint.name_of(state.floor)])
    assert ("damage", checkpoint.name_of(state.floor), -1, -1, -1) in found(floored)


def test_a_floor_that_is_missing_or_wrong(floored):
    objects, state = floored.log.objects, floored.log.follow()
    before = bytes(objects.get(floors.name_of(1)).data)
    objects.delete([floors.name_of(1)])
    assert found(floored) == [("damage", floors.name_of(1), -1, -1, -1)]
    objects.put(floors.name_of(1), before)
    objects.put(floors.name_of(state.floors + 1), b"%d" % state.floor)
    assert found(floored) == [("damage", floors.name_of(state.floors + 1), -1, -1, -1)]
    objects.put(floors.name_of(state.floors + 1), b"no number")
    assert found(floored) == [("damage", floors.name_of(state.floors + 1), -1, -1, -1)]


# ---- by others


def test_partitions_that_other_processes_check(store):
    piece = piece_of(store, "t", 0, 18)
    change(store, piece.object, piece.position + 1000)
    asked = []

    def check(partitions):
        asked.extend(partitions)
        return [check_partition(store.path, one) for one in partitions]

    report, own = verify_elsewhere(store.path, None, check), verify(store.path)
    assert asked == [TopicPartition("other", 0), TopicPartition("t", 0), TopicPartition("t", 1)]
    assert (report.findings, report.totals) == (own.findings, own.totals)
    assert check_partition(store.path, TopicPartition("missing", 0)) is None


def test_memory_is_bounded(store, monkeypatch):
    """The pieces are read in turns, of one partition no more bytes than that at a time."""
    log = store.log.follow()
    some = list(itertools.chain.from_iterable(one.pieces for one in log.partitions.values()))
    monkeypatch.setattr(rewriting, "_TURN_BYTES", 200)
    turns = list(rewriting.in_turns(some))
    assert list(itertools.chain.from_iterable(turns)) == some
    assert all(len(turn) == 1 or sum(piece.size for piece in turn) <= 200 for turn in turns)


def test_an_entry_that_is_missing_near_the_end(store):
    """Only those after it show that the log does not end there."""
    last = store.log.follow().number
    store.log.objects.delete([name_of(last - 1)])
    assert [one for one in found(store) if one[0] == "damage" and one[1] == name_of(last - 1)]


def test_documents_of_servers(store):
    for name in ("users.json", "acls.json", "quotas.json"):
        Documents(store.log).change(name, lambda _, name=name: name.encode())
    assert found(store) == []
    users, acls, _ = (document.object for document in store.log.follow().documents.values())
    change(store, users, 1)
    store.log.objects.delete([acls])
    assert found(store) == [("damage", users, -1, -1, -1), ("damage", acls, -1, -1, -1)]
    assert "is damaged" in verify(store.path).findings[0].what
