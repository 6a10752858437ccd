"""Streaming queries that are killed with SIGKILL, driver and workers, write the same as one that is left alone."""

import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import java_version

from pyspark_log import Store
from pyspark_log.storage.publish import last_number

KILLS = 5
RECORDS = 4000
KEYS = 25
QUERY = Path(__file__).parent / "query_to_kill.py"


def make_store(path):
    store = Store.create(path)
    store.create_topic("events", 3)
    for topic in ("stateless", "aggregating"):
        # Small segments, so that some publishes roll.
        store.create_topic(topic, 4, {"segment.bytes": "20000"})
    store.append("events", pa.record_batch({
        "key": [b"key %d" % (number * number % KEYS) for number in range(RECORDS)],
        "value": [b"%d" % number for number in range(RECORDS)],
    }))  # fmt: skip
    return store


class Driver:
    """One run of a query: a driver with its JVM and all Python workers, in a session of their own."""

    def __init__(self, kind, store, checkpoint, log):
        self.process = subprocess.Popen(
            [sys.executable, str(QUERY), kind, store.path, str(checkpoint)],
            stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
        )  # fmt: skip

    def wait_for(self, word):
        return any(line.strip() == word for line in self.process.stdout)

    def processes(self):
        """All processes of the session; the workers have process groups of their own."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if int(fields[3]) == self.process.pid:
                    found.append(int(entry.name))
        return found

    def kill(self):
        """Kills all of them; how many there were."""
        victims = self.processes()
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        self.process.stdout.close()
        while self.processes():
            time.sleep(0.01)
        return len(victims)

    def finish(self):
        assert self.wait_for("finished")
        assert self.process.wait(60) == 0
        self.process.stdout.close()


def output(store, topic):
    """The multiset of (key, value), and the values of each key in order."""
    records, by_key = collections.Counter(), collections.defaultdict(list)
    for partition in range(store.describe_topic(topic).partitions):
        for batch in store.read(topic, partition):
            for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
                records[key, value] += 1
                by_key[key].append(value)
    return records, by_key


def publisher_of(checkpoint):
    return "spark-" + json.loads((checkpoint / "metadata").read_text())["id"]


def wait_for_publish(store, checkpoint, driver):
    publisher = publisher_of(checkpoint)
    before = last_number(store, publisher)
    while last_number(store, publisher) == before and driver.process.poll() is None:
        time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds the processes to kill in /proc, which Linux has")
@pytest.mark.skipif(java_version() < 17, reason="Spark needs Java 17 or later")
@pytest.mark.parametrize("kind", ["stateless", "aggregating"])
def test_a_killed_query_writes_what_an_undisturbed_one_writes(kind, tmp_path, capsys):
    undisturbed = make_store(tmp_path / "undisturbed")
    killed = Store.open(shutil.copytree(undisturbed.path, tmp_path / "killed"))
    seed = random.randrange(2**32)
    moments = random.Random(seed)
    checkpoint, numbers = tmp_path / "checkpoint 2", []
    with (tmp_path / "log").open("w") as log:
        Driver(kind, undisturbed, tmp_path / "checkpoint 1", log).finish()
        for kill in range(KILLS):
            driver = Driver(kind, killed, checkpoint, log)
            assert driver.wait_for("started"), (tmp_path / "log").read_text()[-3000:]
            # The first kill comes early, the others at any moment after one more micro-batch was published.
            if kill:
                wait_for_publish(killed, checkpoint, driver)
            time.sleep(moments.uniform(0, 1))
            assert driver.kill() >= 2, "the query was over before it could be killed: it needs more input"
            numbers.append(last_number(killed, publisher_of(checkpoint)))
        Driver(kind, killed, checkpoint, log).finish()
    with capsys.disabled():
        print(f"\n{kind}: {KILLS} kills (seed {seed}) after micro-batches {numbers}")
    wanted, found = output(undisturbed, kind), output(killed, kind)
    assert sum(wanted[0].values()) >= RECORDS if kind == "stateless" else len(wanted[0]) > KEYS
    assert found == wanted, f"seed {seed}"
