"""What is left of a store's files when the power fails: a disk that keeps what was synced and any part of the rest.

Changes to files are noted as the engine makes them. From the first N of them a folder is made:

- bytes of a file that were synced are there; each later write to it is there, or not, or half, or as zeros;
- names in a folder that was synced are there; of later changes to its names, the first few are. A renaming is there
  as a whole or not at all, as file systems with a journal have it.
"""

import itertools
import math
import os
from dataclasses import dataclass, field

from tests.store_tools import observed

_GONE = object()
_INDEXES = (".index", ".timeindex", ".segments")


@dataclass(eq=False)
class _Inode:
    durable: bytearray = field(default_factory=bytearray)
    pending: list = field(default_factory=list)  # (position, bytes; None for a truncation)
    is_index: bool = False


@dataclass(eq=False)
class _Folder:
    names: dict = field(default_factory=dict)  # as the running program sees them
    durable: dict = field(default_factory=dict)
    pending: list = field(default_factory=list)  # changes to names, each a list of (folder, name, what)


class Trace:
    """The changes that a program makes below a folder, and marks that it sets between them."""

    def __init__(self, root):
        """What is in the folder by now is on the disk."""
        self.root = str(root)
        self.changes = []
        self.marks = []
        self._inodes = {}
        self._begin = _load(self.root, self._inodes)

    def record(self, program):
        with observed(self.changes.append):
            program()

    def mark(self, what):
        self.marks.append((len(self.changes), what))

    def disks(self, counts):
        """The disk after each of some numbers of changes, ascending; good until the next one is asked for."""
        inodes = {number: _Inode(bytearray(data)) for number, data in self._inodes.items()}
        disk, done = _Disk(self.root, _folder_of(self._begin, inodes)), 0
        for count in counts:
            for change in self.changes[done:count]:
                disk.make(change)
            done = count
            yield count, disk


def _load(path, known):
    """The names in a folder, and for each file the number of its inode, whose bytes are put into `known`."""
    if not os.path.isdir(path):
        return None
    found = {}
    for name in os.listdir(path):
        below = f"{path}/{name}"
        if os.path.isdir(below):
            found[name] = _load(below, known)
        else:
            number = os.stat(below).st_ino
            if number not in known:
                with open(below, "rb") as file:
                    known[number] = file.read()
            found[name] = number
    return found


def _folder_of(content, inodes):
    if content is None:
        return None
    names = {
        name: _folder_of(what, inodes) if isinstance(what, dict) else inodes[what] for name, what in content.items()
    }
    return _Folder(dict(names), dict(names))


class _Disk:
    def __init__(self, root, content):
        self._above = _Folder()
        self._root = root
        if content is not None:
            self._above.names[os.path.basename(root)] = self._above.durable[os.path.basename(root)] = content

    # ---- changes

    def make(self, change):
        getattr(self, "_" + change.kind)(change)

    def _folder(self, path):
        if path == os.path.dirname(self._root):
            return self._above
        return self._folder(os.path.dirname(path)).names[os.path.basename(path)]

    def _find(self, path):
        return self._folder(os.path.dirname(path)).names.get(os.path.basename(path))

    def _note(self, *names):
        """A change to names, in one piece."""
        unit = [(self._folder(os.path.dirname(path)), os.path.basename(path), what) for path, what in names]
        for folder, name, what in unit:
            _set(folder.names, name, what)
        for folder in {id(folder): folder for folder, _, _ in unit}.values():
            folder.pending.append(unit)

    def _create(self, change):
        if self._find(change.path) is None:
            self._note((change.path, _Inode(is_index=change.path.endswith(_INDEXES))))

    def _mkdir(self, change):
        if self._find(change.path) is None:
            self._note((change.path, _Folder()))

    def _rmdir(self, change):
        if self._find(change.path) is not None:
            self._note((change.path, _GONE))

    def _link(self, change):
        found = self._find(change.path)
        if found is not None and self._find(change.target) is None:
            self._note((change.target, found))

    def _rename(self, change):
        found = self._find(change.path)
        if found is not None:
            self._note((change.path, _GONE), (change.target, found))

    def _unlink(self, change):
        if self._find(change.path) is not None:
            self._note((change.path, _GONE))

    def _write(self, change):
        self._find(change.path).pending.append((change.position, change.data))

    def _truncate(self, change):
        self._find(change.path).pending.append((change.position, None))

    def _set_modified(self, change):
        """Times are not among what is compared."""

    def _sync(self, change):
        inode = self._find(change.path)
        for one in inode.pending:
            _apply(inode.durable, *one)
        inode.pending.clear()

    def _failed_sync(self, change):
        # Later syncs see nothing to be written. A truncation is in the journal, and not lost.
        inode = self._find(change.path)
        inode.pending = [one for one in inode.pending if one[1] is None]

    def _sync_folder(self, change):
        folder = self._folder(change.path)
        while folder.pending:
            self._commit(folder.pending[0])

    def _commit(self, unit):
        for folder in {id(folder): folder for folder, _, _ in unit}.values():
            while folder.pending[0] is not unit:
                self._commit(folder.pending[0])
        for folder, name, what in unit:
            _set(folder.durable, name, what)
            if unit in folder.pending:
                folder.pending.remove(unit)

    # ---- what is left

    def write(self, target, fate):
        """Makes a folder of what is left by a fate."""
        top = fate.folders.get(id(self._above), self._above.durable)
        root = top.get(os.path.basename(self._root))
        if root is not None:
            self._write_folder(root, target, fate, {})

    def _write_folder(self, folder, target, fate, made):
        os.mkdir(target)
        for name, what in fate.folders.get(id(folder), folder.durable).items():
            path = f"{target}/{name}"
            if isinstance(what, _Folder):
                self._write_folder(what, path, fate, made)
            elif id(what) in made:
                os.link(made[id(what)], path)  # Two names of one file stay that.
            else:
                made[id(what)] = path
                with open(path, "wb") as file:
                    file.write(fate.inodes.get(id(what), what.durable))

    def nothing(self):
        """Nothing stays of what was not synced."""
        return self._fate([0] * len(self._pending_folders()), lambda _: "lost")

    def everything(self):
        """Everything stays."""
        return self._fate([len(folder.pending) for folder in self._pending_folders()], lambda _: "kept")

    def any_part(self, random):
        """Some part of it stays; of writes also halves, or zeros in their place."""
        lengths = [random.randint(0, len(folder.pending)) for folder in self._pending_folders()]
        return self._fate(lengths, lambda _: random.choice(["lost", "kept", "half", "zeros"]))

    def subsets(self, limit, random):
        """Every combination of writes that stay and of how many changes to names do; `limit` of them if there are more.

        Returns:
            How many there are, and the fates.
        """
        folders = self._pending_folders()
        # The entries of indexes change nothing that readers see, so they stay together.
        writes, of_indexes = [], []
        for inode in self._pending_inodes():
            ones = [(id(inode), number) for number in range(len(inode.pending))]
            if inode.is_index:
                of_indexes += ones
            else:
                writes += [[one] for one in ones]
        writes += [of_indexes] if of_indexes else []
        ranges = [range(len(folder.pending) + 1) for folder in folders] + [range(2)] * len(writes)
        total = math.prod(map(len, ranges))
        if total <= limit:
            choices = itertools.product(*ranges)
        else:
            choices = ([random.choice(one) for one in ranges] for _ in range(limit))
        return total, (self._subset(choice, folders, writes) for choice in choices)

    def _subset(self, choice, folders, writes):
        kept = {one for write, stays in zip(writes, choice[len(folders) :], strict=True) if stays for one in write}
        return self._fate(choice[: len(folders)], lambda write: "kept" if write in kept else "lost")

    def _fate(self, lengths, fate_of_write):
        """How many of its changes to names each folder keeps, and what becomes of each write."""
        folders = self._pending_folders()
        kept = {
            id(unit)
            for folder, length in zip(folders, lengths, strict=True)
            for unit in folder.pending[:length]
            if unit[-1][0] is folder  # A renaming belongs to the folder of the new name.
        }
        fate = _Fate()
        for folder in folders:
            names = fate.folders[id(folder)] = dict(folder.durable)
            for unit in folder.pending:
                if id(unit) in kept:
                    for where, name, what in unit:
                        if where is folder:
                            _set(names, name, what)
        for inode in self._pending_inodes():
            fate.inodes[id(inode)] = _content(inode, fate_of_write)
        return fate

    def _pending_folders(self):
        return [folder for folder in self._all() if isinstance(folder, _Folder) and folder.pending]

    def _pending_inodes(self):
        return [inode for inode in self._all() if isinstance(inode, _Inode) and inode.pending]

    def _all(self):
        """All that any name refers to, or may refer to again."""
        found, waiting = {}, [self._above]
        while waiting:
            one = waiting.pop()
            if id(one) in found:
                continue
            found[id(one)] = one
            if isinstance(one, _Folder):
                waiting += [*one.names.values(), *one.durable.values()]
                waiting += [what for unit in one.pending for _, _, what in unit if what is not _GONE]
        return list(found.values())


class _Fate:
    def __init__(self):
        self.folders, self.inodes = {}, {}


def _set(names, name, what):
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


def _content(inode, fate_of_write):
    data = bytearray(inode.durable)
    for number, (position, what) in enumerate(inode.pending):
        fate = fate_of_write((id(inode), number))
        if fate == "lost" or data[position : position + len(what or b"")] == what:
            # The same bytes once more, in place: whichever of them arrive, nothing is another one.
            continue
        if what is not None and fate == "half":
            what = what[: len(what) // 2]  # noqa: PLW2901
        if what is not None and fate == "zeros":
            what = bytes(len(what))  # noqa: PLW2901
        _apply(data, position, what)
    return bytes(data)
