"""Numbers, sizes, rates and times as the page has them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from pyspark_log.arguments import point_in_time
from pyspark_log.storage.fs.clock import format_time
from pyspark_log.ui.history import Trend
from pyspark_log.units import TIMES_MS, human_size, with_unit

NOTHING = "-"
_AGO = re.compile(r"[0-9]+\s*[a-z]+")
_SPANS = ((60, "s", 1), (3600, "min", 60), (86_400, "h", 3600), (float("inf"), "d", 86_400))
# A group that would catch up later than that does not.
_LONG = 7 * 86_400


def count(number: float | None) -> str:
    """A whole number: 1,234."""
    return NOTHING if number is None else f"{number:,.0f}"


def short(number: float | None) -> str:
    """A number with three figures or so: 950, 1.2 k, 34 M."""
    if number is None:
        return NOTHING
    for unit in ("", " k", " M", " G"):
        if abs(number) < 999.5:
            return f"{number:.0f}{unit}" if abs(number) >= 99.5 or number == int(number) else f"{number:.2g}{unit}"
        number /= 1000
    return f"{number:.0f} T"


def size(number: float | None) -> str:
    """Bytes with a unit."""
    return NOTHING if number is None else human_size(round(number))


def rate(number: float | None) -> str:
    """Records in a second."""
    return NOTHING if number is None else f"{short(number)}/s"


def size_rate(number: float | None) -> str:
    """Bytes in a second."""
    return NOTHING if number is None else f"{size(number)}/s"


def span(seconds: float | None) -> str:
    """A time span in one unit: 5 s, 12 min, 3 h, 9 d."""
    if seconds is None:
        return NOTHING
    for limit, unit, factor in _SPANS:
        if seconds < limit:
            return f"{max(seconds, 0) / factor:.0f} {unit}"
    raise AssertionError


def age(time: int | None, now: int) -> str:
    """How long ago a time was (ms)."""
    if time is None or time < 0:
        return NOTHING
    seconds = (now - time) / 1000
    return f"in {span(-seconds)}" if seconds < -1 else "just now" if seconds < 1 else f"{span(seconds)} ago"


def point(time: int | None) -> str:
    """A time (ms) as people read it, in UTC: 2026-11-26 16:05:09.123."""
    if time is None or time < 0:
        return NOTHING
    return format_time(time).replace("T", " ").removesuffix("Z")


def clock_time(time: int | None, now: int) -> str:
    """The same without the day, if it is today."""
    text = point(time)
    return text.partition(" ")[2] if text[:10] == point(now)[:10] else text


def to_time(text: str, now: int) -> int:
    """A time that was typed, in ms: as other commands take it, or `10m`, so long ago. ValueError says what is wrong."""
    text = text.strip()
    if _AGO.fullmatch(text):
        return now - with_unit(text.replace(" ", ""), TIMES_MS)
    return point_in_time(text)


def typed(time: int) -> str:
    """A time (ms) as it can be typed again."""
    return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def trend(lag: float, change: Trend) -> tuple[str, str]:
    """What becomes of a group's lag: a word for its colour (good, bad, plain), and a sentence."""
    if change.read is None or change.written is None:
        return "plain", "is being measured"
    gain = change.read - change.written
    if not lag:
        return "good", f"at the end, reads {rate(change.read)}" if change.read else "at the end"
    if abs(gain) < 0.05:
        return ("bad", "does not move") if not change.read else ("plain", f"keeps up, reads {rate(change.read)}")
    if gain < 0:
        return "bad", f"grows by {rate(-gain)}"
    left = lag / gain
    return "good", f"shrinks by {rate(gain)}" + (f", at the end in {span(left)}" if left < _LONG else "")
