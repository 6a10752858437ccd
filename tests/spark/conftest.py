"""One Spark session for all tests here, and a cluster for those that need executors."""

import os
import sys

import pytest
from java import java_version
from pyspark.sql import SparkSession

from pyspark_log import Store
from tests.campaign.cluster import Cluster

FILE_SYSTEM_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "spark":
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    if java_version() < 17:
        pytest.skip("Spark needs Java 17 or later: set JAVA_HOME, or put java on the PATH")
    # Spark starts `python3` from the PATH otherwise, which need not have this package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pylog tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        # Far fewer processes a micro-batch than with the default, on a local disk.
        .config("spark.sql.streaming.checkpointFileManagerClass", FILE_SYSTEM_CHECKPOINTS)
        # Many queries at once start many processes, each of which must call back in this time.
        .config("spark.python.authenticate.socketTimeout", "120s")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A standalone cluster: a master and two workers of one core each, all processes of this machine."""
    if java_version() < 17:
        pytest.skip("Spark needs Java 17 or later: set JAVA_HOME, or put java on the PATH")
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    return Store.create(tmp_path / "store")
