"""Fixtures of places for stores: a folder, or a prefix in an object store."""

import itertools

import pytest

from tests.object_memory import BUCKET, keep_in_memory
from tests.object_server import moto

_numbers = itertools.count()
_RACES = "pyspark_log.storage.object_store.faulty_races"
# Servers here answer or fail at once: for how long a request is tried, in seconds.
_RETRIED = "pyspark_log.storage.objects.objects._RETRY_SECONDS"


@pytest.fixture(scope="session")
def object_server(tmp_path_factory):
    """A server of objects that runs, for all tests of the process."""
    with moto(tmp_path_factory.mktemp("objects")) as running:
        yield running


def url_at(object_server, monkeypatch):
    """Where a store may be created, without the race that this begins with; the environment has the credentials."""
    for name, value in object_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_RACES, lambda *_: 0)
    monkeypatch.setattr(_RETRIED, 1)
    return f"s3://{object_server.bucket}/store{next(_numbers)}"


@pytest.fixture
def served_url(object_server, monkeypatch):
    """The same for a test, which may undo that."""
    return url_at(object_server, monkeypatch)


@pytest.fixture(scope="module", params=["folder", "objects"])
def served_place(request, tmp_path_factory):
    """Where a store of either kind may be created that other processes serve, for all tests of a file."""
    if request.param == "folder":
        yield str(tmp_path_factory.mktemp("served") / "store")
        return
    with pytest.MonkeyPatch.context() as patched:
        yield url_at(request.getfixturevalue("object_server"), patched)


@pytest.fixture
def memory_url():
    """The same in memory: for a test without other processes, where it does not matter what a server says."""
    with pytest.MonkeyPatch.context() as patched:
        keep_in_memory(patched)
        patched.setattr(_RACES, lambda *_: 0)
        yield f"s3://{BUCKET}/store{next(_numbers)}"


@pytest.fixture
def object_url(served_url):
    """At a server, for other processes; in tests/unit it is in memory."""
    return served_url


@pytest.fixture(params=["folder", "objects"])
def place(request, tmp_path):
    """Where a store of either kind may be created."""
    return str(tmp_path / "store") if request.param == "folder" else request.getfixturevalue("object_url")
