"""What is known of inactive segments matches the log, whatever was stopped where; and nothing false is ever used."""

import errno
import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_log.storage.fs import files
from pyspark_log.storage.log import retention
from pyspark_log.storage.log.read import segment_cache
from pyspark_log.storage.log.read.segment_cache import WIDTH, CachedSegment, read_all
from pyspark_log.storage.maintenance.repair.store import repair
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.segment.file_names import list_segments
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetAndTimestamp
from tests.stops import run_until, stop_before
from tests.store_tools import cut_log, observed, publish, stage, store_with

CONFIG = {"segment.bytes": "400", "index.interval.bytes": "0", "retention.ms": "-1", "file.delete.delay.ms": "0"}


store = store_with(CONFIG)


def row(time):
    return pa.record_batch({"value": [b"." * 50], "timestamp": pa.array([time], pa.int64())})


def fill(store, times):
    """A batch for each record, all of one size: three are a segment."""
    for time in times:
        store.append("t", row(time))


def place(store):
    return store.logs.reader("t", 0).place


def known(store):
    return list(read_all(place(store)))


def right(store):
    """What a read of every record says about the inactive segments."""
    bases = list_segments(place(store).folder)
    entries, so_far = [], -1
    for base, following in pairwise(bases):
        start = max(base, store.earliest_offset("t", 0))
        columns = [batch["timestamp"].cast(pa.int64()) for batch in store.read("t", 0, start, following)]
        largest = max(time for column in columns for time in column.to_pylist()) // 1000
        so_far = max(so_far, largest)
        entries.append(CachedSegment(bases[0], base, following, largest, so_far))
    return entries


def look_up(store, times, start=0):
    """Every look-up gives what the list of times says."""
    for wanted in range(max(times) + 2):
        found = next((i for i, time in enumerate(times) if i >= start and time >= wanted), None)
        expected = None if found is None else OffsetAndTimestamp(found, times[found])
        assert Store.open(store.path).offset_for_timestamp("t", 0, wanted) == expected


def is_known(change):
    return change.path.endswith(".segments")


def fill_stopped(store, times, time):
    """Appends a record, by a process that is stopped before it writes what is known, if it does, and another one."""
    stop = stop_before(lambda change: is_known(change) and change.kind == "write")
    if run_until(lambda: fill(Store.open(store.path), [time]), stop):
        fill(Store.open(store.path), [time])
    times.append(time)
    look_up(store, times)


def test_each_roll_adds_an_entry_in_one_write(store):
    fill(store, [5, 3, 9, 1, 2, 3, 11])
    assert known(store) == right(store) == [CachedSegment(0, 0, 3, 9, 9), CachedSegment(0, 3, 6, 3, 9)]
    changes = []
    with observed(lambda change: changes.append(change) if is_known(change) else None):
        fill(store, [1, 1, 1])
    assert [(change.kind, change.position, len(change.data)) for change in changes] == [("write", 2 * WIDTH, WIDTH)]
    assert known(store) == right(store)


def test_a_partition_of_one_segment_has_no_file(store):
    fill(store, [1, 2])
    store.clean()
    assert not Path(place(store).segments_path).exists()


def test_it_follows_retention_and_goes_with_the_topic(store):
    fill(store, [90, *range(1, 20)])
    store.delete_records("t", 0, 8)
    assert known(store) == right(store)
    assert known(store)[0] == CachedSegment(6, 6, 9, 8, 8)
    path = Path(place(store).segments_path)
    store.delete_topic("t")
    store.clean()
    assert not path.exists()


def test_a_publish_that_rolls_adds_its_segments(store):
    fill(store, [1])
    publish(store.decisions, "p", 0, stage(store, [row(time) for time in range(2, 12)]))
    fill(store, [20])
    assert len(known(store)) == len(list_segments(place(store).folder)) - 1 > 0
    assert known(store) == right(store)


@pytest.mark.parametrize("by", ["cleaning", "the next roll"])
@pytest.mark.parametrize("loss", ["all", "the file", "some", "a part", "the middle"])
def test_what_is_lost_is_rebuilt(store, loss, by):
    fill(store, range(40))
    path = Path(place(store).segments_path)
    content = path.read_bytes()
    if loss == "the file":
        path.unlink()
    else:
        left = {"all": b"", "some": content[: 4 * WIDTH], "a part": content[:-20]}
        left["the middle"] = content[: 3 * WIDTH] + bytes(WIDTH) + content[4 * WIDTH :]
        path.write_bytes(left[loss])
    look_up(store, range(40))
    if by == "cleaning":
        store.clean("t")
        assert path.read_bytes() == content
    else:
        fill(store, [1, 1, 1])
        assert known(store) == right(store)


def test_a_writer_stopped_before_the_entry_leaves_it_to_the_next(store):
    fill(store, range(8))
    assert run_until(lambda: fill(store, range(8, 20)), stop_before(is_known))
    count = store.latest_offset("t", 0)
    assert len(known(store)) < len(right(store))
    look_up(store, range(count))
    fill(Store.open(store.path), range(count, 20))
    assert known(store) == right(store)


def test_damage_in_a_segment_ends_the_cache_but_stops_no_writer(store):
    fill(store, range(8))
    Path(place(store).segments_path).unlink()
    log, times = (Path(store.segment_files("t", 0)[1]).with_suffix(suffix) for suffix in (".log", ".timeindex"))
    times.unlink()
    log.write_bytes(b"\xff" * log.stat().st_size)
    fill(store, range(8, 20))
    assert [entry.base_offset for entry in known(store)] == [0]


def test_nothing_is_known_of_records_that_were_truncated(store):
    """The same offsets, in segments of the same sizes, get other times."""
    fill(store, [1] * 12)
    assert cut_log(store, 4) == 4
    assert [entry.next_offset for entry in known(store)] == [3]
    fill(store, [50 + n for n in range(8)])
    assert known(store) == right(store)
    look_up(store, [1, 1, 1, 1, *range(50, 58)])


@pytest.mark.parametrize("stop", [0, 1, 2])
def test_a_writer_stopped_while_truncating_leaves_nothing_false(store, stop):
    fill(store, [1] * 12)
    numbers = iter(range(10))
    run_until(lambda: cut_log(store, 4), stop_before(lambda change: is_known(change) and next(numbers) == stop))
    end = store.latest_offset("t", 0)
    times = [1] * end
    look_up(store, times)
    # A process that is stopped before it may say what is known says nothing false either.
    for time in range(50, 58):
        fill_stopped(store, times, time)


def test_a_log_that_was_brought_back_from_a_copy_is_looked_up_as_it_is(store, tmp_path):
    """Log and state are of an earlier time, what is known is not; the same offsets get other times now."""
    fill(store, [1] * 7)
    state, folder, path = (Path(p) for p in (place(store).state_path, place(store).folder, place(store).segments_path))
    shutil.copytree(folder, tmp_path / "folder")
    shutil.copy(state, tmp_path / "state")
    fill(store, [1] * 7)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "folder", folder)
    shutil.copy(tmp_path / "state", state)
    times = [1] * 7
    for time in range(60, 67):
        assert [entry.next_offset for entry in known(store)][-1] > len(times) or len(times) > 9
        fill_stopped(store, times, time)
    store.clean("t")
    assert known(store) == right(store)
    assert path.exists()


def test_entries_of_another_partition_do_not_count(store):
    store.create_topic("other", 1, CONFIG)
    for time in (1, 1, 1, 1):
        store.append("other", row(time))
    fill(store, [9, 1, 1, 1])
    other = store.logs.reader("other", 0).place
    shutil.copy(other.segments_path, place(store).segments_path)
    assert known(store) == [None]
    look_up(store, [9, 1, 1, 1])


def test_a_repaired_copy_knows_nothing_yet_and_learns_it(store, tmp_path):
    fill(store, range(10))
    repair(store.path, tmp_path / "copy")
    copy = Store.open(tmp_path / "copy")
    look_up(copy, range(10))
    copy.clean("t")
    assert known(copy) == right(copy) != []


def test_segments_that_were_merged_since_are_found(store):
    """As a cleaner does that has not come to say so."""
    times = [1, 5, 2, 3, 3, 3, 4, 8, 7, 1]
    fill(store, times)
    logs = [Path(path) for path in store.segment_files("t", 0)]
    logs[1].write_bytes(logs[1].read_bytes() + logs[2].read_bytes())
    for path in logs[2].parent.glob(f"{logs[2].stem}.*"):
        path.unlink()
    with store.logs.writer("t", 0).hold() as held:
        held.log.lease.save(held.state._replace(generation=held.state.generation + 1), durable=True)
    for start in range(10):
        found = [row for batch in Store.open(store.path).read("t", 0, start) for row in batch["offset"].to_pylist()]
        assert found == list(range(start, 10))
    look_up(store, times)
    assert Store.open(store.path).offset_of_max_timestamp("t", 0) == OffsetAndTimestamp(7, 8)
    assert Store.open(store.path).size("t", 0) == sum(Path(path).stat().st_size for path in store.segment_files("t", 0))
    store.clean("t")
    assert known(store) == right(store)


def test_verify_reports_times_that_are_too_small_and_of_torn_entries(store):
    fill(store, [5, 3, 9, 1, 2, 3, 8, 1, 1, 1])
    assert verify(store.path).findings == []
    path, seed = Path(place(store).segments_path), segment_cache._seed(place(store))
    right, changed = path.read_bytes(), list(known(store))

    def found(*entries):
        path.write_bytes(b"".join(segment_cache._encode(entry, seed) for entry in entries))
        return [(one.severity, one.file, one.position) for one in verify(store.path).findings]

    def told(number):
        return [(Severity.INDEX, f"state/{path.name}", number * WIDTH)]

    assert found(*changed[:2], changed[2]._replace(largest=7)) == told(2)
    assert found(changed[0], changed[1]._replace(largest_so_far=8), changed[2]) == told(1)
    assert found(*changed[:2], changed[2]._replace(largest=70)) == []
    assert found(*changed[1:]) == []
    path.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    assert [(one.severity, one.position) for one in verify(store.path).findings] == [(Severity.INDEX, 2 * WIDTH)]


def test_a_disk_that_does_not_give_it_fails_no_append(store, monkeypatch):
    fill(store, range(7))
    whole, good = files.File.pread, []

    def failing(self, size, position):
        if self.path.endswith(".segments") and not good:
            raise OSError(errno.EIO, "Input/output error", self.path)
        return whole(self, size, position)

    monkeypatch.setattr(files.File, "pread", failing)
    # What was removed has no bad places any more.
    with observed(lambda change: good.append(1) if change.kind == "unlink" and is_known(change) else None):
        look_up(store, range(7))
        fill(store, range(7, 12))
    assert good
    assert known(store) == right(store)


def test_an_error_in_it_fails_no_append(store, monkeypatch):
    fill(store, range(3))

    def failing(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(retention.segment_cache, "update", failing)
    fill(store, range(3, 12))
    monkeypatch.undo()
    look_up(store, range(12))
    fill(store, range(12, 15))
    assert known(store) == right(store)
