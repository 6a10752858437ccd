"""The loop of a server: one thread calls functions when sockets are ready, when a time has come, or when others ask.

It does what a server needs of asyncio, and no more: asyncio takes 6 MB, of which most are OpenSSL's. A request waits
for the result of another thread, for records that are not there yet, or for other members of a group.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")

Action = Callable[..., object]
_Call = tuple[Action, tuple[object, ...]]


class Wait(Generic[T]):
    """Something that happens later in the thread of the loop; `await` gives its result.

    A request's coroutine is run by its connection, not by a task: most requests wait for nothing, and a task would
    take as long as all the rest of a small one. So only a `Wait` can be awaited in it.

    Attributes:
        value, error: what has come of it; without meaning before.
        worked: how long another thread has worked for it (s).
    """

    __slots__ = ("_happened", "_then", "error", "value", "worked")

    value: T

    def __init__(self) -> None:
        self._happened = False
        self._then: Callable[[], object] | None = None
        self.error: Exception | None = None
        self.worked = 0.0

    def finish(self, value: T) -> None:
        """It has happened; a second time has no effect."""
        if not self._happened:
            self.value = value
            self._go_on()

    def fail(self, error: Exception) -> None:
        """It has failed: `await` raises `error`."""
        if not self._happened:
            self.error = error
            self._go_on()

    def _go_on(self) -> None:
        self._happened = True
        if self._then is not None:
            self._then()

    def then(self, action: Callable[[], object]) -> None:
        """Calls `action` when it has happened."""
        if self._happened:
            action()
        else:
            self._then = action

    def pass_on(self, other: Wait[T]) -> None:
        """Ends another wait as this one has ended."""
        if self.error is None:
            other.finish(self.value)
        else:
            other.fail(self.error)

    def __await__(self) -> Generator[Wait[T], None, T]:
        if not self._happened:
            yield self
        if self.error is not None:
            raise self.error
        return self.value


class OthersFirst(Wait[None]):
    """Has happened already; `await` lets all go first that is due in the loop by now."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self._happened = True

    def __await__(self) -> Generator[Wait[None], None, None]:
        yield self


class Timer:
    """A call that is to come."""

    __slots__ = ("action", "arguments")

    def __init__(self, action: Action, arguments: tuple[object, ...]) -> None:
        self.action: Action | None = action
        self.arguments = arguments

    def cancel(self) -> None:
        """It does not come any more."""
        self.action, self.arguments = None, ()


class Loop:
    """Calls functions until it is stopped, in the thread of `run`. Other threads may only use `call_from_elsewhere`.

    What a function raises is logged, and the loop continues.

    Attributes:
        time: gives the seconds of a clock that nothing sets.
        wake_fd: a byte that is written here wakes the loop, as signal.set_wakeup_fd does.
        is_closed: whether it has ended.
    """

    time = staticmethod(time.monotonic)

    def __init__(self) -> None:
        """Runs nothing yet."""
        self._selector = selectors.DefaultSelector()
        self._soon = deque[_Call]()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._is_stopped = self.is_closed = False
        self._awoken, self.wake_fd = os.pipe()
        for fd in (self._awoken, self.wake_fd):
            os.set_blocking(fd, False)
        self.add_reader(self._awoken, self._drain)

    # ---- what is called when

    def call_soon(self, action: Action, *arguments: object) -> None:
        """Calls a function after those that are due now."""
        self._soon.append((action, arguments))

    def call_from_elsewhere(self, action: Action, *arguments: object) -> None:
        """The same from another thread, or from a handler of a signal. Nothing, if the loop is closed."""
        self._soon.append((action, arguments))
        # A pipe that is full wakes it, too; and a closed loop need not be woken.
        with contextlib.suppress(OSError):
            os.write(self.wake_fd, b"\0")

    def call_later(self, seconds: float, action: Action, *arguments: object) -> Timer:
        """Calls a function once, some time from now."""
        timer = Timer(action, arguments)
        heapq.heappush(self._timers, (self.time() + seconds, next(self._numbers), timer))
        return timer

    def start(self, coroutine: Coroutine[Wait[Any], None, T]) -> Wait[T]:
        """Runs a coroutine, which awaits only `Wait`s, to its end, whatever becomes of what waits for the result.

        An error is logged, and is that of the wait.
        """
        result: Wait[T] = Wait()

        def go_on() -> None:
            try:
                wait = coroutine.send(None)
            except StopIteration as end:
                result.finish(end.value)
            except Exception as error:  # noqa: BLE001  (it is raised where the result is awaited)
                _log.exception("an error that was not expected")
                result.fail(error)
            else:
                # Not at once: what it does next may finish the wait of another one, and so on.
                wait.then(lambda: self.call_soon(go_on))

        go_on()
        return result

    def add_reader(self, fd: int, action: Action) -> None:
        """Calls a function whenever something can be read."""
        self._set(fd, selectors.EVENT_READ, action)

    def remove_reader(self, fd: int) -> None:
        """Ends that."""
        self._set(fd, selectors.EVENT_READ, None)

    def add_writer(self, fd: int, action: Action) -> None:
        """Calls a function whenever something can be written."""
        self._set(fd, selectors.EVENT_WRITE, action)

    def remove_writer(self, fd: int) -> None:
        """Ends that."""
        self._set(fd, selectors.EVENT_WRITE, None)

    def _set(self, fd: int, event: int, action: Action | None) -> None:
        key = self._selector.get_map().get(fd)
        reader, writer = (None, None) if key is None else key.data
        if event == selectors.EVENT_READ:
            reader = action
        else:
            writer = action
        events = (selectors.EVENT_READ if reader else 0) | (selectors.EVENT_WRITE if writer else 0)
        if key is None:
            self._selector.register(fd, events, (reader, writer))
        elif events:
            self._selector.modify(fd, events, (reader, writer))
        else:
            self._selector.unregister(fd)

    # ---- running

    def run(self) -> None:
        """Returns after `stop`; at once, if that was called already."""
        while not self._is_stopped:
            for key, events in self._selector.select(self._idle_time()):
                reader, writer = key.data
                if events & selectors.EVENT_READ and reader is not None:
                    self._call(reader)
                if events & selectors.EVENT_WRITE and writer is not None:
                    self._call(writer)
            self._expire()
            # Those that these add come after the next look at the sockets.
            for _ in range(len(self._soon)):
                action, arguments = self._soon.popleft()
                self._call(action, *arguments)
        self._is_stopped = False

    def _call(self, action: Action, *arguments: object) -> None:
        try:
            action(*arguments)
        except Exception:  # noqa: BLE001  (what others wait for continues)
            _log.exception("an error that was not expected")

    def stop(self) -> None:
        """Ends `run` after what is due now."""
        self._is_stopped = True

    def close(self) -> None:
        """Drops all that is to come."""
        self.is_closed = True
        self._selector.close()
        os.close(self.wake_fd)
        os.close(self._awoken)

    def _idle_time(self) -> float | None:
        """How long to wait for sockets, in seconds; None: until one is ready."""
        if self._soon:
            return 0
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        return max(0, self._timers[0][0] - self.time()) if self._timers else None

    def _expire(self) -> None:
        now = self.time() if self._timers else 0
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.action is not None:
                self._call(timer.action, *timer.arguments)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self._awoken, 4096)) == 4096:
                pass
