"""A partition goes from one log dir to another while it is read and written."""

import itertools
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from producer_tools import end_transaction, ready

from pyspark_log.errors import InvalidConfigError, LogDirOfflineError, UnknownTopicError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.appending.new_segment import is_prepared_name
from pyspark_log.storage.log.held_log import HeldLog
from pyspark_log.storage.log.read import reader
from pyspark_log.storage.log.read.isolation import LastStableOffset
from pyspark_log.storage.log.recovery import apply_intent
from pyspark_log.storage.log_manager import folder_copy
from pyspark_log.storage.maintenance.verify.log import partition
from pyspark_log.storage.maintenance.verify.log.partition import PartitionCheck
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.publish.applier import _Work
from pyspark_log.storage.publish.staging import staged_file
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.store import Store
from pyspark_log.types import LATEST, READ_COMMITTED
from tests.interrupts import Interrupt
from tests.processes import PROCESSES
from tests.scratch import memory_folder
from tests.store_tools import cut_log, faults, new_store, publish, stage

# How long processes may take to start, and to come to something new, in seconds.
PATIENCE = 120
CONFIGS = {"segment.bytes": "2000", "index.interval.bytes": "200", "retention.ms": "-1", "file.delete.delay.ms": "0"}


@pytest.fixture(name="tmp_path")
def memory():
    """In memory where there is some, which the system's temporary files are not."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def store(tmp_path):
    """Three log dirs; the last one is on another device, where there is one."""
    with tempfile.TemporaryDirectory() as other:
        store = new_store(tmp_path, CONFIGS, partitions=2, settings={"log.dirs": f"data,{tmp_path}/second,{other}"})
        yield store


def rows(first, count=5):
    return pa.record_batch({"value": [b"%06d" % number + b"." * 50 for number in range(first, first + count)]})


def values(store, partition=0):
    return [int(value[:6]) for batch in store.read("t", partition) for value in batch["value"].to_pylist()]


def fill(store, count=100):
    for first in range(0, count, 5):
        store.append("t", rows(first), partition=0)


def content(folder):
    """All files of a partition's folder."""
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def where(store):
    """The log dirs that have anything of partition 0."""
    folders = [folder.path for folder in store.logs.log_dirs]
    return [folder for folder in folders if any(name.startswith("t-0") for name in os.listdir(folder))]


def test_all_files_are_byte_for_byte_the_same(store):
    fill(store)
    for sequence in range(3):
        builder = BatchBuilder(1 << 20, 1 << 20)
        columns = RecordColumns(None, pa.array([b"numbered"]), None, None, time.time_ns() // 1_000_000)
        builder.append(columns, None, 0, 1)
        store.append_batch("t", 0, builder.seal(producer_id=7, producer_epoch=0, base_sequence=sequence))
        fill(store, 30)
    store.delete_records("t", 0, 20)
    before, read = content(store.logs.place("t", 0).folder), list(store.read("t", 0))
    assert {Path(name).suffix for name in before} == {".log", ".index", ".timeindex", ".snapshot", ".metadata", ""}
    for folder in itertools.islice(itertools.cycle(store.logs.log_dirs), 1, 5):
        other = Store.open(store.path)
        assert other.read("t", 0, 30, 31)
        copied = store.move_partition("t", 0, folder.path)
        assert copied >= sum(map(len, before.values()))
        assert store.logs.place("t", 0).folder == f"{folder.path}/t-0"
        assert content(f"{folder.path}/t-0") == before
        assert where(store) == [folder.path]
        for one in (store, other, Store.open(store.path)):
            assert list(one.read("t", 0)) == read
    store.append("t", rows(900), partition=0)
    assert values_of_numbers(store)[-5:] == [900, 901, 902, 903, 904]
    assert not verify(store.path).findings


def test_records_without_times_are_as_old_as_before(clock, store, tmp_path, monkeypatch):
    """Their age is that of the file. The last one is written to while the copy is made."""
    untimed = rows(0).append_column("timestamp", pa.array([-1] * 5))
    for _ in range(20):
        store.append("t", untimed, partition=0)
    for path in store.segment_files("t", 0):
        os.utime(path, (clock.ms / 1000 - 7200,) * 2)
    with monkeypatch.context() as patched:
        moved_with(store, f"{tmp_path}/second", patched, lambda: store.append("t", untimed, partition=0))
    *inactive, active = store.segment_files("t", 0)
    assert active.startswith(f"{tmp_path}/second/")
    store.alter_configs("t", {"retention.ms": "3600000"})
    assert store.clean("t") == len(inactive) > 1
    assert store.segment_files("t", 0) == [active]


def values_of_numbers(store):
    return [int(v[:6]) for b in store.read("t", 0) for v in b["value"].to_pylist() if v != b"numbered"]


def test_a_partition_that_was_never_written_to_is_made_there(store, tmp_path):
    assert store.move_partition("t", 1, f"{tmp_path}/second") == 0
    store.append("t", rows(0), partition=1)
    assert (tmp_path / "second" / "t-1").is_dir()
    assert store.move_partition("t", 1, f"{tmp_path}/second") == 0
    store.move_partition("t", 1, "data")
    assert values(store, 1) == list(range(5))


def test_a_writer_that_is_interrupted_when_it_follows_a_move(store, tmp_path):
    """At the beginning of each function that it calls: then it uses the producers' files in the new folder only."""

    def called(frame, event):
        return frame if event == "call" and frame.f_back.f_code is HeldLog.find_folder.__code__ else None

    for moment in itertools.count(1):
        first = store.append_batch("t", 0, ready(moment - 1, b"v"))
        Store.open(store.path).move_partition("t", 0, ("data", f"{tmp_path}/second")[moment % 2])
        calls = Interrupt(moment, called)
        with calls.armed():
            store.append("t", rows(0), partition=0)
        again = store.append_batch("t", 0, ready(moment - 1, b"v"))
        assert (again.base_offset, again.duplicate) == (first.base_offset, True), f"at call {moment}"
        if calls.seen < moment:
            break
    assert moment > 4
    assert not faults(store.path)


def test_readers_at_work_and_other_writers_follow(store, tmp_path):
    fill(store)
    other = Store.open(store.path)
    other.append("t", rows(100), partition=0)
    reading = other.read("t", 0, max_bytes=1)
    got = [next(reading)["value"][0].as_py()]
    store.move_partition("t", 0, f"{tmp_path}/second")
    got += [value for batch in reading for value in batch["value"].to_pylist()]
    assert [int(value[:6]) for value in got[1:]][-1] == 104
    # Also a read that meets several moves.
    found = []
    for number, batch in enumerate(other.read("t", 0, max_bytes=1)):
        found += [int(value[:6]) for value in batch["value"].to_pylist()]
        if number % 4 == 3:
            store.move_partition("t", 0, ("data", f"{tmp_path}/second")[number // 4 % 2])
    assert found == list(range(105))
    other.append("t", rows(105), partition=0)
    store.append("t", rows(110), partition=0)
    for one in (store, other):
        assert values(one) == list(range(115))
        assert one.offset_for_timestamp("t", 0, 0).offset == 0
        assert one.size("t", 0) == sum(map(os.path.getsize, one.segment_files("t", 0)))
    assert store.delete_records("t", 0, LATEST) == 115


def test_what_cannot_be_is_refused_and_changes_nothing(store, tmp_path):
    fill(store)
    with pytest.raises(InvalidConfigError, match="not a log dir of the store; its log dirs are: "):
        store.move_partition("t", 0, f"{tmp_path}/nowhere")
    with pytest.raises(UnknownTopicError):
        store.move_partition("t", 2, f"{tmp_path}/second")
    (tmp_path / "second" / "t-0").mkdir()
    with pytest.raises(InvalidConfigError, match="second/t-0 exists already"):
        store.move_partition("t", 0, f"{tmp_path}/second")
    (tmp_path / "second" / "t-0").rmdir()
    os.rename(tmp_path / "second", tmp_path / "away")
    with pytest.raises(LogDirOfflineError, match=r"t-0: the log dir .*/second has failed"):
        store.move_partition("t", 0, f"{tmp_path}/second")
    os.rename(tmp_path / "away", tmp_path / "second")
    assert values(store) == list(range(100))
    assert where(store) == [f"{store.path}/data"]


@pytest.mark.parametrize("bad", ["full", "flipped"])
def test_a_copy_that_fails_leaves_the_partition_where_it_is(store, tmp_path, monkeypatch, bad):
    fill(store)
    name, real = os.path.basename(store.segment_files("t", 0)[1]), files.File.pwrite

    def pwrite(file, data, position):
        if "-future/" in file.path and file.path.endswith(name):
            if bad == "full":
                raise OSError(28, os.strerror(28), file.path)
            data = bytes(len(data))
        real(file, data, position)

    monkeypatch.setattr(files.File, "pwrite", pwrite)
    kind = OSError if bad == "full" else LogDirOfflineError
    text = "No space" if bad == "full" else "different bytes from those written"
    with pytest.raises(kind, match=text):
        store.move_partition("t", 0, f"{tmp_path}/second")
    monkeypatch.undo()
    assert where(store) == [f"{store.path}/data"]
    store.append("t", rows(100), partition=0)
    store.move_partition("t", 0, f"{tmp_path}/second")
    assert values(store) == list(range(105))


def test_what_changes_while_it_is_copied_is_copied_again(store, tmp_path, monkeypatch):
    """Retention, truncation and rolls between the passes."""
    fill(store)
    changes = iter(
        [
            lambda: fill(other, 200),
            lambda: other.delete_records("t", 0, 150),
            lambda: cut_log(other, 280),
            lambda: fill(other, 10),
        ]
    )
    other, real = Store.open(store.path), folder_copy.FolderCopy.follow

    def follow(copy, state, *, locked):
        copied = real(copy, state, locked=locked)
        if not locked and (change := next(changes, None)):
            change()
            return 1 << 30
        return copied

    monkeypatch.setattr(folder_copy.FolderCopy, "follow", follow)
    store.move_partition("t", 0, f"{tmp_path}/second")
    assert next(changes, None) is None
    assert values(store) == [*range(50, 180), *range(10)]
    assert values(other) == values(store)
    store.clean()
    assert where(store) == [f"{tmp_path}/second"]
    assert not verify(store.path).findings


def moved_with(store, folder, monkeypatch, change):
    """Moves partition 0; after the first pass comes a change."""
    real, changes = folder_copy.FolderCopy.follow, iter([change])

    def follow(copy, state, *, locked):
        copied = real(copy, state, locked=locked)
        if not locked and (then := next(changes, None)):
            then()
        return copied

    monkeypatch.setattr(folder_copy.FolderCopy, "follow", follow)
    store.move_partition("t", 0, folder)
    assert next(changes, None) is None


def test_a_log_that_was_cut_and_written_on_is_not_taken_for_one_that_grew(store, tmp_path, monkeypatch):
    store.alter_configs("t", {"segment.bytes": "1000000"})
    fill(store, 50)
    other = Store.open(store.path)

    def change():
        cut_log(other, 20)
        fill(other, 100)

    moved_with(store, f"{tmp_path}/second", monkeypatch, change)
    assert values(store) == [*range(20), *range(100)]


def test_by_its_time_alone_no_file_counts_as_unchanged(store, tmp_path, monkeypatch):
    fill(store, 50)
    active = Path(store.segment_files("t", 0)[-1])
    changed = [active.with_suffix(".timeindex"), active.parent / "leader-epoch-checkpoint"]
    wanted = []

    def change():
        for path in changed:
            status, data = path.stat(), path.read_bytes()
            wanted.append(data[:-1] + bytes([data[-1] ^ 1]))
            with path.open("r+b") as file:
                file.write(wanted[-1])
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    with monkeypatch.context() as patched:
        # The holder would repair them.
        patched.setattr("pyspark_log.storage.log.held_log.HeldLog.cut_leftovers", lambda _: None)
        moved_with(store, f"{tmp_path}/second", patched, change)
    assert [(tmp_path / "second" / "t-0" / path.name).read_bytes() for path in changed] == wanted


def test_old_files_stay_for_readers_and_go_later(clock, store, tmp_path):
    fill(store)
    store.alter_configs("t", {"file.delete.delay.ms": "60000"})
    store.move_partition("t", 0, f"{tmp_path}/second")
    store.clean()
    (old,) = [name for name in os.listdir(f"{store.path}/data") if name.startswith("t-0")]
    assert old.endswith("-delete")
    assert content(f"{store.path}/data/{old}") == content(tmp_path / "second" / "t-0")
    (finding,) = verify(store.path).findings
    assert "a move has left" in finding.what
    # Back and forth again, while it is still there.
    store.move_partition("t", 0, "data")
    store.move_partition("t", 0, f"{tmp_path}/second")
    store.alter_configs("t", {"file.delete.delay.ms": "0"})
    clock.ms += 3_600_000
    store.clean()
    assert where(store) == [f"{tmp_path}/second"]
    store.delete_topic("t")
    assert where(store) == []
    assert not verify(store.path).findings


def test_a_copy_that_does_not_count_is_reported_and_removed(store, tmp_path):
    fill(store)
    shutil.copytree(f"{store.path}/data/t-0", tmp_path / "second" / "t-0")
    (finding,) = verify(store.path).findings
    assert "a move has left" in finding.what
    store.clean()
    store.clean()
    assert where(store) == [f"{store.path}/data"]
    assert values(store) == list(range(100))


def test_what_was_staged_is_applied_after_the_move(store, monkeypatch):
    """Its files may be on another device than the log by then: copies of them become segments, made before the lock."""
    monkeypatch.setattr(apply_intent, "drop", lambda _: pytest.fail("it was begun, and given up"))
    for name in ("_COPY_LEAST", "_COPY_MOST"):
        monkeypatch.setattr(staged_file, name, 3000)
    store.alter_configs("t", {"segment.bytes": "400000"})
    copied, copy = [], _Work._copy
    monkeypatch.setattr(_Work, "_copy", lambda work, region: copied.append(region.size) or copy(work, region))
    for number, folder in enumerate(store.logs.log_dirs):
        parts = stage(store, rows(0, 9000).append_column("partition", pa.array([0] * 9000, pa.int32())))
        store.move_partition("t", 0, folder.path)
        publish(store.decisions, "q", number, parts)
        # A segment that was staged has two names until the decision is done.
        linked = any(os.stat(path).st_nlink == 2 for path in store.segment_files("t", 0))
        assert linked == (os.stat(folder.path).st_dev == os.stat(store.path).st_dev)
        assert values(store) == [*range(9000)] * (number + 1)
        assert sum(copied) <= 3000
        assert [name for name in os.listdir(folder.path) if is_prepared_name(name)] == []
    assert verify(store.path).findings == []


# ---- at the same time


def _append(path, writer, ready, stop):
    store, number = Store.open(path), 0
    ready.wait(PATIENCE)
    while not stop.is_set():
        store.append("t", pa.record_batch({"value": [b"%d/%d" % (writer, number)]}), partition=0)
        number += 1


def _read(path, reader, ready, stop, told, looks):
    """Follows the log in several ways; what it saw must be what is there in the end."""
    store, seen = Store.open(path), []
    ready.wait(PATIENCE)
    while True:
        last = stop.is_set()
        end = store.latest_offset("t", 0)
        seen += [value for batch in store.read("t", 0, len(seen), end) for value in batch["value"].to_pylist()]
        assert len(seen) == end
        if end:
            assert store.offset_for_timestamp("t", 0, 0).offset == 0
            assert next(iter(store.read("t", 0, 0, 1)))["value"].to_pylist() == seen[:1]
        looks[reader] += 1
        if last:
            break
    told.put(seen)


@pytest.mark.slow
def test_readers_and_writers_of_other_processes_notice_nothing(store):
    store.alter_configs("t", {"segment.bytes": "20000"})
    stop, told = PROCESSES.Event(), PROCESSES.Queue()
    ready, done = PROCESSES.Barrier(5), PROCESSES.Event()
    looks = PROCESSES.Array("q", 2)
    writers = [
        PROCESSES.Process(target=_append, args=(store.path, number, ready, stop), daemon=True) for number in range(2)
    ]
    readers = [
        PROCESSES.Process(target=_read, args=(store.path, number, ready, done, told, looks), daemon=True)
        for number in range(2)
    ]
    for process in writers + readers:
        process.start()
    ready.wait(PATIENCE)
    local = threading.Thread(target=_local, args=(store.path, stop), daemon=True)
    local.start()
    for folder in itertools.islice(itertools.cycle(store.logs.log_dirs), 1, 5):
        before, looked = store.latest_offset("t", 0), list(looks)
        store.move_partition("t", 0, folder.path)
        deadline = time.monotonic() + PATIENCE
        # Each reader reads everything at least once, with the partition where it is now.
        while store.latest_offset("t", 0) < before + 100 or any(
            now < then + 2 for now, then in zip(looks, looked, strict=True)
        ):
            assert time.monotonic() < deadline, (store.latest_offset("t", 0), before, list(looks), looked)
            time.sleep(0.001)
    stop.set()
    local.join()
    for process in writers:
        process.join()
    done.set()
    found = [told.get(timeout=PATIENCE) for _ in readers]
    for process in readers:
        process.join()
    assert [process.exitcode for process in writers + readers] == [0] * 4
    got = [value for batch in store.read("t", 0) for value in batch["value"].to_pylist()]
    assert found == [got, got]
    assert len(got) >= 400
    for writer in range(2):
        mine = [value for value in got if value.startswith(b"%d/" % writer)]
        assert mine == [b"%d/%d" % (writer, number) for number in range(len(mine))]
        assert mine
    assert len(where(store)) == 1
    assert not verify(store.path).findings


def _local(path, stop):
    """A reader in a thread of the process that moves it, with the same store object all the time."""
    store = Store.open(path)
    while not stop.is_set():
        end = store.latest_offset("t", 0)
        assert sum(batch.num_rows for batch in store.read("t", 0, 0, end)) == end


def move_before(owner, name, monkeypatch, store, folder):
    """Has t-0 moved when a function or method of `owner` is called for the first time."""
    as_ever = getattr(owner, name)

    def moved_before(*arguments):
        monkeypatch.undo()
        store.move_partition("t", 0, folder)
        return as_ever(*arguments)

    monkeypatch.setattr(owner, name, moved_before)


@pytest.mark.parametrize(
    ("owner", "name"), [(reader, "list_segments"), (reader, "aborted_between"), (LastStableOffset, "follow")]
)
def test_a_move_does_not_mislead_a_reader_of_committed_records(store, tmp_path, monkeypatch, owner, name):
    """The move comes after the state is read and before the files beside the segments are."""
    store.append_batch("t", 0, ready(0, b"aborted", producer=1, transactional=True))
    end_transaction(store, False, producer=1)
    store.append("t", rows(1, 1), partition=0)
    store.append_batch("t", 0, ready(0, b"open", producer=2, transactional=True))
    move_before(owner, name, monkeypatch, store, f"{tmp_path}/second")
    (batch,) = Store.open(store.path).read("t", 0, isolation_level=READ_COMMITTED)
    assert batch["value"].to_pylist() == [b"000001" + b"." * 50]


@pytest.mark.parametrize(("owner", "name"), [(partition, "slot_findings"), (PartitionCheck, "_check_log")])
def test_verify_reports_no_damage_during_a_move(store, tmp_path, monkeypatch, owner, name):
    fill(store, 20)
    move_before(owner, name, monkeypatch, store, f"{tmp_path}/second")
    assert faults(store.path) == []
