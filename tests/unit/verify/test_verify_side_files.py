"""`verify` compares the files beside the segments and the logs with the log; `repair` rebuilds them."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from damage import headers, log, records
from leader_tools import lead
from producer_tools import ending, ready
from record_tools import with_crc

from pyspark_log.storage.catalog import kafka_files, log_dirs
from pyspark_log.storage.catalog.kafka_files import CLEANER, HIGH_WATERMARK, LOG_START, RECOVERY_POINT, MetaProperties
from pyspark_log.storage.log import leader_epochs
from pyspark_log.storage.log.appending.replica import truncate
from pyspark_log.storage.log.producers import snapshot
from pyspark_log.storage.log.producers.state import ProducerEntry, WrittenBatch
from pyspark_log.storage.log.state import partition_state, state_file
from pyspark_log.storage.log.state.partition_state import Flags
from pyspark_log.storage.maintenance.repair.store import repair
from pyspark_log.storage.maintenance.verify import log_dir as verify_log_dir
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.log.partition import PartitionCheck
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.segment.txn_index import AbortedTransaction, TxnIndex, read_entries
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.store_tools import flip, new_store

IDLE, ABORTING, OPEN = 1, 2, 3
NOW = int(time.time() * 1000)


def write(store, batch):
    with store.logs.writer("t", 0).hold() as writer:
        writer.append(bytearray(batch), sync=False)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Segments with aborted transactions; one producer that is idle since the first, one with a transaction open."""
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)
    store = new_store(tmp_path, {"segment.bytes": "700", "index.interval.bytes": "200", "retention.ms": "-1"})
    for number in range(3):
        write(store, ready(number, b"idle", producer=IDLE, timestamp=NOW))
    for number in range(8):
        if number == 4:
            with store.logs.writer("t", 0).hold() as held:
                lead(held, 1)
        values = [b"a" * 50, b"b", b"c"]
        write(store, ready(3 * number, *values, producer=ABORTING, transactional=True, timestamp=NOW))
        write(store, ending(number % 3 == 1, producer=ABORTING, timestamp=NOW))
    write(store, ready(0, b"open", producer=OPEN, transactional=True, timestamp=NOW))
    for number in range(4):
        store.append("t", pa.record_batch({"value": [b"plain %d" % number * 30]}))
    store.flush()
    return tmp_path / "store"


def found(path, *severities):
    findings = verify(path).findings
    return [finding for finding in findings if finding.severity in severities or not severities]


def file(path, suffix, number):
    """The file of that number of those in the partition's folder with that suffix."""
    return sorted((path / "data" / "t-0").glob(f"*{suffix}"))[number]


def base(file):
    return int(file.name[:20])


def lie(path, change):
    """A snapshot that is right by its CRC."""
    entries = {entry.producer_id: entry for entry in snapshot.read(str(path))}
    change(entries)
    path.write_bytes(snapshot.encode(entries.values()))


def moved(producer, **changes):
    def change(entries):
        last = entries[producer].batches[-1]._replace(**changes)
        entries[producer] = entries[producer]._replace(batches=(last,))

    return change


def given(producer, **changes):
    return lambda entries: entries.update({producer: entries[producer]._replace(**changes)})


def stranger(entries):
    entries[9] = ProducerEntry(9, 0, -1, NOW, None, (WrittenBatch(4, 5, 0, NOW),))


def replaced(index, *entries):
    index.unlink(missing_ok=True)
    writer = TxnIndex(str(index), base(index))
    for entry in entries:
        writer.append(entry)
    writer.close()


def first_entry(index):
    return read_entries(str(index), base(index))[0]


def set_state(path, **changes):
    (state_path,) = (p for p in (path / "state").iterdir() if p.name.endswith("-0"))
    state = state_file.read(str(state_path)).state
    state_path.write_bytes(partition_state.encode_slot(state._replace(**changes)) + bytes(1792))


def without_flag(path):
    set_state(path, flags=Flags.NONE)
    return log(path, 0)


def marker_of_nothing(path):
    """By its CRC it is whole; its key is too short."""
    write(Store.open(path), ending(True, producer=OPEN, timestamp=NOW))
    last = log(path, -1)
    data, at = last.read_bytes(), headers(last)[-1].position
    last.write_bytes(data[:at] + with_crc(data[at:].replace(b"\x08\0\0\0\1", b"\x02\0\0\0\1")))
    return last


def changed(suffix, number, change):
    def damage(path):
        target = file(path, suffix, number)
        change(target)
        return target

    return damage


DAMAGE, INDEX = Severity.DAMAGE, Severity.INDEX
SNAPSHOT, TXN = ".snapshot", ".txnindex"
#: How bad, a word of what is said, and what does it; that gives the file.
OF_PRODUCERS = {
    "a snapshot's bytes": (INDEX, "CRC", changed(SNAPSHOT, -1, lambda f: flip(f, 30))),
    "a snapshot that is empty": (INDEX, "0 bytes", changed(SNAPSHOT, 1, lambda f: f.write_bytes(b""))),
    "a sequence number": (
        DAMAGE, "last sequence number", changed(SNAPSHOT, -1, lambda f: lie(f, moved(ABORTING, last_sequence=2)))
    ),
    "an offset": (DAMAGE, "at offset 1", changed(SNAPSHOT, 0, lambda f: lie(f, moved(IDLE, last_offset=1)))),
    "a producer that never was": (DAMAGE, "producer 9", changed(SNAPSHOT, 0, lambda f: lie(f, stranger))),
    "a transaction that never was": (
        DAMAGE, "open since", changed(SNAPSHOT, -1, lambda f: lie(f, given(IDLE, txn_first_offset=1)))
    ),
    "an epoch": (DAMAGE, "epoch 5", changed(SNAPSHOT, -1, lambda f: lie(f, given(IDLE, epoch=5)))),
    "an open transaction lost": (
        DAMAGE, "no producer 3", changed(SNAPSHOT, -1, lambda f: lie(f, lambda entries: entries.pop(OPEN)))
    ),
    "an idle producer lost": (
        INDEX, "no producer 1", changed(SNAPSHOT, -1, lambda f: lie(f, lambda entries: entries.pop(IDLE)))
    ),
    "an index lost": (DAMAGE, "missing", changed(TXN, 0, lambda f: f.unlink())),
    "an entry lost": (DAMAGE, "missing", changed(TXN, 0, lambda f: f.write_bytes(f.read_bytes()[34:]))),
    "a part of an entry": (DAMAGE, "missing", changed(TXN, 0, lambda f: f.write_bytes(f.read_bytes()[:-1]))),
    "an entry's version": (DAMAGE, "version", changed(TXN, 0, lambda f: flip(f, 0))),
    "an entry's producer": (DAMAGE, "not what the log says", changed(TXN, 0, lambda f: flip(f, 9))),
    "where one begins": (DAMAGE, "not what the log says", changed(TXN, -1, lambda f: flip(f, 17))),
    "what is stable by then": (DAMAGE, "not what the log says", changed(TXN, 0, lambda f: flip(f, 33))),
    "an abort of what was committed": (DAMAGE, "not what the log says", changed(
        TXN, 0, lambda f: replaced(f, AbortedTransaction(IDLE, 0, base(f), 1), first_entry(f))
    )),
    "the state's flag": (DAMAGE, "by the state", without_flag),
    "a marker that says nothing": (DAMAGE, "not a valid control record", marker_of_nothing),
}  # fmt: skip


def test_nothing_is_wrong_at_first(path):
    assert len(list((path / "data" / "t-0").glob("*.snapshot"))) > 2
    assert len(list((path / "data" / "t-0").glob("*.txnindex"))) > 2
    assert found(path) == []


@pytest.mark.parametrize("kind", OF_PRODUCERS)
def test_what_is_said_of_producers_is_compared_with_the_log(path, tmp_path, kind):
    severity, word, damage = OF_PRODUCERS[kind]
    target = damage(path)
    (finding,) = found(path, DAMAGE, INDEX)
    assert (finding.severity, path / finding.file) == (severity, target)
    assert word in finding.what
    assert finding.advice
    repair(path, tmp_path / "copy")
    assert found(tmp_path / "copy", DAMAGE, INDEX) == []
    assert records(tmp_path / "copy") == records(path)


def test_a_copy_has_the_files_that_a_writer_leaves(path, tmp_path):
    repair(path, tmp_path / "copy")
    names = [f.name for f in (path / "data" / "t-0").iterdir() if f.suffix in (SNAPSHOT, TXN)]
    assert [f.name for f in sorted((tmp_path / "copy" / "data" / "t-0").iterdir()) if f.suffix in (SNAPSHOT, TXN)] == (
        sorted(names)
    )
    for name in names:
        one, other = (root / "data" / "t-0" / name for root in (path, tmp_path / "copy"))
        if name.endswith(TXN):
            assert one.read_bytes() == other.read_bytes()
        else:
            assert set(snapshot.read(str(one))) == set(snapshot.read(str(other)))


@pytest.mark.parametrize("snapshot", ["there", "damaged"])
def test_entries_before_the_log_start_are_believed(path, tmp_path, snapshot):
    """The first segment that stays begins inside of a transaction, and another one was open before."""
    store = Store.open(path)
    third = base(file(path, ".log", 2))
    store.delete_records("t", 0, third)
    if snapshot == "damaged":
        flip(file(path, SNAPSHOT, 0), 20)
    findings = found(path, DAMAGE, INDEX)
    assert [f.file for f in findings] == ([f"data/t-0/{third:020d}.snapshot"] if snapshot == "damaged" else [])
    repair(path, tmp_path / "copy")
    assert found(tmp_path / "copy", DAMAGE) == []
    if snapshot == "there":
        again = Store.open(tmp_path / "copy").append_batch("t", 0, ready(2, b"idle", producer=IDLE, timestamp=NOW))
        assert (again.base_offset, again.duplicate) == (2, True)


def test_nothing_is_compared_after_damaged_batches(path):
    flip(log(path, 0), headers(log(path, 0))[1].end - 1)
    flip(file(path, SNAPSHOT, -1), 30)
    assert [Path(f.file).suffix for f in found(path, DAMAGE, INDEX)] == [".log"]


# ---- leader epochs

EPOCHS = "leader-epoch-checkpoint"
OF_EPOCHS = {
    "no file": (INDEX, "missing", lambda epochs: None),
    "no epoch": (INDEX, "no epoch", lambda epochs: []),
    "noise": (INDEX, "line 1", lambda epochs: b"noise"),
    "the last lost": (INDEX, "has epoch 1", lambda epochs: epochs[:-1]),
    "the first lost": (INDEX, "has epoch 0", lambda epochs: epochs[1:]),
    "begun too late": (INDEX, "has epoch 1", lambda epochs: [epochs[0], (1, epochs[1][1] + 1)]),
    "begun too early": (Severity.NOTE, "records of epoch 0", lambda epochs: [epochs[0], (1, epochs[1][1] - 1)]),
    "in another order": (INDEX, "comes after", lambda epochs: epochs[::-1]),
    "behind the end": (INDEX, "log end", lambda epochs: [*epochs, (2, 10_000)]),
}


@pytest.mark.parametrize("kind", OF_EPOCHS)
def test_leader_epochs_are_compared_with_the_batches(path, tmp_path, kind):
    severity, word, change = OF_EPOCHS[kind]
    target = path / "data" / "t-0" / EPOCHS
    epochs = kafka_files.read_epochs(str(target))
    assert [epoch for epoch, _ in epochs] == [0, 1]
    content = change(epochs)
    if content is None:
        target.unlink()
    else:
        target.write_bytes(content if isinstance(content, bytes) else kafka_files.encode_checkpoint(content))
    (finding,) = found(path)
    assert (finding.severity, finding.file) == (severity, f"data/t-0/{EPOCHS}")
    assert word in finding.what
    repair(path, tmp_path / "copy")
    assert found(tmp_path / "copy") == []
    assert kafka_files.read_epochs(str(tmp_path / "copy" / "data" / "t-0" / EPOCHS)) == epochs


def test_an_epoch_that_begins_beyond_the_earlier_end_while_others_write_is_no_finding(path):
    store = Store.open(path)
    writer = store.logs.writer("t", 0)

    def write_meanwhile(_done):
        # What an append and then the beginning of a truncation do, before that has moved the end.
        if store.latest_offset("t", 0) == end:
            for _ in range(2):
                last = store.append("t", pa.record_batch({"value": [b"a"]}))[0].base_offset
            leader_epochs.begin(writer.place.folder, 2, last)

    end = store.latest_offset("t", 0)
    check = PartitionCheck(writer.place, writer.config, str(path), write_meanwhile)
    findings = [finding for finding in check.run().findings if finding.severity is not Severity.NOTE]
    assert store.latest_offset("t", 0) > end
    assert findings == []


def test_epochs_are_not_compared_with_those_of_a_log_that_was_truncated_meanwhile(path):
    writer = Store.open(path).logs.writer("t", 0)
    (_, end) = kafka_files.read_epochs(f"{writer.place.folder}/{EPOCHS}")[1]

    left = [sum(log.stat().st_size for log in (path / "data" / "t-0").glob("*.log"))]

    def truncate_meanwhile(size):
        left[0] -= size
        if left[0] == 0:
            with writer.hold() as held:
                truncate(held.log, end - 1)

    check = PartitionCheck(writer.place, writer.config, str(path), truncate_meanwhile)
    assert [finding for finding in check.run().findings if finding.file.endswith(EPOCHS)] == []
    assert Store.open(path).latest_offset("t", 0) < end


def test_an_epoch_that_goes_down_from_one_segment_to_the_next_is_damage(path):
    last = log(path, -1)
    data = bytearray(last.read_bytes())
    for header in headers(last):
        data[header.position + 12 : header.position + 16] = struct.pack(">i", 0)
    last.write_bytes(data)
    (finding,) = found(path, DAMAGE)
    assert (finding.file, finding.first_offset) == (f"data/t-0/{last.name}", base(last))


# ---- beside the logs


def test_checkpoints_may_be_late_and_must_not_say_more_than_there_is(path, monkeypatch):
    monkeypatch.setattr(verify_log_dir, "_PAUSE", 0)
    at, data = TopicPartition("t", 0), path / "data"
    end = Store.open(path).latest_offset("t", 0)
    for name, most in ((RECOVERY_POINT, end), (HIGH_WATERMARK, end), (LOG_START, 0), (CLEANER, end)):
        for offset in (0, most):
            kafka_files.write_offsets(str(data / name), {at: offset, TopicPartition("gone", 7): 10**9})
            assert found(path) == []
        kafka_files.write_offsets(str(data / name), {at: most + 1})
        (finding,) = found(path)
        assert (finding.severity, finding.file, finding.topic, finding.partition) == (INDEX, f"data/{name}", "t", 0)
        assert f"says offset {most + 1}" in finding.what
        (data / name).write_bytes(b"0\n7\n")
        (finding,) = found(path)
        assert (finding.severity, finding.file) == (INDEX, f"data/{name}")
        (data / name).unlink()


def test_what_a_writer_is_about_to_write_is_no_fault(path, monkeypatch):
    at, file = TopicPartition("t", 0), str(path / "data" / HIGH_WATERMARK)
    kafka_files.write_offsets(file, {at: 10**6})
    # It is held up for a while.
    later = iter([10**6, 10**6, 1])
    sleep = SimpleNamespace(sleep=lambda _: kafka_files.write_offsets(file, {at: next(later)}))
    monkeypatch.setattr(verify_log_dir, "time", sleep)
    assert found(path) == []


def test_meta_properties_must_be_the_stores(path):
    target = path / "data" / "meta.properties"
    for content in (b"version=7\n", kafka_files.encode_meta_properties(MetaProperties("another", 0))):
        target.write_bytes(content)
        (finding,) = found(path)
        assert (finding.severity, finding.file) == (INDEX, "data/meta.properties")


def test_a_damaged_description_of_a_deleted_topic_is_reported(clock, path):
    Store.open(path).delete_topic("t")
    (deleted,) = (path / "topics" / "deleted").iterdir()
    deleted.write_bytes(b"{}")
    (finding,) = found(path, DAMAGE)
    assert deleted.name in finding.what
