"""What a test sees of the requests to object stores: each before it is made, and after its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """One request to an object store.

    Attributes:
        kind: "put", "create", "get", "get_ranges", "list" or "delete".
        key: the name of the object, below the store's prefix; of several, the first; of a list, the prefix.
        size: bytes that are written; 0 for other kinds.
        is_done: whether it was answered; False: it is about to be made.
    """

    kind: str
    key: str
    size: int = 0
    is_done: bool = False


_observer: Callable[[Request], None] | None = None


def set_observer(observer: Callable[[Request], None] | None) -> None:
    """Calls `observer` before and after each request of this process; None ends that. For tests.

    What it raises instead of a request is raised by the call, as if the process had been stopped there.
    """
    global _observer  # noqa: PLW0603  (one seam for the whole process is the point)
    _observer = observer


def notify(kind: str, key: str, size: int = 0, *, is_done: bool = False) -> None:
    """Reports a request to the observer, if there is one."""
    if _observer is not None:
        _observer(Request(kind, key, size, is_done))
