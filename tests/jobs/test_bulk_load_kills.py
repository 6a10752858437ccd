"""Processes of a bulk load are killed; it is started again until it is done, and each record is there once."""

import os
import signal
from pathlib import Path

import job_kills
import pytest
from job_kills import kill_at_random, wait_until
from job_tools import Job, committed, files_in, fill, left_over, rows_in, rows_of

from tests.campaigns.processes import send
from tests.store_tools import faults

pytestmark = job_kills.MARKS


def is_in(plan, text):
    try:
        return text in plan.read_text()
    except FileNotFoundError:
        return False


SEEN = {
    "the plan": lambda store, target, plan: plan.exists(),
    "an unfinished file": lambda store, target, plan: any("-" in name for name in os.listdir(plan.parent)),
    "the plan with files": lambda store, target, plan: is_in(plan, '"files": ['),
    "a file in place": lambda store, target, plan: bool(files_in(target)),
    "committed offsets": lambda store, target, plan: bool(committed(store)),
}


@pytest.mark.parametrize("what", SEEN)
def test_all_of_it_is_killed_when_something_is_seen(store, tmp_path, what):
    """With hundreds of files, so that their placing takes a while."""
    target = tmp_path / "lake"
    fill(store, "t", 2, 3000)
    arguments = (store.path, target, "--topics", "t", "--partition-by", "topic,hour", "--max-records-per-file", "20")
    target.joinpath("_pylog/bulk-load").mkdir(parents=True)
    plan = target / "_pylog/bulk-load/plan.json"
    with Job(tmp_path / "log", "local[2]", "bulk_load", *arguments) as job:
        assert wait_until(job, lambda: SEEN[what](store, target, plan)), job.log.read_text()[-3000:]
    fill(store, "t", 2, 100)
    with Job(tmp_path / "log", "local[2]", "bulk_load", *arguments) as job:
        assert job.wait() == 0, job.log.read_text()[-3000:]
    assert rows_in(target) == rows_of(store, "t")
    assert left_over(target) == []
    assert faults(store.path) == []


def test_drivers_executors_and_workers_are_killed_at_random(cluster, store, tmp_path):
    """Records come all the time. A load that has ended is followed by the next one."""
    target = tmp_path / "lake"
    fill(store, "t", 3, 20_000)
    arguments = ("bulk_load", store.path, target, "--topics", "t", "--partition-by", "topic,hour")
    kill_at_random(cluster, tmp_path / "log", arguments, lambda _: fill(store, "t", 3, 500), seed=1)
    assert rows_in(target) == rows_of(store, "t")
    assert left_over(target) == []
    assert faults(store.path) == []


def test_a_job_that_is_stopped_holds_its_place(store, tmp_path):
    """Another one of the group is refused as long as the first one is alive, and no longer."""
    target = tmp_path / "lake"
    fill(store, "t", 1, 100)
    arguments = ("local[2]", "bulk_load", store.path, target, "--topics", "t")
    with Job(tmp_path / "first", *arguments) as first:
        assert wait_until(first, lambda: Path(target, "_pylog/bulk-load/plan.json").exists())
        send(first.own(), signal.SIGSTOP)
        with Job(tmp_path / "second", *arguments) as second:
            assert second.wait() == 1
        assert "another export of group 'bulk-load' is running" in second.log.read_text()
    with Job(tmp_path / "third", *arguments) as third:
        assert third.wait() == 0, third.log.read_text()[-3000:]
    assert rows_in(target) == rows_of(store, "t")
