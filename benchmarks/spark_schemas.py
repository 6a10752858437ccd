"""Typed reads of a topic beside Spark's own `from_avro` and `from_json`, on the same rows.

    PYTHONPATH=.pyspark/4.2.1 python benchmarks/spark_schemas.py [--rows 2000000] [--rounds 7] [--document]

With the jar of `from_avro` that Maven has, which is one of Spark 4.2.0 (`make .pyspark/4.2.1 OTHER_PYSPARK=4.2.1`
first); of `from_protobuf` it has none. The values are those of benchmarks/schemas.py, in 4 partitions. Each way reads a
whole topic, two tasks at a time, and gives the eight columns to Spark's `noop` sink: ours by the options of a typed
topic, Spark's from the bytes that the same source reads. The ways take turns; medians, ratios within a round.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time

import pyarrow as pa
import schemas
import tables
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import col, from_json

from pyspark_log import Store
from pyspark_log.schemas import Schema
from pyspark_log.schemas.writing import WriteFormat

JAR = "org.apache.spark:spark-avro_2.13:4.2.0"
PARTITIONS, PIECE = 4, 100_000
SCHEMAS = {"avro": json.dumps(schemas.AVRO), "json": json.dumps(schemas.JSON), "protobuf": schemas.PROTO}
COLUMNS = "id long, customer string, amount double, count long, paid boolean, note string, at long, city string"


def fill(store: Store, count: int) -> None:
    """A topic for each format, with the same rows."""
    rows = schemas.rows(PIECE)
    for kind, text in SCHEMAS.items():
        store.create_topic(kind, PARTITIONS)
        columns = pa.array(rows, schemas.typed(kind, text).type)
        values = WriteFormat("value", Schema(kind, text), b"").writer(columns.type).encode(columns, b"")
        for number in range(count // PIECE):
            store.topic(kind).append(pa.record_batch({"value": values}), partition=number % PARTITIONS)


def seconds(rows: DataFrame) -> float:
    start = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    given = parser.parse_args()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.jars.packages", JAR).getOrCreate()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder, Store.create(f"{folder}/store") as store:
        fill(store, given.rows)

        def read(kind: str, **options: str) -> DataFrame:
            return spark.read.format("pylog").options(subscribe=kind, **options).load(store.path)

        def typed(kind: str) -> DataFrame:
            return read(kind, valueFormat=kind, valueSchema=SCHEMAS[kind]).select("value.*")

        def by_spark(kind: str, value: Column) -> DataFrame:
            return read(kind).select(value.alias("value")).select("value.*")

        ways = {
            "bytes alone": read("avro").select("value"),
            "Avro: typed": typed("avro"),
            "Avro: `from_avro`": by_spark("avro", from_avro(col("value"), SCHEMAS["avro"])),
            "JSON: typed": typed("json"),
            "JSON: `from_json`": by_spark("json", from_json(col("value").cast("string"), COLUMNS)),
            "Protobuf: typed": typed("protobuf"),
        }
        for kind in ("Avro", "JSON"):
            names = [name for name in ways if name.startswith(kind)]
            sums = [
                ways[name].selectExpr("count(id)", "sum(id)", "count(note)", "sum(amount)").first() for name in names
            ]
            assert sums[0] == sums[1], sums
        times = {name: list[float]() for name in ways}
        for turn in range(given.rounds + 1):
            for name, rows in ways.items():
                took = seconds(rows)
                if turn:
                    times[name].append(took)
    lines = []
    for name, took in times.items():
        first = times[f"{name.split(':')[0]}: typed"] if ":" in name else took
        rate = f"{given.rows / statistics.median(took) / 1e6:.2f}"
        lines.append([name, rate, f"{tables.ratio(took, first):.2f}"])
    header = ["", "M records/s", "times as long as the typed read"]
    tables.show("schemas in Spark", header, lines, document=given.document)


if __name__ == "__main__":
    main()
