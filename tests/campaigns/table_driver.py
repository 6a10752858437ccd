"""The process that is killed: a driver that streams a topic into a table, and what changes there into a topic.

    python -m tests.campaigns.table_driver KIND FOLDER MODE

KIND is delta or iceberg. MODE "forever" runs until it is killed; "once" ends when all is done; "read" prints the values
of the table as JSON, as its last line. The jar is that of docs/guides/tables.md for the PySpark at hand.
"""

import json
import os
import re
import sys

import pyspark
from pyspark.sql import SparkSession

from tests.campaigns.queries.program import FILE_SYSTEM_CHECKPOINTS, JVM_OPTIONS, OF_TESTS
from tests.paths import ROOT

_DELTA = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
#: The settings of a kind that its own documents ask for.
KINDS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": _DELTA,
        "spark.databricks.delta.snapshotPartitions": "2",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}
_MOST_ROWS = 200


def all_jars(kind):
    """The coordinates of a kind's jars in the table of docs/guides/tables.md, by the version of Spark."""
    page = (ROOT / "docs/guides/tables.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (4\.\d) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    found = {version: (delta if kind == "delta" else iceberg).strip("`") for version, delta, iceberg in rows}
    return {version: jar for version, jar in found.items() if jar != "none"}


def jar(kind):
    """That for the PySpark at hand; None: there is none."""
    return all_jars(kind).get(pyspark.__version__[:3])


def session(kind, folder):
    """A session with the jars of a kind of table."""
    settings = KINDS[kind]
    if kind == "iceberg":
        settings = settings | {"spark.sql.catalog.lake.warehouse": f"{folder}/lake"}
    builder = SparkSession.builder.master("local[2]").appName(f"{kind} tables").config(map=OF_TESTS | settings)
    return (
        builder.config("spark.jars.packages", jar(kind))
        .config("spark.sql.streaming.checkpointFileManagerClass", FILE_SYSTEM_CHECKPOINTS)
        .config("spark.driver.extraJavaOptions", JVM_OPTIONS)
        .getOrCreate()
    )


def into_table(spark, kind, folder, trigger):
    """The query from the topic into the table."""
    rows = (
        spark.readStream.format("pylog")
        .options(subscribe="in", startingOffsets="earliest")
        .load(f"{folder}/store")
        .selectExpr("cast(value as string) value", "offset", "partition")
    )
    writer = rows.writeStream.option("checkpointLocation", f"{folder}/into").trigger(**trigger)
    if kind == "iceberg":
        spark.sql("CREATE TABLE IF NOT EXISTS lake.db.t (value string, offset bigint, partition int) USING iceberg")
        return writer.format("iceberg").toTable("lake.db.t")
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{folder}/table` (value string, offset bigint, partition int) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    return writer.format("delta").start(f"{folder}/table")


def out_of_table(spark, folder, trigger):
    """The query from the table's change feed into a topic."""
    changes = (
        spark.readStream.format("delta")
        .options(readChangeFeed="true", startingVersion=0, maxFilesPerTrigger=_MOST_ROWS)
        .load(f"{folder}/table")
        .selectExpr("value as key", "value")
    )
    writer = changes.writeStream.format("pylog").options(topic="changes", checkpointLocation=f"{folder}/out")
    return writer.trigger(**trigger).start(f"{folder}/store")


def main(kind, folder, mode):
    """See above."""
    spark = session(kind, folder)
    spark.sparkContext.setLogLevel("OFF")
    if mode == "read":
        table = spark.table("lake.db.t") if kind == "iceberg" else spark.read.format("delta").load(f"{folder}/table")
        print(json.dumps([row.value for row in table.select("value").collect()]))
        return
    trigger = {"availableNow": True} if mode == "once" else {"processingTime": "200 milliseconds"}
    query = into_table(spark, kind, folder, trigger)
    if mode == "once":
        query.awaitTermination()
    print("started", flush=True)
    if kind == "delta":
        query = out_of_table(spark, folder, trigger)
    query.awaitTermination()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    main(*sys.argv[1:])
