"""What a client of Spark Connect does with the data source: run in a process of its own, with a server that it starts.

    over_connect.py FOLDER

It prints what each step found, as JSON.
"""

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_log import Publish
from pyspark_log.errors import InvalidConfigError
from pyspark_log.spark import read, with_source_position, write_stream
from pyspark_log.warm_python import use_warm_python


def start(writes, tries=9):
    """Starts a query. Spark gives the Python of `foreachBatch` ten seconds; one that takes longer is started again."""
    try:
        return writes.start()
    except PySparkException as error:
        if tries == 0 or "Python worker failed to connect back" not in str(error):
            raise
        return start(writes, tries - 1)


def main(folder):
    use_warm_python()
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    path, found = f"{folder}/store", {"session": type(spark).__module__}

    spark.range(100).selectExpr("string(id) value").write.format("pylog").option("topic", "t").mode("append").save(path)
    found["read"] = read(spark, path, "t").count()

    stream = spark.readStream.format("pylog").options(subscribe="t", startingOffsets="earliest").load(path)
    write_stream(
        stream.select("value"), path, "copy", checkpoint=f"{folder}/copy", available_now=True
    ).awaitTermination()
    found["copied"] = read(spark, path, "copy").count()

    def publish(batch, batch_id):
        with Publish(path, "split", batch_id) as out:
            out.write(batch.where("int(string(value)) < 10").select("value"), topic="small")
            out.write(batch.where("int(string(value)) >= 10").select("value"), topic="large")

    writes = stream.writeStream.foreachBatch(publish).option("checkpointLocation", f"{folder}/split")
    start(writes.trigger(availableNow=True)).awaitTermination()
    found["split"] = [read(spark, path, topic).count() for topic in ("small", "large")]

    found["transformed"] = read(
        spark, path, "t", transform=lambda batch: batch.select(["offset"]).slice(0, 7), schema="offset bigint"
    ).count()
    try:
        read(spark, path, "nosuch").count()
    except PySparkException as error:
        found["error"] = str(error)
    try:
        with_source_position(stream, "q")
    except InvalidConfigError as error:
        found["order"] = str(error)[:18]
    print(json.dumps(found))
    spark.stop()


main(sys.argv[1])
