"""`pyspark_log.spark`: the data source as functions."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from spark_tools import all_values_in, fails, fill, run_to_the_end, values_in

from pyspark_log.errors import InvalidConfigError
from pyspark_log.spark import publish_each, read, read_stream, with_source_position, write, write_stream
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.storage.publish.claims import last_number
from pyspark_log.types import TopicPartition


def values(df):
    return sorted(int(row.value) for row in df.selectExpr("cast(value as string) value").collect())


@pytest.fixture
def topics(store):
    fill(store, "t", range(3), range(3, 5))
    fill(store, "u", [5])
    return store


def test_what_to_read(spark, topics):
    assert values(read(spark, topics.path, "t")) == [*range(5)]
    assert values(read(spark, topics.path, ["t", "u"])) == [*range(6)]
    assert values(read(spark, topics.path, {"t": [1], "u": [0]})) == [3, 4, 5]
    assert values(read(spark, topics.path, pattern="^u")) == [5]
    with fails("One of the following options must be specified"):
        read(spark, topics.path)


@pytest.mark.slow
def test_where_a_read_begins_and_ends(spark, topics):
    assert values(read(spark, topics.path, "t", start={"t": {0: 1, 1: -2}}, end={"t": {0: 2, 1: -1}})) == [1, 3, 4]
    later = datetime.now(UTC) + timedelta(hours=1)
    assert values(read(spark, topics.path, "t", end=later)) == [*range(5)]
    assert values(read(spark, topics.path, "t", start=datetime(2020, 1, 1, tzinfo=UTC))) == [*range(5)]
    with fails("No offset matched"):
        values(read(spark, topics.path, "t", start=later))


def test_columns(spark, topics):
    whole = read(spark, topics.path, "t")
    assert_df_equality(read(spark, topics.path, "t", columns=["offset", "value"]), whole.select("offset", "value"))
    assert read(spark, topics.path, "t", columns=["offset"], headers=True).columns == ["offset", "headers"]
    assert read(spark, topics.path, "t", headers=True).columns == [*whole.columns, "headers"]
    with pytest.raises(InvalidConfigError, match="no column 'val'; these are: key, value"):
        read(spark, topics.path, "t", columns=["val"])


@pytest.mark.slow
def test_a_function_over_arrow_batches(spark, topics, tmp_path):
    def large(batch):  # workers would search for a module-level function in this module, which they do not have
        kept = batch.filter(pa.array([int(value) > 1 for value in batch["value"].to_pylist()]))
        numbers = [int(value) for value in kept["value"].to_pylist()]
        yield pa.RecordBatch.from_pydict({"at": kept["offset"], "number": numbers})

    df = read(spark, topics.path, "t", transform=large, columns=["value", "offset"], schema="number int, at bigint")
    assert sorted(map(tuple, df.collect())) == [(2, 2), (3, 0), (4, 1)]
    stream = read_stream(
        spark, topics.path, "t", start="earliest", transform=large, schema="number int, at bigint"
    ).selectExpr("string(number) value")
    write_stream(stream, topics.path, "out", checkpoint=tmp_path / "c", available_now=True).awaitTermination()
    assert all_values_in(topics, "out") == ["2", "3", "4"]

    def timed(batch):
        yield batch.select(["timestamp"])

    df = read(spark, topics.path, "t", transform=timed, schema="timestamp timestamp")
    assert df.collect() == read(spark, topics.path, "t").select("timestamp").collect()
    with fails(r"PYLOG_INVALID_TRANSFORM.*must return the columns other int32, got at int64, number int64"):
        read(spark, topics.path, "t", transform=large, schema="other int").collect()
    with fails("arrowColumns: there is no column val"):
        read(spark, topics.path, "t", transform=large, columns=["val"], schema="other int").collect()
    with pytest.raises(InvalidConfigError, match="transform and schema need each other"):
        read(spark, topics.path, "t", transform=large)


@pytest.mark.slow
def test_writes(spark, topics, tmp_path):
    rows = spark.sql("select 'x' value, current_timestamp() at")
    for _ in range(2):
        write(rows, topics.path, "out", publish_id="nightly", publish_number=1, timestamp_column="at")
    assert values_in(topics, "out") == [["x"]]
    stream = read_stream(spark, topics.path, "u", start="group", group="g", max_offsets=1, max_bytes="1m")
    query = write_stream(
        stream.select("value"), topics.path, "out", checkpoint=tmp_path / "c", name="copy", available_now=True,
        publish_id="copy", publish_offsets=True,
    )  # fmt: skip
    query.awaitTermination()
    assert query.name == "copy"
    assert values_in(topics, "out") == [["x", "5"]]
    assert topics.groups["g"].committed()[TopicPartition("u", 0)].offset == 1
    with pytest.raises(InvalidConfigError, match="a query has one trigger"):
        write_stream(stream, topics.path, checkpoint=tmp_path / "d", interval="1 second", available_now=True)


@pytest.mark.slow
def test_writes_in_pythons_threads(spark, store, tmp_path):
    """Spark finds a sink in Python there once the session is active in the thread, which `write` sees to."""
    fill(store, "t", ["a"], ["b"])
    rows = spark.sql("select 'x' value")
    plain = rows.write.format("pylog").mode("append").option("topic", "out")

    def in_thread(function, *arguments, **named):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(function, *arguments, **named).result()

    def made_active():
        spark.createDataFrame([], "a int")
        plain.save(store.path)

    with fails("DATA_SOURCE_NOT_FOUND"):
        in_thread(plain.save, store.path)
    in_thread(made_active)
    in_thread(write, rows, store.path, "out")
    assert values_in(store, "out") == [["x", "x"]]

    def each(batch, batch_id):
        halves = [batch.where(f"partition = {number}").select("value") for number in range(2)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(write, halves, [store.path] * 2, ["first", "second"]))

    stream = read_stream(spark, store.path, "t", start="earliest")
    query = stream.writeStream.foreachBatch(each).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "each")).start().awaitTermination()
    assert (values_in(store, "first"), values_in(store, "second")) == ([["a"]], [["b"]])
    copied = stream.select("value")
    query = in_thread(write_stream, copied, store.path, "copy", checkpoint=tmp_path / "copy", available_now=True)
    query.awaitTermination()
    assert all_values_in(store, "copy") == ["a", "b"]


def counts(store, topic):
    """Key and value of each record of partition 0, in their order."""
    rows = [row for batch in store.read(topic, 0) for row in batch.select(["key", "value"]).to_pylist()]
    return [(row["key"].decode(), row["value"].decode()) for row in rows]


@pytest.mark.slow
@pytest.mark.long
def test_output_mode_update(spark, store, tmp_path):
    """Each micro-batch appends the groups that it has changed, also if it runs again; the query keeps its numbers."""
    fill(store, "words", ["a", "b", "a"])
    store.create_topic("counts", 1)

    def run(**arguments):
        words = read_stream(spark, store.path, "words", start="earliest").groupBy("value").count()
        query = write_stream(
            words.selectExpr("value key", "string(count) value"),
            store.path,
            "counts",
            mode="update",
            checkpoint=tmp_path / "c",
            available_now=True,
            **arguments,
        )
        query.awaitTermination()
        return query

    query = run()
    assert sorted(counts(store, "counts")) == [("a", "2"), ("b", "1")]
    for name in ("0", ".0.crc"):
        (tmp_path / "c" / "commits" / name).unlink(missing_ok=True)
    run()
    assert len(counts(store, "counts")) == 2
    fill(store, "words", ["a"])
    run()
    assert counts(store, "counts")[2:] == [("a", "3")]
    assert last_number(store.decisions, f"spark-{query.id}") == 1
    fill(store, "words", ["b"])
    run(publish_id="counted")
    assert counts(store, "counts")[3:] == [("b", "2")]
    assert last_number(store.decisions, "counted") == 2


def test_what_output_mode_update_refuses(spark, topics, tmp_path):
    stream = read_stream(spark, topics.path, "t")
    for arguments in ({"publish_offsets": True}, {"options": {"publishTakeOver": True}}):
        with pytest.raises(InvalidConfigError, match="neither publish_offsets nor options"):
            write_stream(stream, topics.path, "out", checkpoint=tmp_path / "c", mode="update", **arguments)
    with pytest.raises(ConnectorError, match="Required attribute 'value' not found"):
        write_stream(stream.select("key"), topics.path, "out", checkpoint=tmp_path / "c", mode="update")
    assert topics.topics() == ["t", "u"]


@pytest.mark.slow
def test_writes_of_a_micro_batch_as_one(spark, topics, tmp_path):
    def split(batch, out):
        out.write(batch.where("int(string(value)) % 2 = 0").selectExpr("value"), topic="even")
        out.write(batch.where("int(string(value)) % 2 = 1").selectExpr("value"), topic="odd")

    stream = read_stream(spark, topics.path, "t", start="earliest")
    each = publish_each(topics.path, "split", split)
    run_to_the_end(stream.writeStream.foreachBatch(each), tmp_path / "c")
    assert [all_values_in(topics, topic) for topic in ("even", "odd")] == [["0", "2", "4"], ["1", "3"]]


def test_what_can_be_written_exactly_once_in_real_time(spark, topics):
    """By its steps; the query itself is in tests/kafka/test_real_time.py."""
    rows = read_stream(spark, topics.path, "t")
    marked = with_source_position(rows.filter("value is not null").union(rows), "q")
    assert marked.columns == ["key", "value", "headers", "partition"]
    with_headers = read_stream(spark, topics.path, "t", headers=True)
    kind = with_headers.schema["headers"].dataType
    assert with_source_position(with_headers, "q").schema["headers"].dataType == kind
    assert with_source_position(rows.drop("key"), "q").columns == ["value", "headers", "partition"]
    several = rows.selectExpr("*", "posexplode(array(1, 2)) as (pos, col)")
    assert with_source_position(several, "q", ordinal="pos").columns == marked.columns
    for refused, why in [
        (rows.drop("offset"), "no column 'offset'"),
        (several, "take posexplode, and ordinal='pos'"),
        (rows.dropDuplicates(["key"]), "Deduplicate may change the order"),
        (rows.repartition(2), "Repartition may change the order"),
        (rows.join(spark.range(3).toDF("offset"), "offset"), "Join may change the order"),
    ]:
        with pytest.raises(InvalidConfigError, match=why):
            with_source_position(refused, "q")
