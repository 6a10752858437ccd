"""Keys, values and times of batches, read without columns: the same as with them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_tools import NOW, Record, build, patched, read, with_crc
from test_messages import GOLDEN

from pyspark_log.errors import BatchTooLargeError, CorruptRecordError
from pyspark_log.storage.record import assign_offsets, layout
from pyspark_log.storage.record.layout import CODECS
from pyspark_log.storage.record.walk import read_pairs, record_times
from tests.old_messages import SET_CODECS, message_set, three

ALL = {"from_offset": 0, "until_offset": 1 << 62}
RECORDS = [Record(b"a", b"1"), Record(None, b"2", NOW + 5), Record(b"c", None, -1, (("h", b"x"),))]


def pairs(data, **changes):
    """All that `read_pairs` finds in the batches of `data`."""
    position, follows, found = 0, -1, []
    while position < len(data):
        one = read_pairs(data, position, len(data), follows=follows, **{**ALL, **changes})
        assert one.num_rows == len(one.pairs)
        assert one.position > position
        position, follows = one.position, one.follows
        found += one.pairs
    return found


def times(data):
    return list(zip(*record_times(data, 1 << 30), strict=True))


def same(data):
    rows = read(data)
    assert pairs(data) == [(row.key, row.value, row.offset) for row in rows]
    return [(row.offset, row.timestamp) for row in rows]


@given(
    st.lists(
        st.builds(
            Record,
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=200),
            st.integers(-1, 2**50),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple),
        ),
        min_size=1,
        max_size=200,
    ),
    st.sampled_from(CODECS),
    st.integers(0, 2**40),
)
def test_batches_of_any_records(records, codec, base_offset):
    batch = build(records, codec, base_offset=base_offset)
    assert same(batch) == times(batch)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_messages(name):
    data = bytes.fromhex(GOLDEN[name]["hex"])
    expected = same(data)
    if len(GOLDEN[name]["decoded_by_kafka"]) == 1:
        assert times(data) == expected


@SET_CODECS
@pytest.mark.parametrize("attributes", [0, layout.LOG_APPEND_TIME])
def test_sets_of_messages_with_either_time(codec, attributes):
    data = message_set(1, codec, three(1), offset=8, attributes=attributes, time=NOW + 9)
    assert times(data) == same(data)
    assert [offset for offset, _ in times(data)] == [6, 7, 8]


def test_the_time_of_an_append():
    batch = build(RECORDS, log_append_time=NOW + 7)
    assert times(batch) == [(0, NOW + 7), (1, NOW + 7), (2, NOW + 7)] == same(batch)


def test_only_records_of_the_range():
    batches = bytearray(b"".join([build(RECORDS), build(RECORDS), build(RECORDS)]))
    assign_offsets(batches, 0, len(batches), 0, 1)
    first = read_pairs(batches, 0, len(batches), from_offset=4, until_offset=5)
    assert (first.pairs, first.next_offset, first.follows) == ([], 4, 3)
    second = read_pairs(batches, first.position, len(batches), from_offset=4, until_offset=5)
    assert (second.pairs, second.next_offset, second.follows) == ([(None, b"2", 4)], 6, 6)
    third = read_pairs(batches, second.position, len(batches), from_offset=6, until_offset=6)
    assert (third.pairs, third.next_offset, third.position) == ([], 6, second.position)


def test_markers_and_aborted_transactions_give_none():
    marker = build([Record(b"\0\0\0\1", b"\0" * 6)], transactional=True, control=True, producer_id=1, producer_epoch=0)
    part = build(RECORDS, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    assert pairs(marker) == []
    assert len(pairs(part, aborted=lambda producer, offset: (producer, offset) != (1, 0))) == 3
    assert pairs(part, aborted=lambda producer, offset: (producer, offset) == (1, 0)) == []


def test_an_incomplete_batch_is_not_read():
    batch = build(RECORDS)
    found = read_pairs(batch, 0, len(batch) - 1, follows=3, **ALL)
    assert (found.pairs, found.position, found.next_offset, found.follows) == ([], 0, 0, 3)
    with pytest.raises(CorruptRecordError, match="incomplete"):
        record_times(batch[:-1], 1 << 30)


@pytest.mark.parametrize(("dense", "follows"), [(True, 1), (True, 6), (False, 6)])
def test_a_batch_that_cannot_be_there(dense, follows):
    batch = build(RECORDS, base_offset=5)
    with pytest.raises(CorruptRecordError, match="the batch before it ends at"):
        read_pairs(batch, 0, len(batch), dense=dense, follows=follows, **ALL)
    assert len(read_pairs(batch, 0, len(batch), dense=False, follows=1, **ALL).pairs) == 3


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_refused_wherever_it_is(codec):
    batch, pick = build(RECORDS, codec), random.Random(1)
    for at in range(layout.MAGIC_AT, len(batch)):
        damaged = bytearray(batch)
        damaged[at] ^= pick.randrange(1, 256)
        for work in (pairs, times):
            with pytest.raises(CorruptRecordError):
                work(bytes(damaged))
    with pytest.raises(CorruptRecordError, match="record 2 of 3"):
        pairs(with_crc(build(RECORDS)[:-1]))
    with pytest.raises(CorruptRecordError):
        pairs(patched(build(RECORDS), layout.COUNT_AT, 4, 2))


def test_a_batch_that_is_too_large():
    batch = build([Record(b"k", bytes(10_000))] * 10, "zstd")
    for work in (
        lambda: read_pairs(batch, 0, len(batch), max_batch_bytes=50_000, **ALL),
        lambda: record_times(batch, 50_000),
    ):
        with pytest.raises(BatchTooLargeError):
            work()
