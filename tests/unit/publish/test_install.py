"""Large staged files become segments as they are; and what is done where they cannot."""

import contextlib
import errno
import hashlib
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_log.errors import (
    LogDirOfflineError,
    PublishFailedError,
    PublishPendingError,
    SetAsideError,
    StagedOutputError,
)
from pyspark_log.storage.catalog.topics import PUBLISH_TOPIC
from pyspark_log.storage.fs import files, mounts
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.log.appending import new_segment
from pyspark_log.storage.log.appending.new_segment import NewSegment, is_prepared_name
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.maintenance.repair.store import repair
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.publish import pending
from pyspark_log.storage.publish.applier import _Work
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.publish.recovery import set_aside, waiting
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan, staged_file, staged_writer
from pyspark_log.storage.store import Store
from tests.processes import PROCESSES, run_at_once
from tests.store_tools import Stopped, decided_only, new_store, observed, publish, roll_log

CONFIG = {"segment.bytes": "100000", "index.interval.bytes": "500", "max.message.bytes": "3000"}


def small_sizes(monkeypatch, copied=4000, installed=8000):
    """Makes files of little size large ones."""
    monkeypatch.setattr(staged_writer, "INLINE_LIMIT", 0)
    monkeypatch.setattr(staged_file, "_COPY_LEAST", copied)
    monkeypatch.setattr(staged_file, "_COPY_MOST", copied)
    monkeypatch.setattr(staged_file, "_INSTALL_MOST", installed)


@pytest.fixture
def store(tmp_path, monkeypatch):
    small_sizes(monkeypatch)
    store = new_store(tmp_path, CONFIG)
    return store


@pytest.fixture(params=[False, True], ids=["near", "far"])
def far(request, monkeypatch):
    """Whether the log is on another device than the staging folder."""
    if request.param:
        for module in (staged_file, new_segment):
            monkeypatch.setattr(module, "on_one_device", lambda *_: False)
    return request.param


def rows(name, count):
    return pa.record_batch({"value": [f"{name}/{row}".encode() + b"." * 100 for row in range(count)]})


def stage(store, name, count, topic="t", partitions=1):
    writer = StagedWriter(store.logs, StagingPlan.make(store.logs, [topic]))
    data = rows(name, count)
    for partition in range(partitions):
        writer.append(topic, data.append_column("partition", pa.array([partition] * count, pa.int32())))
    return writer.finish()


def expected(*pieces):
    return [f"{name}/{row}" for name, count in pieces for row in range(count)]


def content(store, topic="t", partition=0):
    store = Store.open(store.path)
    return [v.decode().rstrip(".") for b in store.read(topic, partition) for v in b["value"].to_pylist()]


def inodes(paths):
    return [os.stat(path).st_ino for path in paths]


def staged_inodes(store, parts):
    return inodes(f"{store.path}/staging/{part.file}" for part in parts)


def check(store, values):
    """The content, as readers see it, and as `verify` does, which checks every batch and every index entry."""
    assert content(store) == values
    assert not verify(store.path).damaged


def staged_files(store):
    return os.listdir(f"{store.path}/staging")


# ---- what becomes a segment


@pytest.mark.parametrize("before", [0, 3])
def test_a_large_file_becomes_a_segment(store, before):
    other = Store.open(store.path)
    if before:
        other.append("t", rows("before", before))
    parts = stage(store, "p", 300)
    wanted = staged_inodes(store, parts)
    publish(store.decisions, "q", 0, parts)
    segments = store.segment_files("t", 0)
    assert inodes(segments)[-1:] == wanted
    assert len(segments) == (2 if before else 1)
    # A process that had the empty segment open, or the one before, continues in the new one.
    other.append("t", rows("after", 5))
    store.append("t", rows("end", 1))
    check(store, expected(("before", before), ("p", 300), ("after", 5), ("end", 1)))
    publish(store.decisions, "q", 1, [])
    assert staged_files(store) == []
    check(store, expected(("before", before), ("p", 300), ("after", 5), ("end", 1)))


def test_an_empty_segment_that_others_have_open_is_replaced(store, far):
    others = [Store.open(store.path) for _ in range(2)]
    for other in others:
        other.append("t", rows("x", 1))
    others[0].delete_records("t", 0, -1)
    for other in others:
        with other.logs.writer("t", 0).hold() as writer:
            writer.log.roll()
            break
    with others[1].logs.writer("t", 0).hold() as writer:
        assert writer.state.position == 0
    publish(store.decisions, "q", 0, stage(store, "p", 300))
    for other in others:
        other.append("t", rows("after", 2))
    check(store, expected(("p", 300), ("after", 2), ("after", 2)))


def test_several_files_become_segments_in_order_and_little_ones_are_copied_after_them(store, far):
    parts = [
        part
        for name, count in [("a", 200), ("b", 5), ("c", 200), ("d", 200), ("e", 3), ("f", 2)]
        for part in stage(store, name, count)
    ]
    publish(store.decisions, "q", 0, parts)
    store.append("t", rows("after", 4))
    assert len(store.segment_files("t", 0)) == 3
    check(store, expected(("a", 200), ("b", 5), ("c", 200), ("d", 200), ("e", 3), ("f", 2), ("after", 4)))


def test_a_file_is_no_larger_than_a_segment_and_has_no_more_batches_than_its_indexes_have_room_for(store, monkeypatch):
    monkeypatch.setattr(staged_writer, "_MEMORY", 20_000)
    monkeypatch.setattr(staged_writer, "_OWN_FILE_SIZE", 1000)
    for name, setting, suffix, most in [
        ("bytes", "segment.bytes", ".log", 20_000),
        ("entries", "segment.index.bytes", ".index", 100),
    ]:
        store.create_topic(name, 1, CONFIG | {setting: str(most)})
        parts = stage(store, "p", 1000, name)
        assert len(parts) > 5
        assert len({part.file for part in parts}) == len(parts)
        publish(store.decisions, name, 0, parts)
        paths = [Path(path).with_suffix(suffix) for path in store.segment_files(name, 0)]
        assert len(paths) >= len(parts)
        assert all(path.stat().st_size <= most for path in paths)
        assert content(store, name) == expected(("p", 1000))
    assert not verify(store.path).damaged


def test_each_partition_gets_files_of_its_own(store):
    store.create_topic("many", 3, CONFIG)
    parts = stage(store, "p", 200, "many", partitions=3)
    assert len({part.file for part in parts}) == len(parts) == 3
    wanted = staged_inodes(store, parts)
    publish(store.decisions, "q", 0, parts)
    assert [inodes(store.segment_files("many", p)) for p in range(3)] == [[one] for one in wanted]
    assert [content(store, "many", p) for p in range(3)] == [expected(("p", 200))] * 3


def test_what_one_partition_gets_is_written_while_the_task_is_at_work(tmp_path):
    store = Store.create(tmp_path / "store")
    store.create_topic("many", 2)
    writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["many"]))
    values = {0: [os.urandom(500_000) for _ in range(9)], 1: [b"little"]}
    for partition, few in values.items():
        for value in few:
            data = pa.record_batch({"value": [value], "partition": pa.array([partition], pa.int32())})
            writer.append("many", data)
    (own,) = staged_files(store)
    assert os.path.getsize(f"{store.path}/staging/{own}") > 4_000_000
    parts = writer.finish()
    assert {part.file == own for part in parts if part.partition == 0} == {True}
    publish(store.decisions, "q", 0, parts)
    for partition, few in values.items():
        assert [v for b in store.read("many", partition) for v in b["value"].to_pylist()] == few


def test_partitions_that_get_little_share_a_file_and_are_copied(store):
    store.create_topic("many", 3, CONFIG)
    parts = stage(store, "p", 30, "many", partitions=3)
    assert len({part.file for part in parts}) == 1
    publish(store.decisions, "q", 0, parts)
    assert [content(store, "many", p) for p in range(3)] == [expected(("p", 30))] * 3


def test_the_real_sizes(tmp_path):
    """Some 40 MB in one partition are a segment; 30 MB are copied."""
    store = new_store(tmp_path)
    for number, (count, segments) in enumerate([(30, 1), (40, 2)]):
        writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["t"]))
        value = os.urandom(100_000)
        for _ in range(count):
            writer.append("t", pa.record_batch({"value": [value] * 10}))
        parts = writer.finish()
        assert len(parts) == 1
        publish(store.decisions, "q", number, parts)
        assert len(store.segment_files("t", 0)) == segments
    assert sum(batch.num_rows for batch in store.read("t", 0)) == 700
    assert not verify(store.path).damaged


def test_under_the_lock_only_the_offsets_are_written(store, far):
    store.append("t", rows("before", 1))
    parts = stage(store, "p", 600)
    written, state = [], store.logs.reader("t", 0).place.state_path
    changes = []
    with observed(changes.append):
        publish(store.decisions, "q", 0, parts)
    # From the intent to the end.
    at = [number for number, change in enumerate(changes) if change.kind == "write" and change.path == state]
    between = changes[at[0] + 1 : at[-1]]
    written = [len(change.data) for change in between if change.kind == "write" and change.path != state]
    batches = len(b"".join(part.crcs for part in parts)) // 4
    assert sum(written) <= 12 * batches + 100
    assert sum(part.size for part in parts) > 1000 * batches
    # A copy is on the disk before that.
    copies = [change for change in changes[: at[0]] if change.path.startswith(f"{store.path}/data/0")]
    assert ("sync" in {change.kind for change in copies if change.path.endswith(".log")}) == far
    assert {name for name in os.listdir(f"{store.path}/data") if name.startswith("0")} == set()
    linked = [os.stat(path).st_nlink for path in store.segment_files("t", 0)]
    assert linked == [1, 1 if far else 2]


def test_what_another_helper_has_put_after_a_file_does_not_stay_in_the_segment(store, monkeypatch):
    """Two processes have made it ready: one copies the little files after it, and cannot copy the last; the other found
    no room for copies, and makes each file a segment.
    """
    parts = [part for name, count in [("a", 200), ("b", 5), ("c", 4)] for part in stage(store, name, count)]
    path, sizes, newest = f"{store.path}/staging/{parts[0].file}", [], _Work._newest

    def fail(error, data):
        def observe(change):
            if change.kind == "write" and data in change.data:
                files.set_observer(None)
                sizes.append(os.path.getsize(path))
                raise OSError(error, os.strerror(error), change.path)

        files.set_observer(observe)

    def before_another(work, pieces):
        if all(isinstance(piece, NewSegment) for piece in pieces):
            monkeypatch.setattr(_Work, "_newest", newest)
            fail(errno.EIO, b"c/0")
            with pytest.raises(OSError, match="Input/output"):
                help_apply(Store.open(store.path).decisions)
        return newest(work, pieces)

    monkeypatch.setattr(_Work, "_newest", before_another)
    fail(errno.ENOSPC, b"b/0")
    publish(store.decisions, "q", 0, parts)
    assert sizes == [parts[0].size, parts[0].size + parts[1].size]
    assert [os.path.getsize(segment) for segment in store.segment_files("t", 0)] == [part.size for part in parts]
    check(store, expected(("a", 200), ("b", 5), ("c", 4)))


# ---- what is gathered first


def test_many_little_pieces_are_copied_together_before_the_decision(store):
    parts = [part for task in range(50) for part in stage(store, f"task {task}", 20)]
    pieces = {part.file for part in parts}
    publish(store.decisions, "q", 0, parts)
    # Their files are as large as segments may be, and the pieces are gone.
    assert len(store.segment_files("t", 0)) == 2
    assert not pieces & set(staged_files(store))
    check(store, expected(*((f"task {task}", 20) for task in range(50))))


def test_pieces_and_large_files_stay_in_order(store):
    counts = [20, 20, 300, 20, 20, 20, 300, 20]
    parts = [part for task, count in enumerate(counts) for part in stage(store, f"task {task}", count)]
    publish(store.decisions, "q", 0, parts)
    # The last piece is little enough to be copied.
    assert len(store.segment_files("t", 0)) == 4
    check(store, expected(*((f"task {task}", count) for task, count in enumerate(counts))))


def test_output_in_commit_messages_is_gathered_too(store, monkeypatch):
    monkeypatch.setattr(staged_writer, "INLINE_LIMIT", 10_000)
    parts = [part for task in range(20) for part in stage(store, f"task {task}", 10)]
    assert not any(part.file for part in parts)
    publish(store.decisions, "q", 0, parts)
    assert len(staged_files(store)) == 2  # the manifest and the file that it names
    check(store, expected(*((f"task {task}", 10) for task in range(20))))


def test_records_with_the_time_of_the_append_are_given_it_first(store):
    store.create_topic("l", 1, CONFIG | {"message.timestamp.type": "LogAppendTime"})
    parts = stage(store, "p", 700, "l")
    old = staged_inodes(store, parts)
    publish(store.decisions, "q", 0, parts)
    decision = store.decisions.last["q"]
    read = [row for batch in Store.open(store.path).read("l", 0) for row in batch.to_pylist()]
    assert [row["value"].decode().rstrip(".") for row in read] == expected(("p", 700))
    assert {round(row["timestamp"].timestamp() * 1000) for row in read} == {decision.time}
    assert {row["timestampType"] for row in read} == {1}
    # They were installed: what was staged itself is under CRCs.
    assert not set(old) & set(inodes(store.segment_files("l", 0)))
    assert any(path.endswith(".staged") and os.stat(path).st_nlink == 2 for path in _paths(store))
    assert not verify(store.path).damaged


def _paths(store):
    return [f"{store.path}/staging/{name}" for name in staged_files(store)]


def test_a_replay_gathers_nothing(store):
    publish(store.decisions, "q", 0, stage(store, "p", 1))
    parts = [part for task in range(40) for part in stage(store, f"task {task}", 20)]
    created = []
    with observed(lambda change: created.append(change.path) if change.kind == "create" else None):
        assert publish(store.decisions, "q", 0, parts).replayed
    assert not any(path.endswith(".staged") for path in created)
    assert content(store) == expected(("p", 1))


@contextlib.contextmanager
def no_room_for(is_what):
    """There is no room for a write of which a function says so."""

    def full(change):
        if change.kind == "write" and is_what(change):
            raise OSError(errno.ENOSPC, "No space left on device")

    with observed(full), pytest.raises(PublishFailedError, match="No space"):
        yield


@contextlib.contextmanager
def decisions_locked(store):
    hold = DecisionLog.hold
    publish(store.decisions, "another", 0, [])
    with pytest.MonkeyPatch.context() as patched, store.logs.writer(PUBLISH_TOPIC, 0).hold():
        patched.setattr(DecisionLog, "hold", lambda decisions: hold(decisions, 0.05))
        with pytest.raises(PublishFailedError):
            yield


HINDRANCES = {
    "no room for copies": lambda _: no_room_for(lambda change: change.position > 20_000),
    "no room for the manifest": lambda _: no_room_for(lambda change: b"PYLOGMF" in change.data),
    "a decision log that is locked": decisions_locked,
}


@pytest.mark.parametrize("hindrance", HINDRANCES)
def test_what_fails_before_the_decision_leaves_what_was_staged_and_no_copies(store, hindrance):
    parts = [part for task in range(40) for part in stage(store, f"task {task}", 20)]
    before = sorted(staged_files(store))
    with HINDRANCES[hindrance](store):
        publish(store.decisions, "q", 0, parts)
    assert sorted(staged_files(store)) == before
    publish(store.decisions, "q", 0, parts)
    check(store, expected(*((f"task {task}", 20) for task in range(40))))


def test_pieces_that_are_gone_are_named_as_staged_output(store):
    parts = [part for task in range(8) for part in stage(store, f"task {task}", 20)]
    os.unlink(f"{store.path}/staging/{parts[3].file}")
    with pytest.raises(StagedOutputError, match=parts[3].file):
        publish(store.decisions, "q", 0, parts)


# ---- where it cannot be done


@pytest.mark.parametrize("error", [errno.EPERM, errno.EXDEV, errno.EMLINK])
@pytest.mark.parametrize("call", ["link", "rename"])
def test_where_there_are_no_second_names_it_is_copied(store, monkeypatch, call, error):
    """Before the lock is taken, if that is known by then."""
    real = getattr(os, call)

    def refused(path, target):
        if str(path).endswith((".staged", ".log")) and str(target).endswith(".log"):
            raise OSError(error, os.strerror(error), path)
        real(path, target)

    monkeypatch.setattr(os, call, refused)
    copied, copy = [], _Work._copy

    def count(work, region):
        copied.append(region.size)
        return copy(work, region)

    monkeypatch.setattr(_Work, "_copy", count)
    parts = stage(store, "p", 300)
    before = staged_inodes(store, parts)
    publish(store.decisions, "q", 0, parts)
    assert not set(before) & set(inodes(store.segment_files("t", 0)))
    check(store, expected(("p", 300)))
    assert len(staged_files(store)) == 2  # the file and the manifest, until the next publish
    assert copied == ([] if call == "link" else [part.size for part in parts])


def test_on_a_file_system_of_several_hosts_it_is_copied(store, monkeypatch):
    """A host that has lost its lock may still write to what it has open."""
    store.create_topic("shared", 1, CONFIG)
    with monkeypatch.context() as patched:
        patched.setattr("pyspark_log.storage.log.lease.is_shared", lambda _: True)
        patched.setattr("pyspark_log.storage.publish.prepare.is_shared", lambda _: True)
        parts = stage(store, "p", 300, "shared") + stage(store, "r", 20, "shared")
        before = staged_inodes(store, parts)
        publish(store.decisions, "q", 0, parts)
        assert not set(before) & set(inodes(store.segment_files("shared", 0)))
    assert content(store, "shared") == expected(("p", 300), ("r", 20))
    assert mounts.is_shared(store.path) is False


@pytest.mark.parametrize("mode", [0o600, 0o444, 0o666])
def test_a_file_with_other_rights_than_the_partitions_files_is_copied(store, mode):
    """An executor may run as another user, or with another umask."""
    parts = stage(store, "p", 300)
    (path,) = [f"{store.path}/staging/{part.file}" for part in parts]
    store.append("t", rows("before", 1))
    os.chmod(path, mode)
    before = staged_inodes(store, parts)
    publish(store.decisions, "q", 0, parts)
    assert not set(before) & set(inodes(store.segment_files("t", 0)))
    check(store, expected(("before", 1), ("p", 300)))


class Disk:
    """A disk with `room` bytes left."""

    def __init__(self, room):
        self.room = room

    def __call__(self, change):
        if change.kind == "write":
            if len(change.data) > self.room:
                raise OSError(errno.ENOSPC, "No space left on device", change.path)
            if not change.path.endswith((".staged", "-0")):  # Written over in place.
                self.room -= len(change.data)


def test_a_full_disk_has_room_for_a_segment_that_is_there_already(store, monkeypatch):
    """Though by its size it would be copied."""
    store.append("t", rows("before", 1))
    parts = stage(store, "p", 60)
    monkeypatch.setattr(staged_file, "_COPY_LEAST", 10**6)
    monkeypatch.setattr(staged_file, "_COPY_MOST", 10**6)
    with decided_only():
        publish(store.decisions, "q", 0, parts)
    wanted = staged_inodes(store, parts)
    with observed(Disk(2000)):
        assert help_apply(store.decisions) == 1
    assert inodes(store.segment_files("t", 0))[1:] == wanted
    check(store, expected(("before", 1), ("p", 60)))


def _no_room(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_staged_file_that_is_not_what_was_staged_is_refused(store, far):
    parts = stage(store, "p", 300)
    path = Path(store.path, "staging", parts[0].file)
    data = path.read_bytes()
    # Another chain of whole batches of the same size.
    other = stage(store, "r", 300)
    path.write_bytes(Path(store.path, "staging", other[0].file).read_bytes())
    with pytest.raises(PublishPendingError, match=r"t-0: decision 0.*not (the batches|those) that were staged"):
        publish(store.decisions, "q", 0, parts)
    assert content(store) == []
    path.write_bytes(data)
    assert help_apply(store.decisions) == 1
    check(store, expected(("p", 300)))


def test_what_a_killed_helper_made_ready_is_known_and_goes_by_its_age(store, monkeypatch):
    parts = stage(store, "p", 300)
    with monkeypatch.context() as patched:
        patched.setattr(NewSegment, "discard", lambda _: None)
        patched.setattr(NewSegment, "put", _no_room)
        with pytest.raises(PublishPendingError, match="No space"):
            publish(store.decisions, "q", 0, parts)
    left = [name for name in staged_files(store) if name.endswith((".log", ".index", ".timeindex"))]
    assert len(left) in (3, 6)
    publish(store.decisions, "q", 0, parts)
    publish(store.decisions, "q", 1, [])
    assert sorted(staged_files(store)) == sorted(left)
    found = [finding.what for finding in verify(store.path).findings if "staging/" in finding.file]
    assert [what for what in found if "not a file of the engine" in what] == []
    assert any(f"{len(left)} staged files" in what for what in found), found
    week = 7 * 24 * 3600 * 1000
    store.logs.clock.read = lambda: now_ms() + week + 1000
    janitor.sweep_staging(store)
    store.logs.clock.read = lambda: now_ms() + 2 * week
    janitor.sweep_staging(store)
    assert staged_files(store) == []
    # They were names of the segment's file, too.
    check(store, expected(("p", 300)))


def test_a_copy_that_a_killed_helper_left_in_a_log_dir_goes_by_its_age(store, monkeypatch):
    parts = stage(store, "p", 300)
    with monkeypatch.context() as patched:
        for module in (staged_file, new_segment):
            patched.setattr(module, "on_one_device", lambda *_: False)
        patched.setattr(NewSegment, "discard", lambda _: None)
        patched.setattr(NewSegment, "put", _no_room)
        with pytest.raises(PublishPendingError, match="No space"):
            publish(store.decisions, "q", 0, parts)
    left = {name for name in os.listdir(f"{store.path}/data") if is_prepared_name(name)}
    assert len(left) == 3
    publish(store.decisions, "q", 0, parts)
    found = [finding for finding in verify(store.path).findings if os.path.basename(finding.file) in left]
    assert ["3 files of" in finding.what for finding in found] == [True]
    janitor.clean(store)
    assert left < set(os.listdir(f"{store.path}/data"))
    store.logs.clock.read = lambda: now_ms() + 24 * 3600 * 1000 + 1000
    janitor.clean(store)
    assert not left & set(os.listdir(f"{store.path}/data"))
    check(store, expected(("p", 300)))


def test_a_failed_log_dir_gets_no_copy(tmp_path, monkeypatch):
    """Its disk is not mounted, so what is made there would be made on another one."""
    small_sizes(monkeypatch)
    second = tmp_path / "second"
    store = new_store(tmp_path, CONFIG, settings={"log.dirs": f"{second},data"})
    store.append("t", rows("before", 1))
    for module in (staged_file, new_segment):
        monkeypatch.setattr(module, "on_one_device", lambda *_: False)
    with decided_only():
        publish(store.decisions, "q", 0, stage(store, "p", 300))
    os.rename(second, tmp_path / "away")
    second.mkdir()
    changes = []
    with observed(changes.append), pytest.raises(LogDirOfflineError, match=r"t-0: the log dir .*/second has failed"):
        help_apply(store.decisions)
    assert [change for change in changes if change.path.startswith(f"{second}/")] == []
    second.rmdir()
    os.rename(tmp_path / "away", second)

    # It fails while the copy is being made.
    def fail(change):
        if change.kind == "write" and change.path.startswith(f"{second}/0"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), change.path)

    with observed(fail), pytest.raises(LogDirOfflineError, match=r"t-0: the log dir .*/second has failed"):
        help_apply(store.decisions)
    assert help_apply(store.decisions) == 1
    assert [name for name in os.listdir(second) if is_prepared_name(name)] == []
    check(store, expected(("before", 1), ("p", 300)))


def test_a_partition_that_is_moved_when_its_copy_is_ready_is_copied_to(tmp_path, monkeypatch):
    small_sizes(monkeypatch)
    store = new_store(tmp_path, CONFIG, settings={"log.dirs": "data,second"})
    store.append("t", rows("before", 1))
    real, rename, moved = NewSegment.__init__, os.rename, []

    def then_move(self, *args, **kwargs):
        real(self, *args, **kwargs)
        Store.open(store.path).move_partition("t", 0, "second")
        moved.append(self._folder)

    def between_devices(path, target):
        if os.path.dirname(path) == f"{store.path}/data" and "/second/" in str(target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        rename(path, target)

    for module in (staged_file, new_segment):
        monkeypatch.setattr(module, "on_one_device", lambda *_: False)
    monkeypatch.setattr(NewSegment, "__init__", then_move)
    monkeypatch.setattr(os, "rename", between_devices)
    publish(store.decisions, "q", 0, stage(store, "p", 300))
    assert moved == [f"{store.path}/data"]
    assert [name for name in os.listdir(f"{store.path}/data") if is_prepared_name(name)] == []
    check(store, expected(("before", 1), ("p", 300)))


@pytest.mark.parametrize("first", [True, False])
def test_a_reader_of_an_empty_segment_notices_that_it_was_replaced_and_restored(store, first):
    """A publish is killed when the first of its two files has the name of the segment that is open elsewhere."""
    other = Store.open(store.path)
    if first:
        with other.logs.writer("t", 0).hold():
            pass
    else:
        other.append("t", rows("before", 1))
        roll_log(other)
    parts = stage(store, "p", 300) + stage(store, "r", 300)

    def kill(change):
        if change.kind == "rename" and change.target.endswith("300.log" if first else "301.log"):
            raise Stopped

    with observed(kill), pytest.raises(Stopped):
        publish(Store.open(store.path).decisions, "q", 0, parts)
    # Another process takes away what the killed one has begun.
    Store.open(store.path).append("t", rows("middle", 1))
    other.append("t", rows("after", 1))
    help_apply(Store.open(store.path).decisions)
    before = [] if first else [("before", 1)]
    check(store, expected(*before, ("middle", 1), ("after", 1), ("p", 300), ("r", 300)))


# ---- many at once


def test_a_helper_that_comes_late_changes_nothing(store, far, monkeypatch):
    """It has made everything ready when another one puts the file into the log, and others append to it."""
    parts = stage(store, "p", 300)
    late, ready, resume = Store.open(store.path), threading.Event(), threading.Event()
    with decided_only():
        publish(store.decisions, "q", 0, parts)
    real = NewSegment.__init__

    def slow(self, *args, **kwargs):
        real(self, *args, **kwargs)
        if threading.current_thread() is thread:
            ready.set()
            assert resume.wait(240)

    monkeypatch.setattr(NewSegment, "__init__", slow)
    thread = threading.Thread(target=help_apply, args=(late.decisions,), daemon=True)
    thread.start()
    assert ready.wait(240), "the late helper does not get there"
    assert help_apply(Store.open(store.path).decisions) == 1
    store.append("t", rows("after", 50))
    resume.set()
    thread.join()
    late.append("t", rows("late", 1))
    check(store, expected(("p", 300), ("after", 50), ("late", 1)))


def test_what_is_set_aside_while_it_is_made_ready_is_not_applied(store, far, monkeypatch):
    """The second name still leads to the file when the first one is gone."""
    real = NewSegment.__init__

    def late(self, *args, **kwargs):
        real(self, *args, **kwargs)
        other = Store.open(store.path)
        (waits,) = waiting(other.decisions)
        assert set_aside(other.decisions, waits.decision.offset).is_revoked

    with monkeypatch.context() as patched:
        patched.setattr(NewSegment, "__init__", late)
        with pytest.raises(SetAsideError, match=r"number 0\) could not be applied and was set aside"):
            publish(store.decisions, "q", 0, stage(store, "p", 300))
    check(store, [])
    assert staged_files(store) == []
    publish(store.decisions, "q", 0, stage(store, "p", 300))
    check(store, expected(("p", 300)))


def _help(path, barrier):
    with pytest.MonkeyPatch.context() as patched:
        small_sizes(patched)
        barrier.wait(240)
        store = Store.open(path)
        for number in range(20):
            help_apply(store.decisions)
            store.append("t", rows(f"{os.getpid()} {number}", 1))


def test_processes_that_help_at_once(store):
    """What is decided and not applied is applied by all of them, among appends of their own."""
    for number in range(6):
        with decided_only():
            publish(store.decisions, f"q{number}", 0, stage(store, f"p{number}", 100 + number))
    barrier = PROCESSES.Barrier(3)
    helpers = [PROCESSES.Process(target=_help, args=(store.path, barrier), daemon=True) for _ in range(3)]
    run_at_once(helpers)
    found = content(store)
    published = expected(*((f"p{number}", 100 + number) for number in range(6)))
    assert [value for value in found if value.startswith("p")] == published
    assert len(found) == len(published) + 60
    assert not verify(store.path).damaged
    pending.tidy(store.decisions)
    assert staged_files(store) == []


def test_mending_a_copy_leaves_the_staged_files_of_the_damaged_store_alone(store, tmp_path):
    parts = stage(store, "p", 300)
    with decided_only():
        publish(store.decisions, "q", 0, parts)
    path = f"{store.path}/staging/{parts[0].file}"
    before = hashlib.sha256(Path(path).read_bytes()).digest()
    repair(store.path, tmp_path / "copy")
    assert content(Store.open(tmp_path / "copy")) == expected(("p", 300))
    assert hashlib.sha256(Path(path).read_bytes()).digest() == before
    assert os.stat(path).st_nlink == 1
