"""`pylog` as a process of its own, forked from one that has its modules loaded, as a new Python takes long for that.

What depends on how Python starts needs a new one: what is loaded, memory, the list of processes.
"""

import contextlib
import importlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection

from tests.processes import PATIENCE, PROCESSES


class ForkedPylog:
    """A command that runs, with the environment and the folder of this process; it is used as a Popen.

    Another module than the command's may be run by its `main`.

    Attributes:
        pid: of the process.
    """

    def __init__(self, words, output, errors, module="pyspark_log.cli.start", stdin=None, **environment):
        """`words` are those after `pylog`; `output`, `errors` and `stdin` are files with a descriptor."""
        # Connections are what is passed to another process with what they are of.
        with open(os.devnull, "rb") as empty:
            streams = [Connection(os.dup(file.fileno())) for file in (stdin or empty, output, errors)]
        how = module, list(map(str, words)), {**os.environ, **environment}, os.getcwd()
        self._process = PROCESSES.Process(target=_run, args=(*how, *streams), daemon=True)
        self._process.start()
        self.pid = self._process.pid
        for stream in streams:
            stream.close()

    def poll(self):
        """Its exit code; None: it runs."""
        return self._process.exitcode

    def wait(self, timeout=None):
        """Its exit code, once it has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("pylog", timeout)
        return self._process.exitcode

    def send_signal(self, number):
        """Sends a signal, if it runs."""
        if self.poll() is None:
            # It may end in between: it is the fork server's child, which has no other left then.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self):
        """Ends it at once, if it runs."""
        self.send_signal(signal.SIGKILL)


class PipedPylog(ForkedPylog):
    """A command with pipes.

    Attributes:
        stdin, stdout, stderr: their ends here.
        returncode: its exit code, after `communicate`.
    """

    def __init__(self, *words, **environment):
        pipes = [os.pipe() for _ in range(3)]
        self.stdin, self.stdout, self.stderr = (os.fdopen(*one) for one in (
            (pipes[0][1], "wb"), (pipes[1][0], "rb"), (pipes[2][0], "rb")
        ))  # fmt: skip
        with open(pipes[0][0], "rb") as stdin, open(pipes[1][1], "wb") as output, open(pipes[2][1], "wb") as errors:
            super().__init__(words, output, errors, stdin=stdin, **environment)

    def communicate(self, text=b""):
        """Sends what it reads, and waits for its end; what it has written, of which errors are few."""
        with self.stdin, self.stdout, self.stderr:
            self.stdin.write(text)
            self.stdin.close()
            said = self.stdout.read(), self.stderr.read()
        self.returncode = self.wait(PATIENCE)
        return said


def pylog_in_another_process(*words, **environment):
    """Runs a command to its end, as subprocess.run does."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        code = ForkedPylog(words, output, errors, **environment).wait(PATIENCE)
        for file in (output, errors):
            file.seek(0)
        return subprocess.CompletedProcess(words, code, output.read(), errors.read())


def _run(module, words, environment, folder, *streams):
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  (to the end of the process)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    # The connector is loaded here, too, which has messages written to standard error.
    logging.getLogger("pyspark_log").handlers = [logging.NullHandler()]
    sys.argv = ["pylog", *words]
    # Importing the command's changes what Ctrl-C does.
    importlib.import_module(module).main()
