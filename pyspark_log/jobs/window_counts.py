"""Counts a topic's records by key in windows over their times, with records that come late:

    spark-submit $(pylog jobs path window_counts) STORE --from clicks --to clicks-by-minute --checkpoint FOLDER \
        --window '1 minute' --late '2 minutes'

A window is written once, when no more records can come for it: key the key, value {"start": ..., "end": ..., "count":
...}, times in UTC. A record that comes later than --late after the newest one is not counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.sql import functions as sf

from pyspark_log.jobs.support import run, session
from pyspark_log.jobs.support.streams import run_query, stream_parser, topic_stream


def work(arguments: argparse.Namespace) -> bool:
    """Runs the job."""
    spark = session("pylog window counts")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    counts = (
        topic_stream(spark, arguments, arguments.source)
        .withWatermark("timestamp", arguments.late)
        .groupBy(sf.window("timestamp", arguments.window, arguments.slide), "key")
        .count()
    )
    start, end = (sf.date_format(f"window.{edge}", "yyyy-MM-dd'T'HH:mm:ss'Z'").alias(edge) for edge in ("start", "end"))
    rows = counts.select("key", sf.to_json(sf.struct(start, end, "count")).alias("value"))
    return run_query(rows, arguments, output_mode="append")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, or with those of the call; returns its exit code."""
    parser = stream_parser(__doc__, "window-counts")
    parser.add_argument("--from", dest="source", required=True, metavar="TOPIC", help="the topic of the records")
    parser.add_argument("--window", default="1 minute", metavar="TIME", help="how long a window is (default: 1 minute)")
    parser.add_argument(
        "--slide", metavar="TIME", help="how often a window begins; if not given, where the one before it ends"
    )
    parser.add_argument(
        "--late", default="10 minutes", metavar="TIME", help="how late a record may come (default: 10 minutes)"
    )
    return run(parser, work, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
