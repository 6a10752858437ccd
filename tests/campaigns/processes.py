"""Processes to stop, wake and kill, found in /proc."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

QUERIES = Path(__file__).parent / "queries/program.py"


def table():
    """The living processes of the machine: the parent and the session of each."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] not in "ZX":
                found[int(entry)] = int(fields[1]), int(fields[3])
    return found


def session(leader):
    """The processes of a session."""
    return [pid for pid, (_, sid) in table().items() if sid == leader]


def send(pids, sign):
    for pid in pids:
        try:
            os.kill(pid, sign)
        except ProcessLookupError:
            continue


def end_session(leader):
    """Kills a started process with all of its session, and waits until they are gone."""
    while left := session(leader.pid):
        send(left, signal.SIGKILL)
        leader.poll()
        time.sleep(0.01)
    leader.wait()


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return [""]


def is_java(pid):
    return command_of(pid)[0].endswith("java")


def holds_open(pid, folder):
    """Whether a process has a file under a folder open."""
    try:
        return any(os.readlink(f"/proc/{pid}/fd/{fd}").startswith(folder) for fd in os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, ProcessLookupError):
        return False


class Driver:
    """One run of program.py: Python, its JVM and all Python workers, in a session of their own.

    On a cluster its executors belong to it, too, with their Python workers.

    Attributes:
        process: the driver's Python.
        lines: what it has printed so far, each with the time when it came.
    """

    def __init__(self, arguments, log):
        self.lines = []
        self._known = []
        self.process = subprocess.Popen(
            [sys.executable, str(QUERIES), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.time(), line.rstrip("\n")))

    def said(self, word, query=""):
        """The times at which it printed a line that begins so."""
        return [when for when, line in self.lines if line.startswith(f"{word} {query}".rstrip())]

    def is_running(self):
        return self.process.poll() is None

    def wait(self, seconds):
        """Waits for the end of all of it; True if it ended well."""
        deadline = time.monotonic() + seconds
        # The JVM lives on for a moment, for instance to write its output at exit.
        while (self.is_running() or self.own()) and time.monotonic() < deadline:
            time.sleep(0.1)
        self._reader.join(120)
        return self.process.poll() == 0

    # ---- its processes

    def own(self):
        """All but the executors."""
        return session(self.process.pid)

    def java(self):
        return [pid for pid in self.own() if is_java(pid)]

    def executors(self):
        """The JVMs of its executors on a cluster. In local mode there are none."""
        application = next((line.split()[1] for _, line in self.lines if line.startswith("application ")), "")
        if not application.startswith("app-"):
            return []
        return [pid for pid in table() if application in command_of(pid) and is_java(pid)]

    def pids(self):
        """All of them."""
        found, left = set(self.own()), set(self.executors())
        while left:
            found |= left
            left = {pid for pid, (parent, _) in table().items() if parent in left}
        return found

    def workers(self):
        """The Python processes but the driver's own."""
        return [pid for pid in self.pids() if pid != self.process.pid and not is_java(pid)]

    # ---- what is done to them

    def look(self):
        """Notes which processes there are, so that `freeze` can stop them at once."""
        # Python first: what writes to the store is stopped before what waits for it.
        self._known = sorted(self.pids(), key=is_java)

    def freeze(self):
        """Stops all of it."""
        send(self._known, signal.SIGSTOP)
        stopped = set(self._known)
        while new := self.pids() - stopped:
            send(new, signal.SIGSTOP)
            stopped |= new
        self._known = sorted(stopped)

    def thaw(self):
        """Continues what `freeze` has stopped."""
        send(self._known, signal.SIGCONT)

    def kill(self):
        """Kills all of it and waits until it is gone."""
        while pids := self.pids():
            send(pids, signal.SIGKILL)
            self.process.poll()
            time.sleep(0.01)
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
