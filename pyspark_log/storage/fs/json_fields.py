"""Reads typed values from the JSON that the engine keeps, and trusts none of it.

JSON has no checksum and no schema. A missing or wrong value is a ValueError that names the field; the caller knows
the file, or the record, and which error that is for its own callers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark_log.config import LONG_MAX
from pyspark_log.errors import StoreVersionError, shortened


class Fields:
    """A JSON object whose values are read by name and type. Every method raises ValueError."""

    def __init__(self, content: object) -> None:
        """`content` is the result of `json.loads`, or a part of it."""
        if not isinstance(content, dict):
            raise ValueError(f"{shortened(repr(content))} where an object should be")
        self._content: dict[str, object] = content

    @classmethod
    def parse(cls, data: bytes) -> Fields:
        """Parses the bytes of a file as an object."""
        try:
            return cls(json.loads(data))
        except RecursionError:
            raise ValueError("its lists or objects are nested too deeply") from None

    def check_version(self, known: int, where: str, oldest: int = 1) -> None:
        """Refuses a `version` above the known one, or below the oldest. StoreVersionError, which names `where`."""
        version = self.whole("version", low=1)
        if version < oldest:
            raise StoreVersionError(
                f"{where} has format version {version}, this pyspark-log reads {oldest} and later: use the pyspark-log "
                "that wrote it, and load its records into a new store"
            )
        if version > known:
            raise StoreVersionError(
                f"{where} has format version {version}, this pyspark-log knows {known}: use a newer pyspark-log"
            )

    def value(self, name: str) -> object:
        """A value of any type."""
        if name not in self._content:
            raise ValueError(f"{name!r} is missing")
        return self._content[name]

    def has(self, name: str) -> bool:
        """Whether there is such a value."""
        return name in self._content

    def text(self, name: str) -> str:
        """A string that can be written as UTF-8."""
        return text(self.value(name), name)

    def whole(self, name: str, low: int = 0, high: int = LONG_MAX) -> int:
        """An integer from `low` to `high`."""
        return whole(self.value(name), name, low, high)

    def list(self, name: str) -> list[object]:
        """A list."""
        value = self.value(name)
        if not isinstance(value, list):
            raise ValueError(f"{name!r} is {shortened(repr(value))} where a list should be")
        return value

    def objects(self, name: str) -> Mapping[str, Fields]:
        """An object whose values are objects."""
        value = self.value(name)
        if not isinstance(value, dict):
            raise ValueError(f"{name!r} is {shortened(repr(value))} where an object should be")
        return {text(key, name): Fields(part) for key, part in value.items()}

    def texts(self, name: str) -> Mapping[str, str]:
        """An object whose values are strings."""
        value = self.value(name)
        if not isinstance(value, dict):
            raise ValueError(f"{name!r} is {shortened(repr(value))} where an object should be")
        return {text(key, name): text(part, f"{name}.{key}") for key, part in value.items()}

    def numbers(self, name: str) -> Mapping[str, float]:
        """An object whose values are numbers."""
        value = self.value(name)
        if not isinstance(value, dict):
            raise ValueError(f"{name!r} is {shortened(repr(value))} where an object should be")
        for key, part in value.items():
            if not isinstance(part, (int, float)) or isinstance(part, bool):
                raise ValueError(f"'{name}.{key}' is {shortened(repr(part))} where a number should be")
        return value


def text(value: object, name: str) -> str:
    """Returns a value that should be a string; `name` is for the error."""
    if not isinstance(value, str):
        raise ValueError(f"{name!r} is {shortened(repr(value))} where a text should be")
    value.encode()  # JSON can contain half of a surrogate pair; a UnicodeEncodeError is a ValueError
    return value


def whole(value: object, name: str, low: int = 0, high: int = LONG_MAX) -> int:
    """Returns a value that should be an integer from `low` to `high`; `name` is for the error."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name!r} is {shortened(repr(value))} where a whole number from {low} to {high} should be")
    return value
