"""The Python processes of Spark that run task after task."""

import contextlib
import gc
import os
import socket

import pyarrow as pa
import pytest
from spark_tools import fill

from pyspark_log.spark import read


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
