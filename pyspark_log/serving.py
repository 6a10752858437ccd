"""A server in a process of its own, for as long as a block: for tests and scripts with Kafka's clients."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from pyspark_log.errors import PylogError
from pyspark_log.storage.fs import files

_PATIENCE_S = 60.0
_NAP_S = 0.01
_LAST_BYTES = 4096


@contextlib.contextmanager
def serving(store: str | os.PathLike[str], *options: str, patience_s: float = _PATIENCE_S) -> Iterator[str]:
    """Runs `pylog serve` over a store, on a port of this machine that is free; gives what clients take as
    `bootstrap.servers`: `127.0.0.1:PORT`.

    The server is stopped in order at the end of the block.

    Args:
        store: the store's folder; it is made if it is missing.
        options: further ones of `pylog serve`, such as `"--metrics-listen", "127.0.0.1:9308"`.
        patience_s: how long it may take to start, and to end, in seconds.

    Raises:
        PylogError: it has ended, or does not serve in time; with the end of its log.
    """
    with tempfile.TemporaryDirectory(prefix="pylog-") as folder:
        ready = os.path.join(folder, "ready")
        command = [sys.executable, "-m", "pyspark_log.cli.start", "serve", "--store", os.fspath(store)]
        with open(os.path.join(folder, "log"), "w+b") as log:
            server = subprocess.Popen(
                [*command, "--listen", "127.0.0.1:0", "--ready-file", ready, *options], stdout=log, stderr=log
            )
            try:
                yield _address(server, ready, log.name, patience_s)
            finally:
                server.terminate()
                try:
                    server.wait(patience_s)
                except subprocess.TimeoutExpired:
                    server.kill()
                    server.wait()


def _address(server: subprocess.Popen[bytes], ready: str, log: str, patience_s: float) -> str:
    """Where it serves, once it does."""
    end = time.monotonic() + patience_s
    while not files.exists(ready):
        if server.poll() is not None:
            raise PylogError(f"the server has ended with exit code {server.returncode}: {_end_of(log)}")
        if time.monotonic() > end:
            raise PylogError(f"the server does not serve after {patience_s:.0f} s: {_end_of(log)}")
        time.sleep(_NAP_S)
    with open(ready, encoding="ascii") as file:
        return file.read().strip()


def _end_of(log: str) -> str:
    with open(log, "rb") as file:
        return file.read()[-_LAST_BYTES:].decode(errors="replace").strip()
