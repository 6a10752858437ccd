"""The Python processes that Spark uses again, task after task."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
from typing import Any

from pyspark_log.storage.fs import files

#: The process that Spark has started in place of this one or of the daemon that forked it; 0: it started that itself.
started = 0

_modules = 0


def is_spark_process() -> bool:
    """Whether this is a process of Spark's, rather than a program that calls the connector."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def hide_traceback() -> None:
    """Makes Spark show the text of an error alone, without the lines of code that raised it.

    For an error that ends this process, as each one does that a data source raises in a process of Spark's: so it
    concerns no later error. Spark sets the same variable for `spark.sql.execution.pyspark.udf.hideTraceback.enabled`.
    """
    if is_spark_process():
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"


def end_with_query() -> None:
    """Ends a process of Spark's that plans the micro-batches of a query if the query has ended.

    To be called when Spark's runner stops the reader. Spark ends a query by closing its connection to the process. The
    runner takes that for an error (EOFError), cannot report it over the closed connection, and its traceback
    (BrokenPipeError) would be on the user's screen.
    """
    if is_spark_process() and isinstance(sys.exc_info()[1], EOFError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def outlive_interrupt() -> None:
    """Has a process of Spark's that plans the micro-batches of a query ignore Ctrl+C.

    Under spark-submit the terminal sends the signal to this process too. It would end before the query, and Spark would
    report that as an error of the query. Spark ends the process with the query.
    """
    if is_spark_process():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def spare_modules() -> None:
    """Freezes loaded objects, so that the garbage collection which Spark runs after each task skips them.

    A collection visits each object of the process: with Spark, Arrow and the engine loaded it takes three times as long
    as to read 50,000 records. To be called when a task begins. Objects that exist then, and are lost in a cycle later,
    stay: so it has an effect only in a process of Spark's, and only if modules were loaded since the last call.
    """
    global _modules  # noqa: PLW0603
    if is_spark_process() and len(sys.modules) != _modules:
        _modules = len(sys.modules)
        gc.freeze()


class SentToTasks:
    """The base of a reader or writer that Spark sends to each of its tasks, which makes a copy of it."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The first code of this package that a task runs."""
        self.__dict__.update(state)
        if is_spark_process():
            acknowledge_at_once()


def acknowledge_at_once() -> None:
    """Has Linux acknowledge at once what comes over the TCP connections of this process.

    Spark sends a task in several small writes, and leaves Nagle's algorithm on: each write waits until the one before
    is acknowledged. Linux delays that by up to 40 ms on a connection that has just sent an answer, as one of a process
    that is used again has. This lasts until the process sends something, so each task needs it. Elsewhere than on Linux
    it has no effect.
    """
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None:
        return
    for fd in files.list_folder("/proc/self/fd"):
        # Those that are no TCP sockets refuse; one may be closed by now.
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                one = socket.socket(fileno=int(fd))
                try:
                    one.setsockopt(socket.IPPROTO_TCP, option, 1)
                finally:
                    one.detach()  # It is Spark's.
