"""The object store: objects that are put, read, deleted and listed, each in one step; and the days that pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..checker.machine import Thing

#: What comes of a put-if-absent.
CREATED, REFUSED, LOST = "created", "refused", "lost"


class Held(NamedTuple):
    """The objects of one kind.

    Attributes:
        objects: pairs of a key and the content, by key.
        failing: how many more answers are wrong: lost, or a refusal though nothing is there.
        late: requests whose answer was lost, and which may be served later: pairs of a key and the content.
    """

    objects: tuple[tuple[Any, Any], ...] = ()
    failing: int = 0
    late: tuple[tuple[Any, Any], ...] = ()

    def get(self, key: Any) -> Any:
        return next((content for at, content in self.objects if at == key), None)

    def having(self, key: Any, content: Any) -> Held:
        """With an object; None as its content: without it."""
        others = [one for one in self.objects if one[0] != key]
        return self._replace(objects=tuple(sorted(others if content is None else [*others, (key, content)])))


class Objects(Thing):
    """The objects of one kind."""

    reads = frozenset({"get", "list"})

    @classmethod
    def do_get(cls, value: Held, key: Any) -> Any:
        """The content; None: there is no such object."""
        return value, value.get(key)

    @classmethod
    def do_list(cls, value: Held) -> Any:
        return value, tuple(key for key, _ in value.objects)

    @classmethod
    def do_put(cls, value: Held, key: Any, content: Any) -> Any:
        return value.having(key, content), None

    @classmethod
    def do_delete(cls, value: Held, key: Any) -> Any:
        return value.having(key, None), None

    @classmethod
    def do_create(cls, value: Held, key: Any, content: Any) -> Any:
        """Puts an object if it is absent. An answer can be lost, and an object refused though there is none."""
        is_there = value.get(key) is not None
        new = value if is_there else value.having(key, content)
        found = [(new, REFUSED if is_there else CREATED)]
        if value.failing:
            fewer = new._replace(failing=value.failing - 1)
            late = value._replace(failing=value.failing - 1, late=(*value.late, (key, content)))
            found += [(fewer, LOST), (late, LOST), (value._replace(failing=value.failing - 1), REFUSED)]
        return found


def arrivals(values: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """What a request for a decision that is served late makes of the log; that it is not served needs no step."""
    log: Held = values["log"]
    for number, (key, content) in enumerate(log.late):
        if log.get(key) is None:
            left = log.late[:number] + log.late[number + 1 :]
            yield {"log": log.having(key, content)._replace(late=left)}


class Clock(Thing):
    """The day. How long a process sleeps is how many days pass between two of its steps."""

    reads = frozenset({"get"})

    @classmethod
    def do_get(cls, value: int) -> Any:
        return value, value
