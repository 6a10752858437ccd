"""One broker of Kafka for all tests here, and what they need to run Kafka's command-line classes."""

import os

import pytest
from kafka_tools import Broker, missing


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "kafka":
            item.add_marker("slow")


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
