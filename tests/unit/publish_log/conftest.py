"""One server for all tests here; each test has a prefix of its own."""

import itertools

import pytest

from pyspark_log.storage.objects import Objects
from tests.object_server import moto

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A server of objects that runs."""
    with moto(tmp_path_factory.mktemp("objects")) as running:
        yield running


@pytest.fixture
def url(server):
    """Where a test may put objects."""
    return f"s3://{server.bucket}/test{next(_numbers)}"


@pytest.fixture
def objects(server, url):
    """The objects there: none yet."""
    return Objects(url, server.options)
