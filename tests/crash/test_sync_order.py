"""What must be on the disk before what: single steps, each followed by a loss of power at every change to files."""

import os
import random
import shutil

import pytest
from power import Trace

from pyspark_log.storage.groups.committed_offsets import OffsetMoves
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.publish.claims import last_number
from pyspark_log.storage.publish.recovery import set_aside, waiting
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition
from tests.stops import Stopped, run_until
from tests.store_tools import new_store, observed, publish, rows, values


def losses(trace, folder, monkeypatch):
    """What is left where the power fails before each change and nothing stays of what was not synced, and the count."""
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    for count, disk in trace.disks(range(1, len(trace.changes) + 1)):
        path = folder / f"after {count}"
        disk.write(path, disk.nothing())
        yield Store.open(path), count


def test_a_synced_append_outlives_a_power_loss_also_where_it_has_begun_a_segment(memory_path, monkeypatch):
    store = new_store(memory_path, {"segment.bytes": "300"})
    trace = Trace(store.path)

    def write():
        for number in range(6):
            store.append("t", rows(b"%d" % number * 50), sync=True)
            trace.mark(number + 1)

    trace.record(write)
    assert len(store.segment_files("t", 0)) > 2
    for left, count in losses(trace, memory_path, monkeypatch):
        acknowledged = sum(at <= count for at, _ in trace.marks)
        assert len(values(left)) >= acknowledged, f"power lost before change {count}"


def move_by_publish(store, number, step):
    publish(store.decisions, "q", number, [], participants=[OffsetMoves(store.committed_offsets, [step])])


def test_a_decision_does_not_outlive_the_committed_offset_that_it_starts_from(memory_path, monkeypatch):
    at = TopicPartition("t", 0)
    store = new_store(memory_path, settings={"offsets.topic.num.partitions": "1"})
    move_by_publish(store, 0, OffsetStep("g", at, None, 3))
    with store.logs.writer("__consumer_offsets", 0).hold() as held:
        held.log.flush()
    trace = Trace(store.path)

    def move():
        OffsetsLog(store).commit("g", {at: 5})
        move_by_publish(store, 1, OffsetStep("g", at, 5, 9))

    trace.record(move)
    decided = 0
    for left, count in losses(trace, memory_path, monkeypatch):
        undone = [one.decision.offset for one in waiting(left.decisions) if one.decision.number == 1]
        for decision in undone:
            # As if it had never been made.
            set_aside(left.decisions, decision)
            assert OffsetsLog(left).fetch("g")[at].offset == 5, f"power lost before change {count}"
        decided += last_number(left.decisions, "q") == 1 or bool(undone)
    assert decided > 5


@pytest.mark.parametrize("killed", [True, False])
def test_what_was_removed_does_not_come_back_in_the_place_of_what_was_shown_since(memory_path, monkeypatch, killed):
    """A truncation that was not synced can undo itself, and so can the write after it; `killed`: in between."""
    store = new_store(memory_path)
    store.append("t", rows(b"first"), sync=True)
    (log,) = store.segment_files("t", 0)
    assert run_until(lambda: store.append("t", rows(b"never was")), stop_behind("write", log))
    trace = Trace(store.path)
    stop = stop_behind("truncate", log)

    def note(change):
        if killed:
            stop(change)
        trace.changes.append(change)

    def enter():
        with Store.open(store.path).logs.writer("t", 0).hold():
            pass

    assert run_until(enter, note) == killed
    trace.record(lambda: Store.open(store.path).append("t", rows(b"shown")))
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    ((_, disk),) = trace.disks([len(trace.changes)])
    for number, fate in enumerate(disk.subsets(1024, random.Random(1))[1]):
        path = memory_path / f"after {number}"
        disk.write(path, fate)
        assert values(Store.open(path)) in ([b"first"], [b"first", b"shown"]), f"fate {number}"
        shutil.rmtree(path)
    assert number


def stop_behind(kind, path):
    """Stops a program after its first change of a kind to a file."""
    seen = []

    def stop(change):
        if seen:
            raise Stopped
        if (change.kind, change.path) == (kind, path):
            seen.append(change)

    return stop


@pytest.mark.parametrize("shown", [False, True])
def test_torn_bytes_are_gone_before_the_state_says_that_the_log_was_recovered(memory_path, monkeypatch, shown):
    """No process looks for them afterwards; and bytes of a record can resemble batches."""
    store = new_store(memory_path)
    store.append("t", rows(b"synced"), sync=True)
    (log,) = store.segment_files("t", 0)
    if shown:
        store.append("t", rows(b"lost" * 100))
        os.truncate(log, os.path.getsize(log) - 1)
    else:
        with open(log, "ab") as file:
            file.write(b"torn" * 100)
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    path, said = store.logs.reader("t", 0).place.state_path, []

    def look(_change):
        state = state_file.read(path).state
        if state.boot == b"rebooted":
            said.append((state.position, os.path.getsize(log)))

    with observed(look), Store.open(store.path).logs.writer("t", 0).hold() as held:
        held.log.flush()
    assert said
    assert all(position == size for position, size in said), said


def test_what_fills_a_gap_is_on_the_disk_before_the_state_counts_it(memory_path, monkeypatch):
    """The power is lost again while what the first loss has left is being recovered."""
    store = new_store(memory_path)
    store.append("t", rows(b"synced"), sync=True)
    (log,) = store.segment_files("t", 0)
    store.append("t", rows(b"lost" * 100))
    shown = store.latest_offset("t", 0)
    os.truncate(log, os.path.getsize(log) - 1)
    monkeypatch.setattr(state_file, "this_boot", lambda: b"between")
    trace = Trace(store.path)
    trace.record(lambda: Store.open(store.path).latest_offset("t", 0))
    assert len(trace.changes) > 5
    for left, count in losses(trace, memory_path, monkeypatch):
        left.append("t", rows(b"after"))
        assert values(left) == [b"synced", b"after"], f"power lost before change {count}"
        assert left.latest_offset("t", 0) > shown


def test_an_empty_log_whose_file_is_gone_is_recovered_once(memory_path, monkeypatch):
    store = new_store(memory_path)
    with store.logs.writer("t", 0).hold():
        pass
    (log,) = store.segment_files("t", 0)
    os.unlink(log)
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    left = Store.open(store.path)
    for number in range(3):
        left.append("t", rows(b"%d" % number))
    assert values(left) == [b"0", b"1", b"2"]
    assert (left.logs.reader("t", 0).state().boot, left.latest_offset("t", 0)) == (b"rebooted", 3)
