"""Sessions of the clicks of clicks.py, for the tutorial: a streaming query from `clicks` to `sessions`.

    python examples/click_sessions.py STORE CHECKPOINT [--to-the-end] [--into sessions] [--since TIME]

A session is of one visitor, and ends with 20 minutes without a click. It is written once, when no more clicks can come
for it: ten minutes after its end, by the times of the clicks.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery
from spark_session import start_spark

from pyspark_log import Store


def sessions(
    spark: SparkSession, store: str, checkpoint: str, into: str = "sessions", since: str = "", *, to_the_end: bool
) -> StreamingQuery:
    """Starts the query."""
    source = (
        spark.readStream.format("pylog")
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 2_000)
        .option("kafka.group.id", f"click-{into}")
    )
    if since:
        source = source.option("startingTimestamp", since)
    clicks = (
        source.load(store)
        .select(sf.col("key").cast("string").alias("visitor"), sf.col("value").cast("string"))
        .select("visitor", sf.from_json("value", "at timestamp, page string, device string").alias("click"))
        .select("visitor", "click.*")
    )
    found = (
        clicks.withWatermark("at", "10 minutes")
        .groupBy(sf.session_window("at", "20 minutes").alias("time"), "visitor")
        .agg(
            sf.count("*").alias("clicks"),
            sf.max(sf.col("page") == "paid").alias("paid"),
            sf.max("device").alias("device"),
        )
        .selectExpr("visitor AS key", "to_json(struct(visitor, time.start AS start, clicks, paid, device)) AS value")
    )
    query = found.writeStream.format("pylog").option("topic", into).option("checkpointLocation", checkpoint)
    query = query.trigger(availableNow=True) if to_the_end else query.trigger(processingTime="1 second")
    return query.start(store)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("checkpoint")
    parser.add_argument("--to-the-end", action="store_true", help="end when all that is there has been read")
    parser.add_argument("--into", default="sessions", help="the topic (default: %(default)s)")
    parser.add_argument("--since", default="", help="begin with the clicks that were written at that time, in ms")
    arguments = parser.parse_args()
    spark = start_spark("click-sessions")
    query = sessions(
        spark, arguments.store, arguments.checkpoint, arguments.into, arguments.since, to_the_end=arguments.to_the_end
    )
    query.awaitTermination()
    spark.stop()
    with Store.open(arguments.store) as store:
        print(f"{sum(store.topic(arguments.into).latest_offsets().values()):,} sessions are in {arguments.into}")


if __name__ == "__main__":
    main()
