"""What the benchmarks of streaming queries share: a session, a broker of Kafka beside it, a query's triggers."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

_T = TypeVar("_T")


def session(conf: str = str(Path(__file__).parents[1] / "conf"), **settings: str) -> SparkSession:
    """With the settings of the folder `conf` (none: Spark's defaults), and others."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ.pop("SPARK_CONF_DIR", None)
    if conf:
        os.environ["SPARK_CONF_DIR"] = conf
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextlib.contextmanager
def kafka(spark: SparkSession, topics: Mapping[str, int]) -> Iterator[str]:
    """The address of a broker with these empty topics and their numbers of partitions; Spark gets its connector."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kafka"))
    from kafka_clients import create_topics  # noqa: PLC0415  (only with --kafka)
    from kafka_tools import SPARK_JARS, Broker  # noqa: PLC0415

    for jar in SPARK_JARS.glob("*.jar"):
        spark.sql(f"ADD JAR '{jar}'")
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(folder, as_shipped=True)
        broker.start()
        try:
            create_topics(broker, dict(topics), {})
            yield broker.bootstrap
        finally:
            broker.kill()


def triggers(query: StreamingQuery, count: int) -> list[dict[str, Any]]:
    """The progress of the first triggers with rows; ends the query then."""
    deadline = time.monotonic() + 300
    done: list[dict[str, Any]] = []
    while len(done) < count and time.monotonic() < deadline and query.isActive:
        time.sleep(1)  # To ask for the progress takes some ms of the same JVM.
        done = [one for one in query.recentProgress if one["numInputRows"]]
    query.stop()
    return done[:count]


def beside(found: Mapping[str, Sequence[_T]], name: str) -> Sequence[_T] | None:
    """What was found of the Kafka connector, which is the last of those ways that do the same; None: it was not run."""
    names = list(found)
    return next((found[one] for one in names[names.index(name) :] if one.startswith("Kafka")), None)
