"""What a request waits for: the result of another thread, records that are not there yet, other members of a group."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")


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
