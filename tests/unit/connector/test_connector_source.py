"""The data source and its tasks without a Spark session: paths, schema, and stores that are not seen."""

import pickle

import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType, TimestampNTZType

from pyspark_log import DefaultSource, Store
from pyspark_log.spark_connector.abilities import arrow_schema_of
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.options import StorePlace
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.storage.record.rows import row_schema


@pytest.mark.parametrize("headers", ["false", "true"])
def test_spark_and_the_engine_agree_on_the_columns(headers):
    source = DefaultSource({"path": "/s", "Subscribe": "t", "IncludeHeaders": headers})
    # Spark compares the first batch of each task with this, to the letter.
    assert arrow_schema_of(source.schema()) == row_schema(headers == "true")


def test_a_relative_path_is_resolved_where_the_source_is_made(tmp_path, monkeypatch):
    Store.create(tmp_path / "s").create_topic("t", 2)
    monkeypatch.chdir(tmp_path)
    source = pickle.loads(pickle.dumps(DefaultSource({"path": "s", "subscribe": "t"})))
    monkeypatch.chdir("/")
    (first, second) = source.reader(source.schema()).partitions()
    assert first.plan.store.place.path == second.plan.store.place.path == str(tmp_path / "s")


def test_other_file_systems_are_refused():
    with pytest.raises(ConnectorError, match=r"\[PYLOG_INVALID_CONFIG\] hdfs://host/s: a store is a folder"):
        DefaultSource({"path": "hdfs://host/s"})


def test_a_store_that_a_task_does_not_see(tmp_path):
    ref = StoreRef(StorePlace(str(tmp_path / "s")), "another")
    with pytest.raises(ConnectorError, match=r"\[PYLOG_STORE_NOT_FOUND\] the store .* is not visible on host"):
        ref.reopen()
    Store.create(tmp_path / "s")
    with pytest.raises(ConnectorError, match=r"\[PYLOG_STORE_DIFFERS\] .* is another store"):
        ref.reopen()


def test_a_schema_may_have_comments(tmp_path):
    Store.create(tmp_path / "store").create_topic("t", 1)
    source = DefaultSource({"path": str(tmp_path / "store"), "subscribe": "t"})
    named = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
    commented = StructType([StructField(one.name, one.dataType, metadata={"comment": "c"}) for one in named])
    for schema in (named, commented):
        (work,) = source.reader(schema).partitions()
        assert work.plan.columns == ("offset", "value")
    strict = StructType([StructField("value", BinaryType(), nullable=False)])
    with pytest.raises(ConnectorError, match=r"this one names value binary\. All can be null"):
        source.reader(strict)
    # What "timestamp timestamp" is with spark.sql.timestampType=TIMESTAMP_NTZ.
    zoneless = StructType([StructField("timestamp", TimestampNTZType())])
    with pytest.raises(ConnectorError, match=r"names timestamp timestamp_ntz; write `timestamp timestamp_ltz`"):
        source.reader(zoneless)
