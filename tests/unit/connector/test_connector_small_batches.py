"""Small micro-batches are read by one task, or handed over by the process that plans them (`smallBatchBytes`)."""

import json

import pyarrow as pa
import pytest
from pyspark.sql import datasource_internal
from pyspark.sql.streaming.datasource import ReadAllAvailable
from test_connector_stream_reader import append, store

from pyspark_log import DefaultSource
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.stream_reader import PylogStreamReader
from pyspark_log.spark_connector.task_reader import RangePartition, TaskPartition

__all__ = ["store"]  # a fixture

ALL = ReadAllAvailable()


def of(store, **options):
    source = DefaultSource({"path": store.path, "subscribe": "t", "startingOffsets": "earliest", **options})
    return source.streamReader(source.schema())


def planned(reader, start):
    end = json.loads(json.dumps(reader.latestOffset(start, ALL)))
    return end, reader.partitions(start, end)


def test_a_small_batch_is_handed_over_and_a_large_one_is_not(store):
    append(store, 0, 3)
    append(store, 1, 2)
    reader = of(store, smallBatchBytes="4k")
    start = reader.initialOffset()
    end, tasks = planned(reader, start)
    assert [type(task) for task in tasks] == [TaskPartition]
    rows = pa.Table.from_batches(reader.getCache(start, end))
    assert (rows.num_rows, rows["partition"].to_pylist()) == (5, [0, 0, 0, 1, 1])
    # Once: the next batch has other rows.
    assert reader.getCache(start, end) is None
    store.append("t", pa.record_batch({"value": [b"x" * 9000]}), partition=0)
    append(store, 1, 2)
    following, tasks = planned(reader, end)
    assert [type(task) for task in tasks] == [RangePartition, RangePartition]
    assert reader.getCache(end, following) is None
    # As after a restart: a batch again that was planned before.
    assert of(store, smallBatchBytes="4k").partitions(end, following) == tasks
    (again,) = reader.partitions(start, end)
    assert sum(batch.num_rows for batch in reader.read(again)) == 5


def test_nothing_new_is_no_small_batch(store):
    reader = of(store, smallBatchBytes="4k")
    start = reader.initialOffset()
    assert planned(reader, start)[1] == []
    assert reader.getCache(start, start) is None


def test_without_the_class_of_pyspark_one_task_reads_a_small_batch(store, monkeypatch):
    monkeypatch.delattr(datasource_internal, "_SimpleStreamReaderWrapper")
    append(store, 0, 3)
    append(store, 1, 2)
    reader = of(store, smallBatchBytes="4k")
    assert type(reader) is PylogStreamReader
    _, (task,) = planned(reader, reader.initialOffset())
    assert sum(batch.num_rows for batch in reader.read(task)) == 5


def test_damage_is_an_error_that_names_its_place(store):
    append(store, 0, 3)
    reader = of(store, smallBatchBytes="4k")
    start = reader.initialOffset()
    end, _ = planned(reader, start)
    with open(f"{store.path}/data/t-0/{0:020d}.log", "r+b") as file:
        file.seek(70)
        file.write(b"\xff\xff\xff")
    with pytest.raises(ConnectorError, match=r"\[PYLOG_CORRUPT_RECORD\] t-0"):
        list(reader.getCache(start, end))
