"""Joins two topics by key, exactly once: each record with those of the other topic that have about its time.

    python examples/stream_join.py STORE --left orders --right payments --to paid --checkpoint FOLDER --within '1 hour'

It takes what is new since the last run, and ends. For each pair: key the key, value {"left": ..., "right": ...,
"left_time": ..., "right_time": ...}, values as text and times in UTC. A record waits for its partners until none can
come any more: --within and --late after its time.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from spark_session import start_spark

from pyspark_log.spark import read_stream, write_stream


def one_side(spark: SparkSession, given: argparse.Namespace, side: str) -> DataFrame:
    records = read_stream(
        spark, given.store, getattr(given, side), start="earliest", group="stream-join", max_offsets=given.max_offsets
    )
    timed = records.withWatermark("timestamp", given.late)
    return timed.selectExpr(f"key AS {side}_key", f"string(value) AS {side}", f"timestamp AS {side}_time")


def main(given: argparse.Namespace) -> None:
    spark = start_spark("stream-join")
    left, right = (one_side(spark, given, side) for side in ("left", "right"))
    near = f"INTERVAL {given.within}"
    pairs = left.join(
        right, sf.expr(f"left_key = right_key AND right_time BETWEEN left_time - {near} AND left_time + {near}")
    )
    rows = pairs.selectExpr("left_key AS key", "to_json(struct(left, right, left_time, right_time)) AS value")
    write_stream(rows, given.store, given.to, checkpoint=given.checkpoint, available_now=True).awaitTermination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", help="the folder of the store")
    parser.add_argument("--left", required=True, metavar="TOPIC", help="the topic of one side")
    parser.add_argument("--right", required=True, metavar="TOPIC", help="the topic of the other side")
    parser.add_argument("--to", required=True, metavar="TOPIC", help="the topic to write")
    parser.add_argument("--checkpoint", required=True, metavar="FOLDER", help="the folder of Spark's checkpoint")
    parser.add_argument("--within", default="1 hour", metavar="TIME", help="how far apart a pair may be (%(default)s)")
    parser.add_argument("--late", default="10 minutes", metavar="TIME", help="how late a record may be (%(default)s)")
    parser.add_argument("--max-offsets", type=int, metavar="N", help="the most records per micro-batch")
    main(parser.parse_args())
