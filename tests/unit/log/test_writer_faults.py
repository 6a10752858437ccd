"""What goes wrong around an append: killed rolls, failing disks, damaged bytes, a folder that is replaced."""

import errno
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from producer_tools import ready

from pyspark_log.errors import CorruptRecordError, LogDamagedError, OutcomeUnknownError, PylogError, RecordTooLargeError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.read import LogReader
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.segment.segment import read_headers
from pyspark_log.storage.store import Store
from tests.store_tools import flip, new_store, observed, open_files, overwrite, publish, rows, stage, store_with

store = store_with({"segment.bytes": "1000", "index.interval.bytes": "100"})


def append(store, *values, size=50):
    return store.append("t", pa.record_batch({"value": [b"%d" % value + b"." * size for value in values]}))


def values(store):
    store = Store.open(store.path)
    return [int(v.rstrip(b".")) for batch in store.read("t", 0) for v in batch["value"].to_pylist()]


def test_a_segment_that_a_killed_roll_left_never_counts(store, fail):
    for number in range(7):
        append(store, number, size=60)
    # The roll dies after the making of 7.log; the next append is small and fits where it is.
    fail("sync_folder", "t-0", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        append(store, 99, size=600)
    assert any(name.endswith("07.log") for name in os.listdir(f"{store.path}/data/t-0"))
    fresh = Store.open(store.path)
    for number in range(7, 30):
        append(fresh, number, size=10 if number == 7 else 60)
    assert values(store) == list(range(30))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_append_does_not_fail_for_its_index_entry(store, fail, suffix, caplog):
    append(store, 0, size=100)
    fail("write", suffix)
    append(store, 1, 2, size=100)
    assert "index entries could not be written" in caplog.text
    append(store, 3, size=100)
    assert values(store) == [0, 1, 2, 3]
    reference = Store.create(f"{store.path}-reference")
    reference.create_topic("t", 1, {"segment.bytes": "1000", "index.interval.bytes": "100"})
    for group in [(0,), (1, 2), (3,)]:
        append(reference, *group, size=100)
    names = [f"data/t-0/{0:020d}{suffix}" for suffix in (".index",)]
    for name in names:
        assert Path(store.path, name).read_bytes() == Path(reference.path, name).read_bytes() != b""


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_full_or_failing_disk_leaves_nothing_visible(store, fail, kind):
    append(store, 0)
    fail(kind, ".log")
    with pytest.raises(OutcomeUnknownError if kind == "sync" else OSError):
        store.append("t", pa.record_batch({"value": [b"9"]}), sync=True)
    assert values(store) == [0]
    append(store, 1)
    assert values(store) == [0, 1]


@pytest.mark.parametrize("kept", [1, 2])
def test_what_a_failed_write_has_left_is_no_record_after_a_power_loss_either(store, monkeypatch, kept):
    """Whole batches beyond the log end are adopted then, and the writer got the error that nothing was appended."""
    append(store, 0)
    (path,) = store.segment_files("t", 0)
    size, batch = os.path.getsize(path), ready(-1, b"9", producer=-1)

    def run_full(change):
        if (change.kind, change.path) == ("write", path):
            files.set_observer(None)
            overwrite(path, change.position, change.data[: kept * len(batch)])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with observed(run_full), pytest.raises(OSError, match="No space"), store.logs.writer("t", 0).hold() as writer:
        writer.append(bytearray(2 * batch), sync=False)
    assert os.path.getsize(path) == size
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    assert values(store) == [0]


@pytest.mark.parametrize("process", ["the same writer", "another process", "a publish"])
def test_after_a_failed_sync_the_next_write_begins_a_segment(store, fail, process):
    append(store, 0)
    fail("sync", ".log", errno.EIO)
    with pytest.raises(OutcomeUnknownError):
        store.append("t", pa.record_batch({"value": [b"9"]}), sync=True)
    other = store if process == "the same writer" else Store.open(store.path)
    if process == "a publish":
        publish(other.decisions, "q", 0, stage(other, pa.record_batch({"value": [b"1"]})))
    else:
        append(other, 1)
    assert values(store) == [0, 1]
    assert len(store.segment_files("t", 0)) == 2
    append(other, 2)
    assert len(store.segment_files("t", 0)) == 2


@pytest.mark.parametrize("byte", range(8))
@pytest.mark.parametrize("segment", [0, 1, -1])
def test_a_damaged_base_offset_is_an_error_and_hides_nothing_in_silence(store, byte, segment):
    for number in range(30):
        append(store, number)
    path = store.segment_files("t", 0)[segment]
    with files.open_read(path) as log:
        batches = [header.position for header in read_headers(log, 0, log.size())]
    for at in batches:
        flip(path, at + byte, 0x10)
        try:
            assert values(store) == list(range(30))
        except PylogError as error:
            assert isinstance(error, CorruptRecordError | LogDamagedError)  # noqa: PT017
        flip(path, at + byte, 0x10)


def test_an_inactive_segment_that_lost_its_end_or_is_gone_is_an_error(store):
    for number in range(30):
        append(store, number)
    path = store.segment_files("t", 0)[1]
    whole = Path(path).read_bytes()
    size = 12 + int.from_bytes(whole[8:12], "big")
    for keep in (0, size, 2 * size):
        Path(path).write_bytes(whole[:keep])
        with pytest.raises(LogDamagedError, match=r"must reach \d+: its end is missing"):
            values(store)
    Path(path).unlink()
    with pytest.raises(LogDamagedError, match="its end is missing"):
        values(store)


def test_a_damaged_batch_is_named_and_what_is_before_it_is_served(store):
    for number in range(30):
        append(store, number)
    path = store.segment_files("t", 0)[1]
    overwrite(path, 80, b"#")
    served = []
    with pytest.raises(CorruptRecordError) as error:
        served += [row for batch in store.read("t", 0) for row in batch["offset"].to_pylist()]
    assert (error.value.topic, error.value.partition, error.value.file, error.value.position) == ("t", 0, path, 0)
    first = int(Path(path).stem)
    assert error.value.base_offset == first
    unread = [row for batch in store.read("t", 0, 0, first) for row in batch["offset"].to_pylist()]
    assert unread == list(range(first))
    unchecked = [row for batch in store.read("t", 0, first, first + 1, check_crcs=False) for row in batch["offset"]]
    assert [row.as_py() for row in unchecked] == [first]


def test_a_record_that_is_too_large_is_named_with_its_topic_and_the_setting(store):
    store.create_topic("small", 2, {"max.message.bytes": "1000"})
    data = pa.record_batch({"value": [b"a", b"x" * 5000], "partition": pa.array([0, 1], pa.int32())})
    with pytest.raises(RecordTooLargeError, match=r"^small-1: a batch of 1 record.* max\.message\.bytes allows 1000"):
        store.append("small", data)
    assert [store.latest_offset("small", partition) for partition in (0, 1)] == [0, 0]


def test_an_append_that_a_segment_cannot_hold_changes_nothing(tmp_path):
    store = new_store(tmp_path, {"segment.bytes": "1000"}, partitions=2)
    data = pa.record_batch({"value": [b"small", b"x" * 2000], "partition": pa.array([0, 1], pa.int32())})
    with pytest.raises(RecordTooLargeError, match=r"larger than segment\.bytes"):
        store.append("t", data)
    assert [store.latest_offset("t", partition) for partition in (0, 1)] == [0, 0]


def test_a_store_that_is_replaced_by_a_copy_is_noticed(store):
    """Restored from a backup, or moved to another disk, while a process has it open."""
    append(store, 0)
    shared = Store.shared(store.path)
    append(shared, 1)
    shutil.copytree(store.path, f"{store.path}-copy")
    shutil.rmtree(store.path)
    os.rename(f"{store.path}-copy", store.path)
    append(store, 2)
    append(Store.shared(store.path), 3)
    assert values(store) == [0, 1, 2, 3]


def test_a_writer_continues_in_the_copy_that_replaced_a_store(store):
    writer = store.logs.writer("t", 0)

    def append_numbered(sequence):
        with writer.hold() as held:
            held.append(bytearray(ready(sequence, b"%d" % sequence)), sync=True)

    append_numbered(0)
    shutil.copytree(store.path, f"{store.path}-copy")
    append_numbered(1)
    shutil.rmtree(store.path)
    os.rename(f"{store.path}-copy", store.path)
    # By the copy this one was never there.
    append_numbered(1)
    assert values(store) == [0, 1]


def test_a_process_with_few_open_files_can_use_many_partitions(tmp_path):
    store = new_store(tmp_path, partitions=400)
    everywhere = pa.record_batch({"value": [b"x"] * 400, "partition": pa.array(range(400), pa.int32())})
    for _ in range(2):
        store.append("t", everywhere)
    assert sum(store.latest_offset("t", partition) for partition in range(400)) == 800
    assert 0 < open_files(tmp_path) < 700
    del store
    assert open_files(tmp_path) == 0


def test_the_longest_topic_name_works(tmp_path):
    store = Store.create(tmp_path / "store")
    name = "n" * 249
    store.create_topic(name, 1)
    store.append(name, pa.record_batch({"value": [b"x"]}))
    assert store.latest_offset(name, 0) == 1
    assert store.topics() == [name]


def test_settings_of_the_store_do_not_reach_its_own_topics(tmp_path):
    store = new_store(tmp_path, settings={"message.max.bytes": "200", "log.segment.bytes": "300"})
    for number in range(5):
        parts = stage(store, rows(b"%d" % number))
        publish(store.decisions, "q", number, parts, run="a run with a name", location="/a/place")
    assert values(store) == [0, 1, 2, 3, 4]


def test_an_error_of_the_system_ends_the_opening_of_segments(store, monkeypatch):
    """What cannot be opened would be missing in a copy without a word."""
    store.append("t", rows(b"x"), partition=0)
    reader = store.logs.reader("t", 0)

    def fail(*_):
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(LogReader, "_open", fail)
    with pytest.raises(OSError, match="too many open files"):
        list(reader.opened(reader.state()))
