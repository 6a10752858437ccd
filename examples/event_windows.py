"""Windows over the time of events, some of which come late: a streaming query from topic to topic.

    python examples/event_windows.py

Clicks are counted by page and minute. A click may come up to two minutes late (the watermark); a click that comes later
is dropped. A window is written once, when no more clicks can come for it.
"""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from spark_session import start_spark

from pyspark_log import Store

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def clicks(*seconds: int) -> list[dict[str, object]]:
    """A click on the same page at each of some seconds after noon; the record's time is that of the click."""
    return [{"key": "/home", "value": None, "timestamp": NOON + timedelta(seconds=at)} for at in seconds]


def count_by_minute(spark: SparkSession, path: str, checkpoint: str) -> None:
    """One run of the query: it takes what is new, and ends."""
    events = (
        spark.readStream.format("pylog").option("subscribe", "clicks").option("startingOffsets", "earliest").load(path)
    )
    counts = (
        events.withWatermark("timestamp", "2 minutes")
        .groupBy(sf.window("timestamp", "1 minute"), sf.col("key"))
        .count()
        .selectExpr("key", "to_json(struct(date_format(window.start, 'HH:mm') AS minute, count)) AS value")
    )
    query = (
        counts.writeStream.format("pylog")
        .option("topic", "clicks-by-minute")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(path)
    )
    query.awaitTermination()


def main(folder: str) -> None:
    store = Store.create(f"{folder}/store")
    store.create_topic("clicks", 1, {"retention.ms": "-1"})
    store.create_topic("clicks-by-minute", 1)
    topic = store.topic("clicks")
    spark = start_spark("event-windows")
    runs = [
        ("on time", clicks(5, 10, 70)),
        ("late, but within two minutes of the newest", clicks(20, 130)),
        ("four minutes later: the first windows are complete", clicks(370)),
        ("too late: dropped", clicks(30, 400)),
        ("the end", clicks(700)),
    ]
    seen = 0
    for what, batch in runs:
        topic.append(batch)
        count_by_minute(spark, str(store.path), f"{folder}/checkpoint")
        values = store.topic("clicks-by-minute").read().to_table()["value"].to_pylist()
        print(f"{what}:", *(value.decode() for value in values[seen:]))
        seen = len(values)
    spark.stop()
    found = {one["minute"]: one["count"] for one in map(json.loads, values)}
    if found != {"12:00": 3, "12:01": 1, "12:02": 1, "12:06": 2}:
        raise SystemExit(f"unexpected counts: {found}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
