"""Folders of Kafka brokers are read in place: whole ones, copies, single partitions, and while a broker is at work."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from broker_tools import ALL, T0, add, batch, high_watermark, rows, tree
from cli_tools import output, pylog
from producer_tools import end_transaction, ready
from record_tools import Record, build

from pyspark_log import DefaultSource, Store
from pyspark_log.clients.transactions import Transactions
from pyspark_log.errors import (
    CorruptRecordError,
    InvalidConfigError,
    LogDamagedError,
    OffsetOutOfRangeError,
    ReadOnlyError,
    StoreNotFoundError,
    UnknownTopicError,
)
from pyspark_log.storage.broker import reader
from pyspark_log.storage.broker.log_dir import BrokerLogDir
from pyspark_log.storage.broker.reader import BrokerLogReader
from pyspark_log.storage.catalog import kafka_files
from pyspark_log.storage.catalog.kafka_files import HIGH_WATERMARK, LOG_START, META_PROPERTIES, PARTITION_METADATA
from pyspark_log.storage.fs import files
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.maintenance.repair.store import repair
from pyspark_log.storage.publish.recovery import recover
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan
from pyspark_log.storage.segment.file_names import INDEX, LOG, TIME_INDEX, segment_path
from pyspark_log.storage.segment.segment import SegmentReader
from pyspark_log.types import TopicPartition
from tests import moved_time
from tests.paths import LOGDIR
from tests.store_tools import flip, new_store, overwrite

pytestmark = pytest.mark.usefixtures("prompt_checkpoints")


# ---- what is found


def test_a_folder_of_kafkas_log_code_is_read():
    store = Store.open(LOGDIR)
    assert store.topics() == ["orders"]
    topic = store.describe_topic("orders")
    assert (topic.topic_id, topic.partitions) == ("ESIzRFVmd4iZqrvM3e7_AA", 1)
    assert (store.earliest_offset("orders", 0), store.latest_offset("orders", 0)) == (0, 79)
    assert [offset for offset, _ in rows(store, topic="orders")] == list(range(79))
    first = store.offset_for_timestamp("orders", 0, 1_700_000_010_000)
    assert (first.offset, first.timestamp) == (19, 1_700_000_010_000)
    assert store.offset_of_max_timestamp("orders", 0).offset == 78
    assert store.size("orders", 0) == sum(os.path.getsize(path) for path in store.segment_files("orders", 0))


def test_the_logs_of_a_store_are_read_as_a_brokers(tmp_path):
    store = Store.create(tmp_path / "store")
    store.create_topic("t", 3, {"segment.bytes": "3000", "index.interval.bytes": "200", "retention.ms": "-1"})
    for number in range(40):
        values = [b"%d-%d" % (number, one) * 5 for one in range(number % 7 + 1)]
        store.append("t", pa.record_batch({"key": values, "value": values}))
    store.delete_records("t", 1, 5)
    store.close()
    shutil.copytree(tmp_path / "store" / "data", tmp_path / "logs")
    found = Store.open(tmp_path / "logs")
    assert found.cluster_id == store.cluster_id
    assert found.describe_topic("t").topic_id == store.describe_topic("t").topic_id
    for partition in range(3):
        assert len(store.segment_files("t", partition)) > 1
        assert rows(found, partition) == rows(store, partition)
        assert found.earliest_offset("t", partition) == store.earliest_offset("t", partition)
        middle = (store.earliest_offset("t", partition) + store.latest_offset("t", partition)) // 2
        assert rows(found, partition, start=middle) == rows(store, partition, start=middle)
    with pytest.raises(StoreNotFoundError, match=r"open .*/store"):
        Store.open(tmp_path / "store" / "data")
    with pytest.raises(StoreNotFoundError, match=r"open .*/store"):
        Store.open(tmp_path / "store" / "data" / "t-0")


def test_gaps_are_passed_over(root):
    store = Store.open(root)
    assert rows(store) == ALL
    for start in range(22):
        for end in range(start, 22):
            assert rows(store, start=start, end=end) == [row for row in ALL if start <= row[0] < end], (start, end)
    with pytest.raises(OffsetOutOfRangeError):
        rows(store, start=22)


def test_a_single_partitions_folder_is_read(root):
    shutil.copytree(root / "t-0", root / "t-3")
    add(root / "t-3", 20, batch(21, b"v"))
    store = Store.open(root / "t-3")
    assert store.topics() == ["t"]
    assert rows(store, 3) == [*ALL, (21, b"v")]
    assert rows(store, 0) == []


def test_what_is_no_partition_is_passed_over(root, caplog):
    for name in ("t-1.00000000000000000000000000000000-delete", "t-2.0-future", "t-3.0-stray", "lost", "t-", "t-01"):
        (root / name).mkdir()
        shutil.copy(segment_path(str(root / "t-0"), 0, LOG), root / name)
    (root / "t-9").write_text("no folder")
    (root / "t-4").mkdir()
    add(root / "__consumer_offsets-7", 0, batch(0, b"x"))
    store = Store.open(root)
    assert store.topics() == ["t"]
    assert store.topics(internal=True) == ["__consumer_offsets", "t"]
    assert store.describe_topic("t").partitions == 5
    assert "without 3 partitions of t, which read as empty" in caplog.text
    assert (rows(store, 1), rows(store, 4)) == ([], [])
    with pytest.raises(UnknownTopicError):
        rows(store, 5)
    with pytest.raises(UnknownTopicError):
        store.describe_topic("u")


def test_a_folder_that_is_neither_a_store_nor_a_brokers_is_refused(tmp_path):
    (tmp_path / "t-0").mkdir()
    for path in (tmp_path, tmp_path / "t-0", tmp_path / "missing"):
        with pytest.raises(StoreNotFoundError):
            Store.open(path)
    (tmp_path / META_PROPERTIES).write_text("version=1\ncluster.id=abc\nnode.id=3\n")
    assert Store.open(tmp_path).topics() == ["t"]
    assert Store.open(tmp_path).cluster_id == "abc"


# ---- several folders of one broker


@pytest.fixture
def disks(root, tmp_path):
    """Two more folders of the same broker, with other partitions; and the name of all."""
    disks = [root, tmp_path / "disk 2", tmp_path / "disk3"]
    for number, disk in enumerate(disks):
        disk.mkdir(exist_ok=True)
        (disk / META_PROPERTIES).write_text("version=1\ncluster.id=abc\nnode.id=3\n")
        add(disk / f"u-{number}", 0, batch(0, b"%d" % number))
    add(disks[1] / "t-2", 0, batch(0, b"a"), batch(1, b"b"))
    kafka_files.write_offsets(str(disks[1] / HIGH_WATERMARK), {TopicPartition("t", 2): 1})
    add(disks[2] / "t-1", 0, batch(0, b"c"))
    return disks


def joined(disks):
    return ", ".join(map(str, disks))


def test_several_folders_of_a_broker_are_one(disks):
    store = Store.open(joined(disks))
    assert (store.topics(), store.cluster_id) == (["t", "u"], "abc")
    assert store.describe_topic("t").partitions == 3
    # By the checkpoints of the folder that has it.
    assert [rows(store, partition) for partition in range(3)] == [ALL, [(0, b"c")], [(0, b"a")]]
    assert [rows(store, partition, "u") for partition in range(3)] == [[(0, b"%d" % number)] for number in range(3)]
    with pytest.raises(ReadOnlyError, match="disk 2"):
        store.append("t", pa.record_batch({"value": [b"x"]}))
    source = DefaultSource({"path": joined(disks), "subscribe": "t"})
    reader = source.reader(source.schema())
    assert sum(part.num_rows for task in reader.partitions() for part in reader.read(task)) == len(ALL) + 2
    assert output(joined(disks), "topics", "list").split() == ["t", "u"]


def test_a_partition_that_a_broker_moves_to_another_of_its_folders(disks):
    store = Store.open(joined(disks))
    assert rows(store, 1) == [(0, b"c")]
    shutil.copytree(disks[2] / "t-1", disks[0] / "t-1.0-future")
    assert rows(store, 1) == [(0, b"c")]
    os.rename(disks[2] / "t-1", disks[2] / "t-1.0-delete")
    os.rename(disks[0] / "t-1.0-future", disks[0] / "t-1")
    add(disks[0] / "t-1", 0, batch(1, b"d"))
    assert rows(store, 1) == [(0, b"c"), (1, b"d")]
    assert rows(store) == ALL


def test_a_partition_that_is_moved_while_the_folders_are_listed(disks, monkeypatch):
    list_folder = BrokerLogDir.topics

    def move_before_the_last(self):
        if self.path == str(disks[2]):
            monkeypatch.undo()
            shutil.copytree(disks[0] / "u-0", disks[2] / "u-0")
            os.rename(disks[0] / "u-0", disks[0] / "u-0.0-delete")
        return list_folder(self)

    monkeypatch.setattr(BrokerLogDir, "topics", move_before_the_last)
    store = Store.open(joined(disks))
    assert store.logs.reader("u", 0).place.folder == str(disks[2] / "u-0")


def test_a_folder_that_cannot_be_read_takes_only_its_partitions_out(disks, caplog):
    missing = joined([*disks[:2], disks[2].with_name("gone")])
    for store in (Store.open(missing), Store.open(joined(disks))):
        if store.path != missing:
            os.rename(disks[2], disks[2].with_name("gone away"))
        assert (rows(store), rows(store, 1), rows(store, 2)) == (ALL, [], [(0, b"a")])
        assert caplog.text.count("its partitions are left out") == 1
        caplog.clear()
    os.rename(disks[2].with_name("gone away"), disks[2])
    assert rows(store, 1) == [(0, b"c")]


def test_folders_that_are_not_of_one_broker_are_refused(disks, tmp_path):
    shutil.copytree(disks[2] / "t-1", disks[1] / "t-1")
    with pytest.raises(InvalidConfigError, match=r"partition t-1 is in .*disk 2 and in .*disk3: a broker has each"):
        Store.open(joined(disks))
    (disks[1] / META_PROPERTIES).write_text("version=1\ncluster.id=xyz\nnode.id=3\n")
    with pytest.raises(InvalidConfigError, match=r"logs is of the Kafka cluster abc, and .*disk 2 of xyz"):
        Store.open(joined(disks))
    (disks[1] / META_PROPERTIES).unlink()
    with pytest.raises(StoreNotFoundError, match=r"disk 2 is not one of a Kafka broker's log\.dirs"):
        Store.open(joined(disks))
    with pytest.raises(StoreNotFoundError, match="can be read"):
        Store.open(joined([tmp_path / "none", tmp_path / "no other"]))
    with pytest.raises(StoreNotFoundError, match=r"no store"):
        Store.open(joined([tmp_path / "none"]))


# ---- where it ends


def test_what_is_above_the_high_watermark_is_not_shown(root):
    store = Store.open(root)
    for offset in (0, 2, 4, 10, 11, 12, 13, 15, 17, 20, 21):
        high_watermark(root, offset)
        assert store.latest_offset("t", 0) == offset
        assert rows(store) == [row for row in ALL if row[0] < offset]
    # Of a copy whose checkpoint was taken later than its logs.
    high_watermark(root, 30)
    assert store.latest_offset("t", 0) == 21
    # A checkpoint that knows nothing of this partition.
    kafka_files.write_offsets(str(root / HIGH_WATERMARK), {TopicPartition("u", 0): 3})
    assert store.latest_offset("t", 0) == 21
    # And back, where the folder was put back from an older copy.
    high_watermark(root, 12)
    assert rows(store) == ALL[:3]


def test_what_is_below_the_log_start_is_not_shown(root):
    store = Store.open(root)
    kafka_files.write_offsets(str(root / LOG_START), {T0: 15})
    assert store.earliest_offset("t", 0) == 15
    assert rows(store) == ALL[4:]
    with pytest.raises(OffsetOutOfRangeError, match="15"):
        rows(store, start=12)
    # The high watermark is written every five seconds, and can lag.
    high_watermark(root, 12)
    assert (store.earliest_offset("t", 0), store.latest_offset("t", 0), rows(store)) == (15, 15, [])


def test_a_half_written_batch_is_shown_when_it_is_whole(root):
    store = Store.open(root)
    path = segment_path(str(root / "t-0"), 20, LOG)
    more = batch(21, b"v", b"w")
    for cut in range(0, len(more), 7):
        add(root / "t-0", 20, more[:cut])
        assert store.latest_offset("t", 0) == 21
        assert rows(store) == ALL
        os.truncate(path, os.path.getsize(path) - cut)
    add(root / "t-0", 20, more)
    assert rows(store)[-3:] == [(20, b"u"), (21, b"v"), (22, b"w")]
    assert store.latest_offset("t", 0) == 23


def test_tails_of_zeros_are_no_records(tmp_path):
    store = new_store(tmp_path, {"segment.bytes": "4000", "index.interval.bytes": "100", "retention.ms": "-1"})
    for number in range(60):
        store.append("t", pa.record_batch({"value": [b"%d" % number * 20], "timestamp": [1_000 + number]}))
    store.close()
    expected = rows(store)
    shutil.copytree(tmp_path / "store" / "data", tmp_path / "logs")
    folder = tmp_path / "logs" / "t-0"
    active = max(path.stem for path in folder.glob("*.log"))
    assert os.path.getsize(folder / f"{active}.index") > 40
    # As a broker makes the files of the active segment: in their full size.
    for suffix, size in ((LOG, 4_000), (INDEX, 800), (TIME_INDEX, 1_200)):
        os.truncate(folder / f"{active}{suffix}", size)
    found = Store.open(tmp_path / "logs")
    assert found.latest_offset("t", 0) == 60
    for start in range(60):
        assert rows(found, start=start) == expected[start:]
        assert found.offset_for_timestamp("t", 0, 1_000 + start).offset == start
    assert found.offset_of_max_timestamp("t", 0).offset == 59
    # A batch of which only the first bytes have reached a file that is long enough.
    half = batch(60, b"z" * 50)
    overwrite(folder / f"{active}.log", found.logs.reader("t", 0).state().position, half[:-10])
    assert Store.open(tmp_path / "logs").latest_offset("t", 0) == 60


def test_a_damaged_batch_is_reported_with_its_place(root):
    path = Path(segment_path(str(root / "t-0"), 0, LOG))
    flip(path, -1)
    store = Store.open(root)
    with pytest.raises(CorruptRecordError, match="t-0") as caught:
        rows(store)
    assert caught.value.base_offset == 2
    # A base offset is under no CRC; but a log that goes back is none.
    path.write_bytes(batch(5, b"f") + batch(2, b"c"))
    with pytest.raises(CorruptRecordError, match="ends at offset 6"):
        rows(store)


@pytest.mark.parametrize(("base", "place", "watermark", "good"), [(10, 0, 17, 3), (20, 71, 23, 7), (20, 71, None, 7)])
def test_a_damaged_batch_is_not_taken_for_the_end(root, base, place, watermark, good):
    folder = root / "t-0"
    add(folder, 20, batch(21, b"v"), batch(22, b"w"))
    if watermark is not None:
        high_watermark(root, watermark)
    flip(segment_path(str(folder), base, LOG), place + 65)
    store, found = Store.open(root), []
    parts = (part["offset"].to_pylist() for part in store.read("t", 0))
    with pytest.raises(CorruptRecordError, match="the header says CRC"):
        found.extend(parts)
    assert [offset for part in found for offset in part] == [offset for offset, _ in ALL][:good]
    assert store.latest_offset("t", 0) == (watermark or 23)


@pytest.mark.parametrize(("number", "flipped"), [(0, 40), (1, 22), (1, 1 << 40), (2, 20)])
@pytest.mark.parametrize("end", [14, 20, 21])
def test_a_base_offset_of_a_later_segment_is_reported(root, number, flipped, end):
    """It is under no CRC; what follows it would be missing."""
    path = Path(segment_path(str(root / "t-0"), 10, LOG))
    batches = [batch(12, b"m"), batch(13, b"n"), batch(15, b"p", b"q")]
    batches[number] = flipped.to_bytes(8, "big") + batches[number][8:]
    path.write_bytes(b"".join(batches))
    store = Store.open(root)
    with pytest.raises(LogDamagedError, match=rf"10\.log at byte {71 * number}: .* base offset {flipped}, .* at 20"):
        rows(store, end=end)
    assert rows(store, end=10) == ALL[:3]
    assert rows(store, start=20) == ALL[-1:]


def test_a_log_start_above_the_end_is_reported(root, caplog):
    store = Store.open(root)
    assert (rows(store), caplog.text) == (ALL, "")
    kafka_files.write_offsets(str(root / LOG_START), {T0: 30})
    assert (store.earliest_offset("t", 0), store.latest_offset("t", 0), rows(store)) == (30, 30, [])
    (told,) = caplog.messages
    assert "t-0: the log starts at offset 30, by log-start-offset-checkpoint, but ends at 21" in told
    kafka_files.write_offsets(str(root / LOG_START), {T0: 21})
    assert store.earliest_offset("t", 0) == 21
    assert len(caplog.messages) == 1


def test_nothing_is_half_written_where_a_broker_was_shut_down_in_order(root):
    path = Path(segment_path(str(root / "t-0"), 20, LOG))
    good = path.read_bytes()
    more = batch(21, b"v" * 20)
    # In a file that was made in its full size the end of the last batch can be missing while it is written.
    path.write_bytes(good + more[:-5] + bytes(5))
    assert rows(Store.open(root)) == ALL
    (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    store = Store.open(root)
    assert store.latest_offset("t", 0) == 22
    with pytest.raises(CorruptRecordError, match="the header says CRC"):
        rows(store)
    # What is no batch at all does not count for the broker either.
    for tail in (more[:-5], bytes(100)):
        path.write_bytes(good + tail)
        assert rows(Store.open(root)) == ALL


# ---- while a broker is at work


def test_segments_that_go_while_they_are_read(root):
    store = Store.open(root)
    reader = store.read("t", 0, max_bytes=1)
    assert next(reader)["offset"].to_pylist() == [0]
    for base in (0, 10):
        path = segment_path(str(root / "t-0"), base, LOG)
        os.rename(path, path + ".deleted")
    # The segment that is open can be read to its end.
    assert next(reader)["offset"].to_pylist() == [2, 3]
    with pytest.raises(OffsetOutOfRangeError, match="20"):
        next(reader)
    assert rows(store) == ALL[-1:]


def test_segments_that_the_cleaner_swaps_while_they_are_read(root):
    folder = root / "t-0"
    store = Store.open(root)
    reader = store.read("t", 0, max_bytes=1)
    assert next(reader)["offset"].to_pylist() == [0]
    # The first two become one, of which a record is gone.
    add(folder, 0, batch(2, b"c", b"d"), batch(15, b"p", b"q"), suffix=".log.swap")
    log, swap = segment_path(str(folder), 0, LOG), segment_path(str(folder), 0, ".log.swap")
    assert rows(store) == ALL
    for base in (0, 10):
        path = segment_path(str(folder), base, LOG)
        os.rename(path, path + ".deleted")
    left = [(2, b"c"), (3, b"d"), (15, b"p"), (16, b"q"), (20, b"u")]
    assert rows(store) == left
    # A part of those that it replaces can still be there.
    os.rename(segment_path(str(folder), 10, LOG) + ".deleted", segment_path(str(folder), 10, LOG))
    assert rows(store) == [*left[:2], *ALL[3:]]
    os.rename(segment_path(str(folder), 10, LOG), segment_path(str(folder), 10, LOG) + ".deleted")
    assert rows(store) == left
    assert next(reader)["offset"].to_pylist() == [2, 3]
    os.rename(swap, log)
    assert rows(store) == left
    assert [row for part in reader for row in part["offset"].to_pylist()] == [15, 16, 20]


def test_segments_that_are_merged_right_before_one_is_opened(root, monkeypatch):
    folder = root / "t-0"
    store = Store.open(root)
    assert rows(store) == ALL
    open_as_ever = BrokerLogReader._open

    def merge_first(self, *which):
        monkeypatch.undo()
        for one in (0, 10):
            path = segment_path(str(folder), one, LOG)
            os.rename(path, path + ".deleted")
        add(folder, 0, batch(2, b"c", b"d"), batch(15, b"p", b"q"))
        return open_as_ever(self, *which)

    monkeypatch.setattr(BrokerLogReader, "_open", merge_first)
    assert rows(store, start=0, end=21) == [(2, b"c"), (3, b"d"), (15, b"p"), (16, b"q"), (20, b"u")]


def swap(folder, base):
    """Puts a cleaned segment, which is there as `.swap`, in the place of the segment that it replaces."""
    log = segment_path(str(folder), base, LOG)
    os.rename(log, log + ".deleted")
    os.rename(log + ".swap", log)


def before_opening(monkeypatch, number, act):
    """Has something done right before a segment is opened; the first is for the end of the log, the rest to read."""
    opened = []

    def open_segment(*arguments):
        opened.append(arguments)
        if len(opened) == number:
            act()
        return SegmentReader(*arguments)

    monkeypatch.setattr(reader, "SegmentReader", open_segment)
    return opened


@pytest.mark.parametrize(("number", "base"), [(1, 20), (2, 0)])
def test_a_segment_that_is_swapped_while_it_is_opened(root, monkeypatch, number, base):
    """Its names in the folder are the same before and after."""
    log, opened = segment_path(str(root / "t-0"), base, LOG), []
    shutil.copy(log, log + ".swap")

    def between_its_names(*arguments):
        # The first is for the end of the log.
        opened.append(arguments)
        if len(opened) != number:
            return SegmentReader(*arguments)
        os.rename(log, log + ".deleted")
        try:
            return SegmentReader(*arguments)
        finally:
            os.rename(log + ".swap", log)

    monkeypatch.setattr(reader, "SegmentReader", between_its_names)
    assert rows(Store.open(root), start=0, end=21) == ALL
    assert opened[number - 1][1] == base


@pytest.mark.parametrize("number", range(1, 7))
def test_a_segment_that_is_renamed_while_the_folder_is_listed(root, monkeypatch, number):
    """The system lists a large folder in several steps, and may find a file under neither of its names."""
    folder, store, calls = root / "t-0", Store.open(root), []
    log = segment_path(str(folder), 10, LOG)
    os.rename(log, log + ".swap")
    list_folder = files.list_folder

    def rename_between_the_steps(path):
        names = list_folder(path)
        calls.append(path)
        if len(calls) == number:
            os.rename(log + ".swap", log)
            return [name for name in names if not name.startswith(os.path.basename(log))]
        return names

    monkeypatch.setattr(files, "list_folder", rename_between_the_steps)
    assert rows(store, start=0, end=21) == ALL
    assert len(calls) >= number


def test_a_segment_up_to_the_high_watermark_that_is_cleaned_before_it_is_opened(root, monkeypatch):
    """The high watermark is written late: the segment that it is in may have become inactive since."""
    high_watermark(root, 17)
    add(root / "t-0", 10, batch(15, b"p", b"q"), suffix=".log.swap")
    before_opening(monkeypatch, 2, lambda: swap(root / "t-0", 10))
    assert rows(Store.open(root), start=12, end=17) == [(15, b"p"), (16, b"q")]


def test_the_active_segment_that_is_closed_and_cleaned_before_it_is_read(root):
    folder = root / "t-0"
    store = Store.open(root)
    reader = store.read("t", 0, max_bytes=1)
    assert next(reader)["offset"].to_pylist() == [0]
    # A batch can be larger when it is cleaned.
    os.rename(segment_path(str(folder), 20, LOG), segment_path(str(folder), 20, LOG) + ".deleted")
    add(folder, 20, batch(20, b"u as it is now"))
    add(folder, 30, batch(30, b"x"))
    assert [value for part in reader for value in part["value"].to_pylist()][-1] == b"u as it is now"


def test_a_topic_that_goes_and_comes(root):
    store = Store.open(root)
    assert rows(store) == ALL
    reader = store.read("t", 0, max_bytes=1)
    next(reader)
    os.rename(root / "t-0", root / "t-0.0-delete")
    add(root / "u-0", 0, batch(0, b"x"))
    assert store.topics() == ["u"]
    with pytest.raises(UnknownTopicError):
        store.latest_offset("t", 0)
    with pytest.raises((UnknownTopicError, LogDamagedError)):
        list(reader)
    assert rows(store, topic="u") == [(0, b"x")]


def test_topics_that_come_within_a_tick_of_the_systems_clock_for_files(root, monkeypatch):
    moved_time.stand_still(monkeypatch.setattr)
    add(root / "u-0", 0, batch(0, b"x"))
    store = Store.open(root)
    assert store.topics() == ["t", "u"]
    add(root / "v-0", 0, batch(0, b"x"))
    assert store.topics() == ["t", "u", "v"]


def test_another_topic_of_the_same_name_is_not_read_on(root):
    """Its log has segments of the same names, and offsets at which a slow reader could continue."""

    def owned(number):
        kafka_files.write_partition_metadata(str(root / "t-0" / PARTITION_METADATA), chr(number) * 21 + "A")

    def instead():
        os.rename(root / "t-0", root / "t-0.0-delete")
        add(root / "t-0", 0, batch(0, b"new"))
        add(root / "t-0", 10, batch(10, b"new"))
        add(root / "t-0", 20, batch(20, b"new"))

    owned(66)
    store, single = Store.open(root), Store.open(root / "t-0")
    slow, old = store.read("t", 0, max_bytes=1), single.logs.reader("t", 0)
    assert next(slow)["offset"].to_pylist() == [0]
    assert old.state().next_offset == 21
    instead()
    # A broker gives a new folder its id a little later than its segments.
    with pytest.raises(UnknownTopicError, match="the topic was deleted and recreated"):
        old.state()
    owned(67)
    rest = []
    with pytest.raises(UnknownTopicError, match=f"deleted and recreated .*{chr(67) * 21}A.* was {chr(66) * 21}A"):
        rest.extend(part["offset"].to_pylist() for part in slow)
    assert rest == [[2, 3]]
    assert rows(store) == rows(single) == [(0, b"new"), (10, b"new"), (20, b"new")]


def test_another_topic_of_the_same_name_whose_segment_is_opened(root, monkeypatch):
    kafka_files.write_partition_metadata(str(root / "t-0" / PARTITION_METADATA), "B" * 21 + "A")
    store = Store.open(root)
    assert rows(store) == ALL

    def instead():
        os.rename(root / "t-0", root / "t-0.0-delete")
        add(root / "t-0", 0, batch(0, b"new"))

    opened = before_opening(monkeypatch, 2, instead)
    with pytest.raises(UnknownTopicError, match="deleted and recreated"):
        next(store.read("t", 0, 0, 10))
    assert len(opened) == 2


def test_a_folder_that_gets_its_topics_id_later_is_read_on(root):
    store = Store.open(root)
    reader = store.read("t", 0, max_bytes=1)
    next(reader)
    kafka_files.write_partition_metadata(str(root / "t-0" / PARTITION_METADATA), "B" * 21 + "A")
    assert [offset for part in reader for offset in part["offset"].to_pylist()] == [row[0] for row in ALL[1:]]
    assert rows(store) == ALL


def test_what_is_known_of_a_partition_is_kept_while_checkpoints_are_written(root):
    store = Store.open(root)
    reader = store.logs.reader("t", 0)
    high_watermark(root, 20)
    assert store.logs.reader("t", 0) is reader
    add(root / "t-1", 0, batch(0, b"x"))
    assert store.describe_topic("t").partitions == 2


def test_records_of_transactions_are_read_without_their_markers(tmp_path):
    store = new_store(tmp_path, {"retention.ms": "-1"})
    store.append_batch("t", 0, ready(0, b"kept", transactional=True))
    end_transaction(store, True)
    store.append_batch("t", 0, ready(1, b"open", transactional=True))
    store.close()
    shutil.copytree(tmp_path / "store" / "data", tmp_path / "logs")
    assert rows(Store.open(tmp_path / "logs")) == [(0, b"kept"), (2, b"open")]


# ---- the groups of its consumers


def test_groups_are_those_of_the_offsets_topic(tmp_path):
    store = new_store(tmp_path)
    committed = OffsetsLog(store, clock=lambda: 1.5)
    committed.commit("mine", {T0: 3}, "note")
    committed.commit("test", {T0: 5})
    store.close()
    shutil.copytree(tmp_path / "store" / "data", tmp_path / "logs")
    brokers = OffsetsLog(Store.open(tmp_path / "logs"))
    assert brokers.groups() == ["mine", "test"]
    assert brokers.fetch("mine")[T0].offset == 3
    assert brokers.fetch("other") == {}
    # Another broker has the other partitions: how many there are, this folder does not know.
    for path in sorted((tmp_path / "logs").glob("__consumer_offsets-*"))[::-1]:
        if not list(path.glob("*.log")) or store.size("__consumer_offsets", int(path.name.rpartition("-")[2])) == 0:
            shutil.rmtree(path)
    few = Store.open(tmp_path / "logs")
    assert few.describe_topic("__consumer_offsets").partitions < 50
    assert (OffsetsLog(few).fetch("mine")[T0].offset, OffsetsLog(few).fetch("test")[T0].offset) == (3, 5)
    assert output(tmp_path / "logs", "groups", "list").split() == ["mine", "test"]
    shown = output(tmp_path / "logs", "consume", "__consumer_offsets", "--format", "offsets")
    records = [json.loads(line) for line in shown.splitlines()]
    mine = next(record for record in records if record["group"] == "mine")
    assert mine.pop("at")["offset"] == 0
    assert mine == {
        "group": "mine",
        "topic": "t",
        "partition": 0,
        "committed": 3,
        "leader_epoch": -1,
        "metadata": "note",
        "commit_timestamp": 1500,
    }


def golden(name: str, version: int) -> bytes:
    content = json.loads((LOGDIR.parent / "coordinator-records.json").read_text(encoding="utf-8"))
    (found,) = (one for one in content["messages"] if (one["name"], one["version"]) == (name, version))
    return bytes.fromhex(found["hex"])


def test_every_kind_of_group_record_is_shown(tmp_path):
    members = golden("GroupMetadataValue", 4)
    never = b"\0\1" + b"\0" * 7 + b"\5\0\0" + b"\0" * 8 + b"\x7f" + b"\xff" * 7
    pairs = [
        (b"\0\1\0\1g\0\1t\0\0\0\7", None), (b"\0\1\0\1g\0\1t\0\0\0\7", never), (b"\0\2\0\1g", members),
        (b"\0\2\0\1h", None), (b"\0\2\0\1g", b"\0\3"), (b"\0\5\0\1g\0\1m", b"v"), (b"\0\x63yz", b"v"),
        (b"\0\1\0", b"v"), (None, b"v"),
    ]  # fmt: skip
    folder = tmp_path / "logs" / "__consumer_offsets-0"
    folder.parent.mkdir()
    add(folder, 0, build([Record(key, value, 7) for key, value in pairs]))

    def shown(*more):
        result = pylog(folder.parent, "consume", "__consumer_offsets", *more)
        return result.exit_code, [json.loads(line) for line in result.output.splitlines() if line.startswith("{")]

    code, records = shown("--format", "offsets")
    assert code == 0
    assert [record.pop("at") for record in records][4] == {"partition": 0, "offset": 4, "timestamp": 7}
    assert records[0] == {"group": "g", "topic": "t", "partition": 7, "committed": None}
    assert (records[1]["committed"], records[1]["expire_timestamp"]) == (5, "never")
    member = {
        "consumer_id": "c-1",
        "instance_id": "inst",
        "client_id": "c",
        "host": "/127.0.0.1",
        "topics": ["orders", "payments"],
        "partitions": ["orders-0", "orders-1", "orders-2"],
    }
    assert records[2] == {
        "group": "g",
        "protocol_type": "consumer",
        "generation": 5,
        "protocol": "range",
        "leader": "c-1",
        "state_timestamp": 1700000000000,
        "members": [member],
    }
    assert records[3] == {"group": "h", "members": None}
    assert "field of" in records[4]["error"]
    kind = {"group": "g", "kind": "ConsumerGroupMemberMetadata"}
    assert records[5] == {**kind, "key_base64": "AAUAAWcAAW0=", "value_base64": "dg=="}
    assert records[6] == {"key_base64": "AGN5eg==", "value_base64": "dg=="}
    assert "field of" in records[7]["error"]
    assert (records[8]["key_base64"], records[8]["value_base64"]) == (None, "dg==")

    assert [one["at"]["offset"] for one in shown("--format", "offsets", "--offsets-group", "g")[1]] == [0, 1, 2, 4, 5]
    (of_h,) = shown("--format", "offsets", "--offsets-group", "h", "--max-messages", "1")[1]
    assert of_h["at"]["offset"] == 3
    assert shown("--format", "json", "--offsets-group", "g")[0] == 2


# ---- nothing is written


WRITES = {
    "append": lambda store: store.append("t", pa.record_batch({"value": [b"x"]})),
    "append to the offsets": lambda store: OffsetsLog(store).commit("group", {T0: 3}),
    "a client's batch": lambda store: store.append_batch("t", 0, ready(0, b"x")),
    "create": lambda store: store.create_topic("new"),
    "make if missing": lambda store: store.ensure_topic("new"),
    "more partitions": lambda store: store.add_partitions("t", 4),
    "configs": lambda store: store.alter_configs("t", {"retention.ms": "1"}),
    "delete": lambda store: store.delete_topic("t"),
    "delete records": lambda store: store.delete_records("t", 0, 2),
    "clean": lambda store: store.clean(),
    "flush": lambda store: store.flush(),
    "plan": lambda store: StagingPlan.make(store.logs, ["t"]),
    "stage": lambda store: StagedWriter(store.logs, StagingPlan(store.cluster_id, {})),
    "transaction": lambda store: Transactions(store, "id").begin(),
    "recover": recover,
    "repair": lambda store: repair(store.path, store.path + "-copy"),
}


@pytest.mark.parametrize("kind", WRITES)
def test_nothing_is_ever_written(root, kind):
    before = tree(root.parent)
    with pytest.raises(ReadOnlyError, match="Kafka broker"):
        WRITES[kind](Store.open(root))
    assert tree(root.parent) == before


def test_reading_writes_nothing(root):
    before = tree(root.parent)
    with Store.open_or_create(root) as store:
        assert not store.writable
        rows(store)
        store.offset_for_timestamp("t", 0, 1)
        OffsetsLog(store).fetch("group")
    assert tree(root.parent) == before


def test_commands(root):
    before = tree(root)
    assert output(root, "topics", "list").split() == ["t"]
    output(root, "topics", "describe", "t")
    output(root, "consume", "t", "--print-offset")
    for arguments in (["topics", "create", "new"], ["recover"], ["clean"], ["repair", "--into", f"{root}-copy"]):
        refused = pylog(root, *arguments)
        assert refused.exit_code != 0
        assert "Kafka broker" in refused.output, refused.output
    assert tree(root) == before
