"""The process that an application of Spark lives and dies with."""

from __future__ import annotations

import os
import sys

from pyspark_log.storage.process_id import Process


def driver_process() -> Process:
    """The driver, as seen from one of its Python processes: without it nobody publishes what it has planned.

    Spark plans writes in Python processes that it ends when it likes: its JVM starts them, by itself or by a daemon
    that forks. A program that calls the connector is the driver itself. Where the driver cannot be told, nobody takes
    this process for dead.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or not spec.name.startswith("pyspark."):
        return Process.here()
    try:
        parent = os.getppid()
        if os.path.samefile(f"/proc/{parent}/exe", "/proc/self/exe"):
            parent = _parent_of(parent)
        if os.path.samefile(f"/proc/{parent}/exe", "/proc/self/exe"):
            return Process(os.getpid())
    except (OSError, ValueError, IndexError):
        return Process(os.getpid())
    return Process.of(parent)


def _parent_of(process: int) -> int:
    """The parent of another process. OSError, ValueError, IndexError: the system does not tell."""
    with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])
