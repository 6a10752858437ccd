"""Segments rewritten without what later records have replaced: each rule alone, and all against a model."""

from __future__ import annotations

import os

import pytest
from cleaning_tools import DAY, Log, pair
from kafka_peer import DefaultRecordBatch
from producer_tools import ending
from record_tools import NOW, Record, build

from pyspark_log.errors import CorruptRecordError, LogDamagedError, SegmentOverflowError
from pyspark_log.storage.compaction.offset_map import OffsetMap
from pyspark_log.storage.compaction.rewrite import remove_unfinished, rewrite
from pyspark_log.storage.record import layout
from pyspark_log.storage.record.codecs.compression import compress, decompress
from pyspark_log.storage.record.layout import CODECS
from pyspark_log.storage.segment.file_names import INDEX, LOG, TIME_INDEX
from pyspark_log.storage.segment.indexes import OffsetIndex, TimeIndex
from pyspark_log.storage.segment.segment import SegmentWriter
from pyspark_log.types import NO_TIMESTAMP
from tests.old_messages import BOTH, SET_CODECS, message, message_set
from tests.stops import StopBefore, run_until
from tests.store_tools import overwrite

FOREVER = 1 << 60


def kept(log: Log) -> list[tuple[int, str | None]]:
    return [(record.offset, record.value and record.value.decode()) for record in log.records()]


def spans(log: Log) -> list[tuple[int, int, int]]:
    """Base offset, next offset and record count of each batch."""
    return [(header.base_offset, header.next_offset, header.count) for header in log.headers()]


# Values that were replaced


@pytest.mark.parametrize("codec", CODECS)
def test_the_last_value_of_each_key_stays_where_it_was(log, codec):
    for first in (0, 3):
        log.put(*[pair(key, f"{key}{first}", NOW + first) for key in "abc"], codec=codec)
        log.put(pair("a", "again", NOW + 1 - first), pair("d", f"d{first}", NOW + 2), codec=codec)
    log.roll()
    before = log.records()
    rewritten = log.clean()
    assert log.records() == [record for record in before if record.offset >= 6]
    assert (rewritten.records_read, rewritten.records_kept) == (10, 4)
    assert rewritten.bytes_written == os.path.getsize(log.path(LOG))
    assert spans(log) == [(0, 5, 0), (5, 8, 2), (8, 10, 2)]


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_keeps_all_but_its_records(log, codec):
    headers = (("h", b"1"), ("h", None), ("", b""))
    records = [
        Record(b"a", b"1", NOW + 9),
        Record(b"", b"2", NOW - 5, headers),
        Record(b"b", None, NOW + 3),
        Record(b"c", b"", NOW + 1, headers),
    ]
    log.epoch = 7
    log.put(*records, codec=codec, producer_id=5, producer_epoch=2, base_sequence=40)
    log.put(pair("a", "x"), pair("b", "y"))
    log.roll()
    before, rows = log.headers()[0], log.records()
    log.clean()
    after = log.headers()[0]
    same = ("base_offset", "last_offset", "leader_epoch", "codec", "producer_id", "producer_epoch", "base_sequence")
    assert all(getattr(after, name) == getattr(before, name) for name in same)
    assert (after.count, after.max_timestamp, after.base_timestamp) == (2, NOW + 1, before.base_timestamp)
    assert log.records() == [rows[1], rows[3], *rows[4:]]


def test_the_level_of_the_topic_is_that_of_its_codec(log):
    log = Log(log.folder + "/small", compression_type="zstd", compression_zstd_level=-50)
    for codec in "zstd", "gzip":
        log.put(pair("a", "1"), pair(codec, " ".join(map(str, range(500)))), codec=codec)
    log.put(pair("a", "2"))
    log.roll()
    log.clean()
    data, found = log.bytes(), log.headers()
    for header, level in zip(found, (-50, None), strict=False):
        payload = data[header.position + layout.HEADER_SIZE : header.end]
        records = decompress(header.codec, payload, 1 << 20)
        assert (header.count, payload) == (1, compress(header.codec, records, level))
    assert compress("zstd", records, -50) != compress("zstd", records)


def test_a_batch_with_the_time_of_the_append_keeps_it(log):
    log.put(pair("a", "1", 5), pair("b", None, 9), log_append_time=NOW)
    log.put(pair("a", "2"))
    log.roll()
    log.clean()
    first = log.headers()[0]
    assert (first.count, first.max_timestamp, first.timestamp_type, first.delete_horizon) == (1, NOW, 1, NOW + DAY)
    assert log.records()[0] == Record(b"b", None, NOW, offset=1, timestamp_type=1)


def test_batches_with_nothing_to_drop_stay_byte_for_byte(log):
    for number in range(400):
        codec = CODECS[number % 5]
        log.put(*[pair(f"{number}-{index}", "x" * 3000) for index in range(10)], codec=codec)
    log.roll()
    before = log.bytes()
    assert len(before) > 2 << 20  # more than one piece
    rewritten = log.clean()
    assert log.bytes() == before
    assert rewritten.bytes_read == rewritten.bytes_written == len(before)


def test_records_above_the_known_part_stay(log):
    for value in "123":
        log.put(pair("a", value), pair("a", value), pair(None, value))
    log.roll()
    log.clean(until=5)  # within a batch
    assert [offset for offset, _ in kept(log)] == [4, 5, 6, 7, 8]


def test_records_without_a_key_go(log):
    log.put(pair(None, "1"), pair("a", "2"), pair(None, None))
    log.roll()
    rewritten = log.clean()
    assert kept(log) == [(1, "2")]
    assert (rewritten.records_read, rewritten.records_kept) == (3, 1)


def test_several_segments_become_one(log):
    times = []
    for number in range(4):
        log.put(pair("a", f"{number}"), pair(f"k{number}", "v"))
        log.roll()
        os.utime(log.path(LOG, 2 * number), ns=(1, (number + 1) * 10**18))
        times.append(os.stat(log.path(LOG, 2 * number)).st_mtime_ns)
    log.clean(groups=[[0, 2, 4], [6]])
    assert log.inactive() == [0, 6]
    assert [offset for offset, _ in kept(log)] == [1, 3, 5, 6, 7]
    assert os.stat(log.path(LOG)).st_mtime_ns == times[2]


def test_a_map_that_was_full_gives_what_one_round_would(log, tmp_path):
    other = Log(tmp_path / "other")
    for number in range(60):
        for each in log, other:
            each.put(pair(f"{number % 13}", f"{number}"), pair(f"{number % 17}", None))
            if number % 20 == 19:
                each.roll()
    other.clean()
    checkpoints = []
    while log.checkpoint < log.end:
        log.clean(memory=24 * 12)
        checkpoints.append(log.checkpoint)
    assert len(checkpoints) > 3
    assert log.records() == other.records()


@pytest.mark.parametrize("memory", [24 * 4, 1 << 16])  # the first is too small to note it for 200 offsets
def test_a_replaced_record_goes_whether_that_was_noted_or_is_looked_up(log, memory):
    names = ["abc"[(number + index) % 3] for number in range(40) for index in range(5)]
    for number in range(40):
        log.put(*[pair(name, f"{number}") for name in names[5 * number : 5 * number + 5]])
    log.roll()
    # The first ends within a batch, where the second begins; it looks up the records before that.
    for known in (52, 200):
        log.clean(memory=memory, until=known)
        last = {name: offset for offset, name in enumerate(names[:known])}
        assert [offset for offset, _ in kept(log)] == [*sorted(last.values()), *range(known, 200)]


# Offsets of which nothing is left


def test_one_empty_batch_takes_the_place_of_many(log):
    for value in "1234":
        log.put(pair("a", value), pair("a", value))
    log.put(pair("b", "5"))
    log.roll()
    log.put(pair("a", "6"))
    log.roll()
    log.put(pair("b", "7"))
    log.roll()
    log.clean()
    assert spans(log) == [(0, 9, 0), (9, 10, 1), (10, 11, 1)]
    gap = log.headers()[0]
    assert (gap.size, gap.max_timestamp, gap.producer_id) == (layout.HEADER_SIZE, NO_TIMESTAMP, -1)
    log.put(pair("a", "8"))
    log.roll()
    log.clean()
    # The gap of the cleaning before is part of the new one.
    assert spans(log) == [(0, 10, 0), (10, 11, 1), (11, 12, 1)]


def test_a_segment_of_which_nothing_is_left_is_one_empty_batch(log):
    for _ in range(3):
        log.put(pair("a", "1"))
    log.roll()
    log.put(pair("a", "2"))
    log.roll()
    log.clean(groups=[[0], [3]])
    assert spans(log) == [(0, 3, 0), (3, 4, 1)]


def test_an_empty_batch_does_not_hide_where_an_epoch_began(log):
    for epoch in (0, 0, 3, 3, 4):
        log.epoch = epoch
        log.put(pair("a", "1"))
    log.roll()
    log.clean()
    runs = [(header.leader_epoch, header.base_offset) for header in log.headers()]
    assert runs == [(0, 0), (3, 2), (4, 4)]


def test_the_last_batch_of_a_producer_stays_though_empty(log):
    for sequence in range(3):
        log.put(
            pair("a", "x"), pair("b", "x"), producer_id=9, producer_epoch=1, base_sequence=2 * sequence, codec="lz4"
        )
    log.put(pair("a", "y"), pair("b", "z"))
    log.roll()
    log.clean()
    log.clean()
    assert spans(log) == [(0, 4, 0), (4, 6, 0), (6, 8, 2)]
    last = log.headers()[1]
    assert (last.producer_id, last.producer_epoch, last.base_sequence) == (9, 1, 4)
    assert (last.size, last.codec, last.base_timestamp, last.max_timestamp) == (61, "none", -1, NOW)
    log.clean(producers={})
    assert spans(log) == [(0, 6, 0), (6, 8, 2)]


# Tombstones


@pytest.mark.parametrize("codec", CODECS)
def test_a_tombstone_goes_when_its_horizon_is_reached(log, codec):
    log.put(pair("a", "1"), pair("b", "2"), pair("a", None, NOW - 7), pair("b", "3", NOW - 8), codec=codec)
    log.roll()
    log.clean(NOW)
    assert log.headers()[0].delete_horizon == NOW + DAY
    assert log.records() == [Record(b"a", None, NOW - 7, offset=2), Record(b"b", b"3", NOW - 8, offset=3)]
    before = log.bytes()
    log.clean(NOW + DAY - 1)
    assert log.bytes() == before
    assert log.clean(NOW + DAY).records_kept == 1
    assert log.records() == [Record(b"b", b"3", NOW - 8, offset=3)]
    # The times of the other records still count from it.
    assert log.headers()[0].delete_horizon == NOW + DAY


def test_a_tombstone_that_was_replaced_goes_at_once(log):
    log.put(pair("a", None))
    log.put(pair("a", "1"))
    log.roll()
    log.clean()
    assert kept(log) == [(1, "1")]


def test_a_retention_without_end_does_not_overflow(log):
    log.put(pair("a", None, 5))
    log.roll()
    log.clean(delete_retention_ms=2**63 - 1)
    assert log.headers()[0].delete_horizon == 2**63 - 1
    assert log.records() == [Record(b"a", None, 5)]


def test_tombstones_of_the_dirty_rest_get_their_horizon_when_it_is_cleaned(log):
    """Until then a reader may find the records that they replace."""
    log.put(pair("a", "1"))
    log.put(pair("a", None))
    log.roll()
    log.clean(until=1)
    assert [header.delete_horizon for header in log.headers()] == [None, None]
    log.clean(NOW + DAY)
    assert (kept(log), log.headers()[-1].delete_horizon) == ([(1, None)], NOW + 2 * DAY)


def test_tombstones_of_a_batch_get_their_horizon_when_all_of_it_is_cleaned(log):
    log.put(pair("a", "1"), pair("b", None), pair("a", None))
    log.roll()
    log.clean(until=2)
    assert [header.delete_horizon for header in log.headers()] == [None]
    log.clean(NOW + DAY)
    assert (kept(log), log.headers()[-1].delete_horizon) == ([(1, None), (2, None)], NOW + 2 * DAY)


# Transactions


class Producer:
    """Writes transactions to a log."""

    def __init__(self, log: Log, number: int = 1) -> None:
        self.log, self.number, self.sequence = log, number, 0

    def put(self, *keys: str, **fields) -> None:
        self.log.put(
            *[pair(key, "v") for key in keys],
            producer_id=self.number,
            producer_epoch=0,
            base_sequence=self.sequence,
            transactional=True,
            **fields,
        )
        self.sequence += len(keys)

    def end(self, commit: bool) -> None:
        self.log.append(ending(commit, producer=self.number))


def test_a_commit_marker_goes_after_its_records(log):
    producer = Producer(log)
    producer.put("1")
    producer.put("2", "3")
    producer.end(True)
    producer.put("2")
    producer.end(True)
    log.roll()
    log.clean()
    assert log.offsets() == [0, 2, 3, 4, 5]
    producer.put("1")
    producer.put("3")
    producer.end(True)
    log.roll()
    log.clean()
    assert log.offsets() == [3, 4, 5, 6, 7, 8]
    # Only now there is nothing of the transaction before it.
    log.clean()
    assert log.offsets() == [3, 4, 5, 6, 7, 8]
    before = log.bytes()
    log.clean(NOW + DAY - 1)
    assert log.bytes() == before
    log.clean(NOW + DAY)
    assert log.offsets() == [4, 5, 6, 7, 8]


def test_an_abort_marker_goes_after_its_records(log):
    producer = Producer(log)
    producer.put("1")
    producer.put("2", "3")
    producer.end(False)
    producer.put("3")
    producer.end(True)
    log.roll()
    entries = log.aborted()
    log.clean()
    assert log.offsets() == [3, 4, 5]
    assert log.aborted() == entries != []
    log.clean()
    assert log.offsets() == [3, 4, 5]
    assert (log.headers()[1].delete_horizon, log.aborted()) == (NOW + DAY, [])
    log.clean(NOW + DAY)
    assert log.offsets() == [4, 5]


def test_transactions_may_span_groups(log):
    one, two = Producer(log, 1), Producer(log, 2)
    one.put("a")
    two.put("b")
    log.roll()
    one.put("c")
    two.put("d")
    log.roll()
    one.end(False)
    two.end(True)
    log.roll()
    groups = log.inactive()
    log.clean(groups=[[base] for base in groups])
    # Of the aborted one the last batch stays, without its record, for the producer.
    assert log.offsets() == [1, 3, 4, 5]
    assert spans(log)[2] == (2, 3, 0)
    assert [entry.producer_id for entry in log.aborted()] == [1]
    assert os.path.exists(log.path(".txnindex", 4))
    one.put("a")
    one.end(True)
    two.put("b", "d")
    two.end(True)
    log.roll()
    # Two cleanings: one takes the batches, the next finds the markers without any.
    log.clean()
    log.clean()
    log.clean(FOREVER)
    assert log.offsets() == [6, 7, 8, 9, 10]


def test_an_open_transaction_stays(log):
    producer = Producer(log)
    producer.put("a")
    producer.put("b")
    log.roll()
    log.clean(until=0)
    assert log.offsets() == [0, 1]


def test_the_last_marker_of_a_producer_without_records_stays(log):
    log.append(ending(True, producer=4, epoch=1))
    log.roll()
    log.clean(NOW)
    log.clean(FOREVER)
    (header,) = log.headers()
    assert (header.count, header.is_control, header.producer_id, header.producer_epoch) == (0, True, 4, 1)
    log.clean(FOREVER, producers={})
    assert log.headers()[0].producer_id == -1


def test_control_batches_of_other_types_stay(log):
    log.append(build([Record(b"\0\0\0\2", b"\0" * 10)], control=True))
    log.roll()
    before = log.bytes()
    log.clean(FOREVER)
    assert log.bytes() == before


def test_a_marker_without_a_record_in_it_is_damage(log):
    log.append(build([Record(None, None)], producer_id=1, producer_epoch=0, transactional=False))
    log.append(build([Record(b"\0", b"\0" * 6)], control=True))
    log.roll()
    with pytest.raises(CorruptRecordError, match=r"events-0: .*not a valid control record") as caught:
        log.clean()
    assert caught.value.base_offset == 1


# Formats 0 and 1


@BOTH
def test_single_messages_of_old_formats(log, magic):
    for offset, (key, value) in enumerate([(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (None, b"4")]):
        log.append(message(magic, key, value, offset=offset, time=NOW + offset), offset + 1)
    log.put(pair("b", "5"))
    log.roll()
    log.clean()
    assert kept(log) == [(2, "3"), (4, "5")]
    assert [header.magic for header in log.headers()] == [2, magic, 2, 2]
    assert log.records()[0].timestamp == (NOW + 2 if magic else -1)


@BOTH
@SET_CODECS
def test_sets_of_messages_of_old_formats(log, magic, codec):
    def inside(first: int) -> bytes:
        return b"".join(
            message(magic, b"%d" % key, b"v", offset=first + index, time=NOW - index) for index, key in enumerate(keys)
        )

    log.put(pair("0", "x"), pair("9", "x"))
    keys = [1, 2, 3, 4, 1]
    log.append(message_set(magic, codec, inside(0 if magic else 2), offset=6, time=NOW), 7)
    log.put(pair("1", "y"), pair("3", "y"))
    log.append(message_set(magic, codec, inside(0 if magic else 9), offset=13, time=NOW), 14)
    log.put(pair("1", "z"), pair("2", "z"), pair("4", "z"))
    log.roll()
    before = {record.offset: record for record in log.records()}
    log.clean()
    assert log.records() == [before[offset] for offset in (0, 1, 11, 14, 15, 16)]
    (wrapper,) = [header for header in log.headers() if header.magic < 2]
    assert (wrapper.magic, wrapper.codec, wrapper.last_offset) == (magic, codec, 11)
    assert wrapper.max_timestamp == (NOW - 2 if magic else -1)
    # Once more, now that there is a gap before the set and one after it.
    log.put(pair("0", "w"))
    log.roll()
    log.clean()
    assert [record.offset for record in log.records()] == [1, 11, 14, 15, 16, 17]


@BOTH
def test_a_set_may_lose_its_first_messages(log, magic):
    inside = b"".join(message(magic, key, b"v", offset=(0 if magic else 1) + at) for at, key in enumerate([b"a", b"b"]))
    log.put(pair("x", "1"))
    log.append(message_set(magic, "gzip", inside, offset=2), 3)
    log.put(pair("a", "2"))
    log.roll()
    log.clean()
    assert [offset for offset, _ in kept(log)] == [0, 2, 3]


def test_a_set_with_the_time_of_the_append_keeps_it(log):
    inside = message(1, b"a", b"1", offset=0, time=3) + message(1, b"b", b"2", offset=1, time=4)
    log.append(message_set(1, "gzip", inside, offset=1, attributes=layout.LOG_APPEND_TIME), 2)
    log.put(pair("b", "3"))
    log.roll()
    log.clean()
    assert log.records()[0] == Record(b"a", b"1", NOW, offset=0, timestamp_type=1)


@BOTH
def test_tombstones_of_old_formats_go_by_the_time_of_the_file(log, magic):
    log.append(message(magic, b"a", None, offset=0), 1)
    log.append(message(magic, b"b", b"1", offset=1), 2)
    log.roll()
    os.utime(log.path(LOG), ns=(NOW * 10**6, NOW * 10**6))
    before = log.bytes()
    log.clean(FOREVER, legacy_horizon_ms=NOW - 1)
    assert log.bytes() == before
    log.clean(FOREVER, legacy_horizon_ms=NOW)
    assert kept(log) == [(1, "1")]


# The files


def test_the_indexes_are_those_of_a_rebuild(log):
    log = Log(log.folder + "/small", index_interval_bytes=300)
    for number in range(300):
        log.put(
            pair(f"{number % 40}", "x" * (number % 90), NOW + 2 * number - number % 70),
            pair(f"{number % 7}", "y"),
            codec=CODECS[number % 5],
        )
        if number % 60 == 59:
            log.roll()
    log.clean()
    written = [open_bytes(log.path(suffix)) for suffix in (INDEX, TIME_INDEX)]
    assert min(len(written[0]) // OffsetIndex.WIDTH, len(written[1]) // TimeIndex.WIDTH) > 3
    for suffix in (INDEX, TIME_INDEX):
        os.unlink(log.path(suffix))
    rebuilt = SegmentWriter(log.folder, 0, os.path.getsize(log.path(LOG)), log.config)
    rebuilt.finish()
    rebuilt.close()
    assert [open_bytes(log.path(suffix)) for suffix in (INDEX, TIME_INDEX)] == written


def open_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def broken(log: Log) -> None:
    """Two segments with something to drop, of which the second one is damaged at its end."""
    for _ in range(2):
        log.put(pair("a", "1"))
        log.put(pair("a", "2"))
        log.roll()
    overwrite(log.path(LOG, 2), -1, b"\xff")


def test_damage_leaves_no_leftovers(log):
    broken(log)
    before = sorted(os.listdir(log.folder))
    keys = OffsetMap(4096)
    log.fill(keys, 0, 2)
    with pytest.raises(CorruptRecordError, match=r"events-0: .*00002\.log .*CRC") as caught:
        log.rewrite(log.round(keys))
    assert (caught.value.base_offset, caught.value.file) == (3, log.path(LOG, 2))
    assert sorted(os.listdir(log.folder)) == before


def test_a_missing_segment_is_reported(log):
    for _ in range(3):
        log.put(pair("a", "1"))
        log.roll()
    keys = OffsetMap(4096)
    log.fill(keys)
    with pytest.raises(LogDamagedError, match="ends at offset 1, but the next segment begins at 2"):
        log.rewrite(log.round(keys), [0, 2])


def test_what_another_cleaning_writes_is_left_alone(log):
    log.put(pair("a", "1"))
    log.roll()
    with open(log.path(LOG) + ".cleaned", "wb") as file:
        file.write(b"of another one")
    with pytest.raises(FileExistsError):
        log.clean()
    assert open_bytes(log.path(LOG) + ".cleaned") == b"of another one"
    remove_unfinished(log.folder)
    log.clean()
    assert kept(log) == [(0, "1")]


def test_a_cleaning_that_was_stopped_leaves_the_log_as_it_was(log):
    producer = Producer(log)
    producer.put("a")
    producer.end(False)
    log.put(pair("a", "1"))
    log.roll()
    keys = OffsetMap(4096)
    log.fill(keys)
    before = {name: open_bytes(f"{log.folder}/{name}") for name in os.listdir(log.folder)}
    changes = 0
    while run_until(lambda: log.rewrite(log.round(keys)), StopBefore(changes)):
        remove_unfinished(log.folder)
        # The replacement of a file is kept aside under a name of its own.
        assert {n: open_bytes(f"{log.folder}/{n}") for n in os.listdir(log.folder) if ".tmp" not in n} == before
        changes += 1
    assert changes > 12
    assert log.offsets() == [1, 2]


def test_a_group_may_have_a_larger_index_than_a_segment_that_is_appended_to(log):
    # Its sources do not show by how many entries: between two of them there may be one more; and times have others.
    log = Log(log.folder + "/small", index_interval_bytes=0, segment_index_bytes=48)
    for number in range(8):
        log.put(pair(f"{number}", "v", NOW + number))
        if number % 4 == 3:
            log.roll()
    log.clean()
    assert [os.path.getsize(log.path(suffix)) for suffix in (INDEX, TIME_INDEX)] == [7 * 8, 7 * 12]
    assert len(kept(log)) == 8


def test_a_group_of_too_many_offsets_is_refused(log):
    log.put(pair("a", "1"))
    log.roll()
    keys = OffsetMap(4096)
    log.fill(keys)
    with pytest.raises(SegmentOverflowError, match="offsets up to 2147483648"):
        rewrite(log.round(keys), log.sources([0]), 2**31 + 1)


def test_the_throttle_counts_all_bytes(log):
    for number in range(6):  # More than are read at a time, and not a whole number of them.
        log.put(pair("a", "1" * 600_000), pair(f"{number}", "2" * 30_000))
    log.roll()
    told: list[int] = []
    rewritten = log.clean(throttle=told.append)
    assert sum(told) == rewritten.bytes_read + rewritten.bytes_written


# Another reader


def test_kafka_python_reads_the_output(log):
    for number in range(40):
        log.put(
            *[
                Record(b"%d" % (number * index % 23), b"v" if index % 3 else None, NOW - index, (("h", b"x"),))
                for index in range(9)
            ],
            codec=("none", "gzip", "lz4", "zstd")[number % 4],  # it has no library for snappy
        )
    log.roll()
    log.clean()
    data, found = log.bytes(), []
    for header in log.headers():
        batch = DefaultRecordBatch(data[header.position : header.end])
        assert batch.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert any(header.delete_horizon for header in log.headers())
    ours = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in log.records()]
    assert found == ours != []
