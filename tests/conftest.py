"""How the tests are spread over processes, where their files are, how hypothesis finds examples, and hangs.

Finding examples never depends on the clock. Fixtures that hang end the process.
"""

import faulthandler
import gc
import os
import signal

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests import foreign_clients, foreign_threads, moved_time
from tests.object_fixtures import memory_url, object_server, object_url, place, served_place, served_url
from tests.scratch import IN_MEMORY
from tests.spark_home import java_options, spark_home

pytest_plugins = ["tests.budget"]
__all__ = ["memory_url", "object_server", "object_url", "place", "served_place", "served_url"]

# A busy machine is no failure, neither of a test nor of how its examples are made.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# The tests with Kafka, Spark, and clients of other languages, each file a group; those with the one broker are a group.
_LONGEST = ("tests/kafka/", "tests/spark/", "tests/jobs/", "tests/clients/")
_SPARK = ("tests/spark/", "tests/jobs/")
_BROKER = ("tests/kafka/test_kafka_", "tests/kafka/test_s", "tests/kafka/test_t")
# What all tests may have in memory at once, in bytes; what a test leaves is removed when it has passed.
_ROOM = 2 << 30


def pytest_configure(config):
    """Files of tests are in memory where there is room, as they sync all the time; PYTEST_DEBUG_TEMPROOT moves them.

    Spark starts its processes fast, unless SPARK_HOME names another Spark. A shell ignores SIGINT in what it starts in
    the background, and so would each program that a test starts and interrupts.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.basetemp is None and IN_MEMORY is not None:
        status = os.statvfs(IN_MEMORY)
        if status.f_bavail * status.f_frsize >= _ROOM:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", IN_MEMORY)
    if (home := spark_home()) is not None:
        for name, value in ({"SPARK_HOME": str(home)} | java_options()).items():
            os.environ.setdefault(name, value)


def pytest_sessionstart():
    """When pytest has set its hooks for uncaught exceptions."""
    foreign_threads.let_pass()
    foreign_clients.close_dropped_sockets()
    foreign_clients.draw_apart()


class _Spread(LoadScopeScheduling):
    """Hands out one group of tests after the other, in their order."""

    def _split_scope(self, nodeid):
        # The fast ones with Spark take as long as a third of all others, of which a second session would be a tenth.
        if nodeid.startswith(_SPARK) and self.config.option.markexpr == "not slow":
            return "spark"
        # A second broker would take ten seconds to start, and a gigabyte.
        return "broker" if nodeid.startswith(_BROKER) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return _Spread(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected stays to the end, so Python's search for garbage may leave it out: a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    moved_time.begin()


def _place(item):
    return next((at for at, folder in enumerate(_LONGEST) if item.nodeid.startswith(folder)), len(_LONGEST))


def pytest_collection_modifyitems(items):
    # The longest groups first, so that no process has one of them before it at the end.
    items.sort(key=_place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """Ends the process if the fixtures of a test take as long as a test may take, and prints all stacks.

    pytest's own guard (`faulthandler_timeout`) is gone when the test has failed, as one does that was interrupted.
    """
    seconds = float(item.config.getini("timeout") or 0)
    if seconds and item.config.getini("faulthandler_exit_on_timeout"):
        stderr = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(seconds, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
