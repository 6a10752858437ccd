"""Threads for what may wait for a disk or a lock, so that the loop never does."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, TypeVar

from pyspark_log.server.network.loop import Loop, Wait

T = TypeVar("T")


class Workers:
    """Runs functions in a few threads.

    The loop is woken once for all that finishes meanwhile.
    """

    def __init__(self, loop: Loop, count: int) -> None:
        """Starts `count` threads; results are delivered in the loop's."""
        self._loop = loop
        self._queue: SimpleQueue[tuple[Wait[Any], Callable[..., Any], tuple[Any, ...]] | None] = SimpleQueue()
        self._done = deque[tuple[Wait[Any], Any, Exception | None]]()
        self._is_called = False  # whether the loop is about to look at it
        self._threads = [
            threading.Thread(target=self._work, name=f"worker {number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, function: Callable[..., T], *arguments: object) -> Wait[T]:
        """Calls a function in one of the threads; its error is that of the wait."""
        wait: Wait[T] = Wait()
        self._queue.put((wait, function, arguments))
        return wait

    def deliver(self, results: Iterable[tuple[Wait[Any], Any, Exception | None]]) -> None:
        """Ends waits in the loop's thread, each with a result or an error; for other threads."""
        self._done.extend(results)
        # The loop looks at what there is after it has noted that it was called: nothing stays there.
        if not self._is_called and not self._loop.is_closed:
            self._is_called = True
            self._loop.call_from_elsewhere(self._deliver)

    def close(self) -> None:
        """Ends the threads after all that was given to them; results are not delivered any more."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            wait, function, arguments = job
            value, failure, began = None, None, self._loop.time()
            try:
                value = function(*arguments)
            except Exception as error:  # noqa: BLE001  (it is raised where the result is awaited)
                failure = error
            wait.worked = self._loop.time() - began
            self.deliver([(wait, value, failure)])
            del job, wait, function, arguments, value, failure

    def _deliver(self) -> None:
        self._is_called = False
        while self._done:
            wait, value, failure = self._done.popleft()
            if failure is None:
                wait.finish(value)
            else:
                wait.fail(failure)
