"""Objects of a process that are known as long as something else holds them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

_T = TypeVar("_T")

# Dead ones are swept away at this number of entries, and then at twice the number of those that live.
_LEAST = 64


class Living(Generic[_T]):
    """A table of them. One thread at a time puts objects under keys of its own; any may add and iterate.

    No Python code runs when an object dies. That of the tables in `weakref` does, and a Ctrl-C that comes in it is
    lost: Python prints it as ignored, and continues.
    """

    def __init__(self) -> None:
        self._references: dict[Hashable, weakref.ref[_T]] = {}
        self._numbers = itertools.count()
        self._most = _LEAST

    def __iter__(self) -> Iterator[_T]:
        return (thing for reference in list(self._references.values()) if (thing := reference()) is not None)

    def get(self, key: Hashable) -> _T | None:
        """The object of a key; None: there is none, or it has died."""
        reference = self._references.get(key)
        return None if reference is None else reference()

    def put(self, key: Hashable, thing: _T) -> None:
        """Enters an object under a key."""
        if len(self._references) >= self._most:
            # A copy is made at once. A list of pairs is not: Python may collect garbage in between, and run other code.
            for entered, reference in self._references.copy().items():
                if reference() is None:
                    self._references.pop(entered, None)
            self._most = max(_LEAST, 2 * len(self._references))
        self._references[key] = weakref.ref(thing)

    def add(self, thing: _T) -> None:
        """Enters an object under a key that no other has had."""
        self.put(next(self._numbers), thing)
