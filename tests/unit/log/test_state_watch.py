"""Readers at the end of a log notice an append of any process at once."""

import shutil
import time

import pytest

from pyspark_log.storage.log.state import StateWatch, state_watch
from pyspark_log.storage.store import Store
from tests.processes import PATIENCE, started
from tests.store_tools import open_files, rows, store_with

store = store_with(partitions=3)

#: Longer than a test may take: a wait of this length has not noticed anything.
LONG = 3600.0


@pytest.fixture(params=[1, 200])
def watch(store, request, monkeypatch):
    """Of which as many files as the parameter says stay open."""
    monkeypatch.setattr(state_watch, "_MOST_OPEN", request.param)
    for partition in range(2):
        store.append("t", rows(b"first"), partition=partition)
    watch = StateWatch()
    watch.note(store.logs.state_paths("t", range(3)))
    return watch


def _wait(connection, path):
    store, watch = Store.open(path), StateWatch()
    watch.note(store.logs.state_paths("t", range(3)))
    connection.send("waits")
    watch.wait(LONG)


def test_a_waiting_process_notices_what_another_one_appends(store, watch):
    with started(_wait, store.path) as (process, said):
        assert said == "waits"
        store.append("t", rows(b"later"), partition=1)
        process.join(PATIENCE)
        ended = process.exitcode
        process.kill()
    assert ended == 0


def test_an_append_before_the_wait_ends_it(store, watch):
    store.append("t", rows(b"later"), partition=0)
    watch.wait(LONG)


def test_few_files_stay_open(store, watch):
    store.close()
    assert open_files(store.path) == min(state_watch._MOST_OPEN, 2)
    shutil.rmtree(store.path)
    if state_watch._MOST_OPEN == 1:
        watch.wait(LONG)


def test_without_an_append_the_time_is_waited(store, watch):
    started_at = time.monotonic()
    watch.wait(0.05)
    assert time.monotonic() - started_at >= 0.05
    # A partition without a state yet is not watched, and neither is what there was before.
    store.append("t", rows(b"first"), partition=2)
    watch.wait(0.05)


def test_a_replaced_folder_is_noticed_when_it_is_noted_again(store, watch, tmp_path):
    shutil.copytree(store.path, tmp_path / "copy")
    shutil.move(store.path, tmp_path / "old")
    shutil.move(tmp_path / "copy", store.path)
    watch.note(store.logs.state_paths("t", range(3)))
    Store.open(store.path).append("t", rows(b"later"), partition=1)
    watch.wait(LONG)
