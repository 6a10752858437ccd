"""The warm process: it answers launchers, and forks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import socket
import struct
import sys
import time
from pathlib import Path

from pyspark_log.warm_python.loaded import Loaded
from pyspark_log.warm_python.start import Start

#: How long the process stays while it has nothing to do, in seconds.
IDLE_SECONDS = 600.0
# How long what a process has left is kept, for those that look for a fault, in seconds.
_KEPT_SECONDS = 24 * 3600.0
# How long a launcher may take to send its request, in seconds: the next one waits meanwhile.
_PATIENCE = 2.0
_PEER = struct.Struct("3i")  # struct ucred: process, user, group


def lock(path: str) -> int | None:
    """Returns a file descriptor that holds the lock of a warm process's socket; None: another process holds it."""
    file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def remove_leftovers(path: str) -> None:
    """Removes what processes of other days have left beside a socket: one that is killed removes nothing, and a name
    is that of an environment and the versions in it, which may never come back.
    """
    folder, end = os.path.dirname(path), time.time() - _KEPT_SECONDS
    for name in os.listdir(folder):
        other = f"{folder}/{name.removesuffix('.lock')}"
        if not name.endswith(".lock") or other == path:
            continue
        with contextlib.suppress(FileNotFoundError):  # Another process removes them, too.
            if os.stat(f"{other}.lock").st_mtime < end and (locked := lock(other)) is not None:
                for ending in ("", ".log", ".lock"):
                    Path(other + ending).unlink(missing_ok=True)
                os.close(locked)


class Server:
    """Listens on a socket in a folder of its user's, and has a child for each start. It has one thread, as it forks."""

    def __init__(self, path: str, locked: int, loaded: Loaded) -> None:
        """`path`: of the socket. `locked`: what `lock` has returned for it; it is closed when the socket goes."""
        self._path, self._locked, self._loaded = path, locked, loaded
        self._selector = selectors.DefaultSelector()
        self._launchers: dict[int, socket.socket] = {}  # by the pidfd of the child
        if os.path.exists(path):
            os.unlink(path)  # of a process that was killed
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(128)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def serve(self) -> Start | None:
        """Answers launchers. Returns in a child what it is to run; else None, when there is nothing left to do.

        That is so after ten idle minutes, or when what is loaded has changed and the last child has ended.
        """
        while self._listener.fileno() >= 0 or self._launchers:
            events = self._selector.select(None if self._launchers else IDLE_SECONDS)
            if not events:
                self._retire()
            for key, _ in events:
                if key.fileobj is not self._listener:
                    self._reap(key.fd)
                elif (start := self._accept()) and self._take(start):
                    return start
        return None

    def _accept(self) -> Start | None:
        launcher, _ = self._listener.accept()
        launcher.settimeout(_PATIENCE)
        try:
            process, user, _ = _PEER.unpack(launcher.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
            if user == os.geteuid():
                return Start.receive(launcher, process)
            print(f"a process of user {user} was not answered", file=sys.stderr)
        except (OSError, ValueError) as error:
            print(f"a request was not answered: {error}", file=sys.stderr)
        launcher.close()
        return None

    def _take(self, start: Start) -> bool:
        """Forks, or has the launcher start Python. Returns whether this process is the child."""
        if self._loaded.has_changed():
            self._retire()
        elif start.fits and not self._loaded.is_hidden_in(start.folder):
            return self._fork(start)
        start.refuse()
        return False

    def _fork(self, start: Start) -> bool:
        process = os.fork()
        if process == 0:
            for file in (*self._launchers, self._locked, self._listener.fileno()):
                os.close(file)
            for launcher in self._launchers.values():
                launcher.close()
            self._selector.close()
            return True
        try:
            pidfd = os.pidfd_open(process)
            try:
                start.accept(process, pidfd)
            except OSError:
                os.close(pidfd)
                raise
        except OSError as error:  # The launcher has gone, or no file can be opened: the child sees it, and ends.
            print(f"no child: {error}", file=sys.stderr)
            start.refuse()
            os.waitpid(process, 0)
            return False
        self._launchers[pidfd] = start.launcher
        self._selector.register(pidfd, selectors.EVENT_READ)
        return False

    def _reap(self, pidfd: int) -> None:
        """Reports to the launcher of a child how it has ended."""
        self._selector.unregister(pidfd)
        with self._launchers.pop(pidfd) as launcher:
            ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
            os.close(pidfd)
            if ended is not None:
                Start.report(launcher, ended)

    def _retire(self) -> None:
        """Takes no more launchers: another warm process may come."""
        os.unlink(self._path)
        self._selector.unregister(self._listener)
        self._listener.close()
        os.close(self._locked)
