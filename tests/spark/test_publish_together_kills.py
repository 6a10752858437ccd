"""A query that writes to two topics in one publish is killed between the writes, and after the publish."""

import collections
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from java import java_version

from pyspark_log import Store
from pyspark_log.storage.publish.claims import last_number
from tests.campaigns import processes

RECORDS, KEYS = 200, 5
QUERY = Path(__file__).parent / "foreach_batch_to_kill.py"


def run(store, checkpoint, where, log):
    """Runs the query up to a place and kills it there, driver and workers; or to its end."""
    driver = subprocess.Popen(
        [sys.executable, str(QUERY), store.path, str(checkpoint), where],
        stdout=subprocess.PIPE,
        stderr=log,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        said = driver.stdout.readline().strip()
        assert said == ("finished" if where == "nowhere" else where), Path(log.name).read_text()[-3000:]
        if where == "nowhere":
            assert driver.wait(200) == 0
    finally:
        processes.end_session(driver)
        driver.stdout.close()


def records(store, topic):
    store = Store.open(store.path)
    found = collections.Counter()
    for partition in range(store.describe_topic(topic).partitions):
        for batch in store.read(topic, partition):
            found.update(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
    return found


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds the processes to kill in /proc, which Linux has")
@pytest.mark.skipif(java_version() < 17, reason="Spark needs Java 17 or later")
def test_a_killed_query_publishes_each_micro_batch_once_and_whole(tmp_path):
    store = Store.create(tmp_path / "store")
    for topic in ("events", "all", "counts"):
        store.create_topic(topic, 2)
    store.append(
        "events",
        pa.record_batch(
            {
                "key": [b"key %d" % (number % KEYS) for number in range(RECORDS)],
                "value": [b"%d" % number for number in range(RECORDS)],
            }
        ),
    )
    shown = []
    with (tmp_path / "log").open("w") as log:
        for where in ("between 1", "after 2", "nowhere"):
            run(store, tmp_path / "checkpoint", where, log)
            counted = sum(int(value) * times for (_, value), times in records(store, "counts").items())
            shown.append((last_number(store.decisions, "split"), records(store, "all").total(), counted))
    # What was staged when it was killed between the writes is not there; what was published after is.
    assert shown == [(0, 60, 60), (2, 180, 180), (3, 200, 200)]
    assert records(store, "all") == records(store, "events")
