"""Counts a topic's records by key in windows over their times, exactly once, with records that come late.

    python examples/window_counts.py STORE --from clicks --to clicks-by-minute --checkpoint FOLDER \
        --window '1 minute' --late '2 minutes'

It takes what is new since the last run, and ends. A window is written once, when no more records can come for it: key
the key, value {"start": ..., "end": ..., "count": ...}, times in UTC. A record that comes later than --late after the
newest one is not counted.
"""

from __future__ import annotations

import argparse

from pyspark.sql import functions as sf
from spark_session import start_spark

from pyspark_log.spark import read_stream, write_stream


def main(given: argparse.Namespace) -> None:
    spark = start_spark("window-counts")
    records = read_stream(
        spark, given.store, given.source, start="earliest", group="window-counts", max_offsets=given.max_offsets
    )
    counts = records.withWatermark("timestamp", given.late).groupBy(sf.window("timestamp", given.window), "key").count()
    start, end = (sf.date_format(f"window.{edge}", "yyyy-MM-dd'T'HH:mm:ss'Z'").alias(edge) for edge in ("start", "end"))
    rows = counts.select("key", sf.to_json(sf.struct(start, end, "count")).alias("value"))
    write_stream(rows, given.store, given.to, checkpoint=given.checkpoint, available_now=True).awaitTermination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", help="the folder of the store")
    parser.add_argument("--from", dest="source", required=True, metavar="TOPIC", help="the topic of the records")
    parser.add_argument("--to", required=True, metavar="TOPIC", help="the topic to write")
    parser.add_argument("--checkpoint", required=True, metavar="FOLDER", help="the folder of Spark's checkpoint")
    parser.add_argument("--window", default="1 minute", metavar="TIME", help="how long a window is (%(default)s)")
    parser.add_argument("--late", default="10 minutes", metavar="TIME", help="how late a record may be (%(default)s)")
    parser.add_argument("--max-offsets", type=int, metavar="N", help="the most records per micro-batch")
    main(parser.parse_args())
