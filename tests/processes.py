"""Processes that tests start: forked from a process that has the engine loaded, as a new Python starts far slower.

They share nothing with the process of the test, and know nothing of what it has patched.
"""

import contextlib
import multiprocessing
import os
import traceback

from pyspark_log.storage.store import Store

PROCESSES = multiprocessing.get_context("forkserver")
# Modules that cannot be loaded here are not reported. There is one server for all contexts of this kind.
PROCESSES.set_forkserver_preload([
    "pandas", "pytest", "pyspark_log.storage.folder_store", "pyspark_log.storage.maintenance.janitor",
    "pyspark_log.storage.maintenance.verify", "pyspark_log.spark_connector.source", "tests.processes", "tests.forked",
    "jinja2", "prometheus_client", "pyspark_log.cli.serving.serve", "pyspark_log.cli.serving.ui", "pyspark_log.server",
    "ssl",
])  # fmt: skip
# How long a process may take to start, and to say that it is where it should be, in seconds.
PATIENCE = 240


@contextlib.contextmanager
def started(target, *args):
    """Runs `target` with a connection and `args` in another process; gives the process and what it says first.

    The connection's `recv` raises EOFError when the block ends, and then the process should end, too.
    """
    mine, others = PROCESSES.Pipe()
    process = PROCESSES.Process(target=target, args=(others, *args), daemon=True)
    process.start()
    others.close()
    try:
        assert mine.poll(PATIENCE), "the other process says nothing"
        yield process, mine.recv()
    finally:
        mine.close()
        process.join()


@contextlib.contextmanager
def forked(work):
    """Runs something in a forked child, beside the block; it succeeds, which is known when the block ends."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001  (the child ends here, whatever it is)
            traceback.print_exc()
        finally:
            os._exit(code)
    yield
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def wait_for_the_end(connection):
    """Returns when the block of `started` ends."""
    with contextlib.suppress(EOFError, ConnectionError):
        connection.recv()


def _hold(connection, path, topic, partition):
    with Store.open(path).logs.writer(topic, partition).hold():
        connection.send("held")
        wait_for_the_end(connection)


@contextlib.contextmanager
def held_by_another(store, topic, partition=0):
    """Another process has a partition's lock."""
    with started(_hold, store.path, topic, partition):
        yield


def run_at_once(workers):
    """Runs threads or processes to their ends, at the same time; the processes succeed."""
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert getattr(worker, "exitcode", 0) == 0
