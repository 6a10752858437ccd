"""Looks into topics: what they find, and that what they read has bounds."""

import os

import pyarrow as pa
import pytest
from transaction_tools import as_brokers

from pyspark_log import Store
from pyspark_log.admin import compact
from pyspark_log.ui import bounds
from pyspark_log.ui.looks.found import Gap, Record
from pyspark_log.ui.looks.records import Reader
from pyspark_log.ui.looks.search import Match, search
from tests.store_tools import overwrite, rows, store_with
from tests.ui_tools import shown

MIB = 1 << 20
T0 = 1_700_000_000_000

store_of_t = store_with({"retention.ms": "-1"})
store_of_six = store_with({"retention.ms": "-1"}, partitions=6)


def offsets(look):
    return [row.offset for row in look.records]


def fill(store, count, size=20, partition=0, first=0):
    """Records with their numbers as keys, a second apart."""
    store.append("t", pa.record_batch({
        "key": [b"k%d" % number for number in range(first, first + count)],
        "value": [os.urandom(size) for _ in range(count)],
        "timestamp": pa.array([T0 + 1000 * number for number in range(first, first + count)], pa.int64()),
    }), partition=partition)  # fmt: skip


def test_the_last_ones_come_first_and_then_those_before_them(store_of_t):
    for number in range(30):
        fill(store_of_t, 10, first=10 * number)
    reader = Reader(store_of_t, "t")
    seen, before = [], None
    while True:
        look = reader.last(0, 70, before)
        seen += offsets(look)
        before = look.older
        if before is None:
            break
    assert seen == list(range(299, -1, -1))
    assert reader.last(0, 70, 100).newer == 100


def test_from_an_offset_on(store_of_t):
    fill(store_of_t, 300)
    reader = Reader(store_of_t, "t")
    look = reader.from_offset(0, 100, 120)
    assert (offsets(look), look.older, look.newer) == (list(range(120, 220)), 120, 220)
    look = reader.from_offset(0, 100, 250)
    assert (offsets(look), look.newer, look.notes) == (list(range(250, 300)), None, [])
    store_of_t.delete_records("t", 0, 50)
    assert reader.from_offset(0, 1, 10).notes == ["Offset 10 is not there any more: the log starts at 50."]
    assert offsets(reader.from_offset(0, 1, 10)) == [50]
    assert reader.from_offset(0, 1, 400).notes == ["Offset 400 is not there yet: the log ends at 300."]


def test_from_a_time_on(store_of_six):
    for partition in range(6):
        fill(store_of_six, 50, partition=partition)
    reader = Reader(store_of_six, "t")
    assert offsets(reader.from_time([3], 5, T0 + 20_000)) == [20, 21, 22, 23, 24]
    together = reader.from_time(reader.written(), 12, T0 + 30_000)
    assert [(one.time - T0, one.partition) for one in together.records] == [
        (30_000 + 1000 * number, partition) for number in (0, 1) for partition in range(6)
    ]
    for numbers in ([3], [0, 1, 2]):
        look = reader.from_time(numbers, 5, T0 + 10**9)
        assert (look.rows, look.notes) == ([], ["There is no record of this time or later."])


def test_the_last_ones_of_all_partitions(store_of_six):
    for partition in range(4):
        fill(store_of_six, 50, partition=partition)
    look = Reader(store_of_six, "t").last_of_all(20)
    assert [(one.time - T0) // 1000 for one in look.records] == [
        number for number in range(49, 44, -1) for _ in range(4)
    ]


def test_a_key_is_looked_for_where_it_was_put(store_of_six):
    for number in range(40):
        store_of_six.append("t", [{"key": f"k{number % 8}", "value": str(number)}])
    reader = Reader(store_of_six, "t")
    for key in (b"k0", b"k5"):
        look = search(reader, Match(key), 100, {reader.partition_of(key): 100})
        assert [one.value for one in look.records] == [
            b"%d" % number for number in range(39, -1, -1) if number % 8 == key[1] - 48
        ]
        assert look.rest == {}
    assert search(reader, Match(b"none"), 100, {0: 100}).rows == []


def test_a_key_is_looked_for_step_by_step(store_of_t, monkeypatch):
    monkeypatch.setattr("pyspark_log.ui.looks.search.SCAN_BYTES", 64 << 10)
    for number in range(50):
        fill(store_of_t, 100, size=100, first=100 * number)
    reader = Reader(store_of_t, "t")
    starts, steps = {0: 5000}, 0
    while not (look := search(reader, Match(b"k777"), 100, starts)).records:
        assert 0 < look.read < 128 << 10
        starts, steps = look.rest, steps + 1
    assert offsets(look) == [777]
    assert 4 < steps < 30
    # What is left is looked at from there on.
    while starts:
        starts = search(reader, Match(b"k777"), 100, starts).rest


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (Match(text=b"tea"), ["in value", "twice", "in name", "in header", "tea"]),
        (Match(text=b"TEA"), []),
        (Match(text=b"TEA", is_any_case=True), ["in value", "twice", "in name", "in header", "tea"]),
        (Match(text="ŻÓŁĆ".encode(), is_any_case=True), ["other letters"]),
        (Match(text=b".*"), []),
        (Match(text=b"\xfe"), ["bytes"]),
        (Match(b"twice", b"tea"), ["twice"]),
        (Match(b"twice", b"milk"), []),
    ],
)
def test_a_text_is_looked_for_in_all_that_a_record_has(store_of_t, match, expected):
    store_of_t.append("t", [
        {"key": "in value", "value": "black tea"}, {"key": None, "value": None},
        {"key": "twice", "value": "tea", "headers": [("x", b"tea"), ("tea", None)]},
        {"key": "other letters", "value": "ażółć"}, {"key": "bytes", "value": b"\xff\xfe"},
        {"key": "in name", "value": "", "headers": [("a", b"b"), ("teacup", None)]},
        {"key": "in header", "value": None, "headers": [("a", b"tea")]}, {"key": "tea", "value": "none"},
    ])  # fmt: skip
    reader = Reader(store_of_t, "t")
    for is_forward in (False, True):
        look = search(reader, match, 100, {0: 0 if is_forward else 8}, is_forward=is_forward)
        keys = [record.key.decode() for record in look.records]
        assert keys == (expected if is_forward else expected[::-1])


@pytest.mark.parametrize("is_forward", [False, True])
@pytest.mark.parametrize("count", [3, 100])
def test_a_search_of_all_partitions_finds_each_record_once(store_of_six, monkeypatch, is_forward, count):
    monkeypatch.setattr("pyspark_log.ui.looks.search.SCAN_BYTES", 6 << 10)
    for partition in range(5):
        for ten in range(6):
            values = ["x" * 100 if number % 3 else f"tea {number}" for number in range(10 * ten, 10 * ten + 10)]
            store_of_six.append("t", rows(*values), partition=partition)
    reader, places, steps = Reader(store_of_six, "t"), [], 0
    starts = dict.fromkeys(range(6), 0 if is_forward else 60)
    while starts:
        look = search(reader, Match(text=b"tea"), count, starts, is_forward=is_forward, ends={1: 31, 2: 90})
        assert len(look.rows) <= count
        places += [(record.partition, record.offset) for record in look.records]
        starts, steps = look.rest, steps + 1
    assert steps > 2
    expected = [(partition, offset) for partition in range(5) for offset in range(0, 31 if partition == 1 else 60, 3)]
    assert sorted(places) == expected


def test_an_empty_topic(store_of_t):
    reader = Reader(store_of_t, "t")
    assert reader.last_of_all(50).rows == reader.last(0, 50).rows == search(reader, Match(), 50, {0: 0}).rows == []
    assert reader.from_offset(0, 50, 0).rows == reader.from_time([0], 50, 0).rows == []


def test_transactions_and_their_markers(log, tmp_path):
    log.plain(b"p0")
    log.write(1, b"a0", b"a1")
    log.write(2, b"b0")
    log.finish(1, commit=False)
    log.write(3, b"c0")
    log.finish(2, commit=True)
    log.plain(b"p1")
    log.store.close()
    for store in (log.store, as_brokers(log, tmp_path / "logs")):
        look = Reader(store, "t").last(0, 50)
        seen = [
            (row.value, row.state) if isinstance(row, Record) else (row.first, row.marker, row.producer)
            for row in reversed(look.rows)
        ]
        assert seen == [
            (b"p0", ""), (b"a0", "aborted"), (b"a1", "aborted"), (b"b0", ""), (4, "abort", 1), (b"c0", "open"),
            (6, "commit", 2), (b"p1", "open"),
        ]  # fmt: skip
        # A look may begin and end within a batch.
        for offset in (1, 2):
            assert [one.state for one in Reader(store, "t").from_offset(0, 1, offset).records] == ["aborted"]
            assert Reader(store, "t").last(0, 1, offset + 1).records[0].state == "aborted"


def test_gaps_of_what_was_compacted(root):
    with Store.open(root) as store:
        look = Reader(store, "t").from_offset(0, 50, 0)
    found = [row.offset if isinstance(row, Record) else (row.first, row.last) for row in look.rows]
    assert found == [0, (1, 1), 2, 3, (4, 11), 12, (13, 14), 15, 16, (17, 19), 20]


def test_the_last_records_before_a_long_gap(store_of_t):
    """Compaction may leave few records among very many offsets."""
    store_of_t.alter_configs(
        "t", {"cleanup.policy": "compact", "segment.bytes": "100000", "min.cleanable.dirty.ratio": "0"}
    )
    for number in range(60):
        store_of_t.append("t", [{"key": f"rare{number}", "value": "v"}])
        store_of_t.append("t", [{"key": "often", "value": "v" * 50}] * 1000)
    # It does not fit into the segment, so that only this is not compacted.
    store_of_t.append("t", [{"key": "last", "value": "v" * 99_000}])
    assert list(compact(store_of_t, "t"))
    with Store.open(store_of_t.path) as store:
        look = Reader(store, "t").last(0, 100)
        kept = [int(row["offset"]) for part in store.read("t", 0) for row in part.to_pylist()]
    assert offsets(look) == kept[::-1][:100]
    assert any(isinstance(row, Gap) for row in look.rows)


def test_damage_ends_a_look_with_a_note(store_of_t):
    for number in range(3):
        fill(store_of_t, 10, size=100, first=10 * number)
    [path] = store_of_t.segment_files("t", 0)
    overwrite(path, os.path.getsize(path) // 2, b"?" * 20)
    look = Reader(store_of_t, "t").from_offset(0, 50, 0)
    assert offsets(look) == list(range(10))
    [note] = look.notes
    assert note.startswith("The records after these cannot be read: [PYLOG_CORRUPT_RECORD] t-0: ")


# ---- bounds


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A page of a topic of 96 MiB, one of 16 MiB in large records, and one with a value of 20 MiB."""
    path = tmp_path_factory.mktemp("large") / "store"
    with Store.create(path) as store:
        store.create_topic("t", 1, {"retention.ms": "-1"})
        for number in range(96):
            fill(store, 1000, size=1000, first=1000 * number)
        store.create_topic("one", 1, {"retention.ms": "-1", "max.message.bytes": str(64 * MIB)})
        store.append("one", rows(b"x" * 20 * MIB))
        store.append("one", rows(b"small"))
        store.create_topic("fat", 1, {"retention.ms": "-1"})
        for number in range(200):
            store.append("fat", rows(b"%d" % number * 30_000))
    with shown(path) as page:
        # What is loaded for the first look is not what the others read.
        page.get("/topics/one/records")
        yield page


@pytest.mark.parametrize(
    ("query", "most"),
    [
        ("", 6),
        ("?count=100000", 6),
        ("?by=offset&at=0&count=100000", 6),
        ("?by=offset&at=50000", 6),
        (f"?by=time&at={T0 + 60_000_000}", 6),
        ("?by=key&at=nothing", 30),
        ("?by=key&at=k5", 30),
        ("?text=nothing", 30),
        ("?text=nothing&by=offset&at=5000", 30),
        ("/0/77777", 6),
    ],
)
@pytest.mark.parametrize("topic", ["t", "fat"])
def test_a_request_reads_so_much_and_no_more(large, topic, query, most):
    before = large.bytes_read()
    status, _, body = large.get(f"/topics/{topic}/records{query}")
    assert status == 200
    assert large.bytes_read() - before < most * MIB
    assert body.count('<tr id="r') <= bounds.MOST_RECORDS
    assert len(body) < 2 * MIB


def test_a_long_value_is_cut(large):
    status, _, body = large.get("/topics/one/records/0/0")
    assert status == 200
    assert "cut after 262,144 of 20,971,520 bytes" in body
    assert len(body) < MIB
    status, _, body = large.get("/topics/one/records?before=1")
    assert len(body) < 64 << 10
    assert "20.0 MiB" in body


def test_a_search_says_where_it_is_and_continues(large):
    text = large.text("/topics/t/records?by=key&at=k5")
    assert "The search looked at the offsets" in text
    assert "search further back" in text
