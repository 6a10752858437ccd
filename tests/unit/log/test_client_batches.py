"""Batches of clients that are appended together end up as if each had come alone."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from producer_tools import NOW, ready
from record_tools import Record, build

from pyspark_log.errors import (
    CorruptRecordError,
    OutOfOrderSequenceError,
    ProducerError,
    PylogError,
    RecordTooLargeError,
)
from pyspark_log.storage.log.state.partition_state import Flags
from pyspark_log.storage.store import Store
from tests.store_tools import faults, store_with, values

store = store_with({"segment.bytes": "2000", "retention.ms": "-1"})


def plain(*values):
    return build([Record(None, value, 1_700_000_000_000) for value in values], "none")


def said(outcome):
    if isinstance(outcome, PylogError):
        return type(outcome)
    return outcome.base_offset, outcome.next_offset, outcome.duplicate


def test_one_that_is_refused_leaves_the_others(store):
    damaged = bytearray(plain(b"x"))
    damaged[-1] ^= 1
    found = store.append_batches("t", 0, [
        ready(0, b"a", b"b"), ready(5, b"no"), plain(b"c"), bytes(damaged), ready(2, b"d"), ready(0, b"a", b"b"),
        ready(0, b"e", producer=2),
    ])  # fmt: skip
    assert [said(one) for one in found] == [
        (0, 2, False),
        OutOfOrderSequenceError,
        (2, 3, False),
        CorruptRecordError,
        (3, 4, False),
        (0, 2, True),
        (4, 5, False),
    ]
    assert values(store) == [b"a", b"b", b"c", b"d", b"e"]
    # As the next process reads it.
    again = Store.open(store.path).append_batches("t", 0, [ready(2, b"d"), ready(3, b"f"), ready(1, b"g", producer=2)])
    assert [said(one) for one in again] == [(3, 4, True), (5, 6, False), (6, 7, False)]
    assert faults(store.path) == []


def test_one_write_and_one_sync(store, monkeypatch):
    writes, syncs = [], []
    pwrite, fdatasync = os.pwrite, os.fdatasync
    store.append_batches("t", 0, [plain(b"0")])
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: writes.append(len(data)) or pwrite(fd, data, at))
    monkeypatch.setattr(os, "fdatasync", lambda fd: syncs.append(fd) or fdatasync(fd))
    batches = [ready(number, b"v") for number in range(8)]
    store.append_batches("t", 0, batches, sync=True)
    assert sum(map(len, batches)) in writes
    alone = len(writes), len(syncs)
    writes.clear()
    syncs.clear()
    store.append_batches("t", 0, [ready(8, b"v")], sync=True)
    assert alone == (len(writes), len(syncs))


def test_nothing_but_refused_and_duplicate(store):
    store.append_batches("t", 0, [ready(0, b"a")])
    assert [said(one) for one in store.append_batches("t", 0, [ready(0, b"a"), ready(7, b"b")], sync=True)] == [
        (0, 1, True),
        OutOfOrderSequenceError,
    ]
    state = store.logs.reader("t", 0).state()
    assert state.synced == state.position
    assert store.append_batches("t", 0, []) == []
    assert values(store) == [b"a"]


def test_more_than_a_segment(store):
    batches = [ready(number, bytes(300)) for number in range(20)]
    found = store.append_batches("t", 0, batches)
    assert [said(one) for one in found] == [(number, number + 1, False) for number in range(20)]
    assert len(store.segment_files("t", 0)) > 2
    assert faults(store.path) == []


def test_without_producers_none_is_looked_for(store):
    store.append_batches("t", 0, [plain(b"1"), plain(b"2")])
    assert not store.logs.reader("t", 0).state().flags & Flags.PRODUCERS


sent = st.one_of(
    st.builds(lambda count: plain(*[b"p"] * count), st.integers(1, 3)),
    st.builds(
        lambda sequence, count, producer, epoch, transactional: ready(
            sequence, *[b"%d" % sequence] * count, producer=producer, epoch=epoch, transactional=transactional
        ),
        st.integers(0, 4),
        st.integers(1, 2),
        st.integers(1, 2),
        st.integers(0, 1),
        st.booleans(),
    ),
)


@given(parts=st.lists(st.lists(sent, min_size=1, max_size=6), max_size=4))
def test_together_is_as_one_after_the_other(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("stores")
    one_by_one, together = Store.create(folder / "a"), Store.create(folder / "b")
    for one in (one_by_one, together):
        one.logs.clock.read = lambda: NOW  # a producer that is idle for long is forgotten
        one.create_topic("t", 1, {"retention.ms": "-1"})
    expected, found = [], []
    for part in parts:
        for batch in part:
            try:
                expected.append(said(one_by_one.append_batch("t", 0, batch)))
            except ProducerError as error:
                expected.append(type(error))
        found += [said(one) for one in together.append_batches("t", 0, part)]
    assert found == expected
    assert values(together) == values(one_by_one)
    for one in (one_by_one, together):
        assert faults(one.path) == []
        one.close()


def test_what_could_not_be_written_is_sent_again(store, fail):
    store.append_batches("t", 0, [ready(0, b"a")])
    batches = [ready(1, b"b"), plain(b"c"), ready(2, b"d")]
    fail("write", ".log")
    with pytest.raises(OSError, match="No space"):
        store.append_batches("t", 0, batches)
    assert values(store) == [b"a"]
    found = store.append_batches("t", 0, batches)
    assert [said(one) for one in found] == [(1, 2, False), (2, 3, False), (3, 4, False)]


def test_a_batch_that_no_segment_holds(store):
    outcomes = store.append_batches("t", 0, [plain(b"1"), plain(os.urandom(3000)), plain(b"2")])
    assert [said(one) for one in outcomes] == [(0, 1, False), RecordTooLargeError, (1, 2, False)]
    with pytest.raises(RecordTooLargeError, match=r"segment\.bytes"):
        store.append_batch("t", 0, plain(os.urandom(3000)))
    assert values(store) == [b"1", b"2"]
