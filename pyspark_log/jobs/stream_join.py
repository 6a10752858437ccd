"""Joins two topics by key, each record with those of the other topic that have about its time:

    spark-submit $(pylog jobs path stream_join) STORE --left orders --right payments --to paid --checkpoint FOLDER \
        --within '1 hour'

For each pair: key the key, value {"left": ..., "right": ..., "left_time": ..., "right_time": ...}, values as text and
times in UTC. A record waits for its partners until none can come any more: --within and --late after its time.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_log.jobs.support import run, session
from pyspark_log.jobs.support.streams import run_query, stream_parser, topic_stream


def work(arguments: argparse.Namespace) -> bool:
    """Runs the job."""
    spark = session("pylog stream join")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    left, right = (_side(spark, arguments, side) for side in ("left", "right"))
    near = f"INTERVAL {arguments.within}"
    pairs = left.join(
        right, sf.expr(f"left_key = right_key AND right_time BETWEEN left_time - {near} AND left_time + {near}")
    )
    rows = pairs.selectExpr("left_key AS key", "to_json(struct(left, right, left_time, right_time)) AS value")
    return run_query(rows, arguments, output_mode="append")


def _side(spark: SparkSession, arguments: argparse.Namespace, side: str) -> DataFrame:
    rows = topic_stream(spark, arguments, getattr(arguments, side)).withWatermark("timestamp", arguments.late)
    return rows.selectExpr(f"key AS {side}_key", f"string(value) AS {side}", f"timestamp AS {side}_time")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, or with those of the call; returns its exit code."""
    parser = stream_parser(__doc__, "stream-join")
    parser.add_argument("--left", required=True, metavar="TOPIC", help="the topic of one side")
    parser.add_argument("--right", required=True, metavar="TOPIC", help="the topic of the other side")
    parser.add_argument(
        "--within", default="1 hour", metavar="TIME", help="how far apart two records may be (default: 1 hour)"
    )
    parser.add_argument(
        "--late", default="10 minutes", metavar="TIME", help="how late a record may come (default: 10 minutes)"
    )
    return run(parser, work, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
