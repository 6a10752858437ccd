"""The Python processes of Spark that run task after task."""

import contextlib
import gc
import os
import socket

import pyarrow as pa
from spark_tools import fill

from pyspark_log.spark import read


def test_they_talk_to_spark_over_unix_sockets(spark, store):
    """As conf/spark-defaults.conf says; without it a small micro-batch takes tens of ms longer."""

    def connected(batch):
        families = []
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(fd))) as one:
                families.append(one.family.name)
        return pa.RecordBatch.from_pydict({"families": [" ".join(sorted(set(families)))]})

    fill(store, "t", range(3))
    [row] = read(spark, store.path, "t", transform=connected, schema="families string").collect()
    assert row.families == "AF_UNIX"


def test_a_collection_of_garbage_passes_over_the_modules(spark, store):
    def spared(batch):
        return pa.RecordBatch.from_pydict({"objects": [gc.get_freeze_count()]})

    fill(store, "t", range(3))
    [row] = read(spark, store.path, "t", transform=spared, schema="objects bigint").collect()
    assert row.objects > 10_000
