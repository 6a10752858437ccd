"""One Spark session for all tests of a process, a cluster for those that need executors, and an empty store."""

import pytest

from pyspark_log import Store
from tests.campaigns.spark_cluster import Cluster
from tests.spark.java import java_version
from tests.spark.session import start_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory, object_server):
    if java_version() < 17:
        pytest.skip("Spark needs Java 17 or later: set JAVA_HOME, or put java on the PATH")
    session = start_session(tmp_path_factory.mktemp("warehouse"), object_server)
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
