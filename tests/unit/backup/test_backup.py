"""`back_up` copies a store as it is at one moment, whatever is written, retained, compacted and deleted meanwhile."""

import errno
import itertools
import json
import os
import resource
from pathlib import Path

import pyarrow as pa
import pytest
from cli_tools import pylog

from pyspark_log.clients.transactions import Transactions
from pyspark_log.errors import (
    LockTimeoutError,
    LogDirOfflineError,
    OutcomeUnknownError,
    PublishPendingError,
    ReadOnlyError,
    StoreExistsError,
    StoreNotFoundError,
    UnknownTopicError,
)
from pyspark_log.storage.compaction import compact
from pyspark_log.storage.fs import files
from pyspark_log.storage.groups.committed_offsets import OffsetMoves
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.log import cleaner_checkpoint
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.maintenance import backup
from pyspark_log.storage.maintenance.backup import back_up
from pyspark_log.storage.maintenance.janitor import clean
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.publish import applier
from pyspark_log.storage.publish.recovery import recover
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition
from tests.processes import held_by_another
from tests.scratch import memory_folder
from tests.store_tools import Stopped, all_values, faults, new_store, observed, publish, rows, stage, values

SEGMENTS = {"segment.bytes": "600", "index.interval.bytes": "100", "retention.ms": "-1", "file.delete.delay.ms": "0"}
COMPACTED = {**SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture(name="tmp_path")
def memory():
    """In memory where there is some."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def store(tmp_path):
    """Two log dirs, inactive segments, a compacted topic, a publisher, and a group."""
    settings = {"log.dirs": f"data,{tmp_path}/second", "offsets.topic.num.partitions": "2"}
    store = new_store(tmp_path, SEGMENTS, partitions=3, settings=settings)
    store.create_topic("keys", 1, COMPACTED)
    store.create_topic("empty", 2)
    for number in range(12):
        append(store, number)
    return store


def append(store, number):
    """A few records for each partition of "t", some keys, and a publish to two partitions with the group's offset."""
    for partition in range(2):
        store.append("t", rows(*(b"%d" % (number * 3 + part) + b"." * 60 for part in range(3))), partition=partition)
    store.topic("keys").append([{"key": b"%d" % (key % 5), "value": b"%d" % number + b"." * 60} for key in range(5)])
    with Transactions(store, "copy").begin() as transaction:
        transaction.append("t", third(number))
        transaction.send_offsets("group", {TopicPartition("t", 0): (number * 3 or None, number * 3 + 3)})


def third(number):
    """A record for partition 2."""
    return pa.record_batch({"value": [b"%d" % number], "partition": pa.array([2], pa.int32())})


def numbers(store, partition):
    return [int(value.rstrip(b".")) for value in values(store, partition)]


def check(path):
    """The copy is whole, and can be used at once; returns how many rounds are in it."""
    assert faults(path) == []
    copy = Store.open(path)
    published = numbers(copy, 2)
    count = published[-1] + 1
    assert published == list(range(published[0], count))
    committed = OffsetsLog(copy).fetch("group")[TopicPartition("t", 0)].offset
    # A round that had begun may be in it in part, but no publish is.
    assert committed == count * 3
    for partition in (0, 1):
        found = numbers(copy, partition)
        assert found == list(range(found[0], found[-1] + 1))
        assert found[-1] + 1 in (count * 3, count * 3 + 3)
        assert committed <= copy.latest_offset("t", partition)
    newest = dict(
        pair
        for batch in copy.read("keys", 0)
        for pair in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    )
    assert set(newest) == {b"%d" % key for key in range(5)}
    assert {int(value.rstrip(b".")) for value in newest.values()} <= {count - 1, count}
    return count


def resume(path):
    """Appends, and publishes the next number."""
    count = check(path)
    copy = Store.open(path)
    before = copy.latest_offset("t", 1)
    copy.append("t", rows(b"more"), partition=1)
    assert copy.latest_offset("t", 1) == before + 1
    with Transactions(copy, "copy").begin() as transaction:
        transaction.append("t", third(count))
    assert numbers(copy, 2)[-2:] == [count - 1, count]
    assert faults(path) == []


def tree(path):
    """Each file in a folder, with its bytes; what is locked for a moment is made once."""
    return {
        os.path.join(folder, name): Path(folder, name).read_bytes()
        for folder, _, names in os.walk(path)
        for name in names
        if not name.endswith((".turn", ".lock"))
    }


def test_a_copy_has_everything(store, tmp_path):
    list(compact(store.logs, "keys"))
    done = back_up(store, tmp_path / "copy")
    assert check(tmp_path / "copy") == 12
    copy = Store.open(tmp_path / "copy")
    cleaned = [cleaner_checkpoint.read(one.logs.place("keys", 0)) for one in (store, copy)]
    assert cleaned[0] == cleaned[1]
    assert cleaned[0].cleaned_to > 0
    assert all_values(copy) == all_values(store)
    assert (copy.cluster_id, copy.configs, copy.topics()) == (store.cluster_id, store.configs, store.topics())
    assert copy.describe_topic("t") == store.describe_topic("t")
    assert (done.path, done.undone) == (str(tmp_path / "copy"), 0)
    assert done.partitions == sum(
        store.latest_offset(name, number) > 0
        for name in store.topics(internal=True)
        for number in range(store.describe_topic(name).partitions)
    )
    assert done.bytes > sum(store.size("t", partition) for partition in range(3))
    clean(copy)
    assert verify(copy.path).findings == []
    resume(tmp_path / "copy")


def test_a_copy_takes_the_place_of_the_store(store, tmp_path):
    back_up(store, tmp_path / "copy")
    append(store, 12)
    os.rename(store.path, tmp_path / "old")
    os.rename(tmp_path / "copy", store.path)
    append(Store.open(store.path), 12)
    assert check(store.path) == 13
    resume(store.path)


def test_a_copy_is_used_after_a_restart_of_the_machine(store, tmp_path, monkeypatch):
    """Nothing is taken back of what was not synced in the store, as all of it is synced in the copy."""
    back_up(store, tmp_path / "copy")
    ends = [store.latest_offset("t", partition) for partition in range(3)]
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    copy = Store.open(tmp_path / "copy")
    assert [copy.latest_offset("t", partition) for partition in range(3)] == ends
    assert all_values(copy) == all_values(store)
    resume(copy.path)


def test_the_source_is_as_it_was(store, tmp_path):
    back_up(store, tmp_path / "first")  # What a lock needs is there from now on.
    before = tree(tmp_path / "store"), tree(tmp_path / "second")
    back_up(store, tmp_path / "copy")
    assert (tree(tmp_path / "store"), tree(tmp_path / "second")) == before


def test_the_store_changes_while_it_is_copied(store, tmp_path):
    """At each step of the copying: more records, segments that go by retention and compaction, deleted topics."""
    for topic in ("again", "gone"):
        store.create_topic(topic, 1)
        store.append(topic, rows(b"old"))
    calls, rounds = itertools.count(), itertools.count(12)

    def change(_done, _total):
        if next(calls) % 4:
            return
        number = next(rounds)
        append(store, number)
        if number == 14:
            store.alter_configs("t", {"retention.bytes": "2000"})
        if number == 20:
            # Both were copied ahead by then.
            assert (tmp_path / "copy/data/gone-0").exists()
            for topic in ("again", "gone"):
                store.delete_topic(topic)
            store.create_topic("again", 1)
            store.append("again", rows(b"new"))
        if number % 4 == 0:
            store.create_topic("passing", 1)
            store.append("passing", rows(b"%d" % number))
        if number % 4 == 2:
            store.delete_topic("passing")
        list(compact(store.logs, "keys"))
        store.clean()

    back_up(store, tmp_path / "copy", progress=change)
    count = check(tmp_path / "copy")
    last = next(rounds)
    assert 20 < count < last - 2, "the moment is not in the midst of the changes"
    copy = Store.open(tmp_path / "copy")
    assert copy.earliest_offset("t", 0) > 0
    assert values(copy, topic="again") == [b"new"]
    assert "gone" not in copy.topics()
    clean(copy)
    assert verify(copy.path).findings == []
    assert check(store.path) == last
    resume(tmp_path / "copy")


def test_a_partition_is_moved_while_it_is_copied(store, tmp_path):
    folders = iter(["second", "data"] * 3)

    def move(_done, _total):
        folder = next(folders, None)
        if folder is not None:
            store.move_partition("t", 0, f"{tmp_path}/second" if folder == "second" else folder)
            append(store, len(numbers(store, 2)))

    back_up(store, tmp_path / "copy", progress=move)
    assert check(tmp_path / "copy") > 12
    assert next(folders, None) is None


def test_a_publish_that_cannot_be_applied_is_decided_in_the_copy(tmp_path, monkeypatch):
    monkeypatch.setattr("pyspark_log.storage.publish.staging.staged_writer.INLINE_LIMIT", 0)
    store = Store.create(tmp_path / "store")
    for topic in ("a", "b"):
        store.create_topic(topic, 1)
    parts = [*stage(store, rows(b"1"), "a"), *stage(store, rows(b"2"), "b")]
    real = applier.apply

    def apply(writer, *arguments, **options):
        if writer.place.topic == "b":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(writer, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(applier, "apply", apply)
        with pytest.raises(PublishPendingError):
            publish(store.decisions, "query", 0, parts)
        assert back_up(store, tmp_path / "copy").undone == 1
    # The store stays in use, and removes what was staged in it.
    recover(store.decisions)
    clean(store)
    assert not os.listdir(tmp_path / "store" / "staging")
    copy = Store.open(tmp_path / "copy")
    assert [copy.logs.reader(topic, 0).state().next_offset for topic in ("a", "b")] == [1, 0]
    # The first reader sees to it.
    assert (values(copy, topic="a"), values(copy, topic="b")) == ([b"1"], [b"2"])
    assert not verify(copy.path).damaged
    assert publish(copy.decisions, "query", 1, stage(copy, rows(b"3"), "a")).records == 1


def test_what_is_decided_just_before_the_moment_is_applied_in_the_copy(tmp_path, monkeypatch):
    store = new_store(tmp_path)

    def decide_only(_backup):
        """A publisher that decides and is killed, after pending decisions were applied and before the moment."""
        moves = [OffsetMoves(store.committed_offsets, [OffsetStep("g", TopicPartition("t", 0), None, 1)])]
        parts = stage(store, rows(b"1"))
        with monkeypatch.context() as patched:
            patched.setattr(applier, "apply", stop)
            with pytest.raises(Stopped):
                publish(store.decisions, "query", 0, parts, participants=moves)

    def stop(*_arguments, **_options):
        raise Stopped

    monkeypatch.setattr(backup._Backup, "_apply", decide_only)
    assert back_up(store, tmp_path / "copy").undone == 0
    copy = Store.open(tmp_path / "copy")
    # Not by Store.latest_offset, which would apply it.
    assert copy.logs.reader("t", 0).state().next_offset == 1
    assert copy.groups["g"].committed()[TopicPartition("t", 0)].offset == 1
    assert store.logs.reader("t", 0).state().next_offset == 0


def test_a_store_without_records(tmp_path):
    store = new_store(tmp_path, partitions=2, settings={"num.partitions": "7"})
    assert back_up(store, tmp_path / "copy").partitions == 0
    copy = Store.open(tmp_path / "copy")
    assert (copy.topics(), copy.configs) == (["t"], {"num.partitions": "7"})
    copy.append("t", rows(b"1"))
    assert verify(copy.path).findings == []


def test_all_is_locked_at_the_moment(store, tmp_path, monkeypatch):
    """No other process can make a topic, decide, append, commit, retain or swap segments then."""
    real, other, found = backup._Backup._undone, Store.open(store.path), []

    def look(self, decided, topics):
        with pytest.raises(LockTimeoutError), other.logs.catalog.changing(0):
            pass
        for topic in other.topics(internal=True):
            for partition in other.written_partitions(topic):
                with pytest.raises(LockTimeoutError), other.logs.writer(topic, partition).hold(0):
                    pass
                found.append(topic)
        return real(self, decided, topics)

    monkeypatch.setattr(backup._Backup, "_undone", look)
    back_up(store, tmp_path / "copy")
    assert set(found) == {"__consumer_offsets", "__pylog_publish", "keys", "t"}
    with other.logs.catalog.changing(0), other.logs.writer("t", 0).hold(0):
        pass


def test_a_segment_of_which_a_sync_has_failed_is_not_trusted(store, tmp_path, monkeypatch):
    """What is read of it may be in memory only: it is written once more, and another one begins."""
    before = numbers(store, 0)

    def sync(file):
        raise OSError(errno.EIO, "the disk is gone", file.path)

    with monkeypatch.context() as patched:
        patched.setattr(files.File, "sync", sync)
        with pytest.raises(OutcomeUnknownError):
            store.append("t", rows(b"lost"), partition=0, sync=True)
    segments = store.segment_files("t", 0)
    back_up(store, tmp_path / "copy")
    assert len(store.segment_files("t", 0)) == len(segments) + 1
    copy = Store.open(tmp_path / "copy")
    assert numbers(copy, 0) == before
    copy.append("t", rows(b"1000"), partition=0)
    assert len(copy.segment_files("t", 0)) == len(segments) + 1
    assert faults(copy.path) == []


def test_the_first_publish_comes_at_the_moment(tmp_path, monkeypatch):
    """Its lock is not among those that were taken first."""
    store = new_store(tmp_path)
    real, made = backup._Backup._hold_partitions, []

    def hold(self, held, began, topics):
        if not made:
            made.append(publish(Store.open(store.path).decisions, "query", 0, stage(store, rows(b"1"))))
        return real(self, held, began, topics)

    monkeypatch.setattr(backup._Backup, "_hold_partitions", hold)
    back_up(store, tmp_path / "copy")
    assert values(Store.open(tmp_path / "copy")) == [b"1"]
    assert faults(tmp_path / "copy") == []


# ---- refused, or failed


def test_where_a_copy_cannot_be(store, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "file").touch()
    for folder in ("full", "file", "store/copy", "second/copy", "."):
        with pytest.raises(StoreExistsError):
            back_up(store, tmp_path / folder)
    with pytest.raises(StoreNotFoundError):
        back_up(store, tmp_path / "missing" / "copy")
    assert sorted(os.listdir(tmp_path)) == ["file", "full", "second", "store"]


def test_a_folder_of_a_broker_is_refused(store, tmp_path):
    os.rename(tmp_path / "store" / "data", tmp_path / "broker")
    with pytest.raises(ReadOnlyError):
        back_up(Store.open(tmp_path / "broker"), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_log_dir_that_has_failed(store, tmp_path):
    """A copy without its partitions would be none."""
    os.rename(tmp_path / "second", tmp_path / "away")
    with pytest.raises(LogDirOfflineError):
        back_up(store, tmp_path / "copy")
    with pytest.raises(StoreNotFoundError):
        Store.open(tmp_path / "copy")
    os.rename(tmp_path / "away", tmp_path / "second")
    append(store, 12)
    assert check(store.path) == 13


def test_a_full_disk(store, tmp_path):
    back_up(store, tmp_path / "first")
    before, copy = (tree(tmp_path / "store"), tree(tmp_path / "second")), str(tmp_path / "copy")
    written = 0

    def fill(change):
        nonlocal written
        if change.kind == "write" and change.path.startswith(copy):
            written += len(change.data)
            if written > 5000:
                raise OSError(errno.ENOSPC, "No space left on device", change.path)

    with observed(fill), pytest.raises(OSError, match="No space left"):
        back_up(store, copy)
    with pytest.raises(StoreNotFoundError):
        Store.open(copy)
    assert (tree(tmp_path / "store"), tree(tmp_path / "second")) == before
    append(store, 12)
    assert check(store.path) == 13


def test_another_process_keeps_a_lock(store, tmp_path, monkeypatch):
    """The others are not kept waiting for it."""
    monkeypatch.setattr("pyspark_log.storage.fs.locking.timeouts.ALL_LOCKS", 0.1)
    monkeypatch.setattr(backup, "_ATTEMPTS", 2)

    def lock(_done, _total):
        # Its partition was copied ahead by then.
        if not locks and (tmp_path / "copy/data/t-1").exists():
            locks.append(held_by_another(store, "keys"))
            locks[0].__enter__()

    locks = []
    try:
        with pytest.raises(LockTimeoutError, match="locked for"):
            back_up(store, tmp_path / "copy", progress=lock)
        store.append("t", rows(b"1"), partition=0)
    finally:
        locks[0].__exit__(None, None, None)
    with pytest.raises(StoreNotFoundError):
        Store.open(tmp_path / "copy")


def test_more_partitions_than_a_process_may_open_files(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    store = new_store(tmp_path, partitions=60)
    for partition in range(60):
        store.append("t", rows(b"%d" % partition), partition=partition)
    store.close()
    few = max(map(int, os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))) + 150
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        back_up(store, tmp_path / "copy")
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (few, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert all_values(Store.open(tmp_path / "copy")) == [b"%d" % partition for partition in range(60)]


# ---- the command


def test_the_command(store, tmp_path):
    done = pylog(store, "backup", "--into", str(tmp_path / "copy"))
    assert done.exit_code == 0, done.output
    assert f"into {tmp_path}/copy, as they were at 2" in done.stdout
    assert f"pylog verify --store {tmp_path}/copy" in done.stdout
    assert check(tmp_path / "copy") == 12
    found = json.loads(pylog(store, "backup", "--into", str(tmp_path / "other"), "--json").stdout)
    assert (found["path"], found["undone"]) == (str(tmp_path / "other"), 0)
    refused = pylog(store, "backup", "--into", str(tmp_path / "copy"))
    assert refused.exit_code == 1
    assert "is not empty" in refused.stderr
    with pytest.raises(UnknownTopicError):
        Store.open(tmp_path / "copy").describe_topic("nothing")
