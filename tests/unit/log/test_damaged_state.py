"""State files with damaged slots, older state files beside newer segments, and logs that something has cut.

None of these may cost a record that was acknowledged: it is read, or there is an error, whichever process asks.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from producer_tools import ready

from pyspark_log.errors import LogDamagedError, PartitionOwnedError
from pyspark_log.storage.log.state import partition_state, state_file
from pyspark_log.storage.log.state.state_file import SLOT_DISTANCE
from pyspark_log.storage.maintenance.repair.store import repair
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.store import Store
from tests.store_tools import damages, flip, roll_log, store_with, values

store = store_with({"retention.ms": "-1", "segment.bytes": "100000"})


def append(store, *values, sync=True):
    for value in values:
        store.append("t", pa.record_batch({"value": [value]}), sync=sync)


def state_path(store):
    return store.logs.reader("t", 0).place.state_path


def log_path(store):
    return Path(store.path, "data", "t-0", f"{0:020}.log")


def damage(store):
    return damages(store.path)


def newest_slots(store):
    loaded = state_file.read(state_path(store))
    return sorted(range(4), key=loaded.seqs.__getitem__, reverse=True)


SIX = [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("how_many", [1, 2])
@pytest.mark.parametrize("at", [0, 2, 8, 15, 48, 130, 200, 255])
def test_a_damaged_bit_of_the_newest_slots_hides_no_record(store, tmp_path, at, how_many):
    append(store, *SIX)
    for slot in newest_slots(store)[:how_many]:
        flip(state_path(store), slot * SLOT_DISTANCE + at, 0x10)
    before = log_path(store).read_bytes()
    for process in (store, Store.open(store.path)):
        with pytest.raises(LogDamagedError, match=rf"{state_path(store)}: slot .* is damaged.*pylog repair"):
            values(process)
        with pytest.raises(LogDamagedError, match=r"is damaged"):
            append(process, b"seventh")
    assert log_path(store).read_bytes() == before
    assert "no power loss explains it" in damage(store)[0].what
    repair(store.path, tmp_path / "mended")
    mended = Store.open(tmp_path / "mended")
    assert values(mended) == SIX
    append(mended, b"seventh")
    assert values(mended) == [*SIX, b"seventh"]


@pytest.mark.parametrize("how_many", [1, 2])
def test_where_a_power_loss_explains_it_the_batches_beyond_the_end_are_adopted(store, monkeypatch, how_many):
    append(store, *SIX)
    for slot in newest_slots(store)[:how_many]:
        flip(state_path(store), slot * SLOT_DISTANCE + 48, 0x10)
    monkeypatch.setattr(state_file, "this_boot", lambda: b"next one")
    (torn,) = [one for one in verify(store.path).findings if "torn by a power loss" in one.what]
    assert torn.severity is Severity.NOTE
    assert values(Store.open(store.path)) == SIX
    # And then no slot is left that is not valid, which the boot id would not explain any more.
    assert state_file.read(state_path(store)).torn == ()
    append(store, b"seventh")
    assert values(store) == [*SIX, b"seventh"]
    assert damage(store) == []


def small_appends(store):
    append(store, *SIX[3:])


def one_large_append(store):
    rows = pa.record_batch({"value": [b"%d" % number + b"." * 900 for number in range(3, 6)]})
    for _ in range(5):
        store.append("t", rows)


def numbered_appends(store):
    for sequence in range(2):
        store.append_batch("t", 0, ready(sequence, b"n" * 10))


def appends_that_roll(store):
    roll_log(store)
    append(store, *SIX[3:])


@pytest.mark.parametrize("later", [small_appends, one_large_append, numbered_appends, appends_that_roll])
def test_an_older_state_file_beside_newer_segments_is_damage(store, tmp_path, later):
    append(store, *SIX[:3])
    shutil.copy(state_path(store), tmp_path / "older")
    later(store)
    everything = values(store)
    shutil.copy(tmp_path / "older", state_path(store))
    (found,) = damage(store)
    assert "the log ends at offset 3" in found.what
    assert "the state file is older than the log" in found.what
    repair(store.path, tmp_path / "mended")
    assert values(Store.open(tmp_path / "mended")) == everything


@pytest.mark.parametrize("later", [one_large_append, numbered_appends, appends_that_roll])
def test_a_writer_deletes_nothing_that_no_unfinished_append_explains(store, tmp_path, later):
    append(store, *SIX[:3])
    shutil.copy(state_path(store), tmp_path / "older")
    later(store)
    shutil.copy(tmp_path / "older", state_path(store))
    before = {path.name: path.read_bytes() for path in log_path(store).parent.glob("*.log")}
    for process in (store, Store.open(store.path)):
        with pytest.raises(LogDamagedError, match="the state file is older than the log"):
            append(process, b"another")
    assert {path.name: path.read_bytes() for path in log_path(store).parent.glob("*.log")} == before


def test_what_one_unfinished_append_has_left_is_no_damage(store, tmp_path):
    append(store, *SIX[:3])
    shutil.copy(state_path(store), tmp_path / "older")
    # More than fits into one batch, so that there are several.
    store.append("t", pa.record_batch({"value": [b"." * 30_000] * 3}))
    shutil.copy(tmp_path / "older", state_path(store))
    shutil.copy(os.devnull, log_path(store).with_suffix(".index"))  # index entries come last
    assert damage(store) == []
    append(store, b"next")
    assert values(store) == [*SIX[:3], b"next"]


def test_a_process_that_has_the_log_open_reports_that_the_records_of_another_were_cut(store):
    append(store, *SIX[:3])
    append(Store.open(store.path), *SIX[3:])
    os.truncate(log_path(store), os.path.getsize(log_path(store)) - 10)
    with pytest.raises(LogDamagedError, match="another program truncated it"):
        append(store, b"seventh")


def test_after_a_power_loss_batches_beyond_the_log_end_are_no_damage_and_are_adopted(store, tmp_path, monkeypatch):
    """They were synced, and the moves of the end were not."""
    append(store, *SIX[:3])
    shutil.copy(state_path(store), tmp_path / "older")
    append(store, *SIX[3:])
    shutil.copy(tmp_path / "older", state_path(store))
    monkeypatch.setattr(state_file, "this_boot", lambda: b"next one")
    assert damage(store) == []
    assert values(Store.open(store.path)) == SIX
    assert damage(store) == []


@pytest.mark.parametrize("left", ["all but ten bytes", "four batches", "ten bytes", "nothing"])
def test_all_processes_report_a_truncated_log_in_the_same_words(store, left):
    sizes = []
    for value in SIX:
        append(store, value)
        sizes.append(log_path(store).stat().st_size)
    assert values(store) == SIX
    size = {"all but ten bytes": sizes[-1] - 10, "four batches": sizes[3], "ten bytes": 10, "nothing": 0}[left]
    os.truncate(log_path(store), size)
    told = set()
    for process in (store, Store.open(store.path)):
        for action in (
            values,
            lambda one: list(one.read("t", 0, 5)),
            lambda one: one.offset_for_timestamp("t", 0, 2**50),
            lambda one: append(one, b"more"),
        ):
            with pytest.raises(LogDamagedError) as raised:
                action(process)
            told.add(str(raised.value))
    assert told == {
        f"t-0: {log_path(store)} has {size} bytes, of which {sizes[-1]} were written and acknowledged: another "
        "program truncated it; nothing is changed: restore it from a copy, or make a copy of the store without the "
        "lost records (pylog repair)"
    }


def put(store, **fields):
    state = state_file.read(state_path(store)).state._replace(**fields)
    Path(state_path(store)).write_bytes(partition_state.encode_slot(state).ljust(state_file.FILE_SIZE, b"\0"))


def test_readers_go_by_the_high_watermark(store):
    """As a replica's state has it, whose log may reach further than what is in all copies of it."""
    store.append("t", pa.record_batch({"value": SIX[:3], "timestamp": pa.array([10, 20, 30])}))
    store.append("t", pa.record_batch({"value": SIX[3:], "timestamp": pa.array([40, 50, 60])}))
    put(store, high_watermark=3)
    reader = Store.open(store.path)
    assert values(reader) == SIX[:3]
    assert reader.latest_offset("t", 0) == 3
    assert reader.latest_offset("t", 0, isolation_level="read_committed") == 3
    assert reader.offset_for_timestamp("t", 0, 30).offset == 2
    assert reader.offset_for_timestamp("t", 0, 31) is None
    assert reader.logs.reader("t", 0).find_max_timestamp().offset == 2


def test_a_partition_that_a_node_owns_is_written_by_that_node_alone(store):
    append(store, *SIX)
    put(store, owner_node=8, owner_epoch=3)
    with pytest.raises(PartitionOwnedError, match="t-0: node 7 of a Kafka cluster has a replica here"):
        append(Store.open(store.path), b"mine")
    assert values(Store.open(store.path)) == SIX
