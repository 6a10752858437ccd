"""A query whose bad records go to a topic is killed at moments left to chance: none is lost, and each is there once."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from java import java_version

from pyspark_log import Store
from tests.campaigns import processes

COUNT, KILLS = 2000, 4
QUERY = Path(__file__).parent / "dead_letters_to_kill.py"


def is_bad(number):
    return number % 7 == 3


def in_order(store, topic):
    """The numbers of each partition of `events`, as a topic has them."""
    found = [[], []]
    for partition in range(store.describe_topic(topic).partitions):
        for batch in store.read(topic, partition, headers=True):
            for row in batch.to_pylist():
                facts = {header["key"]: header["value"] for header in row["headers"] or ()}
                origin = int(facts.get("__pylog.errors.partition", partition))
                found[origin].append(int(row["value"].decode().removeprefix("bad ")))
    return found


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds the processes to kill in /proc, which Linux has")
@pytest.mark.skipif(java_version() < 17, reason="Spark needs Java 17 or later")
def test_a_driver_that_is_killed_at_any_moment(place, tmp_path):
    store = Store.create(place)
    for topic, partitions in (("events", 2), ("copy", 2), ("bad", 1)):
        store.create_topic(topic, partitions)
    for partition in range(2):
        texts = [f"bad {n}" if is_bad(n) else json.dumps({"n": n}) for n in range(COUNT)]
        store.append("events", pa.record_batch({"value": texts}), partition=partition)
    good = [n for n in range(COUNT) if not is_bad(n)]
    bad = [n for n in range(COUNT) if is_bad(n)]
    chance, kills, is_done = random.Random(51), 0, False
    with (tmp_path / "log").open("w") as log:
        while not is_done:
            is_done = run_and_kill(store, tmp_path / "checkpoint", log, chance if kills < KILLS else None)
            kills += not is_done
            assert is_done or kills <= KILLS, (tmp_path / "log").read_text()[-3000:]
            for numbers in in_order(store, "copy"):
                assert numbers == good[: len(numbers)]
            for numbers in in_order(store, "bad"):
                assert numbers == bad[: len(numbers)]
    assert kills == KILLS
    assert in_order(store, "copy") == [good, good]
    assert in_order(store, "bad") == [bad, bad]


def run_and_kill(store, checkpoint, log, chance):
    """Runs the query, and kills it soon after it has published bad records; whether it has finished before that."""
    before = store.latest_offset("bad", 0)
    driver = subprocess.Popen(
        [sys.executable, str(QUERY), store.path, str(checkpoint)],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
    try:
        if chance is None:
            return driver.wait(300) == 0
        while store.latest_offset("bad", 0) == before and driver.poll() is None:
            time.sleep(0.002)
        # At once, so before the micro-batch is done; or at some moment of it or of a later one.
        time.sleep(chance.choice([0, chance.random()]))
        return driver.poll() == 0
    finally:
        processes.end_session(driver)
