"""Refuses arguments of public calls that no format can hold, before they change anything."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from pyspark_log.config import LONG_MAX
from pyspark_log.errors import InvalidConfigError, shortened

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_text(what: str, text: str, most: int = 0) -> None:
    """Refuses a text that is not Unicode (half a surrogate pair), or has more than `most` bytes as UTF-8 (0: no limit).

    Raises:
        InvalidConfigError: which text, and why.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidConfigError(
            f"{what} {shortened(text)!r}: character {error.start} is half of a surrogate pair, which UTF-8 cannot hold"
        ) from None
    if most and size > most:
        raise InvalidConfigError(f"{what} of {size} bytes; it can have {most}")


def check_store(store: object) -> None:
    """Refuses a path where a store is expected. InvalidConfigError."""
    if isinstance(store, str | os.PathLike):
        raise InvalidConfigError(f"expected a store, got the path {os.fspath(store)!r}: Store.open(path) opens one")


def check_path(what: str, path: str) -> None:
    """Refuses what cannot be a path on this system: with a NUL, or a character that its file names cannot have.

    Raises:
        InvalidConfigError: which one, and why.
    """
    try:
        problem = "it has a NUL" if b"\0" in os.fsencode(path) else ""
    except UnicodeEncodeError as error:
        problem = f"character {error.start} is half of a surrogate pair"
    if problem:
        raise InvalidConfigError(f"{what} {shortened(path)!r} is not a path: {problem}")


def check_whole(what: str, number: int, low: int = 0, high: int = LONG_MAX) -> None:
    """Refuses a number that is not from `low` to `high`. InvalidConfigError."""
    if not low <= number <= high:
        raise InvalidConfigError(f"{what} {number}: must be from {low} to {high}")


def to_ms(time: datetime | int) -> int:
    """Converts a time to ms since 1970. A datetime without a time zone is local time, as in Python."""
    if isinstance(time, datetime):
        # From whole numbers, since a float loses some.
        return (time.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    return time


def point_in_time(text: str) -> int:
    """A time as people give it, ms since 1970 or ISO-8601 (UTC if it names no zone), in ms; ValueError says what is."""
    if text.isdecimal():
        return int(text)
    try:
        point = datetime.fromisoformat(text.upper())
    except ValueError:
        raise ValueError(f"{text!r} is neither ms since 1970 nor ISO-8601 (2013-06-01T12:00:00Z)") from None
    return to_ms(point if point.tzinfo is not None else point.replace(tzinfo=UTC))
