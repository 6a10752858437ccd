"""The wait for what the library of an object store returns, which Ctrl-C ends.

The library does not look for signals while it waits, for a minute if need be, and Python handles them in the main
thread only. So requests of the main thread are made by another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread, current_thread, main_thread
from typing import Any, TypeVar

_T = TypeVar("_T")

# How long an answer is still waited for after Ctrl-C, in seconds. A request that takes no longer is never given up.
_PATIENCE = 1.0
# How often it is looked for signals, in seconds: one that comes right before a wait does not end it.
_LOOK = 0.5


class _Asker:
    """A thread that makes requests, one after the other.

    Attributes:
        process: the id of the process that it is in; a forked child has no such thread.
        requests: what it is to ask, and where the answer goes; None ends it.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.requests = SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]()
        Thread(target=self._run, name="pylog-objects", daemon=True).start()

    def _run(self) -> None:
        while (request := self.requests.get()) is not None:
            ask, future = request
            try:
                future.set_result(ask())
            except BaseException as error:  # noqa: BLE001  (the main thread raises it)
                future.set_exception(error)
            # What was read or written is not kept until the next request.
            del request, ask, future


# None while it has a request, and at first.
_asker: _Asker | None = None


def answer(ask: Callable[..., _T], *arguments: Any, **settings: Any) -> _T:  # noqa: ANN401  (whatever it takes)
    """What `ask` returns or raises.

    Ctrl-C, and what other signals raise, ends the wait within two seconds. Then it is not known whether the request was
    done, and it may even be done later.
    """
    global _asker  # noqa: PLW0603  (there is one main thread)
    if current_thread() is not main_thread():
        return ask(*arguments, **settings)
    asker, _asker = _asker, None
    if asker is None or asker.process != os.getpid():
        try:
            asker = _Asker()
        except RuntimeError:  # There are no new threads while Python ends, or where the system has none left.
            return ask(*arguments, **settings)
    future = Future[_T]()
    try:
        asker.requests.put((partial(ask, *arguments, **settings), future))
        while not future.done():
            with suppress(TimeoutError):
                future.exception(_LOOK)
        return future.result()
    except BaseException:
        with suppress(TimeoutError):
            future.exception(_PATIENCE)
        raise
    finally:
        if future.done():
            _asker = asker
        else:
            asker.requests.put(None)
        del future  # An error that it has, has this function's variables.
