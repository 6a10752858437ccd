"""Which files of a folder are written to, by any process of this machine (Linux's inotify).

Source of the layout of an event: inotify(7).
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_IN_MODIFY, _IN_CREATE, _IN_MOVED_TO = 0x2, 0x100, 0x80
_IN_Q_OVERFLOW = 0x4000
_HEAD = struct.Struct("iIII")  # the watch, what happened, a cookie, the length of the name
_READ_BYTES = 64 * 1024
# The most bytes of an event: its name has up to 255, and is filled up with zeros.
_MOST_BYTES = _HEAD.size + 256


class FileEvents:
    """Names the files of one folder that change.

    On a shared file system only what this machine changes is seen.

    Attributes:
        fd: can be read when there are events; for a loop that waits for several things.
    """

    def __init__(self, folder: str) -> None:
        """OSError: the system has no such events, or allows no more watches."""
        if not sys.platform.startswith("linux"):
            raise OSError("events of files need Linux")
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise _failed("inotify_init1", folder)
        if libc.inotify_add_watch(self.fd, os.fsencode(folder), _IN_MODIFY | _IN_CREATE | _IN_MOVED_TO) < 0:
            error = _failed("inotify_add_watch", folder)
            self.close()
            raise error

    def close(self) -> None:
        """Ends it."""
        os.close(self.fd)

    def changed(self) -> set[str] | None:
        """The names of the files that were written to, created or replaced since the last call, without waiting.

        Returns:
            None: too much has happened, so any file may have changed.
        """
        names = set[str]()
        overflowed, is_all = False, False
        while not is_all:
            try:
                data = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                break
            # A read that leaves room for another event has had all of them.
            is_all = len(data) <= _READ_BYTES - _MOST_BYTES
            position = 0
            while position < len(data):
                _, mask, _, length = _HEAD.unpack_from(data, position)
                position += _HEAD.size
                overflowed |= bool(mask & _IN_Q_OVERFLOW)
                names.add(os.fsdecode(data[position : position + length].rstrip(b"\0")))
                position += length
        return None if overflowed else names


def _failed(call: str, folder: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}", folder)
