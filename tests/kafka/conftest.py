"""One broker of Kafka for all tests here, what they need to run Kafka's command-line classes, and Spark's connector."""

import gc
import os

import pytest
from kafka_tools import SPARK_JARS, Broker, missing

from tests.spark.session import start_session


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "kafka":
            item.add_marker("slow")
            # kafka-python lets go of sockets without closing them, when a broker is not there at once.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def sockets_that_are_let_go():
    """They are collected while that is borne, and not in a test elsewhere."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def kafka():
    """For tests that run Kafka's classes. Without them they are skipped, or fail if PYLOG_REQUIRE names kafka."""
    reason = missing()
    if reason and "kafka" in os.environ.get("PYLOG_REQUIRE", "").split(","):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def broker(kafka, tmp_path_factory):
    """A broker that runs. A test that stops it starts it again."""
    broker = Broker(tmp_path_factory.mktemp("broker"))
    try:
        broker.start()
        yield broker
        broker.stop()
    finally:
        broker.kill()


@pytest.fixture(scope="session")
def spark(kafka, tmp_path_factory):
    """Spark with its own connector to Kafka; the tests that need it are skipped where there is none."""
    if not SPARK_JARS.is_dir():
        pytest.skip("Spark's connector to Kafka is not here: make kafka-jars")
    session = start_session(tmp_path_factory.mktemp("warehouse"))
    # Not when the session starts: its JVM may run already, for other tests.
    for jar in SPARK_JARS.glob("*.jar"):
        session.sql(f"ADD JAR '{jar}'")
    yield session
    session.stop()
