"""Numbers of configs with units, as people write them: 7d, 1GiB."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark_log.config import ConfigKey
from pyspark_log.errors import InvalidConfigError, shortened

_TIMES = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
#: What can follow the number of a config, by the unit of the config.
_UNITS: Mapping[str, Mapping[str, int]] = {
    "ms": _TIMES, "minutes": {"m": 1, "h": 60, "d": 1440, "w": 10_080}, "bytes": _SIZES, "bytes/s": _SIZES,
}  # fmt: skip
_PLAIN = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"([0-9]+) ?([A-Za-z]+)")


def plain(key: ConfigKey, text: str) -> str:
    """The value of a config in the config's own unit: "604800000" for "7d"; any other text as it is.

    Raises:
        InvalidConfigError: a time or a size that is no number, or has another unit.
    """
    units, match = _UNITS.get(key.unit), _NUMBER.fullmatch(text)
    if units is None or _PLAIN.fullmatch(text):
        return text
    if match is None:
        raise InvalidConfigError(
            f"{key.name} = {shortened(text)!r}: must be a whole number, or one with a unit ({', '.join(units)})"
        )
    number, unit = match.groups()
    if unit not in units:
        raise InvalidConfigError(f"{key.name} = {text!r}: {unit!r} is no unit of it; these are: {', '.join(units)}")
    return str(int(number) * units[unit])
