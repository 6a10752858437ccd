"""The Spark session of the tests."""

import os
import sys

from pyspark.sql import SparkSession

from tests.campaign.queries import FILE_SYSTEM_CHECKPOINTS, JVM_OPTIONS, WORKERS_PATIENCE


def start_session(warehouse):
    """The one session of this process."""
    # Spark starts `python3` from the PATH otherwise, which need not have this package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pylog tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", JVM_OPTIONS)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # Queries of a few rows: to compile them takes longer than to run them.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(warehouse))
        # Far fewer processes a micro-batch than with the default, on a local disk.
        .config("spark.sql.streaming.checkpointFileManagerClass", FILE_SYSTEM_CHECKPOINTS)
        # Many queries at once start many processes.
        .config(*WORKERS_PATIENCE)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session
