"""What the checks have done by themselves and by the other side: small operations on files, asked for by name.

The other side is a second process (second_process.py) or a run on another host (peer.py). Both carry out the
same operations, so the same checks work with both. Requests and replies are JSON; file names are relative to
the folder of the tests, as another host may have it mounted elsewhere; bytes travel as hexadecimal text.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Sequence
from typing import Any, Protocol

from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state import PartitionState, state_file


class Side(Protocol):
    """A process that carries out operations: this one or the other side."""

    def ask(self, operation: str, *arguments: Any) -> Any:  # noqa: ANN401  (each operation has its own result)
        """Has a method of `Operations` done, by name; returns its result. OSError: what it raised, or no answer."""


def try_flock(file: files.File) -> bool:
    """Takes the exclusive lock of an open file if it is free."""
    try:
        fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def slot_state(number: int) -> PartitionState:
    """A state whose fields all follow from `number`, so that parts of two of them cannot pass for a whole one."""
    return PartitionState(
        log_start=number,
        active_base=number,
        next_offset=number,
        high_watermark=number,
        position=number,
        synced=number,
        reserve=number,
        applied=number,
        first_undone=number,
        intent_decision=number,
        intent_next=number,
        intent_base=number,
        intent_position=number,
    )


class Operations:
    """Carries out the operations in a folder. Files stay open between them, as they do in the engine."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._open: dict[str, files.File] = {}

    def ask(self, operation: str, *arguments: Any) -> Any:  # noqa: ANN401
        """See Side."""
        return getattr(self, operation)(*arguments)

    def close(self) -> None:
        """Closes all files."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def path(self, name: str) -> str:
        """Where a file of the tests is."""
        return f"{self._folder}/{name}"

    def _file(self, name: str) -> files.File:
        if name not in self._open:
            self._open[name] = files.open_write(self.path(name))
        return self._open[name]

    def try_lock(self, name: str) -> bool:
        """Takes the file's lock if it is free."""
        return try_flock(self._file(name))

    def unlock(self, name: str) -> None:
        """Releases the file's lock."""
        fcntl.flock(self._file(name).fd, fcntl.LOCK_UN)

    def read(self, name: str, position: int, size: int) -> str:
        """The bytes at a position; fewer at the end of the file."""
        return self._file(name).pread(size, position).hex()

    def write(self, name: str, position: int, data: str) -> None:
        """Writes bytes at a position, and syncs them."""
        self._file(name).pwrite(bytes.fromhex(data), position)
        self._file(name).sync()

    def size(self, name: str) -> int:
        """The file's size in bytes."""
        return self._file(name).size()

    def create_all(self, names: Sequence[str]) -> list[bool]:
        """Creates each missing file; True for those that this call created."""
        return [self._made(name) for name in names]

    def _made(self, name: str) -> bool:
        try:
            files.create(self.path(name)).close()
        except FileExistsError:
            return False
        return True

    def link_all(self, name: str, targets: Sequence[str]) -> list[bool]:
        """Links a file to each free name; True for those that this call linked."""
        return [self._linked(name, target) for target in targets]

    def _linked(self, name: str, target: str) -> bool:
        try:
            files.link(self.path(name), self.path(target))
        except FileExistsError:
            return False
        return True

    def watch(self, name: str, size: int, seconds: float, most: float) -> dict[str, int]:
        """Opens and reads a file again and again, which others replace by files of `size` equal bytes.

        Args:
            name: the file.
            size: its size in bytes.
            seconds: for how long.
            most: for how long until another content is seen: on a busy machine the others may have had no turn.

        Returns:
            How often it was read, how many of its contents were seen, how often it was missing, and how often
            it was not whole.
        """
        reads = missing = torn = 0
        seen: set[bytes] = set()
        began = time.monotonic()
        while time.monotonic() < began + (seconds if len(seen) > 1 else most):
            reads += 1
            try:
                with files.open_read(self.path(name)) as file:
                    data = file.pread(size + 1, 0)
            except FileNotFoundError:
                missing += 1
                continue
            torn += len(data) != size or data.count(data[:1]) != size
            seen.add(data)
        return {"reads": reads, "contents": len(seen), "missing": missing, "torn": torn}

    def write_slots(self, name: str, seconds: float) -> int:
        """Moves the end in a state file without pause, as a writer does that holds its lock; returns how often."""
        file = self._file(name)
        fcntl.flock(file.fd, fcntl.LOCK_EX)
        loaded = state_file.load(file)
        deadline = time.monotonic() + seconds
        number = 0
        while time.monotonic() < deadline:
            number += 1
            loaded = state_file.store(file, loaded, slot_state(number), durable=False)
        fcntl.flock(file.fd, fcntl.LOCK_UN)
        return number


def perform(operations: Operations, request: Sequence[Any]) -> dict[str, Any]:
    """Carries out a request, `[operation, argument, ...]`; the reply holds its result or its OSError."""
    try:
        return {"result": operations.ask(*request)}
    except OSError as error:
        return {"error": [error.errno, error.strerror or str(error), error.filename]}


def result_of(reply: dict[str, Any]) -> Any:  # noqa: ANN401
    """What a reply holds: the result is returned, the OSError raised."""
    if "error" in reply:
        raise OSError(*reply["error"])
    return reply["result"]
