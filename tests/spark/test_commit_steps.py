"""A driver is killed, or held up for a while, before each change to files that it makes.

Whatever the first one did or does, in the end all output is there once and in order.
"""

import os
import shutil
import signal
from pathlib import Path

import pytest
from commit_driver import BATCHES, PARTITIONS, TOPIC, Driver, content, rows, values

from pyspark_log import Store
from pyspark_log.storage.maintenance import janitor
from tests.scratch import memory_folder

# A second driver that is not done after this many seconds waits for what the first one has locked.
PATIENCE = 0.25

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def template(tmp_path):
    """A folder with a store as it is before the first batch; in memory if it can be: kills lose nothing written."""
    with memory_folder() as folder:
        store = Store.create(f"{folder}/template")
        # Segments that one batch fills, so that a commit rolls.
        store.create_topic(TOPIC, PARTITIONS, {"segment.bytes": "250000"})
        yield folder


def check_end(path, where):
    assert content(path) == values(BATCHES), where
    store = Store.open(path)
    staged = Path(path, "staging")
    for name in os.listdir(staged):
        os.utime(staged / name, (0, 0))
    janitor.sweep_staging(store)
    assert os.listdir(staged) == [], where
    # And nothing holds up the next publisher.
    store.append(TOPIC, rows(9, 0))


def all_changes(template):
    driver = Driver(shutil.copytree(template / "template", template / "count"), "run 0")
    assert driver.wait()
    assert driver.done == BATCHES
    check_end(template / "count", "undisturbed")
    return driver.changes


def test_a_killed_commit_is_made_good_by_the_next_driver(template, capsys):
    changes, killed = all_changes(template), 0
    for change in range(changes):
        path = shutil.copytree(template / "template", template / "killed")
        first = Driver(path, "run 1", 0, change, signal.SIGKILL)
        assert first.wait()
        where = f"killed before change {change}, after {first.done} batches"
        killed += first.process.exitcode == -signal.SIGKILL
        for seen, before, after in zip(content(path), values(first.done), values(first.done + 1), strict=True):
            assert seen in (before, after), where
        second = Driver(path, "run 2", first.done)
        assert second.wait()
        assert second.done == BATCHES, where
        check_end(path, where)
        shutil.rmtree(path)
    with capsys.disabled():
        print(f"\n{killed} kills, before {changes} changes")
    assert killed >= 0.9 * changes


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="sees in /proc that a process is stopped, which Linux has")
def test_a_driver_that_comes_back_does_no_harm(template, capsys):
    changes, stopped, waited = all_changes(template), 0, 0
    for change in range(changes):
        path = shutil.copytree(template / "template", template / "stopped")
        first = Driver(path, "run 1", 0, change, signal.SIGSTOP)
        stopped += first.wait_until_stopped()
        where = f"stopped before change {change}, after {first.done} batches"
        second = Driver(path, "run 2", first.done)
        try:
            waited += not second.wait(PATIENCE)
            first.resume()
            assert first.wait(), where
            assert second.wait(), where
        finally:
            first.end()
            second.end()
        # The first one may have continued before the second one began: then a third continues from there.
        done = max(first.done, second.done)
        last = second if second.done == BATCHES else Driver(path, "run 3", done)
        assert last.wait(), where
        assert last.done == BATCHES, where
        check_end(path, where)
        shutil.rmtree(path)
    with capsys.disabled():
        print(f"\n{stopped} stops, before {changes} changes; in {waited} the second driver waited for a lock")
    assert stopped >= 0.9 * changes
