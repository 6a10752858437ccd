"""The fields of records that Kafka's coordinators keep: integers, texts, arrays, tagged fields.

Integers are big-endian. A text is its length in bytes (int16) and UTF-8. In "flexible" versions (KIP-482) the length
of a text, and the count of an array, is an unsigned varint of itself + 1, and tagged fields close each struct.
Malformed bytes raise `ValueError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_INT16 = struct.Struct(">h")
_MAX_STRING = 0x7FFF


class FieldReader:
    """Reads fields of a key or value in order, never beyond its end. Every method raises ValueError."""

    def __init__(self, data: bytes) -> None:
        """Starts at the first byte of `data`."""
        self._data, self._at = data, 0

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError(f"field of {size} bytes at byte {self._at} of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def int8(self) -> int:
        """One byte, signed."""
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        """Two bytes, signed."""
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        """Four bytes, signed."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        """Eight bytes, signed."""
        return int.from_bytes(self._take(8), "big", signed=True)

    def uuid(self) -> bytes:
        """Sixteen bytes."""
        return self._take(16)

    def string(self, *, compact: bool = False) -> str:
        """A text; `compact`: in the encoding of flexible versions."""
        text = self.nullable_string(compact=compact)
        if text is None:
            raise ValueError(f"a null before byte {self._at}, where a text should be")
        return text

    def nullable_string(self, *, compact: bool = False) -> str | None:
        """A text, or None for a null."""
        size = self._uvarint() - 1 if compact else self.int16()
        return None if size == -1 else self._take(size).decode()  # UnicodeDecodeError is a ValueError

    def byte_array(self, *, compact: bool = False) -> bytes:
        """Bytes prefixed with their length (int32); a null is empty."""
        size = self._uvarint() - 1 if compact else self.int32()
        return b"" if size == -1 else self._take(size)

    def count(self, *, compact: bool = False) -> int:
        """The number of an array's elements; 0 for a null."""
        return max(self._uvarint() - 1 if compact else self.int32(), 0)

    def tagged_fields(self) -> dict[int, bytes]:
        """The fields that flexible versions may add at their end, by their tags."""
        found = dict[int, bytes]()
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            found[tag] = self._take(self._uvarint())
        return found

    def skip_tagged_fields(self) -> None:
        """Skips the fields that flexible versions may add at their end."""
        self.tagged_fields()

    def _uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError(f"varint of more than five bytes before byte {self._at}")


def encode_string(text: str | None) -> bytes:
    """A text as its length and UTF-8; None: a null. ValueError: it is too long for the format."""
    if text is None:
        return _INT16.pack(-1)
    data = text.encode()
    if len(data) > _MAX_STRING:
        raise ValueError(f"a text of {len(data)} bytes; the format's limit is {_MAX_STRING}")
    return _INT16.pack(len(data)) + data


def compact_string(text: str | None) -> bytes:
    """A text of a flexible version; None: a null."""
    if text is None:
        return unsigned_varint(0)
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data


def compact_array(items: Iterable[bytes]) -> bytes:
    """An array of a flexible version."""
    parts = list(items)
    return unsigned_varint(len(parts) + 1) + b"".join(parts)


def unsigned_varint(number: int) -> bytes:
    """A number of seven bits a byte, the lowest ones first."""
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
