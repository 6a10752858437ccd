"""Sizes, times, truth values and counts in texts, for configs, options of the data source, and commands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

#: The units of configs and commands, with their factors.
TIMES_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
TIMES_MINUTES: Final = {"m": 1, "h": 60, "d": 1440, "w": 10_080}
SIZES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
#: Those of Spark, which also takes numbers without a unit: times in microseconds, and sizes.
SPARK_TIMES_US: Final = {
    "us": 1, "": 1000, "ms": 1000, "s": 1_000_000, "m": 60_000_000, "min": 60_000_000, "h": 3_600_000_000,
    "d": 86_400_000_000,
}  # fmt: skip
SPARK_SIZES: Final = {f"{unit}{b}": 1 << 10 * power for power, unit in enumerate(("", *"kmgtp")) for b in ("", "b")}

_NUMBER = re.compile(r"([0-9]{1,18})\s*([A-Za-z]*)")
_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>[+-]?\d+)D)?"
    r"(?:T(?=[+-]?\d)(?:(?P<hours>[+-]?\d+)H)?(?:(?P<minutes>[+-]?\d+)M)?(?:(?P<seconds>[+-]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)


def with_unit(text: str, units: Mapping[str, int]) -> int:
    """The number in a text such as "7d" or "1 GiB", times the factor of its unit.

    Raises:
        ValueError: what is wrong, as an error says it after the text.
    """
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or "" in units):
        raise ValueError(f"must be a whole number, or one with a unit ({', '.join(filter(None, units))})")
    if match[2] not in units:
        raise ValueError(f"{match[2]!r} is not a valid unit; the units are: {', '.join(filter(None, units))}")
    return int(match[1]) * units[match[2]]


def truth(text: str) -> bool:
    """Whether a text is "true", in any case; ValueError: it is not "false" either."""
    word = text.lower()
    if word not in ("true", "false"):
        raise ValueError("must be true or false")
    return word == "true"


def java_duration(text: str) -> timedelta:
    """A duration as java.time.Duration has it, PnDTnHnMnS; ValueError: it is none."""
    match = _DURATION.fullmatch(text)
    given = {} if match is None else match.groupdict()
    sign = given.pop("sign", "")
    parts = {name: float(part.replace(",", ".")) for name, part in given.items() if part}
    try:
        if parts:
            return -timedelta(**parts) if sign == "-" else timedelta(**parts)
    except OverflowError:
        pass  # no calendar reaches so far
    raise ValueError("is not a duration: PnDTnHnMnS, as in P7D or PT1H30M")


def human_size(size: int) -> str:
    """A number of bytes as people write it: 512 B, 1.5 KiB, 30.2 MiB."""
    if size < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} TiB"


def plural(count: int, noun: str) -> str:
    """A number of things: 1 record, 2 records."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
