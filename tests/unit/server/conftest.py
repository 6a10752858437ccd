"""A server for all tests of a file, each with topics of its own."""

import itertools

import pytest

from pyspark_log import Store
from tests.security_tools import Authority
from tests.server_tools import Peer, served_anew

_names = (f"topic{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Issues certificates."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that runs over a new store."""
    with served_anew(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def store(server):
    """The store that is served, opened here, too."""
    with Store.open(server.path) as store:
        yield store


@pytest.fixture
def peer(server):
    """A client of it."""
    with Peer(server) as peer:
        yield peer


@pytest.fixture
def topic(store):
    """A topic with one partition."""
    name = next(_names)
    store.create_topic(name, 1)
    return name
