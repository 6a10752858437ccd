"""`pylog serve --processes N`: several servers of one store on this machine, each of which can use a core."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType

from pyspark_log.storage.fs import files

_log = logging.getLogger(__name__)

# How often servers are looked at, and after what time one that has died is started again, in seconds.
_LOOK, _AGAIN = 0.1, 1.0
# What a process gets when its parent ends (prctl(2)).
_PR_SET_PDEATHSIG = 1


def run(count: int, options: Callable[[int], Sequence[str]], on_ready: Callable[[Sequence[str]], object]) -> int:
    """Runs servers until SIGTERM or SIGINT comes, and starts those again that die.

    Args:
        count: how many.
        options: of the server of a number, from 0 on, beside those of this process's own command line.
        on_ready: called with all addresses once clients can connect to each server.

    Returns:
        The number of the signal.

    Raises:
        ChildProcessError: a server could not start, and its output says why.
    """
    stopped_by = list[int]()

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped_by.append(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with tempfile.TemporaryDirectory() as folder:
            servers = [_Server(options(number), f"{folder}/{number}") for number in range(count)]
            try:
                is_ready = False
                while not stopped_by:
                    for server in servers:
                        server.look()
                    if not is_ready and all(server.address for server in servers):
                        is_ready = True
                        on_ready([server.address for server in servers])
                    time.sleep(_LOOK)
            finally:
                for server in servers:
                    server.end()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return stopped_by[0]


class _Server:
    """One of them.

    Attributes:
        address: where it listens, "host:port", once clients can connect.
    """

    def __init__(self, options: Sequence[str], ready: str) -> None:
        """Starts it; `ready`: the file in which it says that clients can connect."""
        self._words = [*sys.argv[1:], *options, "--ready-file", ready]
        self._ready, self.address = ready, ""
        self._again_at, self._process = 0.0, self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pyspark_log.cli.start", *self._words]
        ends = partial(_end_with_parent, os.getpid())
        return subprocess.Popen(command, preexec_fn=ends)  # noqa: PLW1509  (this process has one thread)

    def look(self) -> None:
        """Starts it again a while after it has died. ChildProcessError: it has never served."""
        code = self._process.poll()
        if code is None:
            if not self.address and files.exists(self._ready):
                with open(self._ready, encoding="ascii") as file:
                    self.address = file.read().strip()
            return
        if not self.address:
            raise ChildProcessError(f"a server could not start (exit code {code})")
        if not self._again_at:
            _log.warning("the server on %s has ended with %d: starting it again", self.address, code)
            self._again_at = time.monotonic() + _AGAIN
        elif time.monotonic() >= self._again_at:
            self._again_at, self._process = 0.0, self._started()

    def end(self) -> None:
        """Ends it in order."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait()


def _end_with_parent(parent: int) -> None:
    """Has the system end this process in order when its parent ends, also if that is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(0)  # It has ended before.
