"""All changes that the engine makes to files, and all lookups by name, in one place.

There are two reasons. The rules of durable change (write all bytes, sync the file, then the folder; replace
a file by renaming a complete one over it) are written once. And a test can observe each change before it is
made: stop the program there, or record the change to replay any part of it later.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark_log.storage.fs.background import Background
from pyspark_log.storage.fs.clock import SYNCS
from pyspark_log.storage.fs.open_file import OpenFile

#: Limited by the umask: executors may run as other users of the same group.
FILE_MODE = 0o666
FOLDER_MODE = 0o777


@dataclass(frozen=True, slots=True)
class Change:
    """One change to files, reported to the observer before it is made.

    Attributes:
        kind: "create", "write", "truncate", "set_modified", "sync", "mkdir", "rmdir", "rename", "link", "unlink" or
            "sync_folder".
        path: the file or folder.
        target: the second name, for "rename" and "link".
        position: where, in bytes, for "write"; the new size, for "truncate".
        data: the bytes, for "write".
    """

    kind: str
    path: str
    target: str = ""
    position: int = 0
    data: bytes = b""


_observer: Callable[[Change], None] | None = None


def set_observer(observer: Callable[[Change], None] | None) -> None:
    """Calls `observer` before each change to files in this process; None ends that. For tests."""
    global _observer  # noqa: PLW0603  (one seam for the whole process is the point)
    _observer = observer


def _notify(
    kind: str, path: str, target: str = "", position: int = 0, data: bytes | bytearray | memoryview = b""
) -> None:
    if _observer is not None:
        _observer(Change(kind, path, target, position, bytes(data)))


def _sync(fd: int) -> None:
    began = time.monotonic()
    if sys.platform == "darwin":
        import fcntl  # noqa: PLC0415

        # On macOS fsync leaves the bytes in the drive's cache.
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)
    SYNCS.add(time.monotonic() - began)


def _named(error: OSError, path: str) -> OSError:
    """Returns the error with the name of the file, which calls on a descriptor do not know."""
    return OSError(error.errno, error.strerror, path)


class File(OpenFile):
    """An open file that is read and written at positions; it has no position of its own.

    So threads and forked children can share one without disturbing each other. A dropped one is closed without a
    warning, and without a line of Python.
    """

    __slots__ = ()

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        try:
            return os.pread(self.fd, size, position)
        except OSError as error:
            raise _named(error, self.path) from None

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fills `buffer` from `position` on; returns how many bytes there were."""
        done = 0
        try:
            while done < len(buffer):
                got = os.preadv(self.fd, [buffer[done:]], position + done)
                if got == 0:
                    break
                done += got
        except OSError as error:
            raise _named(error, self.path) from None
        return done

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Writes all of `data` at `position`. OSError: any part of it may have been written."""
        if _observer is not None:
            _notify("write", self.path, position=position, data=data)
        self.write_all(data, position)

    def truncate(self, size: int) -> None:
        """Makes the file `size` bytes long."""
        _notify("truncate", self.path, position=size)
        try:
            os.ftruncate(self.fd, size)
        except OSError as error:
            raise _named(error, self.path) from None

    def modified(self) -> int:
        """The file's modification time, in ns since the epoch."""
        return os.fstat(self.fd).st_mtime_ns

    def set_modified(self, time: int) -> None:
        """Sets the file's modification time to `time`, in ns since the epoch."""
        _notify("set_modified", self.path)
        try:
            os.utime(self.fd, ns=(time, time))
        except OSError as error:
            raise _named(error, self.path) from None

    def sync(self) -> None:
        """Makes the bytes and the size of the file durable."""
        _notify("sync", self.path)
        try:
            _sync(self.fd)
        except OSError as error:
            raise _named(error, self.path) from None

    def drop_cached(self) -> None:
        """Drops synced pages from the cache, if the system allows that, so that the next reads ask the disk."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def size(self) -> int:
        """The file's size in bytes."""
        return os.fstat(self.fd).st_size

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BackgroundWriter(Background):
    """Writes to files, each time while the caller prepares the next write. Use it in a `with` block.

    No write outlives the block, whatever signals arrive.
    """

    def pwrite(self, file: File, data: bytes | bytearray | memoryview, position: int) -> None:
        """Begins to write all of `data` at `position`; it must not change before the next call or the block's end.

        Raises:
            OSError: the write before this one failed; any part of it may have been written. The end of the block
                raises that of the last one.
        """
        _notify("write", file.path, position=position, data=data)
        self.begin(file.write_all, data, position)


def open_read(path: str) -> File:
    """Opens an existing file for reading. FileNotFoundError, PermissionError."""
    return File(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def read_whole(path: str, limit: int) -> bytes:
    """Returns the bytes of a small file.

    Raises:
        FileNotFoundError, PermissionError: as `open_read`.
        ValueError: it has more than `limit` bytes, which no file of its kind has.
    """
    with open_read(path) as file:
        size = file.size()
        if size > limit:
            raise ValueError(f"it has {size} bytes, more than the maximum of {limit}")
        return file.pread(size, 0)


def open_write(path: str) -> File:
    """Opens an existing file for reading and writing. FileNotFoundError, PermissionError."""
    return File(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))


def open_or_create(path: str) -> File:
    """Opens a file for reading and writing, and creates it, empty, if it is missing."""
    try:
        return open_write(path)
    except FileNotFoundError:
        _notify("create", path)
        return File(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def create(path: str, mode: int = FILE_MODE) -> File:
    """Creates a new file and opens it. FileExistsError if there is one of that name."""
    _notify("create", path)
    return File(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))


def make_folder(path: str) -> bool:
    """Creates a folder if it is missing, durably; returns whether it did. Its parent must exist."""
    if os.path.isdir(path):
        return False
    _notify("mkdir", path)
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        return False
    sync_folder(os.path.dirname(path))
    return True


def sync_folder(path: str) -> None:
    """Makes the names in a folder durable."""
    _notify("sync_folder", path)
    with open_read(path) as folder:
        try:
            os.fsync(folder.fd)
        except OSError as error:
            # Some network and FUSE file systems have no fsync for folders; nothing can be done then.
            if error.errno != errno.EINVAL:
                raise


def rename(path: str, target: str) -> None:
    """Renames a file or folder; an existing file `target` is replaced. Not durable by itself."""
    _notify("rename", path, target)
    os.rename(path, target)


def link(path: str, target: str) -> None:
    """Gives a file a second name. FileExistsError if `target` exists. Not durable by itself."""
    _notify("link", path, target)
    os.link(path, target)


def unlink(path: str) -> None:
    """Deletes a file's name, if it exists. Not durable by itself."""
    _notify("unlink", path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_folder(path: str) -> None:
    """Deletes a folder with the files in it, if it exists. Not durable; a part of it may be deleted if it fails."""
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return
    for name in names:
        unlink(f"{path}/{name}")
    remove_empty_folder(path)


def remove_empty_folder(path: str) -> None:
    """Deletes an empty folder, if it exists. Not durable. OSError: e.g. it is not empty."""
    _notify("rmdir", path)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(path)


#: The end, and the pattern, of the name that a file has until it is written whole.
UNFINISHED: Final = ".tmp"
UNFINISHED_NAME: Final = r"[0-9a-f]{16}\.tmp"


def is_unfinished(name: str) -> bool:
    """Whether a file of this name was not written whole, or is being written."""
    return re.fullmatch(UNFINISHED_NAME, name) is not None


def _write_aside(path: str, data: bytes, *, sync: bool = True, mode: int = FILE_MODE) -> str:
    # A name of its own, since the longest names leave no room for more.
    aside = f"{os.path.dirname(path)}/{secrets.token_hex(8)}{UNFINISHED}"
    file = create(aside, mode)
    try:
        file.pwrite(data, 0)
        if sync:
            file.sync()
    except OSError:
        unlink(aside)
        raise
    finally:
        file.close()
    return aside


def replace_whole(path: str, data: bytes, *, sync: bool = True, mode: int = FILE_MODE) -> None:
    """Writes a file atomically: it has either its old content or the new one, with `sync` also after a power loss.

    `mode`: of the new file.
    """
    aside = _write_aside(path, data, sync=sync, mode=mode)
    rename(aside, path)
    if sync:
        sync_folder(os.path.dirname(path))


def create_whole(path: str, data: bytes) -> None:
    """Creates a file atomically and durably. FileExistsError if it already exists."""
    aside = _write_aside(path, data)
    try:
        link(aside, path)
    finally:
        unlink(aside)
    sync_folder(os.path.dirname(path))


# ---- lookups, which change nothing


def exists(path: str) -> bool:
    """Whether a file or folder of that name exists, following links."""
    return os.path.exists(path)


def exists_as_link(path: str) -> bool:
    """The same, but a dangling link exists, too."""
    return os.path.lexists(path)


def is_folder(path: str) -> bool:
    """Whether a folder of that name exists, following links."""
    return os.path.isdir(path)


def size_of(path: str) -> int:
    """The size of a file in bytes. OSError."""
    return os.path.getsize(path)


def are_same(path: str, other: str) -> bool:
    """Whether both names are of one file. OSError."""
    return os.path.samefile(path, other)


def list_folder(path: str) -> list[str]:
    """The names in a folder, in no order. OSError."""
    return os.listdir(path)


def status_of(path: str) -> os.stat_result:
    """The status of a file or folder, following links. OSError."""
    return os.stat(path)


def room_at(path: str) -> os.statvfs_result:
    """The status of the file system that a path is on. OSError."""
    return os.statvfs(path)


def may(path: str, mode: int) -> bool:
    """Whether this process has the access `mode` to a file or folder (os.R_OK, os.W_OK, os.X_OK)."""
    return os.access(path, mode)


def real_path(path: str) -> str:
    """The path without links."""
    return os.path.realpath(path)


def absolute_path(path: str) -> str:
    """The absolute path."""
    return os.path.abspath(path)
