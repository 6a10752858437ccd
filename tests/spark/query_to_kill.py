"""A streaming query in a driver of its own, to be killed: `query_to_kill.py KIND STORE CHECKPOINT`.

It prints "started" once the query runs, and "finished" when all input is processed.
"""

import os
import sys

from pyspark.sql import SparkSession

FILE_SYSTEM_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def stateless(rows):
    return rows.selectExpr("key", "concat(cast(value as string), '!') AS value"), "append"


def aggregating(rows):
    counts = rows.groupBy("key").agg({"*": "count"}).withColumnRenamed("count(1)", "count")
    return counts.selectExpr("key", "cast(count as string) AS value"), "complete"


def main(kind, store, checkpoint):
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.checkpointFileManagerClass", FILE_SYSTEM_CHECKPOINTS)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    rows = (
        spark.readStream.format("pylog")
        .options(subscribe="events", startingOffsets="earliest", maxOffsetsPerTrigger="400")
        .load(store)
    )
    result, mode = {"stateless": stateless, "aggregating": aggregating}[kind](rows)
    query = (
        result.writeStream.format("pylog")
        .outputMode(mode)
        .option("topic", kind)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(store)
    )
    print("started", flush=True)
    query.awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
