"""Starts of Spark's Python processes on a busy machine: Spark gives up when one has not connected back in 10 seconds.

    python benchmarks/busy_starts.py [--starts 100] [--loops 14] [--pythons python,pylog-python]

The process is the one that Spark starts with each streaming query, with the variables that Spark sets; the time is from
its start to its connection. Meanwhile endless loops use all processors; the warm process is up before. Ends with an
error if a start by `pylog-python` has taken too long.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark

PATIENCE, GIVE_UP = 10, 300
RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
LIBRARIES = Path(pyspark.__file__).parent / "python" / "lib"


@contextlib.contextmanager
def called_back(python: str, runtime: str) -> Iterator[int]:
    """A process that has called back, and waits for more; TimeoutError: it has not."""
    path = [*map(str, sorted(LIBRARIES.glob("*.zip"), reverse=True)), os.environ.get("PYTHONPATH")]
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(GIVE_UP)
        variables = {
            "PYTHONPATH": ":".join(filter(None, path)),
            "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "secret",
            "XDG_RUNTIME_DIR": runtime,
        }
        command = [Path(sys.executable).with_name(python), "-m", RUNNER]
        with subprocess.Popen(
            command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                with server.accept()[0]:
                    yield process.pid
            finally:
                process.kill()


def start(python: str, runtime: str) -> float:
    """The seconds until a process calls back."""
    begin = time.perf_counter()
    with called_back(python, runtime):
        return time.perf_counter() - begin


def servers(runtime: str) -> list[int]:
    """The warm processes whose sockets are in the folder."""
    found = []
    for path in Path(runtime).glob("*/*"):
        with socket.socket(socket.AF_UNIX) as client:
            if path.is_socket() and client.connect_ex(str(path)) == 0:
                peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                found.append(struct.unpack("3i", peer)[0])
    return found


@contextlib.contextmanager
def warm(first: Callable[[str], object]) -> Iterator[str]:
    """A folder for the sockets of warm processes, which end with it; `first` has one come up, and gets the folder."""
    with tempfile.TemporaryDirectory(prefix="warm-", dir="/tmp") as runtime:  # The path of a socket is short.
        first(runtime)
        end = time.monotonic() + GIVE_UP
        while not servers(runtime):
            if time.monotonic() > end:
                raise SystemExit("no warm process has come up")
            time.sleep(0.1)
        try:
            yield runtime
        finally:
            for process in servers(runtime):
                os.kill(process, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--loops", type=int, default=14)
    parser.add_argument("--pythons", default="python,pylog-python")
    given = parser.parse_args()
    with warm(lambda runtime: start("pylog-python", runtime)) as runtime, contextlib.ExitStack() as stack:
        for _ in range(given.loops):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(loop.kill)
        for python in given.pythons.split(","):
            took = [start(python, runtime) for _ in range(given.starts)]
            late = sum(seconds > PATIENCE for seconds in took)
            print(
                f"{python}: {late} of {given.starts} took more than {PATIENCE} s; "
                f"median {statistics.median(took):.2f} s, longest {max(took):.2f} s",
                flush=True,
            )
            if late and python == "pylog-python":
                raise SystemExit(1)


if __name__ == "__main__":
    main()
