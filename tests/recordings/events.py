"""A recording: what the connections of a client and Kafka carried, in order, in a compressed file.

The file is xz over a line of JSON (`made_with`) and then each event: its kind and its connection (a byte each), the
length of its frame (4 bytes), and the frame.
"""

from __future__ import annotations

import json
import lzma
import struct
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "data"

_START = struct.Struct(">BBI")


class Kind(IntEnum):
    """What happened on a connection."""

    OPEN = 0
    REQUEST = 1
    RESPONSE = 2
    CLOSE = 3


class Event(NamedTuple):
    """One of a recording.

    Attributes:
        connection: its number, from 0.
        frame: of a request or a response, without its length.
    """

    kind: Kind
    connection: int
    frame: bytes = b""


class Recording(NamedTuple):
    """A session of a client.

    Attributes:
        made_with: the software and its version, by role.
    """

    made_with: dict[str, str]
    events: list[Event]

    def save(self, name):
        """Writes its file."""
        data = bytearray(json.dumps(self.made_with, sort_keys=True).encode() + b"\n")
        for event in self.events:
            data += _START.pack(event.kind, event.connection, len(event.frame)) + event.frame
        FOLDER.mkdir(exist_ok=True)
        path_of(name).write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def path_of(name):
    """The file of the recording of that name."""
    return FOLDER / f"{name}.xz"


def load(name):
    """Reads the recording of that name."""
    data = lzma.decompress(path_of(name).read_bytes())
    position = data.index(b"\n") + 1
    made_with, events = json.loads(data[:position]), []
    while position < len(data):
        kind, connection, length = _START.unpack_from(data, position)
        position += _START.size
        events.append(Event(Kind(kind), connection, data[position : position + length]))
        position += length
    return Recording(made_with, events)
