"""The power fails while a publish is being applied, and leaves some of its batches whole and not the others."""

import os

import pytest

from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.log.state.partition_state import Flags
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.store import Store
from tests.stops import run_until, stop_before
from tests.store_tools import cut_log, new_store, overwrite, publish, rows, stage, values


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_the_batches_that_stayed_are_not_there_a_second_time(tmp_path, monkeypatch, synced, kept):
    store = new_store(tmp_path)
    store.append("t", rows(b"before"), sync=synced)
    parts = stage(store, rows(b"first")) + stage(store, rows(b"second"))
    log = store.segment_files("t", 0)[0]
    sizes = [os.path.getsize(log), parts[0].size, parts[1].size]

    stop = stop_before(lambda change: (change.kind, change.path) == ("sync", log))
    assert run_until(lambda: publish(store.decisions, "query", 0, parts, run="run"), stop)
    assert os.path.getsize(log) == sum(sizes)
    os.truncate(log, sum(sizes[: kept + 1]))
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    store = Store.open(store.path)
    # The first read recovers the partition; this finishes what is whole.
    assert help_apply(store.decisions) == (kept < 2)
    assert values(store) == [b"before", b"first", b"second"]


@pytest.mark.parametrize("rebooted", [False, True])
def test_other_batches_of_the_same_offsets_and_sizes_are_not_taken_for_those_of_the_decision(
    tmp_path, monkeypatch, rebooted
):
    """The writer is stopped before its first byte, and older bytes are where it was about to write."""
    store = new_store(tmp_path)
    store.append("t", rows(b"before"), sync=True)
    (log,) = store.segment_files("t", 0)

    stop = stop_before(lambda change: (change.kind, change.path) == ("write", log))
    publish(store.decisions, "other", 0, stage(store, rows(b"older")))
    with open(log, "rb") as file:
        older = file.read()
    cut_log(store, 1)
    parts = stage(store, rows(b"newer"))
    assert run_until(lambda: publish(store.decisions, "query", 0, parts, run="run"), stop)
    assert os.path.getsize(log) == len(older) - parts[0].size
    with open(log, "r+b") as file:
        file.write(older)
    if rebooted:
        monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    store = Store.open(store.path)
    help_apply(store.decisions)
    assert values(store) == [b"before", b"newer"]


@pytest.mark.parametrize("rebooted", [False, True])
def test_batches_of_the_decision_at_other_offsets_are_not_taken_for_applied(tmp_path, monkeypatch, rebooted):
    """A batch's CRC does not cover its base offset, and the writer is stopped before the sync."""
    store = new_store(tmp_path)
    store.append("t", rows(b"before"), sync=True)
    (log,) = store.segment_files("t", 0)
    size = os.path.getsize(log)

    stop = stop_before(lambda change: (change.kind, change.path) == ("sync", log))
    parts = stage(store, rows(b"first")) + stage(store, rows(b"second"))
    assert run_until(lambda: publish(store.decisions, "query", 0, parts, run="run"), stop)
    overwrite(log, size, bytes(8))
    if rebooted:
        monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    else:
        # As if it had been stopped a moment before, when no sync was under way.
        with files.open_write(store.logs.reader("t", 0).place.state_path) as file:
            loaded = state_file.load(file)
            flags = loaded.state.flags & ~Flags.SUSPECT
            state_file.store(file, loaded, loaded.state._replace(flags=flags), durable=True)
    store = Store.open(store.path)
    help_apply(store.decisions)
    assert values(store) == [b"before", b"first", b"second"]


def test_what_was_applied_after_a_hole_is_applied_again(tmp_path, monkeypatch):
    """The decision is on the disk as a whole, and the records before it, which were never synced, are not."""
    store = new_store(tmp_path)
    store.append("t", rows(b"lost"))
    (log,) = store.segment_files("t", 0)
    size = os.path.getsize(log)

    stop = stop_before(lambda change: (change.kind, change.path) == ("sync", log))
    assert run_until(lambda: publish(store.decisions, "query", 0, stage(store, rows(b"decided")), run="run"), stop)
    with open(log, "r+b") as file:
        file.write(bytes(size))
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    store = Store.open(store.path)
    help_apply(store.decisions)
    assert values(store) == [b"decided"]
