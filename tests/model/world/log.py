"""A partition's folder of segments.

- A segment is a row of cells; a cell is a record batch, whole with a right CRC, or scrap (None). Each write or
  truncation since the last sync is on the disk or not, and a write may be there as scrap.
- Of the names in the folder each change since its last sync is there or not.
- A sync of a file can fail: then what it was to make durable stays in memory, no later sync makes it durable, and any
  part of it may be on the disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..checker.machine import Thing
from .state_file import State


class Batch(NamedTuple):
    """A record batch: `what` identifies its records, and so its CRC; None: it has none and fills a gap."""

    base: int
    count: int
    what: Any

    @property
    def next(self) -> int:
        return self.base + self.count

    def __repr__(self) -> str:
        return f"[{self.base}..{self.next} {self.what}]"


#: A segment's content.
Cells = tuple[Batch | None, ...]


class File(NamedTuple):
    """A segment's content: cells that are synced, and changes since, each (position, cell) or (size,).

    `lost`: which of the changes are writes that a failed sync has left in memory, and only there perhaps.
    """

    synced: Cells = ()
    changes: tuple[tuple[Any, ...], ...] = ()
    lost: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        changes = [f" {'?' if number in self.lost else '+'} {change}" for number, change in enumerate(self.changes)]
        return f"{self.synced}{''.join(changes)}"

    @property
    def cells(self) -> Cells:
        return changed(self.synced, self.changes)

    def after(self, *change: Any) -> File:
        """With a change that is not synced."""
        return self._replace(changes=(*self.changes, change))

    def after_sync(self) -> File:
        """All of it is durable, but for what an earlier sync has lost."""
        good = [change for number, change in enumerate(self.changes) if number not in self.lost]
        # What was lost matters only as long as nothing came over it.
        still = tuple(
            self.changes[number]
            for number in sorted(self.lost)
            if all(
                later[0] != self.changes[number][0] if len(later) == 2 else later[0] > self.changes[number][0]
                for later in self.changes[number + 1 :]
            )
        )
        return File(changed(self.synced, good), still, frozenset(range(len(still))))

    def after_failed_sync(self) -> File:
        """Later syncs do not see what should have been written now. A truncation is in the journal and not lost."""
        return self._replace(lost=frozenset(number for number, change in enumerate(self.changes) if len(change) == 2))

    def crashed(self) -> list[File]:
        """What a power loss may leave."""
        fates = [("lost", "kept", "torn") if len(change) == 2 else ("lost", "kept") for change in self.changes]
        left = dict.fromkeys(
            changed(
                self.synced,
                [
                    (*change, "torn") if fate == "torn" else change
                    for change, fate in zip(self.changes, chosen, strict=True)
                    if fate != "lost"
                ],
            )
            for chosen in itertools.product(*fates)
        )
        return [File(cells) for cells in left]


def changed(cells: Cells, changes: Iterable[tuple[Any, ...]]) -> Cells:
    """Cells with changes made to them, in order."""
    now = list(cells)
    for position, *cell in changes:
        now += [None] * (position - len(now))
        if len(cell) == 2:
            cell = [_torn(now[position] if position < len(now) else None, cell[0])]  # noqa: PLW2901
        now[position:] = [*cell, *now[position + 1 :]] if cell else []
    return tuple(now)


def _torn(before: Batch | None, cell: Batch | None) -> Batch | None:
    """What a write leaves of which the disk has a part: scrap, but only where it differs from what was there."""
    if before is None or cell is None or before.what != cell.what:
        return None
    # The base offset is not under the CRC.
    return cell if before == cell else Batch(-1, cell.count, cell.what)


def whole_run(cells: Sequence[Batch | None], position: int, offset: int) -> tuple[Batch, ...]:
    """The batches from `position` on as long as each is whole and begins where the one before it ends."""
    found = []
    for batch in cells[position:]:
        if batch is None or batch.base != offset:
            break
        found.append(batch)
        offset = batch.next
    return tuple(found)


Name = Any


class Folder(NamedTuple):
    """A partition's folder, and what is staged for it, as both may name the same files.

    A name is the base of a segment, or a tuple that begins with a word; "staged" and "ready" are in the staging folder.

    Attributes:
        synced: names that are on the disk, each with the number of its file.
        pending: changes since, each of one name, (name, file) or (name, None), or of two at once.
        files: the files by number.
        failing: how many syncs of files may fail.
    """

    synced: tuple[tuple[Name, int], ...] = ()
    pending: tuple[tuple[tuple[Name, int | None], ...], ...] = ()
    files: tuple[tuple[int, File], ...] = ()
    failing: int = 0

    @property
    def names(self) -> dict[Name, int]:
        return _renamed(self.synced, self.pending)

    @property
    def segments(self) -> dict[int, int]:
        """The segments' bases, ascending, with their files."""
        return {name: number for name, number in sorted(self.names.items(), key=str_first) if isinstance(name, int)}

    def file(self, number: int) -> File:
        return dict(self.files).get(number, File())

    def with_file(self, number: int, file: File) -> Folder:
        return self._replace(files=tuple(sorted((dict(self.files) | {number: file}).items())))

    def with_names(self, *change: tuple[Name, int | None]) -> Folder:
        return self._replace(pending=(*self.pending, change))


def str_first(item: tuple[Name, Any]) -> tuple[Any, ...]:
    """Orders names: segments by their bases, then the others."""
    return (0, item[0]) if isinstance(item[0], int) else (1, str(item[0]))


def _renamed(
    names: Iterable[tuple[Name, int]], changes: Iterable[tuple[tuple[Name, int | None], ...]]
) -> dict[Name, int]:
    now = dict(names)
    for name, file in itertools.chain.from_iterable(changes):
        if file is None:
            now.pop(name, None)
        else:
            now[name] = file
    return now


def _is_staged(name: Name) -> bool:
    return not isinstance(name, int) and name[0] in ("staged", "ready")


def _sorted(names: dict[Name, int]) -> tuple[tuple[Name, int], ...]:
    return tuple(sorted(names.items(), key=str_first))


class Log(Thing):
    """A folder of segments. Files are known by number once they are open, whatever becomes of their names."""

    reads = frozenset({"bases", "has", "open", "cells", "readable", "written"})
    syncs = frozenset({"sync", "sync_folder", "stage"})

    @staticmethod
    def new(*cells: Batch, failing: int = 0) -> Folder:
        """One segment with these cells, synced. `failing`: how many syncs may fail."""
        return Folder(((0, 0),), (), ((0, File(cells)),), failing)

    # ---- reading

    @classmethod
    def do_bases(cls, folder: Folder) -> Any:
        return folder, tuple(folder.segments)

    @classmethod
    def do_has(cls, folder: Folder, name: Name) -> Any:
        return folder, name in folder.names

    @classmethod
    def do_open(cls, folder: Folder, name: Name) -> Any:
        return folder, folder.names.get(name)

    @classmethod
    def do_cells(cls, folder: Folder, file: int) -> Any:
        return folder, folder.file(file).cells

    @classmethod
    def do_readable(cls, folder: Folder, state: State) -> Any:
        """The batches that a reader comes to that has seen `state`, up to the first that is damaged."""
        return folder, readable(state, folder)

    @classmethod
    def do_written(cls, folder: Folder) -> Any:
        """The batches that are whole, wherever the log ends."""
        return folder, tuple(batch for _, file in folder.files for batch in file.cells if batch)

    # ---- names

    @classmethod
    def do_create(cls, folder: Folder, name: Name) -> Any:
        """Makes an empty file of a name that is free; gives its number."""
        assert name not in folder.names, f"{name} exists"
        number = 1 + max((number for number, _ in folder.files), default=-1)
        return folder.with_names((name, number)).with_file(number, File()), number

    @classmethod
    def do_unlink(cls, folder: Folder, name: Name) -> Any:
        return (folder.with_names((name, None)) if name in folder.names else folder), None

    @classmethod
    def do_link(cls, folder: Folder, name: Name, second: Name) -> Any:
        """Gives a file a second name; False if there is no such file."""
        if name not in folder.names:
            return folder, False
        return folder.with_names((second, folder.names[name])), True

    @classmethod
    def do_rename(cls, folder: Folder, name: Name, target: Name) -> Any:
        """Renames a file; one of the name `target` is replaced. A power loss finds one of the two names."""
        return folder.with_names((target, folder.names[name]), (name, None)), None

    @classmethod
    def do_sync_folder(cls, folder: Folder) -> Any:
        """The names of segments are on the disk. Those in the staging folder have their own sync."""
        done = [change for change in folder.pending if not _is_staged(change[0][0])]
        left = tuple(change for change in folder.pending if _is_staged(change[0][0]))
        return folder._replace(synced=_sorted(_renamed(folder.synced, done)), pending=left), None

    @classmethod
    def do_stage(cls, folder: Folder, name: Name, whats: Sequence[Any]) -> Any:
        """Puts batches with offsets from 0 into the staging folder, durably."""
        number = 1 + max((number for number, _ in folder.files), default=-1)
        cells = tuple(Batch(offset, 1, what) for offset, what in enumerate(whats))
        names = dict(folder.synced) | {name: number}
        return folder._replace(synced=_sorted(names)).with_file(number, File(cells)), None

    # ---- content

    @classmethod
    def do_write(cls, folder: Folder, file: int, position: int, cell: Batch) -> Any:
        return folder.with_file(file, folder.file(file).after(position, cell)), None

    @classmethod
    def do_truncate(cls, folder: Folder, file: int, size: int) -> Any:
        return folder.with_file(file, folder.file(file).after(size)), None

    @classmethod
    def do_sync(cls, folder: Folder, file: int) -> Any:
        """Syncs a file; False if that failed."""
        content = folder.file(file)
        done = (folder.with_file(file, content.after_sync()), True)
        if not folder.failing or len(content.changes) == len(content.lost):
            return done
        failed = folder.with_file(file, content.after_failed_sync())._replace(failing=folder.failing - 1)
        return [done, (failed, False)]

    # ---- what may become of it

    @classmethod
    def calm(cls, folder: Folder) -> Any:
        files = tuple((number, File(file.cells)) for number, file in folder.files)
        return Folder(_sorted(folder.names), (), files, folder.failing)

    @classmethod
    def crash(cls, folder: Folder) -> Iterable[Any]:
        for kept in itertools.product((False, True), repeat=len(folder.pending)):
            names = _sorted(_renamed(folder.synced, itertools.compress(folder.pending, kept)))
            # Numbers of files count only while one is open.
            anew = {number: place for place, number in enumerate(dict.fromkeys(number for _, number in names))}
            for files in itertools.product(*[folder.file(number).crashed() for number in anew]):
                yield Folder(
                    tuple((name, anew[number]) for name, number in names), (), tuple(enumerate(files)), folder.failing
                )


def readable(state: State, folder: Folder) -> tuple[Batch, ...]:
    """The batches from the log's start to its end, as far as each follows the one before it."""
    found: list[Batch] = []
    for base, number in folder.segments.items():
        cells = folder.file(number).cells[: state.position if base == state.base else None]
        for batch in cells if base <= state.base else ():
            if batch is None or (found and batch.base != found[-1].next):
                return tuple(found)
            found.append(batch)
    return tuple(found)
