"""The process that is killed: a driver with a query in real-time mode, topic to topic, by Spark's own connector.

    python -m tests.campaigns.real_time_driver SERVERS FOLDER [marked]

The query makes two records of each. `marked`: they have positions, by which a topic takes each once. A query that fails
is started again, in the same JVM.
"""

import os
import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_log.spark import with_source_position
from tests.campaigns.queries.program import JVM_OPTIONS, OF_TESTS
from tests.kafka.kafka_tools import SPARK_JARS

#: How long a batch is: the shortest that Spark takes.
BATCH = "5 seconds"


def start(spark, servers, folder, *, marked):
    """Starts the query."""
    rows = (
        spark.readStream.format("kafka")
        .options(subscribe="in", startingOffsets="earliest", **{"kafka.bootstrap.servers": servers})
        .load()
        .selectExpr("*", "posexplode(array('0', '1')) as (ordinal, part)")
        .selectExpr(
            "key", "concat(cast(value as string), '.', part) as value", "topic", "partition", "offset", "ordinal"
        )
    )
    rows = with_source_position(rows, "twice", ordinal="ordinal") if marked else rows.select("key", "value")
    return (
        rows.writeStream.format("kafka")
        .options(topic="out", checkpointLocation=f"{folder}/checkpoint", **{"kafka.bootstrap.servers": servers})
        .outputMode("update")
        .trigger(realTime=BATCH)
        .start()
    )


def main(servers, folder, *words):
    """See above."""
    jars = ",".join(map(str, SPARK_JARS.glob("*.jar")))
    builder = SparkSession.builder.master("local[4]").appName("real time").config(map=OF_TESTS)
    spark = builder.config("spark.jars", jars).config("spark.driver.extraJavaOptions", JVM_OPTIONS).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    while True:
        query = start(spark, servers, folder, marked="marked" in words)
        print("started", flush=True)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            print(f"failed: {error}", flush=True)


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    main(*sys.argv[1:])
