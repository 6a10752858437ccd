"""After a power loss the first process recovers a partition: a reader too if it may write to the store."""

import os
from pathlib import Path

import pytest
from producer_tools import ready

from pyspark_log.errors import LockTimeoutError, LogDamagedError
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.fs.locking.locks import lock_for
from pyspark_log.storage.groups.committed_offsets import OffsetMoves
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.log.state import partition_state, state_file
from pyspark_log.storage.log.state.partition_state import SLOT_SIZE
from pyspark_log.storage.log.state.state_file import SLOT_DISTANCE
from pyspark_log.storage.publish.claims import last_number
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition
from tests.store_tools import decided_only, overwrite, publish, rows, stage, store_with, values

store = store_with()


def lose_unsynced(store, monkeypatch, sizes):
    """The power fails: files that were written to without a sync are left with the given sizes, in bytes."""
    for path, size in sizes.items():
        os.truncate(path, size)
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")


def test_a_reader_finds_what_is_left_of_records_that_were_not_synced(store, monkeypatch):
    store.append("t", rows(b"synced"), sync=True)
    (log,) = store.segment_files("t", 0)
    size = os.path.getsize(log)
    store.append("t", rows(b"lost"))
    lose_unsynced(store, monkeypatch, {log: size + 10})
    with pytest.raises(LogDamagedError):
        list(store.logs.reader("t", 0).read(0, 2, max_bytes=1000))
    reader = Store.open(store.path)
    assert values(reader) == [b"synced"]
    assert reader.latest_offset("t", 0) > 2, "an offset that was shown is not given again"
    assert reader.earliest_offset("t", 0) == 0


def test_a_reader_that_came_before_does_not_wait_for_a_transaction_that_was_lost(store, monkeypatch):
    """Of its last batch the header is on the disk, and by that it was open."""
    store.append("t", rows(b"synced"), sync=True)
    store.append_batch("t", 0, ready(0, b"v", transactional=True, timestamp=now_ms()))
    (log,) = store.segment_files("t", 0)
    overwrite(log, -1, b"#")
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    # A reader that may write recovers it first.
    reader = Store.open(store.path).logs.reader("t", 0)
    assert reader.last_stable_offset() == 1
    end = Store.open(store.path).latest_offset("t", 0)
    assert reader.last_stable_offset() == end > 2


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_indexes_of_which_a_part_was_lost_are_rebuilt(store, monkeypatch, suffix):
    store.alter_configs("t", {"index.interval.bytes": "1"})
    for number in range(6):
        store.append("t", rows(b"%d" % number), sync=True)
    path = Path(store.segment_files("t", 0)[0]).with_suffix(f".{suffix}")
    whole = path.read_bytes()
    overwrite(path, 12, bytes(12))
    lose_unsynced(store, monkeypatch, {})
    with Store.open(store.path).logs.writer("t", 0).hold():
        assert path.read_bytes() == whole != b""


def test_a_reader_that_may_not_write_reads_what_is_there(store, monkeypatch):
    store.append("t", rows(b"synced"), sync=True)
    state = store.logs.reader("t", 0).state()
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pyspark_log.storage.fs.files.open_write", refused)
    reader = Store.open(store.path)
    assert values(reader) == [b"synced"]
    assert reader.logs.reader("t", 0).state() == state


def test_a_store_of_this_boot_is_only_looked_at(store):
    store.append("t", rows(b"a"))
    state = store.logs.reader("t", 0).state()
    assert values(Store.open(store.path)) == [b"a"]
    assert store.logs.reader("t", 0).state() == state


def decide_only(store, monkeypatch, parts, **how):
    """Publishes, and is killed before anything is applied; then the power takes the move of the decision log's end."""

    publish(store.decisions, "before", 0, [])
    before = state_file.read(store.logs.reader("__pylog_publish", 0).place.state_path)
    with decided_only():
        publish(store.decisions, "q", 0, parts, **how)
    with open(store.logs.reader("__pylog_publish", 0).place.state_path, "r+b") as file:
        for slot in range(4):
            file.seek(slot * SLOT_DISTANCE)
            file.write(partition_state.encode_slot(before.state) if slot == before.slot else bytes(SLOT_SIZE))
    lose_unsynced(store, monkeypatch, {})


def test_a_decision_whose_end_move_was_lost_is_found_by_a_reader(store, monkeypatch):
    """It is on the disk, and there is no publisher any more."""
    decide_only(store, monkeypatch, stage(store, rows(b"a", b"b")))
    reader = Store.open(store.path)
    assert help_apply(reader.decisions) == 1
    assert values(reader) == [b"a", b"b"]
    assert last_number(reader.decisions, "q") == 0


def test_no_process_relies_on_a_decision_log_that_cannot_be_recovered(store, monkeypatch):
    """No offset may be committed by hand before a decided publish has moved it."""
    at = TopicPartition("t", 0)
    decide_only(
        store, monkeypatch, [], participants=[OffsetMoves(store.committed_offsets, [OffsetStep("g", at, None, 5)])]
    )
    monkeypatch.setattr("pyspark_log.storage.fs.locking.timeouts.RECOVERY", 0.05)
    log = OffsetsLog(Store.open(store.path))
    lock = lock_for(store.logs.reader("__pylog_publish", 0).place.state_path)
    lock.acquire()
    with pytest.raises(LockTimeoutError):
        log.commit("g", {at: 7})
    lock.release()
    assert log.fetch("g")[at].offset == 5
    log.commit("g", {at: 7})
    assert log.fetch("g")[at].offset == 7
