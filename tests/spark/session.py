"""The Spark session of the tests."""

import os

from pyspark.sql import SparkSession

from tests.campaigns.queries.program import FILE_SYSTEM_CHECKPOINTS, OF_TESTS
from tests.paths import ROOT


def start_session(warehouse, object_server):
    """The one session of this process, with the settings that users get; other drivers have Spark's defaults."""
    # Spark's processes have the environment of its start: with it they find the object server.
    os.environ.update(object_server.environment)
    os.environ["SPARK_CONF_DIR"] = str(ROOT / "conf")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pylog tests")
        .config(map=OF_TESTS)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.checkpointFileManagerClass", FILE_SYSTEM_CHECKPOINTS)
        .config("spark.sql.warehouse.dir", str(warehouse))
        .getOrCreate()
    )
    del os.environ["SPARK_CONF_DIR"]
    session.sparkContext.setLogLevel("OFF")
    return session
