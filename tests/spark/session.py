"""The Spark session of the tests."""

import os
import sys

from pyspark.sql import SparkSession

from tests.campaigns.queries.program import WORKERS_PATIENCE
from tests.paths import ROOT


def start_session(warehouse, object_server):
    """The one session of this process, with the settings that users get; other drivers have Spark's defaults."""
    # Spark's processes have the environment of its start: with it they find the object server.
    os.environ.update(object_server.environment)
    # Spark starts `python3` from the PATH otherwise, which need not have this package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_CONF_DIR"] = str(ROOT / "conf")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pylog tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # Queries of a few rows: to compile them takes longer than to run them.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(warehouse))
        # Many queries at once start many processes.
        .config(*WORKERS_PATIENCE)
        .getOrCreate()
    )
    del os.environ["SPARK_CONF_DIR"]
    session.sparkContext.setLogLevel("OFF")
    return session
