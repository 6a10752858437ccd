"""Batch writes with `df.write.format("pylog")`."""

import os

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from spark_tools import all_values_in, fails, fill, read, values_in, values_of, write

from pyspark_log import Store
from pyspark_log.storage.ingest.partitioner import murmur2


def test_what_is_written_is_read_back(spark, store):
    store.create_topic("t", 2)
    headers = "array(named_struct('key', 'h', 'value', x'00'), named_struct('key', 'h', 'value', null))"
    df = spark.range(1, 5).selectExpr(
        "if(id = 4, null, encode(string(id), 'utf-8')) key",
        "if(id = 3, null, encode(string(id * 10), 'utf-8')) value",
        "int(id % 2) partition",
        "timestamp_millis(id) at",
        f"if(id = 1, {headers}, null) headers",
        "'ignored' other",
    )
    write(df, store, topic=" t ", timestampColumn="at")
    back = read(spark, store, "t", includeHeaders="true")
    back = back.selectExpr("key", "value", "partition", "timestamp at", "headers")
    assert_df_equality(back, df.drop("other"), ignore_row_order=True, ignore_column_order=True, ignore_nullable=True)


@pytest.mark.slow
def test_old_events_that_are_written_on_are_new_records(spark, store):
    """As with the Kafka connector. With the times of the events, retention would remove them with the next write."""
    store.create_topic("old", 1, {"retention.ms": "-1"})
    store.append("old", pa.record_batch({"value": ["a", "b", "c"], "timestamp": [1000, 2000, 3000]}))
    write(read(spark, store, "old"), store, topic="new")
    times = [row.timestamp.timestamp() for row in read(spark, store, "new").collect()]
    assert len(times) == 3
    assert min(times) > 1_700_000_000, "some are those of the events"


def test_a_column_of_another_type_may_be_called_timestamp(spark, store):
    write(spark.sql("select 'v' value, 17 timestamp"), store, topic="t")
    assert values_in(store, "t") == [["v"]]


def test_a_missing_store_and_its_topic_are_made(spark, tmp_path):
    path = str(tmp_path / "new")
    spark.range(3).selectExpr("string(id) value").write.format("pylog").mode("append").option("topic", "t").save(path)
    assert all_values_in(Store.open(path), "t") == ["0", "1", "2"]


def test_no_store_is_made_for_a_topic_that_is_refused(spark, tmp_path):
    with fails(r"\[PYLOG_INVALID_TOPIC\]"):
        write(spark.sql("select 'v' value"), Folder(tmp_path / "new"), topic="a/b")
    assert not (tmp_path / "new").exists()


def test_no_store_is_made_among_other_files(spark, tmp_path):
    (tmp_path / "precious").touch()
    with fails(r"\[PYLOG_STORE_EXISTS\].*is not empty"):
        write(spark.range(1).selectExpr("string(id) value"), Folder(tmp_path), topic="t")
    assert os.listdir(tmp_path) == ["precious"]


class Folder:
    """Passed where a store is expected."""

    def __init__(self, path):
        self.path = str(path)


def test_keys_go_where_kafka_would_put_them(spark, store):
    store.create_topic("t", 7)
    write(spark.range(500).selectExpr("string(id) key", "string(id) value"), store, topic="t")
    for partition, values in enumerate(values_in(store, "t")):
        assert values == sorted(values, key=int)
        assert {(murmur2(value.encode()) & 0x7FFFFFFF) % 7 for value in values} <= {partition}


def test_a_column_names_the_partition_or_leaves_it_to_the_key(spark, store):
    for topic in ("named", "null", "missing"):
        store.create_topic(topic, 4)
    rows = spark.range(40).selectExpr("id", "string(id) key", "to_json(struct(*)) value")
    write(rows.selectExpr("*", "2 partition"), store, topic="named")
    write(rows.selectExpr("*", "cast(null as int) partition"), store, topic="null")
    write(rows, store, topic="missing")
    named, null, missing = (values_in(store, topic) for topic in ("named", "null", "missing"))
    assert sorted(named[2]) == sorted(f'{{"id":{number}}}' for number in range(40))
    assert [len(values) for values in named] == [0, 0, 40, 0]
    assert null == missing
    assert sum(map(bool, null)) > 1


@pytest.mark.slow
def test_large_records(spark, store):
    write(spark.range(1000).selectExpr("repeat(string(id % 10), 15000) value"), store, topic="t")
    found = read(spark, store, "t").selectExpr("substring(value, 1, 1) first", "length(value) length")
    expected = spark.range(1000).selectExpr("encode(string(id % 10), 'utf-8') first", "15000 length")
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)


@pytest.mark.slow
def test_tasks_are_published_in_their_order(spark, store):
    store.create_topic("t", 1)
    write(spark.range(0, 40_000, 1, 5).selectExpr("string(id) value"), store, topic="t")
    assert values_in(store, "t") == [[str(number) for number in range(40_000)]]


def test_a_topic_column(spark, store):
    store.create_topic("even")
    store.create_topic("odd")
    df = spark.range(6).selectExpr("string(id) value", "if(id % 2 = 0, 'even', 'odd') topic")
    write(df, store)
    assert values_of(read(spark, store, "even")) == ["0", "2", "4"]
    assert values_of(read(spark, store, "odd")) == ["1", "3", "5"]
    write(df, store, topic="all")
    assert values_of(read(spark, store, "all")) == ["0", "1", "2", "3", "4", "5"]
    with fails(r"\[PYLOG_NULL_TOPIC_IN_DATA\]"):
        write(spark.sql("select 'v' value, string(null) topic"), store)
    assert store.topics() == ["all", "even", "odd"]


@pytest.mark.slow
def test_topics_that_a_column_names_are_made(spark, tmp_path):
    """By whichever task meets one first, for all tasks: each key is in one partition."""
    path = str(tmp_path / "new")
    Store.create(path, {"num.partitions": "3"})
    rows = spark.range(0, 200, 1, 4).selectExpr("string(id % 20) key", "string(id) value", "'t' || id % 2 topic")
    write(rows, Folder(path))
    store = Store.open(path)
    for topic in ("t0", "t1"):
        for partition, keys in enumerate(keys_in(store, topic)):
            assert {(murmur2(key) & 0x7FFFFFFF) % 3 for key in keys} <= {partition}
        assert store.describe_topic(topic).partitions == 3
    assert sorted(all_values_in(store, "t0") + all_values_in(store, "t1")) == sorted(map(str, range(200)))
    assert os.listdir(f"{path}/staging") == []


def keys_in(store, topic):
    """The keys of each partition."""
    return [
        [key for batch in store.read(topic, number) for key in batch.column("key").to_pylist()]
        for number in range(store.describe_topic(topic).partitions)
    ]


@pytest.mark.parametrize("topic", ["__consumer_offsets", "a/b"])
def test_a_column_names_no_topic_that_is_refused(spark, store, topic):
    with fails(r"\[PYLOG_INVALID_TOPIC\]", topic):
        write(spark.sql(f"select 'v' value, '{topic}' topic"), store)
    assert store.topics(internal=True) == []


@pytest.mark.slow
def test_compression_of_the_writers_choice(spark, store):
    df = spark.range(2000).selectExpr("repeat('x', 100) value")
    write(df, store, topic="plain")
    write(df, store, topic="zstd", **{"kafka.compression.type": "zstd"})
    assert store.size("zstd", 0) < store.size("plain", 0) / 10
    assert read(spark, store, "zstd").count() == 2000
    with fails(r"\[PYLOG_INVALID_CONFIG\].*rar"):
        write(df, store, topic="zstd", **{"kafka.compression.type": "rar"})


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["string(id) value"], {"topic": "a/b"}, r"\[PYLOG_INVALID_TOPIC\]"),
        (["string(id) value"], {"topic": "__pylog_publish"}, r"\[PYLOG_INVALID_TOPIC\].*the store's own records"),
        (
            ["string(id) value", "9 partition"],
            {"topic": "t"},
            r"\[PYLOG_INVALID_RECORD\] t: row 0 names partition 9.*key decides",
        ),
    ],
)
def test_refused(spark, store, columns, options, message):
    with fails(message):
        write(spark.range(3).selectExpr(*columns), store, **options)
    assert all(store.latest_offset(topic, 0) == 0 for topic in store.topics())


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("overwrite", r"\[PYLOG_INVALID_OPTION\] Write with mode\(.append.\).*pylog topics delete-records"),
        # Spark itself says so, also of the mode that a write has without one.
        ("ignore", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        ("error", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
    ],
)
def test_other_modes_than_append_are_refused(spark, store, mode, message):
    fill(store, "t", [1])
    with fails(message):
        spark.sql("select 'v' value").write.format("pylog").mode(mode).option("topic", "t").save(store.path)
    assert values_in(store, "t") == [["1"]]


@pytest.mark.slow
def test_topics_are_not_made_where_the_store_forbids_it(spark, tmp_path):
    store = Store.create(tmp_path / "strict", {"auto.create.topics.enable": "false"})
    with fails(r"\[PYLOG_UNKNOWN_TOPIC_OR_PARTITION\].*'t'"):
        write(spark.sql("select 'v' value"), store, topic="t")
    with fails(r"\[PYLOG_UNKNOWN_TOPIC_OR_PARTITION\].*'third'.*create it first"):
        write(spark.sql("select 'v' value, 'third' topic"), store)
    assert store.topics() == []


def test_nothing_of_a_failed_write_is_seen(spark, store):
    fill(store, "t", [1])
    df = spark.range(0, 20_000, 1, 2).selectExpr("if(id < 19999, string(id), raise_error('stop')) value")
    with fails("stop"):
        write(df, store, topic="t")
    assert values_in(store, "t") == [["1"]]


@pytest.mark.slow
def test_no_rows_at_all(spark, store):
    write(spark.range(0).selectExpr("string(id) value"), store, topic="t")
    assert values_in(store, "t") == [[]]


def test_a_named_write_is_published_once(spark, store):
    def publish(number, *values):
        df = spark.createDataFrame([(value,) for value in values], "value string")
        write(df, store, topic="t", publishId="nightly", publishNumber=str(number))

    publish(5, "a", "b")
    publish(5, "a", "b")
    publish(6, "c")
    assert all_values_in(store, "t") == ["a", "b", "c"]
    with fails(r"\[PYLOG_PUBLISH_NUMBER\].*8 after 6"):
        publish(8, "d")
    assert all_values_in(store, "t") == ["a", "b", "c"]
