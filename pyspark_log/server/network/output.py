"""What waits to be sent on a socket: bytes, and ranges of files that the system sends without a copy."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from pyspark_log.kafka import FileRange
from pyspark_log.storage.fs import files

# Up to this size a range is read and sent with the bytes around it: one system call instead of two.
_SMALL_RANGE = 16 * 1024
# The most pieces that one call takes (IOV_MAX has 1024), and about the most bytes.
_MOST_PIECES = 512
_MOST_BYTES = 1024 * 1024
# More will follow, so no packet need be sent for these bytes alone; 0 where the system has no such flag.
_MORE: int = getattr(socket, "MSG_MORE", 0)


class Output(ABC):
    """Sends chunks in order."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._chunks = deque[bytes | memoryview | FileRange]()

    def add(self, chunks: Sequence[bytes | bytearray | memoryview | FileRange]) -> bool:
        """Appends chunks; whether one of them is a range that keeps its file open.

        The files of ranges close when they are sent, or dropped with this object.
        """
        holds_file = False
        for chunk in chunks:
            if not isinstance(chunk, FileRange):
                if len(chunk):
                    self._chunks.append(memoryview(chunk))
            elif chunk.length <= _SMALL_RANGE:
                self._chunks.append(read_range(chunk.file, chunk.position, chunk.length))
            else:
                self._chunks.append(chunk)
                holds_file = True
        return holds_file

    def clear(self) -> None:
        """Drops what was not sent."""
        self._chunks.clear()

    def __bool__(self) -> bool:
        return bool(self._chunks)

    @abstractmethod
    def send(self) -> bool:
        """Sends what the system takes now; whether that was all. OSError: the connection, or a file, is lost."""


class PlainOutput(Output):
    """Sends them as they are; the system sends ranges of files."""

    def __init__(self, target: socket.socket) -> None:
        """Of a socket that does not block."""
        super().__init__()
        self._socket = target

    def send(self) -> bool:
        """As Output.send."""
        try:
            while self._chunks:
                first = self._chunks[0]
                if isinstance(first, FileRange):
                    self._send_range(first)
                else:
                    self._send_bytes()
        except BlockingIOError:
            return False
        return True

    def _send_range(self, one: FileRange) -> None:
        sent = os.sendfile(self._socket.fileno(), one.file.fd, one.position, one.length)
        if sent == 0:
            raise OSError(f"{one.file.path} ends before byte {one.position + one.length}")
        self._chunks.popleft()
        if sent < one.length:
            self._chunks.appendleft(FileRange(one.file, one.position + sent, one.length - sent))

    def _send_bytes(self) -> None:
        pieces: list[bytes | memoryview] = []
        size = 0
        for chunk in self._chunks:
            if isinstance(chunk, FileRange) or len(pieces) == _MOST_PIECES or size > _MOST_BYTES:
                break
            pieces.append(chunk)
            size += len(chunk)
        flags = _MORE if len(pieces) < len(self._chunks) else 0
        sent = self._socket.send(pieces[0], flags) if len(pieces) == 1 else self._socket.sendmsg(pieces, (), flags)
        for piece in pieces:
            if sent < len(piece):
                if sent:
                    self._chunks[0] = memoryview(piece)[sent:]
                return
            self._chunks.popleft()
            sent -= len(piece)


def read_range(file: files.File, position: int, length: int) -> bytes:
    """Bytes of a file. OSError: it ends before them."""
    data = file.pread(length, position)
    if len(data) < length:
        raise OSError(f"{file.path} ends before byte {position + length}")
    return data
