"""The staging folder: tasks' output and manifests."""

from __future__ import annotations

from typing import Any

from ..checker.machine import Thing


class Staging(Thing):
    """The staging folder: names that are durable, and changes since; a file is whole once it has its name."""

    reads = frozenset({"has", "names"})
    syncs = frozenset({"sync"})

    @classmethod
    def do_has(cls, value: tuple[Any, Any], name: Any) -> Any:
        return value, name in staged(value)

    @classmethod
    def do_names(cls, value: tuple[Any, Any]) -> Any:
        return value, tuple(sorted(staged(value), key=str))

    @classmethod
    def do_make(cls, value: tuple[Any, Any], name: Any) -> Any:
        """Writes a file and syncs it; its name is not durable yet."""
        return (value[0], (*value[1], (name, True))), None

    @classmethod
    def do_unlink(cls, value: tuple[Any, Any], name: Any) -> Any:
        if name not in staged(value):
            return value, None
        return (value[0], (*value[1], (name, False))), None

    @classmethod
    def do_sync(cls, value: tuple[Any, Any]) -> Any:
        return (staged(value), ()), None

    @classmethod
    def calm(cls, value: tuple[Any, Any]) -> Any:
        return staged(value), ()

    @classmethod
    def crash(cls, value: tuple[Any, Any]) -> Any:
        durable, changes = value
        left = {durable}
        for name, there in changes:
            left |= {names | {name} if there else names - {name} for names in left}
        return [(names, ()) for names in sorted(left, key=lambda names: sorted(map(str, names)))]


def staged(value: tuple[Any, Any]) -> frozenset[Any]:
    """The names in the staging folder."""
    names, changes = value
    for name, there in changes:
        names = names | {name} if there else names - {name}
    return frozenset(names)
