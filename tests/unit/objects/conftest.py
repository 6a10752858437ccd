"""Each test has a prefix of its own."""

import pytest

from pyspark_log.storage.objects import Objects


@pytest.fixture
def server(object_server):
    """A server of objects that runs."""
    return object_server


@pytest.fixture
def url(served_url):
    """Where a test may put objects."""
    return served_url


@pytest.fixture(params=["server", "memory"])
def objects(request):
    """Objects at the server, and in memory, which most other tests use: none yet."""
    return Objects(request.getfixturevalue("served_url" if request.param == "server" else "memory_url"))
