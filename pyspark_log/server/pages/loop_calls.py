"""How the threads of HTTP ask the loop."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from pyspark_log.server.network import Loop

_T = TypeVar("_T")

# How long the loop may take until it answers, in seconds; it never waits for anything but sockets.
_PATIENCE = 5.0


class LoopStuckError(TimeoutError):
    """The loop does not answer."""


def in_loop(loop: Loop, function: Callable[[], _T]) -> _T:
    """Calls a function in the thread of the loop. LoopStuckError."""
    results = SimpleQueue[_T]()
    if not loop.is_closed:
        loop.call_from_elsewhere(lambda: results.put(function()))
    try:
        return results.get(timeout=_PATIENCE)
    except Empty:
        raise LoopStuckError(f"the server has not answered for {_PATIENCE:g} s") from None
