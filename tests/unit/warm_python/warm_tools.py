"""An environment in which `pylog-python` has a warm process of its own, and a module to start that runs any code."""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from tests.paths import ROOT
from tests.waiting import wait_until

PYTHON = sys.executable
LAUNCHER = str(Path(sys.executable).with_name("pylog-python"))
#: In code that is started: whether it runs in a child of the warm process.
IS_WARM = "'pyspark_log.warm_python.start' in sys.modules"


class Environment:
    """The launcher's, with PySpark through links, so that a test can change a file of it."""

    def __init__(self, folder):
        # The path of a socket is short.
        self.runtime = Path(tempfile.mkdtemp(prefix="warm-", dir="/tmp"))
        self.folder = self.runtime / "pylog-python"
        self.package = folder / "packages" / "pyspark"
        self.package.mkdir(parents=True)
        for path in Path(pyspark.__file__).parent.iterdir():
            if path.name != "__pycache__":
                (self.package / path.name).symlink_to(path)
        (self.package / "probe.py").write_text("import sys\n\nexec(sys.argv[1])\n", encoding="utf-8")
        self.variables = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "PYTHONPATH": f"{self.package.parent}:{ROOT}",
            "XDG_RUNTIME_DIR": str(self.runtime),
        }

    def command(self, code, *arguments, python=LAUNCHER, flags=()):
        return [python, *flags, "-m", "pyspark.probe", code, *arguments]

    def run(self, code, *arguments, python=LAUNCHER, flags=(), more=None, **settings):
        """Runs the code to its end: its exit code, and what it has written."""
        settings = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, **settings}
        command = self.command(code, *arguments, python=python, flags=flags)
        return subprocess.run(command, env={**self.variables, **(more or {})}, check=False, **settings)

    def start(self, code, *arguments, more=None, **settings):
        """Starts the code; its output can be read."""
        settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True, **settings}
        return subprocess.Popen(self.command(code, *arguments), env={**self.variables, **(more or {})}, **settings)

    def is_warm(self, **settings):
        """Whether a start runs in a child of the warm process."""
        return json.loads(self.run(f"import json; print(json.dumps({IS_WARM}))", **settings).stdout)

    def warm_up(self, **settings):
        """Has a warm process come up for the variables and flags that are given; returns its process id."""
        self.forget_last_start()
        wait_until(lambda: self.is_warm(**settings), self.said, every=0.1)
        return self.server(**settings)

    def server(self, **settings):
        """The process that answers for these variables and flags. ProcessLookupError: none does."""
        process = int(self.run(f"import os; print(os.getppid() if {IS_WARM} else 0)", **settings).stdout)
        if not process:
            raise ProcessLookupError
        return process

    @property
    def socket(self):
        """The path of the socket that this environment's launchers ask at."""
        server = self.server()
        return next(path for path in self.sockets() if server_of(path) == server)

    def kill_server(self):
        server = self.server()
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: not is_alive(server), "the warm process is gone")

    def children(self):
        """The processes that the warm process has forked."""
        server = self.server()
        return Path(f"/proc/{server}/task/{server}/children").read_text().split()

    def change(self):
        """Another version of a module that is loaded: a copy, as the file itself is not the test's."""
        module = self.package / "accumulators.py"
        source = module.read_text(encoding="utf-8")
        module.unlink()
        module.write_text(f"{source}\nchanged = True\n", encoding="utf-8")

    def answer_to(self, user):
        """What the warm process says to a process of another user, which could reach it."""
        path = self.socket
        code = (
            "import os, socket, sys; s = socket.socket(socket.AF_UNIX); os.setresuid(0, int(sys.argv[2]), 0)\n"
            "s.connect(sys.argv[1]); sys.stdout.buffer.write(s.recv(9))"
        )
        os.chmod(self.folder, 0o711)
        os.chmod(path, 0o777)
        try:
            return subprocess.run([PYTHON, "-c", code, path, str(user)], capture_output=True, check=True).stdout
        finally:
            os.chmod(self.folder, 0o700)

    def sockets(self):
        return {path for path in self.folder.glob("*") if path.is_socket()}

    def said(self):
        """What the warm processes have said of faults."""
        return "".join(path.read_text() for path in self.folder.glob("*.log"))

    def forget_last_start(self):
        """As if a minute had passed since a warm process was started."""
        for path in self.folder.glob("*.log"):
            os.utime(path, (0, 0))

    def close(self):
        for path in self.sockets():
            if server := server_of(path):
                os.kill(server, signal.SIGKILL)
        shutil.rmtree(self.runtime)


def is_alive(process):
    """Whether it runs; not if it has ended, and its parent has not asked how."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def server_of(path):
    """The process that listens at a socket; None: none does."""
    with socket.socket(socket.AF_UNIX) as client:
        if client.connect_ex(str(path)):
            return None
        return struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
