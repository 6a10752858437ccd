"""A batch job in a driver of its own: `batch_write.py MASTER STORE TOPIC COUNT` writes the numbers below COUNT."""

import os
import sys

from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def main(master, store, topic, count):
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .getOrCreate()
    )
    rows = spark.range(int(count)).repartition(4).selectExpr("cast(id as string) AS value")
    rows.write.format("pylog").mode("append").option("topic", topic).save(store)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
