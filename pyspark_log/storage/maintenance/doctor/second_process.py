"""A second process that carries out operations: both its ends."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from typing import Any

from pyspark_log.storage.maintenance.doctor.operations import Operations, perform, result_of

#: How long to wait for an answer, in seconds. If a file system's lock service does not answer, a lock call waits
#: for ever; then only the second process hangs.
ANSWER_SECONDS = 10.0
#: How long it may take to start, in seconds, on a busy machine.
START_SECONDS = 60.0


class SecondProcess:
    """A process of its own, started by this one: it shares no open file and no memory with it.

    Attributes:
        pid: its process id.
    """

    def __init__(self, folder: str) -> None:
        # The same search path, so that the same package is found in a clone, too.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve({folder!r})"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which ends the other one.
        )
        self.pid = self._process.pid
        self._has_started = False
        self._deadline = 0.0

    def ask(self, operation: str, *arguments: Any) -> Any:  # noqa: ANN401
        """See Side. TimeoutError: no answer came."""
        self.begin(operation, *arguments)
        return self.finish()

    def begin(self, operation: str, *arguments: Any) -> None:  # noqa: ANN401
        """Requests an operation without waiting; see `finish`. TimeoutError: the process has not started."""
        if not self._has_started:
            self._deadline = time.monotonic() + START_SECONDS
            self._has_started = bool(self.finish())
        self._deadline = time.monotonic() + ANSWER_SECONDS
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([operation, *arguments]).encode() + b"\n")
        self._process.stdin.flush()

    def is_done(self) -> bool:
        """Whether `finish` has something to return. TimeoutError: that takes too long."""
        return self._answered(0.0)

    def _answered(self, wait: float) -> bool:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], wait)
        if not ready and time.monotonic() >= self._deadline:
            if not self._has_started:
                raise TimeoutError(f"the second process has not started within {START_SECONDS:.0f} s")
            raise TimeoutError(f"a call did not return within {ANSWER_SECONDS:.0f} s")
        return bool(ready)

    def finish(self) -> Any:  # noqa: ANN401
        """The result of what was begun."""
        assert self._process.stdout is not None
        while not self._answered(0.1):
            pass
        line = self._process.stdout.readline()
        if not line:
            raise ChildProcessError("the second process has ended; its output is above")
        return result_of(json.loads(line))

    def kill(self) -> None:
        """Ends it as `kill -9` does."""
        self._process.kill()

    def __enter__(self) -> SecondProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        # A process that hangs in a call to the file system cannot be killed; this process must not hang with it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def serve(folder: str) -> None:
    """Reports that it is ready, and answers requests, a line each, until standard input ends."""
    operations = Operations(folder)
    _reply({"result": True})
    for line in sys.stdin.buffer:
        _reply(perform(operations, json.loads(line)))


def _reply(reply: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
