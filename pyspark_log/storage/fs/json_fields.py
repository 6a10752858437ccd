"""Takes values out of the JSON that the engine keeps, and trusts none of it.

JSON has no checksum and says what it likes. What is missing, or not what it should be, is a ValueError that names the
field; the caller knows the file, or the record, and which error that is for its own callers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark_log.config import LONG_MAX
from pyspark_log.errors import StoreVersionError


class Fields:
    """An object of JSON, whose values are asked for by name and kind. Everything raises ValueError."""

    def __init__(self, content: object) -> None:
        """`content` is what `json.loads` gave, or a part of it."""
        if not isinstance(content, dict):
            raise ValueError(f"{_shown(content)} where an object should be")
        self._content: dict[str, object] = content

    @classmethod
    def parse(cls, data: bytes) -> Fields:
        """The object that the bytes of a file are."""
        try:
            return cls(json.loads(data))
        except RecursionError:
            raise ValueError("its lists or objects stand too deep in each other") from None

    def check_version(self, known: int, where: str, oldest: int = 1) -> None:
        """Refuses a `version` after the known one, or before the oldest. StoreVersionError, which names `where`."""
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
        """A value of any kind."""
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
        """A whole number from `low` to `high`."""
        return whole(self.value(name), name, low, high)

    def list(self, name: str) -> list[object]:
        """A list."""
        value = self.value(name)
        if not isinstance(value, list):
            raise ValueError(f"{name!r} is {_shown(value)} where a list should be")
        return value

    def objects(self, name: str) -> Mapping[str, Fields]:
        """An object whose values are objects."""
        value = self.value(name)
        if not isinstance(value, dict):
            raise ValueError(f"{name!r} is {_shown(value)} where an object should be")
        return {text(key, name): Fields(part) for key, part in value.items()}

    def texts(self, name: str) -> Mapping[str, str]:
        """An object whose values are strings."""
        value = self.value(name)
        if not isinstance(value, dict):
            raise ValueError(f"{name!r} is {_shown(value)} where an object should be")
        return {text(key, name): text(part, f"{name}.{key}") for key, part in value.items()}


def text(value: object, name: str) -> str:
    """A value that should be a string; `name` says which."""
    if not isinstance(value, str):
        raise ValueError(f"{name!r} is {_shown(value)} where a text should be")
    value.encode()  # JSON can write half of a character; a UnicodeEncodeError is a ValueError
    return value


def whole(value: object, name: str, low: int = 0, high: int = LONG_MAX) -> int:
    """A value that should be a whole number from `low` to `high`; `name` says which."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name!r} is {_shown(value)} where a whole number from {low} to {high} should be")
    return value


def _shown(value: object) -> str:
    """A value in an error: its beginning, as others look at the whole."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
