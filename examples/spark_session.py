"""The Spark session of the examples: everything in this process, quiet, with times in UTC."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from pyspark_log.warm_python import use_warm_python

LOGGING = Path(__file__).resolve().with_name("log4j2.properties")
# For checkpoints on a local disk: far fewer processes a micro-batch (conf/spark-defaults.conf).
_PACKAGE = "org.apache.spark.sql.execution.streaming" + ("" if pyspark.__version__ < "4.1" else ".checkpointing")
CHECKPOINTS = f"{_PACKAGE}.FileSystemBasedCheckpointFileManager"

# For a process that runs for seconds: Java compiles quickly, not well.
QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def start_spark(name: str) -> SparkSession:
    """Starts Spark, or returns the session that runs."""
    # Spark's workers must be the Python that has pyspark-log; this one starts at once.
    use_warm_python()
    # PySpark warns of pandas 3, which nothing here uses.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark.testing.utils")
    return (
        SparkSession.builder.appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.checkpointFileManagerClass", CHECKPOINTS)
        .config("spark.driver.extraJavaOptions", f"-Dlog4j.configurationFile={LOGGING} {QUICK_START}")
        .getOrCreate()
    )
