"""Processes of a mirror are killed; it is started again. In the end each record is there once, and groups are right."""

import os
import random
import signal
import time

import pytest
from job_tools import Job, fill
from test_bulk_load_kills import processes_of, wait_until
from test_mirror import left, records

from pyspark_log import Store, TopicPartition
from pyspark_log.jobs.mirroring.syncs import load_syncs
from tests.campaign.processes import send
from tests.store_tools import faults

KILLS = 20
PARTITIONS = 3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1400),
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc, which Linux has"),
]


@pytest.mark.long
def test_drivers_executors_and_workers_are_killed_at_random(cluster, store, tmp_path):
    """Topics and records come all the time, in small micro-batches, and a group reads on."""
    chance, log, target = random.Random(1), tmp_path / "log", tmp_path / "target"
    arguments = (
        cluster.master, "mirror", target, "--from-store", store.path, "--pattern", "^t", "--max-offsets", "3000",
        "--groups", "^readers$", "--groups-interval", "1", "--checkpoint", tmp_path / "checkpoint",
    )  # fmt: skip
    kills, ended = {"driver": 0, "executor": 0, "Python worker": 0}, 0
    while sum(kills.values()) < KILLS:
        topic = f"t{sum(kills.values()) // 5}"
        fill(store, topic, PARTITIONS, 4000)
        read_on(store, topic, chance)
        with Job(log, *arguments, "--available-now") as job:
            while job.is_running() and sum(kills.values()) < KILLS:
                victim = chance.choice(list(kills))
                wait_until(job, lambda victim=victim: processes_of(cluster, job, victim))
                if victim == "driver":
                    # Not while Spark starts, which takes longest.
                    wait_until(job, lambda: processes_of(cluster, job, "Python worker"))
                time.sleep(chance.uniform(0, 2))  # any moment of it
                if (pids := processes_of(cluster, job, victim)) and job.is_running():
                    send([chance.choice(pids)], signal.SIGKILL)
                    kills[victim] += 1
                    if victim == "driver":
                        break
            else:
                ended += job.wait() == 0
    for _ in range(3):
        with Job(log, *arguments, "--available-now") as job:
            if job.wait() == 0:
                break
    assert job.wait() == 0, log.read_text()[-3000:]
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
    print(f"killed: {kills}; runs that ended well beside them: {ended}")


def read_on(store, topic, chance):
    """The group reads some of each partition."""
    committed = store.groups["readers"].committed()
    offsets = {}
    for partition in range(PARTITIONS):
        at = TopicPartition(topic, partition)
        before = committed[at].offset if at in committed else 0
        offsets[at] = chance.randint(before, store.latest_offset(topic, partition))
    store.groups["readers"].commit(offsets)


def test_it_goes_on_until_it_is_stopped(store, tmp_path):
    """Without an end: new records and the group's offsets go along; an interrupt ends it well, with a summary."""
    target = tmp_path / "target"
    fill(store, "t", 1, 10)
    arguments = (target, "--from-store", store.path, "--topics", "t", "--checkpoint", tmp_path / "checkpoint")
    with Job(tmp_path / "log", "local[2]", "mirror", *arguments, "--groups", ".", "--groups-interval", "1") as job:
        for position in (5, 25):
            store.groups["g"].commit({TopicPartition("t", 0): position})
            assert wait_until(job, lambda position=position: group_is_at(target, position)), job.log.read_text()[-3000:]
            fill(store, "t", 1, 20)
        assert left(Store.open(target), "t", 25)
        (python,) = [pid for pid in job.own() if b"mirror.py" in command_of(pid) and b"java" not in command_of(pid)]
        os.kill(python, signal.SIGINT)
        assert job.wait() == 0, job.log.read_text()[-3000:]
        assert "group offsets" in job.log.read_text()


def group_is_at(target, position):
    if not (target / "store.json").exists():
        return False
    committed = Store.open(target).groups["g"].committed()
    return [one.offset for one in committed.values()] == [position]


def command_of(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()
