"""`pyspark_log/jobs/compact.py`: a store is compacted with Spark, a task for each partition."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from job_tools import JOBS, Job

from pyspark_log.storage.compaction.cleaner import compact
from pyspark_log.storage.store import Store

PARTITIONS = 3

pytestmark = pytest.mark.slow


def test_each_partition_is_compacted(cluster, store, tmp_path):
    store.create_topic("t", PARTITIONS, {"cleanup.policy": "compact", "segment.bytes": "2000"})
    for number in range(60):
        for partition in range(PARTITIONS):
            keys = [b"%d" % (n % 4) for n in range(5)]
            store.append("t", pa.record_batch({"key": keys, "value": [b"%d" % number * 20] * 5}), partition=partition)
    with Job(tmp_path / "log", cluster.master, "compact", store.path) as job:
        assert job.wait() == 0, job.log.read_text()
    said = [line.split(":")[0] for line in job.log.read_text().splitlines() if line.startswith("t-")]
    assert sorted(said) == [f"t-{n}" for n in range(PARTITIONS)]
    for partition in range(PARTITIONS):
        left = sum(batch.num_rows for batch in Store.open(store.path).read("t", partition))
        assert left < 100


@pytest.mark.long
def test_skipped_topics_are_reported(store):
    """No cluster is needed for that, as nothing is to be compacted."""
    store.create_topic("t", 1, {"cleanup.policy": "compact", "segment.bytes": "2000"})
    for number in range(60):
        store.append("t", pa.record_batch({"key": [b"k"], "value": [b"%d" % number * 20]}))
    first = Path(store.segment_files("t", 0)[0])
    first.write_bytes(first.read_bytes()[:100] + b"damage" + first.read_bytes()[106:])
    assert [one.problem != "" for one in compact(store.logs)] == [True]
    done = subprocess.run(
        [sys.executable, JOBS / "compact.py", store.path], capture_output=True, text=True, timeout=240, check=True
    )
    left_out, nothing = done.stdout.splitlines()
    assert left_out.startswith("t-0: skipped until its topic is named, because it could not be compacted: ")
    assert nothing == "nothing to compact"
