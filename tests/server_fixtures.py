"""Fixtures of a server for all tests of a file, each with names of its own, for conftest.py to import."""

import itertools

import pytest

from pyspark_log import Store
from tests.security_tools import Authority
from tests.server_tools import Peer, served_anew

_numbers = itertools.count()


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
def name():
    """A name that nothing else has."""
    return f"name{next(_numbers)}"


@pytest.fixture
def topic(store):
    """A topic with one partition."""
    name = f"topic{next(_numbers)}"
    store.create_topic(name, 1)
    return name


@pytest.fixture
def group():
    """The name of a group."""
    return f"group{next(_numbers)}"
