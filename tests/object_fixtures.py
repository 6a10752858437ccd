"""Fixtures of places for stores: a folder, or a prefix in an object store."""

import contextlib
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


@contextlib.contextmanager
def url_at(object_server):
    """Where a store may be created, without the race that this begins with; the environment has the credentials."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in object_server.environment.items():
            patched.setenv(name, value)
        patched.setattr(_RACES, lambda *_: 0)
        patched.setattr(_RETRIED, 1)
        yield f"s3://{object_server.bucket}/store{next(_numbers)}"


@pytest.fixture
def served_url(object_server):
    """The same for a test."""
    with url_at(object_server) as url:
        yield url


@pytest.fixture(scope="module", params=["folder", "objects"])
def served_place(request, tmp_path_factory):
    """Where a store of either kind may be created that other processes serve, for all tests of a file."""
    with contextlib.ExitStack() as stack:
        if request.param == "folder":
            yield str(tmp_path_factory.mktemp("served") / "store")
        else:
            yield stack.enter_context(url_at(request.getfixturevalue("object_server")))


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
