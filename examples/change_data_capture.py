"""Change data capture: the changes of a table in a compacted topic, from which the table can be made at any time.

    python examples/change_data_capture.py

Each change is a record: the key is the row's primary key, the value the new row, and no value means that the row was
deleted. Compaction keeps the last record of each key, so the topic stays as large as the table.
"""

from __future__ import annotations

import json
import tempfile

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from spark_session import start_spark

from pyspark_log import Store, admin

# Inactive segments are compacted: small ones, so that this topic has some.
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0.01"}
CHANGES = [
    {"key": f"{number % 50}", "value": json.dumps({"name": f"customer {number % 50}", "visits": number // 50})}
    for number in range(2000)
]
DELETED = [{"key": "7", "value": None}]


def table_of(spark: SparkSession, path: str) -> DataFrame:
    """The table as the changes have left it: the last record of each key, without those that were deleted."""
    changes = spark.read.format("pylog").option("subscribe", "customers").load(path)
    last = Window.partitionBy("key").orderBy(sf.desc("offset"))
    return (
        changes.withColumn("age", sf.row_number().over(last))
        .where("age = 1 AND value IS NOT NULL")
        .selectExpr("int(string(key)) AS id", "from_json(string(value), 'name STRING, visits INT') AS row")
        .select("id", "row.*")
        .orderBy("id")
    )


def main(folder: str) -> None:
    store = Store.create(f"{folder}/store")
    store.create_topic("customers", 1, CONFIGS)
    customers = store.topic("customers")
    for start in range(0, len(CHANGES), 100):
        customers.append(CHANGES[start : start + 100])
    customers.append(DELETED)

    spark = start_spark("change-data-capture")
    before = table_of(spark, str(store.path)).collect()
    print(f"{customers.read().to_table().num_rows} changes make a table of {len(before)} rows")

    for outcome in admin.compact(store, "customers"):
        print(f"compacted {outcome.at} in {outcome.seconds:.2f} s")
    after = table_of(spark, str(store.path)).collect()
    print(f"{customers.read().to_table().num_rows} are left after compaction; the table is the same: {before == after}")
    spark.stop()
    if before != after or len(before) != 49:
        raise SystemExit("the table is not what the changes say")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
