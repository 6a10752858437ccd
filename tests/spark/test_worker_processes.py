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
