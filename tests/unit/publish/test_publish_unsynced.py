"""Publishing without syncs: as exact as usual while the machine stays up; what a power loss takes blocks no process.

That a stopped process harms nothing, and what a power loss may leave, is tried out in tests/crash.
"""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_log.errors import InvalidConfigError, StagedOutputError
from pyspark_log.storage.groups.committed_offsets import OffsetMoves
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.publish.publishing import publish
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan, install, staged_writer
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition
from tests.store_tools import decided_only, flip, observed, store_with

store = store_with(partitions=2)


def stage(store, name, count=3):
    writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["t"]))
    writer.append(
        "t",
        pa.record_batch(
            {
                "value": [f"{name}/{row}".encode() for row in range(count)],
                "partition": pa.array([row % 2 for row in range(count)], pa.int32()),
            }
        ),
    )
    return writer.finish(sync=False)


def content(store):
    store = Store.open(store.path)
    return [v.decode() for p in range(2) for read in store.read("t", p) for v in read["value"].to_pylist()]


def test_nothing_is_synced(store, monkeypatch):
    monkeypatch.setattr(staged_writer, "INLINE_LIMIT", 0)
    publish(store.decisions, "q", 0, stage(store, "a"), sync=False)
    changes = []
    with observed(changes.append):
        publish(store.decisions, "q", 1, stage(store, "b"), sync=False)
    assert [change for change in changes if change.kind.startswith("sync")] == []
    assert sorted(content(store)) == [f"{name}/{row}" for name in "ab" for row in range(3)]


def test_offsets_that_are_shown_are_reserved_first(store):
    publish(store.decisions, "q", 0, stage(store, "a"), sync=False)
    for place in [("t", 0), ("t", 1), ("__pylog_publish", 0)]:
        state = store.logs.reader(*place).state()
        assert state.reserve > state.next_offset > 0
        assert state.synced < state.position


def test_a_segment_of_its_own_is_synced(store, monkeypatch):
    monkeypatch.setattr(staged_writer, "INLINE_LIMIT", 0)
    for bound in ("_COPY_LEAST", "_COPY_MOST", "_INSTALL_MOST"):
        monkeypatch.setattr(install, bound, 0)
    parts = stage(store, "a")
    synced = []
    with observed(lambda change: synced.append(change.path) if change.kind == "sync" else None):
        publish(store.decisions, "q", 0, parts, sync=False)
    for partition in range(2):
        state = store.logs.reader("t", partition).state()
        assert state.synced == state.position == os.path.getsize(store.segment_files("t", partition)[0])
    # Before the lock is taken, and with the offsets.
    assert len([path for path in synced if path.endswith(".log")]) >= 4


def test_a_replay_that_is_synced_makes_it_durable(store):
    publish(store.decisions, "q", 0, stage(store, "a"), sync=False)
    assert publish(store.decisions, "q", 0, stage(store, "a")).replayed
    for place in [("t", 0), ("t", 1), ("__pylog_publish", 0)]:
        state = store.logs.reader(*place).state()
        assert state.synced == state.position


def test_committed_offsets_do_not_move_without_syncing(store):
    step = OffsetStep("group", TopicPartition("t", 0), None, 1)
    with pytest.raises(InvalidConfigError, match="must be synced"):
        publish(
            store.decisions,
            "q",
            0,
            stage(store, "a"),
            participants=[OffsetMoves(store.committed_offsets, [step])],
            sync=False,
        )
    assert content(store) == []


@pytest.mark.parametrize("lost", ["manifest", "bytes"])
def test_what_a_power_loss_has_taken_is_passed_over(store, monkeypatch, caplog, lost):
    monkeypatch.setattr(staged_writer, "INLINE_LIMIT", 0 if lost == "bytes" else 10**6)
    with decided_only():
        publish(store.decisions, "lost", 0, stage(store, "lost"), sync=False)
    suffix = ".manifest" if lost == "manifest" else ".staged"
    (path,) = Path(store.path, "staging").glob(f"*{suffix}")
    if lost == "manifest":
        path.unlink()
    else:
        path.write_bytes(bytes(path.stat().st_size))
    # While the machine is up this is damage.
    with pytest.raises(StagedOutputError):
        help_apply(Store.open(store.path).decisions)
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    store = Store.open(store.path)
    assert help_apply(store.decisions) == 1
    assert "was made without syncing, before a power loss: t-0 gets nothing of it" in caplog.text
    assert help_apply(Store.open(store.path).decisions) == 0
    publish(store.decisions, "q", 0, stage(store, "a"))
    assert sorted(content(store)) == ["a/0", "a/1", "a/2"]
    assert not store.decisions.undone.keys() - {store.decisions.last["q"].offset}


def test_what_a_power_loss_has_left_is_applied_after_a_look_at_every_byte(store, monkeypatch):
    monkeypatch.setattr(staged_writer, "INLINE_LIMIT", 0)
    for bound in ("_COPY_LEAST", "_COPY_MOST", "_INSTALL_MOST"):
        monkeypatch.setattr(install, bound, 0)
    with decided_only():
        publish(store.decisions, "left", 0, stage(store, "left"), sync=False)
    files_of_first = sorted(Path(store.path, "staging").glob("*.staged"))
    flip(files_of_first[0], -1)
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    assert help_apply(Store.open(store.path).decisions) == 1
    assert sorted(content(store)) in (["left/0", "left/2"], ["left/1"])
