"""Each test has a prefix of its own: at the server of all tests, if it names that, else in memory."""

import pytest

from pyspark_log.storage.objects import Objects


@pytest.fixture
def server(object_server):
    """A server of objects that runs."""
    return object_server


@pytest.fixture
def url(object_url):
    """Where a test may put objects."""
    return object_url


@pytest.fixture
def objects(url):
    """The objects there: none yet."""
    return Objects(url)
