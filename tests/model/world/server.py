"""A partition's files on a server that other hosts use, too; and the process that it thinks holds the partition's lock.

Every write is with the server at once. What a host has in its memory and sends late is a step that comes late.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..checker.machine import Thing
from .log import Folder, Log
from .state_file import Slots, State, StateFile


class Served(NamedTuple):
    """The files, and the holder of the lock; -1: none."""

    file: Slots
    folder: Folder
    holder: int = -1


class Server(Thing):
    """What a server does; it is always there. The log's operations are those of Log."""

    reads = frozenset({"acquire", "release", "load", "bases", "has", "open", "cells"})

    @classmethod
    def do_acquire(cls, value: Served, process: int) -> Any:
        return [(value._replace(holder=process), None)] if value.holder < 0 else []

    @classmethod
    def do_release(cls, value: Served, process: int) -> Any:
        return value._replace(holder=-1 if value.holder == process else value.holder), None

    @classmethod
    def released(cls, value: Served, process: int) -> Any:
        return cls.do_release(value, process)[0]

    @classmethod
    def do_load(cls, value: Served) -> Any:
        return value, StateFile.do_load(value.file)[1]

    @classmethod
    def do_save(cls, value: Served, process: int, state: State, guarded: bool) -> Any:
        """Writes a state; False if the writer has lost its lock (and the server is `guarded`: it minds)."""
        if guarded and value.holder != process:
            return value, False
        return value._replace(file=StateFile.calm(StateFile.do_write(value.file, (0, 1, 2, 3), state)[0])), True

    @classmethod
    def do_by_name(cls, value: Served, process: int, claimed: bool, name: str, *args: Any) -> Any:
        """Makes, removes or renames a file right after a claim, as one step: (result,), or False if it was refused."""
        if claimed and value.holder != process:
            return value, False
        if name == "create" and args[0] in value.folder.names:
            return value, False
        folder, result = getattr(Log, "do_" + name)(value.folder, *args)
        return value._replace(folder=Log.calm(folder)), (result,)


def _add(name: str) -> None:
    do = getattr(Log, "do_" + name)

    def done(value: Served, *args: Any) -> Any:
        folder, result = do(value.folder, *args)
        return value._replace(folder=folder if folder is value.folder else Log.calm(folder)), result

    setattr(Server, "do_" + name, staticmethod(done))


for _name in ("bases", "has", "open", "cells", "write", "truncate", "sync_folder"):
    _add(_name)
