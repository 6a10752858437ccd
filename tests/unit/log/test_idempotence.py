"""Batches of producers that number their records, on real files: what is taken, answered, refused, and remembered."""

import errno
import os
import shutil
import struct
import time
from pathlib import Path

import pyarrow as pa
import pytest
from producer_tools import end_transaction, ending, ready
from record_tools import Record, build, patched, with_crc

from pyspark_log.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTopicError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    TransactionCoordinatorFencedError,
)
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.appending.replica import truncate
from pyspark_log.storage.log.producers import manager, snapshot
from pyspark_log.storage.log.producers.snapshot import list_snapshots
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.log.state.partition_state import Flags
from pyspark_log.storage.maintenance.repair.store import repair
from pyspark_log.storage.record import layout
from pyspark_log.storage.record.headers import scan
from pyspark_log.storage.segment.txn_index import AbortedTransaction, read_entries
from pyspark_log.storage.store import Store
from pyspark_log.types import AppendResult
from tests.store_tools import cut_log, faults, new_store, publish, stage, store_with

# By their times producers are idle or not.
NOW = time.time_ns() // 1_000_000
CONFIG = {"segment.bytes": "1000", "retention.ms": "-1", "index.interval.bytes": "100"}


store = store_with(CONFIG)


def send(store, sequence, *values, **fields):
    return store.append_batch("t", 0, ready(sequence, *(values or (b"v",)), timestamp=NOW, **fields))


def plain(store, count=1):
    store.append("t", pa.record_batch({"value": [b"." * 100] * count}))


def offsets(result):
    return result.base_offset, result.next_offset, result.duplicate


def folder(store):
    return f"{store.path}/data/t-0"


def bytes_of(store):
    return {path.name: path.read_bytes() for path in Path(folder(store)).iterdir()}


def aborted(store):
    """The entries of all indexes of aborted transactions."""
    names = sorted(name for name in os.listdir(folder(store)) if name.endswith(".txnindex"))
    return [entry for name in names for entry in read_entries(f"{folder(store)}/{name}", int(name[:20]))]


def roll(store):
    before = max(1, len(store.segment_files("t", 0)))
    while len(store.segment_files("t", 0)) <= before:
        plain(store)


# ---- what is taken, answered and refused


def nine(store):
    """Sequences 0 to 5 one by one, then 6 to 8 as one batch."""
    for sequence in range(6):
        assert send(store, sequence) == AppendResult(0, sequence, sequence + 1)
    assert send(store, 6, b"6", b"7", b"8") == AppendResult(0, 6, 9)


def test_the_last_five_batches_are_answered_with_their_offsets_and_nothing_is_written(store):
    nine(store)
    before = bytes_of(store)
    assert offsets(send(store, 6, b"6", b"7", b"8")) == (6, 9, True)
    for sequence in range(2, 6):
        assert offsets(send(store, sequence)) == (sequence, sequence + 1, True)
    assert bytes_of(store) == before
    assert offsets(send(store, 9)) == (9, 10, False)


@pytest.mark.parametrize(("sequence", "values"), [(7, (b"7", b"8")), (1, ()), (10, ()), (0, ())])
def test_what_does_not_follow_is_refused_and_changes_nothing(store, sequence, values):
    nine(store)
    before = bytes_of(store)
    with pytest.raises(OutOfOrderSequenceError, match="expected 9"):
        send(store, sequence, *values)
    assert (store.latest_offset("t", 0), bytes_of(store)) == (9, before)


def test_producers_do_not_disturb_each_other_nor_plain_appends(store):
    for sequence in range(4):
        for producer in (1, 2):
            send(store, sequence, producer=producer)
        plain(store)
    assert offsets(send(store, 3, producer=1)) == (9, 10, True)
    assert store.latest_offset("t", 0) == 12


def test_an_answer_with_sync_is_durable(store):
    send(store, 0)
    with store.logs.writer("t", 0).hold() as writer:
        assert writer.state.synced < writer.state.position
    store.append_batch("t", 0, ready(0, b"v"), sync=True)
    with store.logs.writer("t", 0).hold() as writer:
        assert writer.state.synced == writer.state.position


# ---- what is remembered


def test_a_process_that_comes_new_knows_the_last_five_of_its_segment(store):
    nine(store)
    fresh = Store.open(store.path)
    assert offsets(send(fresh, 2)) == (2, 3, True)
    with pytest.raises(OutOfOrderSequenceError):
        send(fresh, 1)
    assert offsets(send(fresh, 9)) == (9, 10, False)


def test_of_what_is_before_the_snapshot_the_last_batch_is_known(store):
    nine(store)
    roll(store)
    assert offsets(send(store, 2)) == (2, 3, True)
    fresh = Store.open(store.path)
    assert offsets(send(fresh, 6, b"6", b"7", b"8")) == (6, 9, True)
    with pytest.raises(OutOfOrderSequenceError):
        send(fresh, 5)
    assert offsets(send(fresh, 9))[2] is False


def test_each_roll_leaves_a_snapshot_and_the_newest_is_where_reading_begins(store):
    nine(store)
    for _ in range(3):
        roll(store)
        send(store, 0, producer=2, epoch=store.latest_offset("t", 0))
    bases = [int(Path(path).stem) for path in store.segment_files("t", 0)]
    assert list_snapshots(folder(store)) == bases[1:]
    (entry,) = [entry for entry in snapshot.load_newest(folder(store), 0, bases[-1]).entries if entry[0] == 1]
    told = entry._replace(batches=(entry.batches[-1]._replace(last_sequence=70),))
    snapshot.write(folder(store), bases[-1], [told])
    assert offsets(send(Store.open(store.path), 71))[2] is False


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"noise")])
def test_without_a_sound_snapshot_the_log_is_read(store, damage):
    nine(store)
    roll(store)
    (offset,) = list_snapshots(folder(store))
    damage(Path(folder(store), f"{offset:020d}.snapshot"))
    fresh = Store.open(store.path)
    assert offsets(send(fresh, 2)) == (2, 3, True)
    assert offsets(send(fresh, 9))[2] is False


def test_stray_snapshots_are_removed_when_producers_are_read_again(store):
    nine(store)
    roll(store)
    (offset,) = list_snapshots(folder(store))
    snapshot.write(folder(store), 3, [])
    send(Store.open(store.path), 9)
    assert list_snapshots(folder(store)) == [offset]


def test_two_that_take_turns_read_only_what_the_other_has_added(store, monkeypatch):
    other = Store.open(store.path)
    nine(store)
    send(other, 9)
    read = []
    headers_of = manager.read_headers

    def counted(*where):
        for header in headers_of(*where):
            read.append(header.base_offset)
            yield header

    monkeypatch.setattr(manager, "read_headers", counted)
    for sequence in range(10, 40, 2):
        send(store, sequence)
        send(other, sequence + 1)
    assert offsets(send(store, 39)) == (39, 40, True)
    # The index leads to a place some batches before.
    assert len(read) < 31 * 5
    read.clear()
    for sequence in range(40, 50):
        plain(store)
        send(store, sequence)
    assert read == []


def test_a_refused_batch_costs_no_reading(store, monkeypatch):
    nine(store)
    opened = []
    open_read = files.open_read
    monkeypatch.setattr(files, "open_read", lambda path: opened.append(path) or open_read(path))
    for sequence in range(9, 14):
        with pytest.raises(OutOfOrderSequenceError):
            send(store, sequence + 5)
        with pytest.raises(RecordTooLargeError), store.logs.writer("t", 0).hold() as writer:
            writer.append(bytearray(1001), sync=False)
        send(store, sequence)
    assert [path for path in opened if path.endswith((".log", ".snapshot"))] == []


def test_a_partition_without_producers_has_none_of_their_files_and_costs_nothing(store, monkeypatch):
    def never(*_):
        raise AssertionError

    for name in ("list_snapshots", "write", "load_newest"):
        monkeypatch.setattr(snapshot, name, never)
    monkeypatch.setattr(manager.ProducerStateManager, "_follow", never)
    roll(store)
    with store.logs.writer("t", 0).hold() as writer:
        assert not writer.state.flags & Flags.PRODUCERS
    assert not [name for name in os.listdir(folder(store)) if name.endswith((".snapshot", ".txnindex"))]


def test_an_idle_producer_is_forgotten_and_one_with_a_transaction_open_is_not(tmp_path):
    store = new_store(tmp_path, CONFIG, settings={"producer.id.expiration.ms": "1000"})
    store.logs.writer("t", 0).log.clock = lambda: NOW
    send(store, 0)
    send(store, 0, producer=2, transactional=True)
    roll(store)
    for later, known in ((999, True), (1000, False)):
        fresh = Store.open(store.path)
        fresh.logs.writer("t", 0).log.clock = lambda now=NOW + later: now
        if known:
            with pytest.raises(OutOfOrderSequenceError):
                send(fresh, 7)
        else:
            assert offsets(send(fresh, 7))[2] is False
        with pytest.raises(OutOfOrderSequenceError):
            send(fresh, 7, producer=2, transactional=True)


def test_a_running_process_forgets_idle_producers_in_time(tmp_path):
    store = new_store(tmp_path, CONFIG, settings={"producer.id.expiration.ms": "1000"})
    writer = store.logs.writer("t", 0)
    writer.log.clock = lambda: NOW
    send(store, 0)
    writer.log.clock = lambda: NOW + 599_999
    with pytest.raises(OutOfOrderSequenceError):
        send(store, 7)
    writer.log.clock = lambda: NOW + 600_000
    assert offsets(send(store, 7))[2] is False


def test_a_snapshot_that_cannot_be_written_fails_no_append(store, fail, caplog):
    nine(store)
    fail("rename", ".snapshot")
    roll(store)
    assert "could not take a snapshot" in caplog.text
    assert offsets(send(Store.open(store.path), 9))[2] is False


def test_a_publish_that_begins_segments_leaves_a_snapshot_too(store):
    nine(store)
    for number in range(3):
        publish(store.decisions, "q", number, stage(store, pa.record_batch({"value": [b"." * 600]})))
    base = int(Path(store.segment_files("t", 0)[-1]).stem)
    assert list_snapshots(folder(store))[-1] == base
    fresh = Store.open(store.path)
    assert offsets(send(fresh, 6, b"6", b"7", b"8")) == (6, 9, True)
    assert offsets(send(fresh, 9))[2] is False


def test_what_is_truncated_is_forgotten_by_all_processes(store):
    other = Store.open(store.path)
    nine(store)
    send(other, 9)
    snapshot.write(folder(store), 10, [])  # As Kafka leaves one at the end of a log that it closes.
    roll(store)
    assert cut_log(store, 3) == 3
    assert list_snapshots(folder(store)) == []
    for sequence in (3, 4):
        plain(store, 12)  # The log is longer again than what the other one knows.
        with pytest.raises(OutOfOrderSequenceError, match=f"expected {sequence}"):
            send(other, 10)
        assert offsets(send(other, sequence))[2] is False
        assert offsets(send(store, sequence))[2] is True


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("process", ["the same process", "another one", "another one after a restart"])
def test_what_is_truncated_with_the_batch_of_the_log_start_is_forgotten_too(store, process, killed, monkeypatch):
    """The file that held it is deleted, or is left by a killed process; and what comes then reaches as far again."""
    send(store, 0, b"0", b"1")
    send(store, 2, b"2", b"3", b"4")
    send(store, 5, producer=6, transactional=True)
    end_transaction(store, commit=False, producer=6)
    assert store.delete_records("t", 0, 3) == 3
    with monkeypatch.context() as patched, store.logs.writer("t", 0).hold() as writer:
        if killed:
            patched.setattr(manager.ProducerStateManager, "take_snapshot", lambda *_: None)
            patched.setattr("pyspark_log.storage.log.appending.replica.delete_before", lambda *_: None)
        assert truncate(writer.log, 4) == 3
    assert len(store.segment_files("t", 0)) == 1 + killed
    if process == "another one after a restart":
        monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    comes = store if process == "the same process" else Store.open(store.path)
    plain(comes, 5)
    with pytest.raises(OutOfOrderSequenceError, match="expected 2"):
        send(comes, 5)
    end = comes.latest_offset("t", 0)
    assert end >= 8
    assert offsets(send(comes, 2, b"2", b"3", b"4")) == (end, end + 3, False)
    assert offsets(send(Store.open(store.path), 0, b"0", b"1")) == (0, 2, True)
    roll(comes)
    Store.open(store.path).clean()
    assert aborted(store) == []
    assert faults(store.path) == []


def test_a_segment_that_a_killed_writer_left_does_not_count_when_a_truncation_begins_another_above_it(store):
    send(store, 0, b"0", b"1")
    left = folder(store) + f"/{2:020d}.log"
    with open(left, "wb") as file:
        file.write(b"half")
    send(store, 2, b"2", b"3", b"4")
    plain(store, 5)
    assert store.delete_records("t", 0, 7) == 7
    assert cut_log(store, 8) == 7
    assert not os.path.exists(left)
    assert offsets(send(Store.open(store.path), 2, b"2", b"3", b"4"))[2] is True
    assert offsets(send(Store.open(store.path), 5))[2] is False


def test_a_truncation_at_the_log_start_between_two_batches_keeps_earlier_producers(store):
    send(store, 0, b"0", b"1")
    send(store, 2, b"2")
    assert store.delete_records("t", 0, 2) == 2
    assert cut_log(store, 2) == 2
    for opened in (store, Store.open(store.path)):
        assert offsets(send(opened, 0, b"0", b"1")) == (0, 2, True)
        with pytest.raises(OutOfOrderSequenceError, match="expected 2"):
            send(opened, 3)
    assert list_snapshots(folder(store)) == [], "one named by the segment's base would tell of what came later"
    assert offsets(send(store, 2, b"2")) == (2, 3, False)


def test_a_store_that_is_replaced_by_an_older_copy_is_asked_again(store):
    writer = store.logs.writer("t", 0)
    send(store, 0)
    shutil.copytree(store.path, f"{store.path}-copy")
    send(store, 1)
    shutil.rmtree(store.path)
    os.rename(f"{store.path}-copy", store.path)
    plain(Store.open(store.path), 3)
    with writer.hold() as held:
        assert held.append(bytearray(ready(1, b"v", timestamp=NOW)), sync=False) == (4, 5, False)


def test_after_a_power_loss_a_batch_is_known_whose_end_move_was_lost(store, monkeypatch):
    store.append_batch("t", 0, ready(0, b"v", timestamp=NOW), sync=True)
    state = Path(store.logs.writer("t", 0).place.state_path)
    # The slots of moves that are not synced are as they were made.
    state.write_bytes(bytes(1024) + state.read_bytes()[1024:])
    assert store.latest_offset("t", 0) == 0
    monkeypatch.setattr(state_file, "this_boot", lambda: b"boot two")
    assert offsets(send(Store.open(store.path), 0)) == (0, 1, True)


# ---- transactions


def test_an_aborted_transaction_gets_kafkas_entry(store):
    """Producer 1000 has a transaction open since offset 0; that of 1001, from 2 on, is aborted by the marker at 10."""
    send(store, 0, b"0", b"1", producer=1000, transactional=True)
    send(store, 0, *[b"v"] * 8, producer=1001, transactional=True)
    assert end_transaction(store, False, producer=1001) == (10, 11, False)
    entry = "000000000000000003e90000000000000002000000000000000a0000000000000000"
    assert Path(folder(store), f"{0:020d}.txnindex").read_bytes().hex() == entry
    end_transaction(store, True, producer=1000)
    send(store, 2, producer=1000, transactional=True)
    end_transaction(store, False, producer=1000)
    assert aborted(store) == [AbortedTransaction(1001, 2, 10, 0), AbortedTransaction(1000, 12, 13, 14)]
    values = [value for batch in store.read("t", 0) for value in batch["value"].to_pylist()]
    assert len(values) == 11  # A marker is no record.


def test_markers_are_refused_by_kafkas_rules(store):
    send(store, 0, transactional=True)
    with pytest.raises(InvalidTxnStateError):
        send(store, 1)
    with pytest.raises(InvalidProducerEpochError):
        end_transaction(store, True, epoch=-1)
    end_transaction(store, True, coordinator=5)
    send(store, 1, transactional=True)
    with pytest.raises(TransactionCoordinatorFencedError):
        end_transaction(store, False, coordinator=4)
    end_transaction(store, False, coordinator=5)
    assert aborted(store) == [AbortedTransaction(1, 2, 3, 4)]


def test_an_entry_is_in_the_segment_of_its_marker_and_transactions_outlive_their_segment(store):
    send(store, 0, transactional=True)
    roll(store)
    fresh = Store.open(store.path)
    at = end_transaction(fresh, False).base_offset
    base = int(Path(store.segment_files("t", 0)[-1]).stem)
    assert base > 0
    assert read_entries(f"{folder(store)}/{base:020d}.txnindex", base) == [AbortedTransaction(1, 0, at, at + 1)]
    assert not Path(folder(store), f"{0:020d}.txnindex").exists()


def test_an_entry_that_cannot_be_written_keeps_its_marker_out(store, fail):
    send(store, 0, transactional=True)
    fail("write", ".txnindex")
    with pytest.raises(OSError, match="No space"):
        end_transaction(store, False)
    assert store.latest_offset("t", 0) == 1
    assert end_transaction(Store.open(store.path), False) == (1, 2, False)
    assert aborted(store) == [AbortedTransaction(1, 0, 1, 2)]


@pytest.mark.parametrize("process", ["the same", "another"])
def test_an_entry_whose_marker_was_not_finished_goes(store, fail, process):
    send(store, 0, transactional=True)
    with store.logs.writer("t", 0).hold() as writer:
        path = writer.log.place.state_path
    # The end is not moved, as if the process were killed there.
    fail("write", os.path.basename(path), errno.EIO)
    with pytest.raises(Exception, match="log end could not be moved"):
        end_transaction(store, False)
    assert len(aborted(store)) == 1
    plain(store if process == "the same" else Store.open(store.path))
    assert aborted(store) == []
    assert end_transaction(store, False).base_offset == 2
    assert aborted(store) == [AbortedTransaction(1, 0, 2, 3)]


def test_a_damaged_index_is_rebuilt(store):
    for sequence in range(3):
        send(store, sequence, transactional=True)
        end_transaction(store, False)
    path = Path(folder(store), f"{0:020d}.txnindex")
    before = path.read_bytes()
    path.write_bytes(struct.pack(">h", 7) + before[2:])
    send(store, 3, transactional=True)
    fresh = Store.open(store.path)
    end_transaction(fresh, False)
    assert path.read_bytes()[: len(before)] == before
    assert len(aborted(store)) == 4


def test_an_index_that_another_process_has_rebuilt_is_written_to(store):
    send(store, 0, transactional=True)
    end_transaction(store, False)
    send(store, 1, transactional=True)
    path = Path(folder(store), f"{0:020d}.txnindex")
    path.write_bytes(b"\x00\x07" + path.read_bytes()[2:])
    with open(store.segment_files("t", 0)[0], "ab") as log:
        log.write(b"a leftover, which the next one cuts away together with what stands behind the end in the index")
    with Store.open(store.path).logs.writer("t", 0).hold():
        assert len(aborted(store)) == 1
    end_transaction(store, False)
    assert len(aborted(store)) == 2


def test_a_truncation_cuts_the_index(store):
    for sequence in range(3):
        send(store, sequence, transactional=True)
        end_transaction(store, False)
    cut_log(store, 3)
    assert aborted(store) == [AbortedTransaction(1, 0, 1, 2)]
    assert end_transaction(store, False) == (3, 4, False)
    assert aborted(store)[1] == AbortedTransaction(1, 2, 3, 4)


def test_a_repaired_copy_has_the_indexes_and_epochs_that_the_log_gives(store, tmp_path):
    send(store, 0, producer=2, transactional=True)
    for sequence in range(9):
        send(store, sequence, transactional=True)
        end_transaction(store, sequence % 3 == 0)
        plain(store)
    cut_log(store, store.latest_offset("t", 0) - 1)
    plain(store)
    assert len(aborted(store)) == 6
    assert len([path for path in Path(folder(store)).glob("*.txnindex") if path.stat().st_size]) > 1
    repair(store.path, tmp_path / "copy")
    copy = Store.open(tmp_path / "copy")
    assert aborted(copy) == aborted(store)
    for path in Path(folder(store)).glob("*.txnindex"):
        assert Path(folder(copy), path.name).read_bytes() == path.read_bytes()
    epochs = "leader-epoch-checkpoint"
    assert Path(folder(copy), epochs).read_bytes() == Path(folder(store), epochs).read_bytes()


# ---- what a client may send


BATCH = ready(0, b"a", b"b", timestamp=NOW)


REFUSED = {
    "two batches": (BATCH + BATCH, InvalidRecordError, "2 whole batches"),
    "a torn batch": (BATCH[:-1], InvalidRecordError, "0 whole batches"),
    "nothing": (b"", InvalidRecordError, "0 whole batches"),
    "a flipped byte": (BATCH[:-1] + b"x", CorruptRecordError, "CRC"),
    "too few records": (patched(BATCH, layout.COUNT_AT, 4, 1), InvalidRecordError, "1 records"),
    "too many offsets": (patched(BATCH, layout.LAST_OFFSET_DELTA_AT, 4, 5), InvalidRecordError, "2 records, and 5"),
    "a base offset": (patched(BATCH, layout.BASE_OFFSET_AT, 8, 3), InvalidRecordError, "base offset 3"),
    "no epoch": (patched(BATCH, layout.PRODUCER_EPOCH_AT, 2, -1), InvalidRecordError, "epoch -1"),
    "no sequence": (patched(BATCH, layout.BASE_SEQUENCE_AT, 4, -1), InvalidRecordError, "sequence number -1"),
    "the log's time": (patched(BATCH, layout.ATTRIBUTES_AT, 2, layout.LOG_APPEND_TIME), InvalidRecordError, "append"),
    "a delete horizon": (patched(BATCH, layout.ATTRIBUTES_AT, 2, layout.DELETE_HORIZON), InvalidRecordError, "horizon"),
    "a marker": (ending(True), InvalidRecordError, "control"),
    "a transaction of nothing": (build([Record()], transactional=True), InvalidRecordError, "without a producer id"),
    "too large": (ready(0, b"x" * 5000), RecordTooLargeError, r"max\.message\.bytes"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_client_sends_is_refused(tmp_path, what):
    batch, error, message = REFUSED[what]
    store = new_store(tmp_path, {"max.message.bytes": "2000"})
    with pytest.raises(error, match=message):
        store.append_batch("t", 0, batch)
    assert store.latest_offset("t", 0) == 0


def test_records_whose_offsets_leave_one_out_are_refused(store):
    delta = layout.HEADER_SIZE + 3  # of the first record, after its length, attributes and time
    assert BATCH[delta] == 0
    with pytest.raises(CorruptRecordError, match="offset delta"):
        store.append_batch("t", 0, with_crc(BATCH[:delta] + b"\x02" + BATCH[delta + 1 :]))


@pytest.mark.parametrize("said", [NOW - 1, NOW + 1, -1], ids=["earlier", "later", "none"])
def test_a_wrong_largest_time_is_corrected(store, said):
    store.append_batch("t", 0, patched(BATCH, layout.MAX_TIMESTAMP_AT, 8, said))
    data = Path(store.segment_files("t", 0)[0]).read_bytes()
    (header,) = scan(data, 0, len(data), check_crcs=True)
    assert header.max_timestamp == NOW


def test_the_engines_own_topics_take_no_batches(store):
    with pytest.raises(InvalidTopicError):
        store.append_batch("__consumer_offsets", 0, BATCH)


def test_a_batch_without_a_producer_is_taken_each_time(store):
    batch = build([Record(b"k", b"v")])
    assert [offsets(store.append_batch("t", 0, batch)) for _ in range(2)] == [(0, 1, False), (1, 2, False)]


@pytest.mark.parametrize(
    ("wanted", "sent", "stored"),
    [("producer", "gzip", "gzip"), ("gzip", "none", "gzip"), ("uncompressed", "zstd", "none"), ("lz4", "lz4", "lz4")],
)
def test_a_batch_is_stored_in_the_codec_that_the_topic_asks_for(tmp_path, wanted, sent, stored):
    store = new_store(tmp_path, {"compression.type": wanted, "retention.ms": "-1"})
    batch = ready(7, b"a", b"b", producer=5, epoch=3, codec=sent, transactional=True, timestamp=NOW)
    for duplicate in (False, True):
        assert offsets(store.append_batch("t", 0, batch)) == (0, 2, duplicate)
    data = Path(store.segment_files("t", 0)[0]).read_bytes()
    (header,) = scan(data, 0, len(data), check_crcs=True)
    assert header.codec == stored
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (5, 3, 7, True)
    (rows,) = store.read("t", 0, headers=True)
    assert rows["value"].to_pylist() == [b"a", b"b"]
    assert [time.timestamp() * 1000 for time in rows["timestamp"].to_pylist()] == [NOW, NOW]
