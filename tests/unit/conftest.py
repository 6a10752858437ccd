"""Fixtures of all unit tests."""

import errno
import os
import signal
from types import SimpleNamespace

import pytest
from broker_tools import fill
from transaction_tools import Log

from pyspark_log.storage.catalog import log_dirs
from pyspark_log.storage.fs import files
from pyspark_log.storage.store import Store


@pytest.fixture(scope="session", autouse=True)
def ctrl_c():
    """A shell has what it starts in the background ignore Ctrl-C, and so would the processes that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def prompt_checkpoints(monkeypatch):
    """Checkpoints as late as Kafka's would hide the end of what a store has written."""
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)


@pytest.fixture
def root(tmp_path):
    """A broker's folder with partition 0 of `t`: three segments, with gaps between and within them."""
    root = tmp_path / "logs"
    root.mkdir()
    fill(root)
    return root


@pytest.fixture
def log(tmp_path):
    """A partition that producers write transactions to, and what must be seen of it."""
    return Log(tmp_path / "store")


@pytest.fixture
def object_url(request):
    """In memory, unless the test names the `object_server`, as one with other processes does."""
    return request.getfixturevalue("served_url" if "object_server" in request.fixturenames else "memory_url")


@pytest.fixture
def store(tmp_path):
    """An empty store; tests/store_tools.py has `store_with`, which makes one with a topic."""
    return Store.create(tmp_path / "store")


@pytest.fixture
def clock(tmp_path, monkeypatch):
    """The time of the stores that are made or opened from now on; it does not move until the test changes its `ms`.

    It begins with the time that new files have.
    """
    clock = SimpleNamespace(ms=tmp_path.stat().st_ctime_ns // 1_000_000)
    monkeypatch.setattr("pyspark_log.storage.fs.clock.now_ms", lambda: clock.ms)
    return clock


@pytest.fixture
def fail():
    """`fail(kind, suffix)`: the next change of that kind to such a file raises."""

    def arm(kind, suffix, error=errno.ENOSPC):
        def observer(change):
            if change.kind == kind and (change.target or change.path).endswith(suffix):
                files.set_observer(None)
                raise OSError(error, os.strerror(error), change.path)

        files.set_observer(observer)

    yield arm
    files.set_observer(None)
