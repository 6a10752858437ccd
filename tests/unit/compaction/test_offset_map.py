"""The map of keys to their last offsets: alone, and filled from a log."""

from __future__ import annotations

import contextlib
import os

import pytest
from cleaning_tools import Log, nothing_more_mapped, pair
from hypothesis import given, settings
from hypothesis import strategies as st
from producer_tools import ending, ready
from record_tools import Record, build, patched, with_crc

from pyspark_log.errors import BatchTooLargeError, CorruptRecordError, InvalidConfigError, LogDamagedError
from pyspark_log.storage.compaction.offset_map import OffsetMap, siphash128
from pyspark_log.storage.record import layout
from pyspark_log.storage.record.headers import assign_offsets, scan
from pyspark_log.storage.record.layout import CODECS
from tests.old_messages import message, message_set, three
from tests.store_tools import overwrite

ENTRY = 24


def found(keys: OffsetMap, *names: str) -> list[int]:
    return [keys.get(name.encode()) for name in names]


# The table


@pytest.mark.parametrize(
    ("size", "digest"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (63, "5150d1772f50834a503e069a973fbd7c"),
    ],
)
def test_the_hash_is_siphash(size, digest):
    assert siphash128(bytes(range(16)), bytes(range(size))).hex() == digest


def test_a_table_of_4096_bytes_has_170_slots():
    keys = OffsetMap(4096)
    assert (keys.slots, keys.capacity, keys.latest_offset) == (170, 153, -1)
    for number in range(keys.capacity):
        assert keys.put(b"%d" % number, number)
    assert [keys.get(b"%d" % number) for number in range(keys.capacity)] == list(range(keys.capacity))
    assert keys.get(b"absent") == -1
    assert not keys.put(b"one more", 1)
    assert keys.put(b"7", 1000)
    assert (keys.get(b"7"), keys.get(b"one more"), keys.count) == (1000, -1, 153)
    keys.clear()
    assert (keys.get(b"7"), keys.count, keys.latest_offset) == (-1, 0, -1)


@pytest.mark.parametrize(("memory", "load"), [(0, 0.9), (ENTRY, 0.9), (4096, 0), (4096, 1), (4096, float("nan"))])
def test_a_table_without_room_is_refused(memory, load):
    with pytest.raises(InvalidConfigError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(memory, load)


def test_a_negative_offset_is_refused():
    with pytest.raises(ValueError, match="negative"):
        OffsetMap(4096).put(b"k", -1)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 2**63 - 2)), max_size=80), st.integers(2, 90))
def test_the_table_is_a_map_up_to_its_capacity(entries, slots):
    keys, model = OffsetMap(slots * ENTRY, 0.99), {}
    for key, offset in entries:
        fits = key in model or len(model) < keys.capacity
        assert keys.put(key, offset) == fits
        if fits:
            model[key] = offset
    assert keys.count == len(model)
    assert {key: keys.get(key) for key, _ in entries} == {key: model.get(key, -1) for key, _ in entries}


def test_a_table_grows_up_to_the_last_slot():
    keys = OffsetMap(100_000 * ENTRY, 0.95)
    assert all(keys.put(b"%d" % number, number) for number in range(keys.capacity))
    assert all(keys.get(b"%d" % number) == number for number in range(keys.capacity))
    assert all(keys.get(b"absent %d" % number) == -1 for number in range(1000))
    assert not keys.put(b"one more", 0)


# Filled from a log


@pytest.mark.parametrize("codec", CODECS)
def test_each_key_has_its_last_offset(log, codec):
    log.put(pair("a", "1"), pair("b", None), pair(None, "x"), pair("a", "2"), codec=codec)
    log.roll()
    log.put(Record(b"b", b"3", headers=(("h", b"1"), ("h", None))), Record(b"", b"4"), codec=codec)
    log.roll()
    keys = OffsetMap(4096)
    assert log.fill(keys) == 6
    assert found(keys, "a", "b", "", "x") == [3, 4, 5, -1]
    assert (keys.count, keys.latest_offset) == (3, 5)


@pytest.mark.parametrize(("start", "end", "offsets"), [(0, 4, [2, 3]), (2, 4, [2, 3]), (3, 4, [-1, 3]), (0, 2, [0, 1])])
def test_only_the_range_is_entered(log, start, end, offsets):
    for _ in range(2):
        log.put(pair("a", "1"))
        log.put(pair("b", "2"))
        log.roll()
    keys = OffsetMap(4096)
    assert log.fill(keys, start, end) == end == keys.latest_offset + 1
    assert found(keys, "a", "b") == offsets


def test_a_range_may_begin_inside_a_batch(log):
    log.put(pair("a", "1"), pair("b", "2"))
    log.roll()
    keys = OffsetMap(4096)
    assert log.fill(keys, 1) == 2
    assert found(keys, "a", "b") == [-1, 1]


def test_an_empty_range_knows_all_below_it(log):
    log.put(pair("a", "1"))
    log.roll()
    keys = OffsetMap(4096)
    assert log.fill(keys, 1, 1) == 1
    assert (keys.count, keys.latest_offset) == (0, 0)


def test_markers_and_aborted_records_are_passed_over(log):
    log.append(ready(0, b"1", transactional=True))
    log.append(ending(False))
    log.append(ready(1, b"2", transactional=True))
    log.append(ending(True))
    log.append(ready(2, b"3", transactional=True))
    log.append(ending(False))
    log.roll()
    keys = OffsetMap(4096)
    assert log.fill(keys) == 6
    assert (found(keys, "k"), keys.count) == ([2], 1)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_entered(log, magic):
    log.append(three(magic), 3)
    inside = three(magic) if magic else three(0, 3)
    log.append(message_set(magic, "lz4", inside, offset=5), 6)
    log.append(message(magic, None, b"x", offset=6), 7)
    log.roll()
    keys = OffsetMap(4096)
    assert log.fill(keys) == 7
    assert (found(keys, "k"), keys.count) == ([5], 1)


def test_a_full_table_ends_at_a_batch(log):
    for first in range(0, 60, 3):
        log.put(*[pair(f"{first + number}", "v") for number in range(3)])
    log.roll()
    keys = OffsetMap(20 * ENTRY)  # 18 keys: six batches
    assert log.fill(keys) == 18 == keys.latest_offset + 1
    assert log.fill(keys, 18) == 36
    assert found(keys, "17", "18", "35", "36") == [-1, 18, 35, -1]


def test_the_keys_of_a_known_batch_need_no_room(log):
    for _ in range(3):
        log.put(*[pair(f"{number}", "v") for number in range(18)])
    log.roll()
    assert log.fill(OffsetMap(20 * ENTRY)) == 54


def test_a_batch_that_has_no_room_at_all_is_refused(log):
    log.put(*[pair(f"{number}", "v") for number in range(19)])
    log.roll()
    with pytest.raises(InvalidConfigError, match=r"more than 18: set log\.cleaner\.dedupe\.buffer\.size"):
        log.fill(OffsetMap(20 * ENTRY))


class NeverLarger(OffsetMap):
    """A table that gets no more memory."""

    def take(self, *args, **options):
        with nothing_more_mapped():
            return super().take(*args, **options)


def test_a_table_that_the_system_lets_grow_no_more_is_full(log):
    """With what it has, a batch still fits, or nothing is said of the setting that is too low."""
    log.put(*(pair(f"a{number}", "v") for number in range(5000)))
    log.put(*(pair(f"b{number}", "v") for number in range(15_000)))
    log.roll()
    assert log.fill(NeverLarger(ENTRY << 20)) == 5000
    with pytest.raises(MemoryError):
        log.fill(NeverLarger(ENTRY << 20), start=5000)


def test_batches_of_any_size_are_read(log):
    for number in range(3):
        log.put(pair("a", "x" * 3_000_000), pair(f"{number}", "v"))
        log.put(pair("a", "y"))
    log.roll()
    keys, told = OffsetMap(4096), []
    assert log.fill(keys, throttle=told.append) == 9
    assert found(keys, "a", "0", "2") == [8, 1, 7]
    assert sum(told) == sum(source.size for source in log.sources(log.inactive()))


def test_a_bomb_is_refused_with_its_place(log):
    log.put(pair("a", "x"))
    log.put(pair("a", "x" * 100_000), codec="gzip")
    log.roll()
    with pytest.raises(BatchTooLargeError, match=r"events-0.*\.log.*batch\.max\.memory\.bytes") as caught:
        log.fill(OffsetMap(4096), max_batch_bytes=10_000)
    assert (caught.value.base_offset, caught.value.position) == (1, log.headers()[1].position)


def damage(log: Log, position: int, data: bytes) -> None:
    overwrite(log.path(".log"), position, data)


@pytest.mark.parametrize(
    ("at", "data", "what"),
    [
        (68, b"\xff", "CRC"),
        (7, b"\x05", "the batch before it ends at offset 1"),
        (16, b"\x07", "magic"),
        (8, b"\x7f", "no whole batch"),
        (8, b"\0\0\0\0", "no whole batch"),
    ],
)
def test_damage_is_reported_with_its_place(log, at, data, what):
    log.put(pair("a", "1"))
    log.put(pair("a", "2"))
    log.roll()
    position = log.headers()[1].position
    damage(log, position + at, data)
    with pytest.raises(CorruptRecordError, match=what) as caught:
        log.fill(OffsetMap(4096))
    error = caught.value
    assert (error.topic, error.partition, error.position) == ("events", 0, position)
    assert error.file == log.path(".log")


def test_a_log_that_ends_too_early_is_damaged(log):
    log.put(pair("a", "1"))
    end = log.headers()[0].end
    log.put(pair("a", "2"))
    log.roll()
    with open(log.path(".log"), "r+b") as file:
        file.truncate(end)
    with pytest.raises(LogDamagedError, match="ends at offset 1, but it must reach 2"):
        log.fill(OffsetMap(4096))


def test_a_missing_segment_is_damage(log):
    for _ in range(3):
        log.put(pair("a", "1"))
        log.roll()
    os.unlink(log.path(".log", 1))
    with pytest.raises(LogDamagedError, match="ends at offset 1, but it must reach 3"):
        log.fill(OffsetMap(4096))


TWO = build([pair("a", "1"), pair("b", "2")])


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        (patched(TWO, layout.COUNT_AT, 4, 1), "record 1 of 1: bytes remain after it"),
        (patched(TWO, layout.COUNT_AT, 4, 3), "3 records do not fit into 18 bytes"),
        (patched(TWO, layout.LAST_OFFSET_DELTA_AT, 4, 0), "record 1 of 2: its offset delta"),
        (with_crc(TWO[:-1]), "record 1 of 2: its length is not inside the batch"),
        # The last record's length says one byte more, which is there.
        (with_crc(TWO[:70] + bytes([TWO[70] + 2]) + TWO[71:] + b"x"), "record 1 of 2: it is shorter"),
    ],
    ids=["too few", "too many", "delta", "cut", "longer"],
)
def test_records_that_make_no_sense_are_refused(log, batch, what):
    log.put(pair("a", "1"))
    data = bytearray(batch)
    data[: layout.LENGTH_AT] = (1).to_bytes(8, "big")
    position = log.writer.position
    log.writer.log.pwrite(data, position)
    log.writer.enter([scan(data, 0, len(data))[0]._replace(position=position)])
    log.end = 3
    log.roll()
    with pytest.raises(CorruptRecordError, match=what) as caught:
        log.fill(OffsetMap(4096))
    assert (caught.value.base_offset, caught.value.position) == (1, position)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_bytes_give_offsets_or_an_error(data):
    """The records are mutated unnoticed by the CRC: each batch gets the CRC that fits."""
    records = [pair("a", "1"), pair("b", None), Record(b"c", b"v", headers=(("h", b"x"),)), pair(None, "4")]
    codec = data.draw(st.sampled_from(CODECS))
    batch = bytearray(build(records, codec))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(16, len(batch) - 1))] = data.draw(st.integers(0, 255))
    mutated = with_crc(bytes(batch))
    keys = OffsetMap(4096)
    with contextlib.suppress(CorruptRecordError):
        keys.take(
            mutated, 0, len(mutated), from_offset=0, until_offset=100, follows=0, max_batch_bytes=1 << 20,
            aborted=lambda *_: False,
        )  # fmt: skip


def test_stamped_batches_are_taken_from_anywhere_in_a_buffer():
    log = bytearray(b"junk" + build([pair("a", "1")]) + build([pair("a", "2")]) + b"\0" * 70)
    assign_offsets(log, 4, len(log) - 70, 5, 0)
    keys = OffsetMap(4096)
    options = {"from_offset": 0, "until_offset": 100, "max_batch_bytes": 1 << 20, "aborted": lambda *_: False}
    assert keys.take(log, 4, len(log), follows=-1, **options) == (len(log) - 70, 7, False)
    assert found(keys, "a") == [6]
    with pytest.raises(ValueError, match="not inside a buffer"):
        keys.take(log, 4, len(log) + 1, follows=-1, **options)
