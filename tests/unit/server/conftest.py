"""A server for all tests of a file, unless it has one of its own, and a loop."""

import pytest

from pyspark_log.server.network import Loop
from tests.server_fixtures import authority, group, name, peer, server, store, topic

__all__ = ["authority", "group", "name", "peer", "server", "store", "topic"]


@pytest.fixture
def loop():
    """The loop of a server."""
    loop = Loop()
    yield loop
    loop.close()
