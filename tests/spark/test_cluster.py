"""Writes through a real standalone cluster, whose executors are killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from spark_tools import all_values_in

from tests.amounts import one_in
from tests.campaigns.processes import Driver, send
from tests.campaigns.queries import compare
from tests.campaigns.queries.steps import last_decision

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc, which Linux has"),
]

BATCH_WRITE = Path(__file__).with_name("batch_write.py")


@pytest.mark.long
def test_a_batch_write_by_executors(cluster, store):
    store.create_topic("t", 3)
    subprocess.run([sys.executable, BATCH_WRITE, cluster.master, store.path, "t", "20000"], check=True, timeout=600)
    assert all_values_in(store, "t") == sorted(str(number) for number in range(20000))


@pytest.mark.parametrize(("count", "kills"), one_in(2, [(12000, (1,)), (30000, (-1, 1, 3))]))
def test_a_stream_whose_executors_are_killed_writes_everything_once(cluster, store, tmp_path, count, kills):
    """One before anything is published, the others in the middle of later micro-batches."""
    store.create_topic("events", 3)
    for topic in ("stateless", "chained"):
        store.create_topic(topic, 4)
    numbers = range(count)
    store.append(
        "events",
        pa.record_batch(
            {
                "key": [b"key %d" % (number * number % 97) for number in numbers],
                "value": [b"%d %s" % (number, b"x" * (number % 300)) for number in numbers],
            }
        ),
    )
    with (tmp_path / "log").open("w") as log:
        driver = Driver([store.path, tmp_path / "checkpoints", "", cluster.master, "once"], log)
        try:
            killed = []
            for number in kills:
                killed.append(wait_for_executor(driver, store, tmp_path / "checkpoints/stateless", number, killed))
                send(killed[-1:], signal.SIGKILL)
            assert driver.wait(400), (tmp_path / "log").read_text()[-3000:]
            assert driver.said("finished")
        finally:
            driver.kill()
    source = {key: one.numbers for key, one in compare.sequences(store, "events").items()}
    for topic in ("stateless", "chained"):
        assert {key: one.numbers for key, one in compare.sequences(store, topic).items()} == source


def wait_for_executor(driver, store, checkpoint, number, killed):
    """An executor of the driver, once the query has published `number` micro-batches; none that is dying."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        assert not driver.said("finished"), "the query was over before it could be disturbed: it needs more input"
        last = last_decision(store, checkpoint)
        executors = [pid for pid in driver.executors() if pid not in killed]
        if (-1 if last is None else last.number) >= number and executors:
            return executors[0]
        time.sleep(0.05)
    raise AssertionError(f"no executor after number {number}; the driver said {driver.lines[-3:]}")
