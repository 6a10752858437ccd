"""One start of Python that `pylog-python` asks for, and how a child of the warm process becomes it."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import io
import os
import runpy
import select
import signal
import socket
import struct
import sys
import tempfile
from dataclasses import dataclass

_LENGTH = struct.Struct("=I")
_NUMBER = struct.Struct("=i")
#: Libraries read these when they are loaded, and start threads by them: the warm process has each at 1.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Start:
    """What is to be started, and the socket to the launcher that asked; `launcher.c` says what is sent.

    Attributes:
        process: the launcher's.
        streams: copies of the launcher's standard streams.
        arguments: the launcher's: those of `python -m`.
    """

    launcher: socket.socket
    process: int
    streams: list[int]
    folder: str
    arguments: list[str]
    environment: dict[str, str]

    @classmethod
    def receive(cls, launcher: socket.socket, process: int) -> Start:
        """Reads a request of a process.

        Raises:
            OSError: it cannot be read.
            ValueError: it is malformed.
        """
        length, streams, _, _ = socket.recv_fds(launcher, _LENGTH.size, 3)
        try:
            with launcher.makefile("rb") as rest:
                text = rest.read(_LENGTH.unpack(length)[0] if len(streams) == 3 and len(length) == _LENGTH.size else 0)
            folder, count, *strings = [os.fsdecode(string) for string in text.split(b"\0")[:-1]]
            variables = (entry.partition("=") for entry in strings[int(count) :])
            environment = {name: value for name, _, value in variables}
            return cls(launcher, process, streams, folder, strings[: int(count)], environment)
        except BaseException:
            _close(streams)
            raise

    @property
    def fits(self) -> bool:
        """Whether it may use libraries that were loaded for one thread."""
        return all(self.environment.get(name, "1") == "1" for name in THREADS)

    def refuse(self) -> None:
        """Has the launcher start Python by itself."""
        with contextlib.suppress(OSError), self.launcher:
            self.launcher.send(_NUMBER.pack(0))
        _close(self.streams)

    def accept(self, process: int, pidfd: int) -> None:
        """Gives the launcher the child.

        Raises:
            OSError: it has gone.
        """
        socket.send_fds(self.launcher, [_NUMBER.pack(process)], [pidfd])
        _close(self.streams)

    @staticmethod
    def report(launcher: socket.socket, ended: os.waitid_result) -> None:
        """Gives a launcher the exit code of its child, or minus the signal that has killed it."""
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        with contextlib.suppress(OSError):  # The launcher was killed.
            launcher.send(_NUMBER.pack(code))

    def become(self) -> None:
        """Makes of this process, a child of the warm one, what `python` in the launcher's place would be.

        Returns when the launcher has said that it may begin. From then on the system kills this process when the
        launcher ends, also after the warm process has died; and it never begins if the launcher ends before.
        """
        from pyspark_log.spark_connector import worker_process  # noqa: PLC0415  (loaded by now, with Arrow)

        self.launcher.setblocking(True)
        if not self.launcher.recv(1):
            os._exit(0)
        number = self.launcher.fileno()
        fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(number, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([number], [], [], 0)[0]:
            os._exit(0)
        self.launcher.detach()
        for stream, file in enumerate(self.streams):
            os.dup2(file, stream)
        _close(self.streams)
        os.setpgid(0, 0)  # What it sends to its group must not reach the warm process.
        # Python sets it in the locale "C" (PEP 538).
        locale = {name: value for name, value in os.environ.items() if name == "LC_CTYPE"}
        os.environ.clear()
        os.environ.update(locale | self.environment)
        os.chdir(self.folder)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())
        tempfile.tempdir = None
        worker_process.started = self.process
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()  # Else all children would draw the same numbers.
        importlib.invalidate_caches()
        gc.enable()

    def run(self) -> None:
        """Runs the module as `python -m` does."""
        _, module, *rest = (argument for argument in self.arguments[1:] if argument != "-u")
        sys.argv = [module, *rest]
        sys.orig_argv = [sys.executable, *self.arguments[1:]]
        sys.path.insert(0, self.folder)
        sys.modules.pop(module, None)  # Else runpy warns that it was imported before.
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)
