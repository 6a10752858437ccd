"""The Python processes of Spark that run task after task."""

import contextlib
import gc
import os
import socket
import subprocess
import sys

import pyarrow as pa
import pytest
from spark_tools import fill

from pyspark_log.spark import read
from tests.campaigns.queries.program import JVM_OPTIONS
from tests.campaigns.spark_cluster import SPARK_HOME
from tests.paths import ROOT


@pytest.mark.parametrize("number", range(3))
def test_a_task_acknowledges_at_once_what_spark_sends(spark, store, number):
    """Without it a small micro-batch takes 40 ms longer. A process that ran a task before has sent something since."""

    def acknowledged(batch):
        found = []
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(fd))) as one:
                found.append(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))
        return pa.RecordBatch.from_pydict({"sockets": [" ".join(map(str, found))]})

    fill(store, "t", range(3))
    [row] = read(spark, store.path, "t", transform=acknowledged, schema="sockets string").collect()
    assert set(row.sockets.split()) == {"1"}


@pytest.mark.slow
def test_a_collection_of_garbage_passes_over_the_modules(spark, store):
    def spared(batch):
        return pa.RecordBatch.from_pydict({"objects": [gc.get_freeze_count()]})

    fill(store, "t", range(3))
    [row] = read(spark, store.path, "t", transform=spared, schema="objects bigint").collect()
    assert row.objects > 10_000


# Ends when the process that ran a task has ended, a minute after its last work.
IDLE = """
import os, time
import pyarrow as pa
from spark_session import start_spark

spark = start_spark("idle")

def numbers(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"pid": [os.getpid()]})

[row] = spark.range(1, numPartitions=1).mapInArrow(numbers, "pid bigint").collect()
deadline = time.monotonic() + 300
while os.path.exists(f"/proc/{row.pid}") and time.monotonic() < deadline:
    time.sleep(0.5)
assert not os.path.exists(f"/proc/{row.pid}")
print("it has ended")
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_in_the_examples_an_idle_process_ends_without_a_traceback(tmp_path):
    """Over Unix sockets it prints a BrokenPipeError: it answers when Spark has closed its socket."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'examples'}:{ROOT}", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", IDLE], env=environment, cwd=tmp_path, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False, timeout=400,
    )  # fmt: skip
    assert "it has ended" in done.stdout, done.stdout
    assert "Error" not in done.stdout


# Reads a record after the process that plans has got what Ctrl+C sends it under spark-submit.
INTERRUPTED = """
import os, signal, sys

from pyspark.sql import SparkSession
from pyspark_log import Store
from tests.campaigns import processes

store, spark = Store.open("store"), SparkSession.builder.getOrCreate()
rows = spark.readStream.format("pylog").option("subscribe", "t").load(store.path)
query = rows.writeStream.format("memory").queryName("found").start()
query.processAllAvailable()
[planner] = [
    pid for pid in processes.session(os.getsid(0))
    if any("python_streaming_source_runner" in word for word in processes.command_of(pid))
]
os.kill(planner, signal.SIGINT)
store.append("t", [{"value": b"1"}])
query.processAllAvailable()
print(f"{spark.table('found').count()} record found")  # by one write, which the log cannot split
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_ctrl_c_does_not_end_the_process_that_plans_before_its_query(store, tmp_path):
    """Else Spark reports an error of the source (KeyboardInterrupt or EOFException in latestOffset)."""
    store.create_topic("t", 1)
    (tmp_path / "job.py").write_text(INTERRUPTED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [
            str(SPARK_HOME / "bin/spark-submit"), "--master", "local[1]", "--conf", "spark.driver.host=127.0.0.1",
            "--conf", "spark.ui.enabled=false", "--driver-java-options", JVM_OPTIONS, "job.py",
        ],
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"}, cwd=tmp_path, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False, start_new_session=True, timeout=400,
    )  # fmt: skip
    assert "1 record found" in done.stdout, done.stdout
