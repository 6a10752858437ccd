"""The Python processes of Spark that run task after task."""

import gc

import pyarrow as pa
from spark_tools import fill

from pyspark_log.spark import read


def test_a_collection_of_garbage_passes_over_the_modules(spark, store):
    def spared(batch):
        return pa.RecordBatch.from_pydict({"objects": [gc.get_freeze_count()]})

    fill(store, "t", range(3))
    [row] = read(spark, store.path, "t", transform=spared, schema="objects bigint").collect()
    assert row.objects > 10_000
