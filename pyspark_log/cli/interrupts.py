"""What Ctrl-C does: nothing but an end with code 130, at whatever moment it comes.

While a command runs, it raises KeyboardInterrupt, so that the command can end in order; a second one ends the process
at once. Before and after that, and while modules are loaded, which can swallow it or show a traceback, it ends the
process at once: there is nothing to clean up.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

#: The exit code of a process that Ctrl-C has ended, as shells have it.
INTERRUPTED = 130
# How often it is looked for, in seconds.
_LOOK = 0.5


def leave() -> NoReturn:
    """Ends the process at once."""
    os._exit(INTERRUPTED)


def _leave(_number: int, _frame: FrameType | None) -> None:
    leave()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, _leave)
    raise KeyboardInterrupt


@contextlib.contextmanager
def fatal() -> Iterator[None]:
    """Ctrl-C ends the process at once in the block, if else it would end the command."""
    if signal.getsignal(signal.SIGINT) is not _interrupt:
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _interrupt)


def wait() -> NoReturn:
    """Waits for Ctrl-C, while other threads work."""
    while True:
        pause(_LOOK)


def pause(seconds: float) -> None:
    """Waits so long, or until Ctrl-C."""
    end = time.monotonic() + seconds
    while (remaining := end - time.monotonic()) > 0:
        # Not longer: Python handles a signal after the call that it comes right before.
        time.sleep(min(remaining, _LOOK))


def run(command: Callable[[], object]) -> None:
    """Calls a command, which ends by SystemExit; with Ctrl-C as said above, unless it is ignored here."""
    if signal.getsignal(signal.SIGINT) is not _leave:
        command()
        return
    sys.unraisablehook = _unraisable
    try:
        try:
            signal.signal(signal.SIGINT, _interrupt)
            command()
        finally:
            signal.signal(signal.SIGINT, _leave)
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Ends the process for a KeyboardInterrupt that came where no error can be raised, as in a finalizer."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(unraisable)


def begin() -> None:
    """From now on Ctrl-C ends the process at once, unless it is ignored here."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
