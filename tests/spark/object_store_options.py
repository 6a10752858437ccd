"""A driver whose environment has no credentials: it gets them as JSON from its standard input.

    object_store_options.py URL FOLDER

It uses a store in all ways that the connector has, with the options `storage.*`, and prints what a user can look at:
plans, errors and objects. Spark logs much, and keeps its checkpoints and its own event log in the folder.
"""

import json
import sys

from drivers import make_session
from pyspark.errors import PySparkException

from pyspark_log import DefaultSource, Publish
from pyspark_log.spark import publish_each, write_stream


def main(url, folder):
    options = json.load(sys.stdin)
    events = f"{folder}/events"
    settings = {
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{events}", "spark.eventLog.compress": "false",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }  # fmt: skip
    spark = make_session("local[2]", **settings)
    spark.sparkContext.setLogLevel("INFO")
    # Names in any case, and with the word that makes Spark hide a value.
    names = {"region": "REGION", "session_token": "secret.session_token"}
    given = {f"storage.{names.get(name, name)}": value for name, value in options.items()}
    batches(spark, url, given)
    streams(spark, url, folder, given, options)
    in_sql(spark, url, given)
    errors(spark, url, folder, given)
    objects(spark, url, given, options)
    spark.stop()


def batches(spark, url, given):
    """The write makes the store."""
    rows = spark.range(0, 20, numPartitions=2).selectExpr("string(id) value")
    rows.write.format("pylog").mode("append").options(topic="t", **given).save(url)
    found = spark.read.format("pylog").options(subscribe="t", **given).load(url)
    assert found.count() == 20
    found.explain(extended=True)
    print(found)


def streams(spark, url, folder, given, options):
    def rows():
        reader = spark.readStream.format("pylog").options(subscribe="t", startingOffsets="earliest", **given)
        return reader.load(url).select("value")

    rows().explain(extended=True)
    writer = rows().writeStream.format("pylog").options(publishOffsets="true", topic="copy", **given)
    query = writer.option("checkpointLocation", f"{folder}/copy").trigger(availableNow=True).start(url)
    query.awaitTermination()
    query.explain(extended=True)
    print(query.lastProgress)
    each = publish_each(url, "each", lambda batch, out: out.write(batch, topic="each"), options=options)
    query = rows().writeStream.foreachBatch(each).option("checkpointLocation", f"{folder}/each")
    query.trigger(availableNow=True).start().awaitTermination()
    counts = rows().groupBy("value").count().selectExpr("value key", "string(count) value")
    update = {"mode": "update", "available_now": True, "options": given}
    write_stream(counts, url, "counts", checkpoint=f"{folder}/update", **update).awaitTermination()
    for topic in ("copy", "each", "counts"):
        found = spark.read.format("pylog").options(subscribe=topic, **given).load(url)
        assert found.count() == 20, topic


def in_sql(spark, url, given):
    listed = ", ".join(f"`{name}` '{value}'" for name, value in given.items())
    spark.sql(f"CREATE TEMPORARY VIEW v USING pylog OPTIONS (path '{url}', subscribe 'sql', topic 'sql', {listed})")
    spark.sql("INSERT INTO v BY NAME SELECT cast('v' AS binary) AS value")
    assert spark.sql("SELECT * FROM v").count() == 1
    for statement in ("EXPLAIN EXTENDED SELECT * FROM v", "DESCRIBE EXTENDED v", "SHOW TABLES"):
        print(spark.sql(statement).collect())


def errors(spark, url, folder, given):
    secret = given["storage.secret_access_key"]

    def fails(action):
        try:
            action()
        except PySparkException as error:
            print("refused:", error)
        else:
            raise AssertionError("nothing was refused")

    def reads(where=url, topic="t", **others):
        return spark.read.format("pylog").options(subscribe=topic, **given, **others).load(where)

    fails(lambda: reads(topic="missing").collect())
    fails(lambda: reads(**{"storage.nonsense": secret}).collect())
    fails(lambda: reads(**{"storage.read_timeout": secret}).collect())
    fails(lambda: reads(folder).collect())
    fails(lambda: reads().selectExpr("raise_error('x')").collect())
    fails(lambda: reads().select("value").write.format("pylog").mode("append").save(url))
    stream = spark.readStream.format("pylog").options(subscribe="missing", startingOffsets="earliest", **given)
    query = stream.load(url).writeStream.format("pylog").options(topic="out", **given)
    query = query.option("checkpointLocation", f"{folder}/fails").trigger(availableNow=True).start(url)
    fails(query.awaitTermination)
    print(repr(query.exception()))


def objects(spark, url, given, options):
    source = DefaultSource({"path": url, "subscribe": "t", "topic": "t", **given})
    schema = source.schema()
    reader, writer = source.reader(schema), source.writer(schema, overwrite=False)
    stream = source.streamReader(schema)
    with Publish(url, "one", 0, options=options) as out:
        out.write(spark.sql("select 'x' value"), topic="one")
    for one in (source, reader, writer, stream, out):
        print(one, vars(one))
    print(reader.partitions())
    print("finished")


if __name__ == "__main__":
    main(*sys.argv[1:])
