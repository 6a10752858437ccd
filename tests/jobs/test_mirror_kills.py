"""Processes of a mirror are killed; it is started again. In the end each record is there once, and groups are right."""

import os
import random
import signal

import job_kills
import pytest
from job_kills import kill_at_random, wait_until
from job_tools import Job, fill
from test_mirror import left, records

from pyspark_log import Store, TopicPartition
from pyspark_log.jobs.mirroring.syncs import load_syncs
from tests.campaigns.processes import command_of, is_java
from tests.store_tools import faults

PARTITIONS = 3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1400),
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc, which Linux has"),
]


@pytest.mark.long
@job_kills.TIMEOUT
def test_drivers_executors_and_workers_are_killed_at_random(cluster, store, tmp_path):
    """Topics and records come all the time, in small micro-batches, and a group reads on."""
    chance, target = random.Random(1), tmp_path / "target"

    def feed(kills):
        topic = f"t{kills // 5}"
        fill(store, topic, PARTITIONS, 4000)
        read_on(store, topic, chance)

    arguments = (
        "mirror", target, store.path, "--topics", "t.*", "--max-offsets", "3000", "--until-now",
        "--groups", "^readers$", "--groups-interval", "1", "--checkpoint", tmp_path / "checkpoint",
    )  # fmt: skip
    kill_at_random(cluster, tmp_path / "log", arguments, feed, seed=1, within=2)
    there = Store.open(target)
    for topic in store.topics():
        assert records(there, topic) == records(store, topic), topic
        for partition in range(PARTITIONS):
            assert there.latest_offset(topic, partition) == store.latest_offset(topic, partition)
    syncs = load_syncs(there, "mirror")
    assert {at: (one.source_offset, one.target_offset) for at, one in syncs.items()} == {
        TopicPartition(topic, number): (end, end)
        for topic in store.topics()
        for number in range(PARTITIONS)
        if (end := store.latest_offset(topic, number)) >= 0
    }
    positions = {at: one.offset for at, one in store.groups["readers"].committed().items()}
    assert {at: one.offset for at, one in there.groups["readers"].committed().items()} == positions
    assert faults(there.path) == []


def read_on(store, topic, chance):
    """The group reads some of each partition."""
    committed = store.groups["readers"].committed()
    offsets = {}
    for partition in range(PARTITIONS):
        at = TopicPartition(topic, partition)
        before = committed[at].offset if at in committed else 0
        offsets[at] = chance.randint(before, store.latest_offset(topic, partition))
    store.groups["readers"].commit(offsets)


@pytest.mark.parametrize(
    "interrupted", [pytest.param("the job's Python", marks=pytest.mark.long), "the terminal's group"]
)
def test_it_runs_until_it_is_stopped(store, tmp_path, interrupted):
    """Without an end: new records and the group's offsets go along; an interrupt ends it well."""
    target = tmp_path / "target"
    fill(store, "t", 1, 10)
    arguments = (target, store.path, "--topics", "t", "--checkpoint", tmp_path / "checkpoint")
    with Job(tmp_path / "log", "local[2]", "mirror", *arguments, "--groups", ".", "--groups-interval", "1") as job:
        for position in (5, 25):
            store.groups["g"].commit({TopicPartition("t", 0): position})
            assert wait_until(job, lambda position=position: group_is_at(target, position)), job.log.read_text()[-3000:]
            fill(store, "t", 1, 20)
        assert left(Store.open(target), "t", 25)
        if interrupted == "the terminal's group":
            os.killpg(job.process.pid, signal.SIGINT)
        else:
            (python,) = [pid for pid in job.own() if "mirror.py" in str(command_of(pid)) and not is_java(pid)]
            os.kill(python, signal.SIGINT)
        code, log = job.wait(), job.log.read_text()
        if interrupted == "the terminal's group":
            assert code == 130  # Spark's JVM ended with the signal; what the Python printed since is lost with it.
        else:
            assert code == 0, log[-3000:]
            assert "group offsets" in log
        assert "\nError: " not in log


def group_is_at(target, position):
    if not (target / "store.json").exists():
        return False
    committed = Store.open(target).groups["g"].committed()
    return [one.offset for one in committed.values()] == [position]
