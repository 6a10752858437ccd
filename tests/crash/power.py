"""What is left of a store's files when the power goes: a disk that keeps what was synced and any part of the rest.

Changes to files are noted as the engine makes them. From the first so many of them a folder is made:

- bytes of a file that were synced are there; each later write to it is there, or not, or half, or as zeros;
- names in a folder that was synced are there; of later changes to its names, the first few are.
"""

import os
from dataclasses import dataclass, field

from pyspark_log.storage import files


@dataclass
class _Inode:
    durable: bytearray = field(default_factory=bytearray)
    pending: list = field(default_factory=list)


@dataclass
class _Folder:
    durable: dict = field(default_factory=dict)  # name -> inode, or None for a folder
    pending: list = field(default_factory=list)  # (name, inode or None or _GONE)


_GONE = object()


class Trace:
    """The changes that a program makes below a folder, and marks that it sets between them."""

    def __init__(self, root):
        self.root = str(root)
        self.changes = []
        self.marks = []

    def record(self, program):
        files.set_observer(self.changes.append)
        try:
            program()
        finally:
            files.set_observer(None)

    def mark(self, what):
        self.marks.append((len(self.changes), what))

    def leave(self, count, target, random, mode):
        """Writes into `target` what the first `count` changes leave. `mode`: "nothing", "everything" or "any"."""
        disk = _Disk(self.root)
        for change in self.changes[:count]:
            disk.make(change)
        disk.write(str(target), random, mode)


class _Disk:
    def __init__(self, root):
        self._root = root
        self._names = {}  # path -> inode, as the running program sees it
        self._folders = {os.path.dirname(root): _Folder(), root: _Folder()}

    def make(self, change):
        getattr(self, "_" + change.kind)(change)

    def _note(self, path, what):
        self._folders.setdefault(os.path.dirname(path), _Folder()).pending.append((os.path.basename(path), what))

    def _create(self, change):
        self._names[change.path] = _Inode()
        self._note(change.path, self._names[change.path])

    def _mkdir(self, change):
        self._folders.setdefault(change.path, _Folder())
        self._note(change.path, None)

    def _link(self, change):
        if change.target in self._names:
            return  # It fails: another was there first.
        self._names[change.target] = self._names[change.path]
        self._note(change.target, self._names[change.path])

    def _rename(self, change):
        inode = self._names[change.target] = self._names.pop(change.path)
        self._note(change.path, _GONE)
        self._note(change.target, inode)

    def _unlink(self, change):
        if self._names.pop(change.path, None) is not None:
            self._note(change.path, _GONE)

    def _write(self, change):
        self._names[change.path].pending.append((change.position, change.data))

    def _truncate(self, change):
        self._names[change.path].pending.append((change.position, None))

    def _sync(self, change):
        inode = self._names[change.path]
        for one in inode.pending:
            _apply(inode.durable, *one)
        inode.pending.clear()

    def _sync_folder(self, change):
        folder = self._folders[change.path]
        for name, what in folder.pending:
            _rename_in(folder.durable, name, what)
        folder.pending.clear()

    def write(self, target, random, mode):
        kept = {}
        for path, folder in self._folders.items():
            names = dict(folder.durable)
            length = {"nothing": 0, "everything": len(folder.pending)}.get(mode, random.randint(0, len(folder.pending)))
            for name, what in folder.pending[:length]:
                _rename_in(names, name, what)
            kept[path] = names
        self._write_folder(self._root, target, kept, random, mode)

    def _write_folder(self, path, target, kept, random, mode):
        os.makedirs(target, exist_ok=True)
        for name, inode in kept.get(path, {}).items():
            if inode is None:
                self._write_folder(f"{path}/{name}", f"{target}/{name}", kept, random, mode)
            else:
                with open(f"{target}/{name}", "wb") as file:
                    file.write(_content(inode, random, mode))


def _rename_in(names, name, what):
    if what is _GONE:
        names.pop(name, None)
    else:
        names[name] = what


def _apply(data, position, what):
    if what is None:
        data[position:] = bytes(max(0, position - len(data)))
    else:
        data.extend(bytes(max(0, position - len(data))))
        data[position : position + len(what)] = what


def _content(inode, random, mode):
    data = bytearray(inode.durable)
    for position, what in inode.pending:
        fate = {"nothing": "lost", "everything": "kept"}.get(mode) or random.choice(["lost", "kept", "half", "zeros"])
        if fate == "lost":
            continue
        if what is not None and fate == "half":
            what = what[: len(what) // 2]  # noqa: PLW2901
        if what is not None and fate == "zeros":
            what = bytes(len(what))  # noqa: PLW2901
        _apply(data, position, what)
    return bytes(data)
