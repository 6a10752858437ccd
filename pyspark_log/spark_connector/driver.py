"""The process that an application of Spark lives and dies with."""

from __future__ import annotations

import os
import sys

from pyspark_log.storage.fs import Process

# A JVM's program has this name. More ancestors than these are not looked at.
_JAVA = "java"
_MOST_ANCESTORS = 16


def driver_process() -> Process:
    """The driver, as seen from one of its Python processes: without it nobody publishes what it has planned.

    Spark plans writes in Python processes that it ends when it likes. Its JVM starts them, by itself or by a daemon
    that forks, and perhaps through a script that stands in the place of Python. A program that calls the connector is
    the driver itself. Where the driver cannot be told, no process takes what is staged for that of a dead one.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or not spec.name.startswith("pyspark."):
        return Process.here()
    process = os.getpid()
    try:
        for _ in range(_MOST_ANCESTORS):
            process = _parent_of(process)
            if os.path.basename(os.readlink(f"/proc/{process}/exe")) == _JAVA:
                return Process.of(process)
    except (OSError, ValueError, IndexError):
        pass  # The system does not tell more.
    return Process(os.getpid())


def _parent_of(process: int) -> int:
    """The parent of a process. OSError, ValueError, IndexError: the system does not tell."""
    with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])
