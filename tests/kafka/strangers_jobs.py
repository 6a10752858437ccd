"""Jobs of PySpark and Kafka as people write them, one of each shape that public code has.

Each gets a session and where it runs (`At`), and returns the rows that it has made. test_strangers_jobs.py runs them as
they are, and as `pylog move-job` makes them jobs for a store.
"""

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import fastavro
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType
from written import NOW, Row

ORDER = "id int, store string, at timestamp, items array<struct<sku string, n int>>"
READING = "sensor string, heat double, at timestamp"
SHOWN = "ad int, at timestamp"
ITEM = fastavro.parse_schema(
    {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}]}
)
BOTH_OFFSETS = {"startingOffsets": '{"words":{"0":1,"1":-2}}', "endingOffsets": '{"words":{"0":-1,"1":1}}'}


def _order(number):
    items = ",".join(f'{{"sku":"{sku}","n":{number}}}' for sku in "ab"[: 1 + number % 2])
    return f'{{"id":{number},"store":"S{number % 2}","at":"2026-01-01 10:0{number}:00","items":[{items}]}}'


#: What each partition of each topic has, before a job starts.
TOPICS = {
    "words": [["apple banana apple", "cherry"], ["banana apple", "date"]],
    "lines": [["a b a", "b c", "a"]],
    "orders": [[_order(number) for number in range(6)]],
    "sensors": [
        [f'{{"sensor":"s{n % 2}","heat":{60 + 5 * n}.5,"at":"2026-01-01 10:{5 * n:02}:00"}}' for n in range(8)]
    ],
    "shown": [[f'{{"ad":{number},"at":"2026-01-01 10:0{number}:00"}}' for number in range(5)]],
    "clicked": [[f'{{"ad":{number},"at":"2026-01-01 10:0{number}:30"}}' for number in (1, 3)]],
}


def rows_of(values):
    """Records with all that a job may read."""
    return [
        Row(-1, NOW + number, b"key %d" % (number % 2), value.encode(), (("source", b"%d" % number),) if number else ())
        for number, value in enumerate(values)
    ]


@dataclass
class At:
    """Where a job runs.

    Attributes:
        servers: the address of the broker.
        side: of spark_sides.py, which makes and fills topics.
        folder: for checkpoints and files.
        name: of the job, for its topics and tables.
    """

    servers: str
    side: object
    folder: Path
    name: str

    def topic(self, name="out"):
        """Makes a topic of the job's own, of one partition."""
        self.side.create(f"{self.name}-{name}")
        return f"{self.name}-{name}"


@dataclass(frozen=True)
class Job:
    """A job, and how many rows it makes."""

    function: Callable
    rows: int


JOBS: dict[str, Job] = {}


def job(rows):
    def known(function):
        JOBS[function.__name__] = Job(function, rows)
        return function

    return known


# ---- what many of them do


def read(spark, at, topic, **options):
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", at.servers)
    return reader.option("subscribe", topic).options(**options).load()


def stream(spark, at, topic, **options):
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", at.servers).option("subscribe", topic)
    return reader.option("startingOffsets", "earliest").options(**options).load()


def parsed(df, schema):
    return df.select(f.from_json(f.col("value").cast("string"), schema).alias("one")).select("one.*")


def words_of(df, column="value"):
    return df.select(f.explode(f.split(f.col(column).cast("string"), " ")).alias("word"))


def ended(writer, at, name="query"):
    query = writer.option("checkpointLocation", f"{at.folder}/{name}").trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def shown(spark, at, df, mode="append"):
    """All rows that a query's sink gets."""
    table = f"{at.name}_{at.side.name}"
    ended(df.writeStream.outputMode(mode).format("memory").queryName(table), at)
    return spark.table(table).collect()


def written(spark, at, topic):
    return read(spark, at, topic).selectExpr("string(key)", "string(value)", "partition", "offset").collect()


def save(writer, at):
    """A batch write without a mode."""
    writer.format("kafka").option("kafka.bootstrap.servers", at.servers).save()


def start_update(df, at, topic):
    """A streaming write in output mode update."""
    query = (
        df.writeStream.outputMode("update")
        .format("kafka")
        .option("kafka.bootstrap.servers", at.servers)
        .option("topic", topic)
        .option("checkpointLocation", f"{at.folder}/query")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def going_on(query, at, topic, values):
    """A query that begins at the latest offset, and then gets records."""
    query.processAllAvailable()
    at.side.send(topic, rows_of(values))
    query.processAllAvailable()
    query.stop()


# ---- Spark's own guide


@job(rows=12)
def batches_of_a_pattern_of_two_topics_and_between_offsets(spark, at):
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", at.servers)
    pattern = reader.option("subscribePattern", "line.").option("endingOffsets", "latest").load()
    rows = pattern.union(read(spark, at, "lines,words")).union(read(spark, at, "words", **BOTH_OFFSETS))
    return rows.selectExpr("topic", "partition", "offset", "string(value)", "timestamp", "timestampType").collect()


@job(rows=3)
def headers(spark, at):
    return read(spark, at, "lines", includeHeaders="true").selectExpr("string(value)", "headers").collect()


@job(rows=8)
def streams_to_a_topic_by_option_and_by_column(spark, at):
    topic = at.topic()
    values = stream(spark, at, "words").selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
    by_column = values.withColumn("topic", f.lit(topic))
    ended(
        values.writeStream.format("kafka").option("kafka.bootstrap.servers", at.servers).option("topic", topic),
        at,
        "option",
    )
    ended(by_column.writeStream.format("kafka").option("kafka.bootstrap.servers", at.servers), at, "column")
    return [row[:2] for row in written(spark, at, topic)]


@job(rows=3)
def batch_write_without_a_mode(spark, at):
    topic = at.topic()
    save(read(spark, at, "lines").selectExpr("key", "value").write.option("topic", topic), at)
    return written(spark, at, topic)


# ---- courses


@job(rows=9)
def json_with_lists_into_files(spark, at):
    rows = parsed(stream(spark, at, "orders"), ORDER).withColumn("item", f.explode("items"))
    flat = rows.select("id", "store", "item.sku", "item.n")
    ended(flat.writeStream.format("json").option("path", f"{at.folder}/files"), at)
    return spark.read.json(f"{at.folder}/files").collect()


@job(rows=6)
def topic_to_topic(spark, at):
    topic = at.topic()
    rows = parsed(stream(spark, at, "orders"), ORDER)
    notes = rows.selectExpr("store as key", "to_json(named_struct('id', id, 'at', at)) as value")
    ended(
        notes.writeStream.queryName(at.name)
        .format("kafka")
        .option("kafka.bootstrap.servers", at.servers)
        .option("topic", topic),
        at,
    )
    return written(spark, at, topic)


@job(rows=15)
def two_queries_of_one_stream(spark, at):
    topic = at.topic()
    rows = parsed(stream(spark, at, "orders"), ORDER)
    flat = rows.select("id", f.explode("items").alias("item")).select("id", "item.*")
    files = flat.writeStream.format("json").option("path", f"{at.folder}/files")
    notes = (
        rows.selectExpr("string(id) key", "store value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", at.servers)
    )
    ended(files, at, "one")
    ended(notes.option("topic", topic), at, "other")
    return [*spark.read.json(f"{at.folder}/files").collect(), *written(spark, at, topic)]


@f.udf(BinaryType())
def to_avro(sku, n):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, ITEM, {"sku": sku, "n": n})
    return out.getvalue()


@f.udf(StructType().add("sku", StringType()).add("n", IntegerType()))
def from_avro(value):
    return fastavro.schemaless_reader(io.BytesIO(value), ITEM, ITEM)


def items_in_avro(spark, at, topic):
    rows = parsed(stream(spark, at, "orders"), ORDER).select("store", f.explode("items").alias("item"))
    df = rows.select(f.col("store").alias("key"), to_avro("item.sku", "item.n").alias("value"))
    ended(
        df.writeStream.format("kafka").option("kafka.bootstrap.servers", at.servers).option("topic", topic), at, "items"
    )


@job(rows=9)
def avro_into_a_topic(spark, at):
    topic = at.topic()
    items_in_avro(spark, at, topic)
    return read(spark, at, topic).select("key", "value", "offset").collect()


@job(rows=2)
def sums_of_avro_to_a_topic_in_update_mode(spark, at):
    items, topic = at.topic("items"), at.topic()
    items_in_avro(spark, at, items)
    sums = stream(spark, at, items).select(from_avro("value").alias("item")).groupBy("item.sku").agg(f.sum("item.n"))
    start_update(sums.toDF("key", "n").selectExpr("key", "string(n) value"), at, topic)
    return [row[:2] for row in written(spark, at, topic)]


@job(rows=3)
def tumbling_windows(spark, at):
    rows = parsed(stream(spark, at, "sensors"), READING).groupBy(f.window("at", "15 minutes"))
    return shown(spark, at, rows.agg(f.max("heat").alias("heat")).select("window.start", "heat"), "complete")


@job(rows=3)
def sliding_windows(spark, at):
    rows = parsed(stream(spark, at, "sensors"), READING).withWatermark("at", "5 minutes")
    rows = rows.groupBy(f.window("at", "15 minutes", "10 minutes")).agg(f.avg("heat").alias("heat"))
    return shown(spark, at, rows.select("window.start", "window.end", "heat"))


@job(rows=4)
def a_watermark_in_update_mode(spark, at):
    rows = parsed(stream(spark, at, "sensors", maxOffsetsPerTrigger="4"), READING).withWatermark("at", "1 hour")
    rows = rows.groupBy(f.window("at", "1 hour"), "sensor").agg(f.sum("heat").alias("heat"))
    return shown(spark, at, rows.select("window.start", "sensor", "heat"), "update")


def _sides_of_a_join(spark, at, delay):
    views, clicks = (parsed(stream(spark, at, topic), SHOWN) for topic in ("shown", "clicked"))
    if delay:
        views, clicks = views.withWatermark("at", delay), clicks.withWatermark("at", delay)
    return views.alias("v"), clicks.alias("c")


@job(rows=2)
def a_join_of_streams(spark, at):
    views, clicks = _sides_of_a_join(spark, at, "")
    return shown(spark, at, views.join(clicks, f.expr("v.ad = c.ad")).selectExpr("v.ad", "v.at", "c.at as clicked"))


_WITHIN = "v.ad = c.ad AND c.at BETWEEN v.at AND v.at + interval 1 minute"


@job(rows=2)
def a_join_with_a_watermark(spark, at):
    views, clicks = _sides_of_a_join(spark, at, "10 minutes")
    return shown(spark, at, views.join(clicks, f.expr(_WITHIN)).selectExpr("v.ad", "c.at as clicked"))


@job(rows=4)
def a_left_outer_join(spark, at):
    views, clicks = _sides_of_a_join(spark, at, "0 seconds")
    joined = views.join(clicks, f.expr(_WITHIN), "leftOuter")
    return shown(spark, at, joined.selectExpr("v.ad", "v.at", "c.at as clicked"))


# ---- jobs in repositories


@job(rows=3)
def each_batch_as_an_rdd(spark, at):
    found = []
    df = stream(spark, at, "lines", failOnDataLoss="false").selectExpr("CAST(value AS STRING)", "offset")
    each = df.writeStream.foreachBatch(lambda batch, _: found.extend(batch.rdd.map(tuple).collect()))
    query = each.option("checkpointLocation", f"{at.folder}/query").trigger(processingTime="5 minutes").start()
    while query.isActive and query.lastProgress is None:
        time.sleep(0.01)
    query.stop()
    return found


@job(rows=3)
def limited_batches(spark, at):
    df = stream(spark, at, "lines", maxOffsetsPerTrigger="1").selectExpr("string(value)")
    found = []
    ended(df.writeStream.foreachBatch(lambda batch, number: found.append((number, batch.collect()))), at)
    return found


@job(rows=2)
def json_from_the_latest_offset_on(spark, at):
    topic, found = at.topic("fresh"), []
    at.side.send(topic, rows_of(["{}"]))
    rows = parsed(stream(spark, at, topic, startingOffsets="latest"), ORDER)
    df = rows.select("id", f.explode("items").alias("item"))
    each = df.writeStream.foreachBatch(lambda batch, _: found.extend(batch.select("id", "item.*").collect()))
    going_on(each.option("checkpointLocation", f"{at.folder}/query").start(), at, topic, [_order(1)])
    return found


@job(rows=5)
def counts_in_update_mode_of_one_record_each(spark, at):
    found = []
    counts = words_of(stream(spark, at, "lines", maxOffsetsPerTrigger="1")).groupBy("word").count()
    each = counts.writeStream.outputMode("update").foreachBatch(
        lambda df, number: found.extend((number, *row) for row in df.collect())
    )
    ended(each, at)
    return found


@job(rows=4)
def alerts_saved_from_each_batch(spark, at):
    topic = at.topic()
    secure = {"kafka.sasl.mechanism": "PLAIN", "kafka.security.protocol": "PLAINTEXT"}
    rows = parsed(stream(spark, at, "sensors", **secure), READING).withWatermark("at", "10 minutes")
    hot = rows.where("heat > 80").selectExpr("sensor as key", "to_json(struct(*)) as value")
    ended(hot.writeStream.foreachBatch(lambda df, _: save(df.write.option("topic", topic), at)), at)
    return written(spark, at, topic)


@job(rows=3)
def word_counts_to_a_topic_in_update_mode(spark, at):
    topic = at.topic()
    counts = words_of(stream(spark, at, "lines")).groupBy("word").count()
    start_update(counts.selectExpr("word as key", "CAST(count AS STRING) AS value"), at, topic)
    return [row[:2] for row in written(spark, at, topic)]


@job(rows=3)
def distinct_rows_in_windows_to_a_topic_in_update_mode(spark, at):
    topic = at.topic()
    rows = parsed(stream(spark, at, "sensors"), READING).withWatermark("at", "1 hour").dropDuplicates(["sensor", "at"])
    counts = rows.groupBy(f.window("at", "15 minutes")).count()
    start_update(counts.selectExpr("string(window.start) key", "string(count) value"), at, topic)
    return [row[:2] for row in written(spark, at, topic)]


@job(rows=2)
def frames_between_offsets_in_pandas(spark, at):
    frame = read(spark, at, "words", **BOTH_OFFSETS).selectExpr("string(value)", "offset").toPandas()
    return list(frame.itertuples(index=False, name=None))


@job(rows=7)
def two_topics_in_one_stream(spark, at):
    rows = stream(spark, at, "lines,words")
    return shown(spark, at, rows.selectExpr("topic", "string(value)", "partition", "offset"))


@job(rows=2)
def all_there_is_and_then_no_more(spark, at):
    """The same query twice, with the same checkpoint."""
    found = []
    df = stream(spark, at, "words").selectExpr("string(value)", "partition")
    for _ in range(2):
        batch = []
        ended(df.writeStream.foreachBatch(lambda rows, _, batch=batch: batch.extend(rows.collect())), at)
        found.append((len(found), sorted(batch)))
    return found


@job(rows=3)
def a_group_of_ones_own(spark, at):
    rows = stream(spark, at, "lines", **{"kafka.group.id": "mine"})
    return shown(spark, at, rows.selectExpr("string(value)", "offset"))


@job(rows=4)
def options_as_a_dict(spark, at):
    """And one that is a function: its text is the value."""
    options = {"kafka.bootstrap.servers": at.servers, "subscribe": "words", "startingOffsets": "earliest"}
    df = spark.readStream.format("kafka").options(**options, parser=lambda: 1).load()
    return shown(spark, at, df.selectExpr("string(key)", "string(value)", "timestamp"))
