"""The Spark jobs of `flights_demo.py`, in a process of their own, which the demo kills: `flights_jobs.py JOB... STORE`.

  load    a batch write of all flights: JSON, keyed by tail number, at its scheduled time
  delays  a streaming query over `flights`: departures and mean delay by carrier and day, to `delays`
  check   a batch read of what both topics have

Each line of standard output is a JSON object: how far a job is, or what it found.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import pyspark
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from spark_session import start_spark

FOLDER = Path(__file__).resolve().parent.parent / ".demo"
CHECKPOINT = FOLDER / "checkpoint"
FLIGHTS_CSV = FOLDER / "flights.csv"
GROUP = "delays-by-carrier"
RECORDS_PER_BATCH = 90_000
MISSING = "NA"  # how the CSV says that there is nothing
FLIGHTS_SCHEMA = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,
    sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string,
    air_time int, distance int, hour int, minute int, time_hour timestamp
"""


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


def load(spark: SparkSession, store: str) -> None:
    spark.conf.set("spark.sql.files.maxPartitionBytes", "4m")  # several tasks, so that the bar moves
    flights = spark.read.csv(str(FLIGHTS_CSV), header=True, nullValue=MISSING, schema=FLIGHTS_SCHEMA)
    records = flights.select(
        sf.col("tailnum").alias("key"),
        sf.to_json(sf.struct("*"), {"ignoreNullFields": "false"}).alias("value"),
        sf.expr("time_hour + make_dt_interval(0, 0, minute)").alias("scheduled"),
    )
    # Without the option each flight would be of the time at which it is loaded.
    writer = records.write.format("pylog").option("topic", "flights").option("timestampColumn", "scheduled")
    done = threading.Event()
    watcher = threading.Thread(target=tell_of_tasks, args=(spark, done))
    watcher.start()
    try:
        writer.mode("append").save(store)
    finally:
        done.set()
        watcher.join()


def tell_of_tasks(spark: SparkSession, done: threading.Event) -> None:
    """Says which share of the tasks of a write has ended, until it is done."""
    tracker = spark.sparkContext.statusTracker()
    while not done.wait(0.2):
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
        if total := sum(info.numTasks for info in stages):
            tell(share=sum(info.numCompletedTasks for info in stages) / total)


def value_as(schema: str) -> Column:
    return sf.from_json(sf.col("value").cast("string"), schema)


def delays_by_carrier_and_day(flights: DataFrame) -> DataFrame:
    flight = value_as("year int, month int, day int, carrier string, dep_time int, dep_delay int")
    departures = flights.select(flight.alias("f")).select("f.*").where("dep_time is not null")
    delays = departures.groupBy("carrier", sf.make_date("year", "month", "day").alias("date")).agg(
        sf.count("*").alias("departures"),
        sf.sum("dep_delay").alias("total_delay"),
        sf.avg("dep_delay").alias("mean_delay"),
    )
    return delays.select(
        sf.concat_ws("|", "carrier", "date").alias("key"),
        sf.to_json(sf.struct("departures", "total_delay", "mean_delay")).alias("value"),
    )


def delays(spark: SparkSession, store: str) -> None:
    """The streaming query on all that is there, from where its checkpoint says."""
    flights = (
        spark.readStream.format("pylog")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS_PER_BATCH)
        .option("kafka.group.id", GROUP)
        .load(store)
    )
    query = (
        delays_by_carrier_and_day(flights)
        .writeStream.format("pylog")
        .option("topic", "delays")
        .option("checkpointLocation", str(CHECKPOINT))
        .outputMode("complete")  # each micro-batch writes every key's newest state
        .trigger(availableNow=True)
        .start(store)
    )
    read: dict[int, int] = {}
    running = True
    while running:
        running = not query.awaitTermination(0.1)
        read |= {batch["batchId"]: batch["numInputRows"] for batch in query.recentProgress}
        if read:
            tell(batch=max(read), rows=sum(read.values()))


def check(spark: SparkSession, store: str) -> None:
    flights = spark.read.format("pylog").option("subscribe", "flights").load(store)
    found = flights.agg(sf.count("*").alias("flights"), sf.count("key").alias("keyed")).collect()[0]
    # The last record of each key: what compaction would leave.
    written = spark.read.format("pylog").option("subscribe", "delays").load(store)
    newest = written.groupBy("key").agg(sf.max_by("value", "offset").alias("value"))
    state = value_as("departures long, total_delay long")
    carrier = sf.split_part(sf.col("key").cast("string"), sf.lit("|"), sf.lit(1)).alias("carrier")
    by_carrier = (
        newest.select(carrier, state.alias("state"))
        .groupBy("carrier")
        .agg(sf.sum("state.departures").alias("departures"), sf.sum("state.total_delay").alias("delay"))
    )
    rows = by_carrier.collect()
    tell(
        flights=found["flights"],
        keyed=found["keyed"],
        departures={row["carrier"]: row["departures"] for row in rows},
        delay={row["carrier"]: row["delay"] for row in rows},
    )


def quick_home() -> Path:
    """A home for Spark without the zip of PySpark that it puts first on the path of each of its Python processes.

    Nothing in that zip is compiled, so each process would take a second more to start.
    """
    home = FOLDER / "spark"
    home.mkdir(exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        link = home / name
        if not link.exists():
            link.symlink_to(Path(pyspark.__file__).with_name(name))
    return home


def main(*names: str, store: str) -> None:
    end_with_parent()
    os.environ.setdefault("SPARK_HOME", str(quick_home()))
    spark = start_spark("flights-demo")
    jobs = {"load": load, "delays": delays, "check": check}
    for name in names:
        tell(begins=name)
        jobs[name](spark, store)
        tell(ended=name)
    spark.stop()


def end_with_parent() -> None:
    """Ends this process when the demo is gone, as after Ctrl-C."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:-1], store=sys.argv[-1])
