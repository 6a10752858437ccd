"""Plots as SVG, drawn here: a line over the last minutes, and small ones for tables. Their colours are the page's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from pyspark_log.ui.bounds import MOST_ROWS
from pyspark_log.ui.history import Points

_WIDTH, _HEIGHT = 440, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 1, 64, 10, 22
_SMALL_WIDTH, _SMALL_HEIGHT = 96, 22
_STEPS = (1, 2, 2.5, 5, 10)


class _Frame(NamedTuple):
    """Where the numbers of a plot are on it."""

    begin: float
    end: float
    top: float
    left: float
    upper: float
    width: float
    height: float

    def x(self, time: float) -> float:
        return self.left + self.width * (time - self.begin) / ((self.end - self.begin) or 1)

    def y(self, number: float) -> float:
        return self.upper + self.height * (1 - number / self.top)

    def line(self, points: Points) -> str:
        return " ".join(f"{self.x(time):.1f},{self.y(number):.1f}" for time, number in points)

    def area(self, points: Points) -> str:
        ground = self.upper + self.height
        first, last = self.x(points[0][0]), self.x(points[-1][0])
        return f"{first:.1f},{ground:.1f} {self.line(points)} {last:.1f},{ground:.1f}"


def plot(points: Points, name: str, form: Callable[[float], str], unit: int = 1000) -> Markup:
    """A plot with its axes. Of fewer than two points it says that it waits.

    Args:
        points: what is plotted.
        name: what that is, for those that cannot see it.
        form: shows a number with its unit.
        unit: by what factor units differ: 1000, or 1024 for bytes.
    """
    if len(points) < 2:
        return Markup('<p class="waiting">The first minute is being measured …</p>')
    most = max(number for _, number in points)
    frame = _frame(points[0][0], points[-1][0], most, unit)
    past = _span(frame.end - frame.begin)
    parts = _axes(frame, f"{name}: now {form(points[-1][1])}, at most {form(most)} in the last {past}", form)
    parts.append(Markup('<polygon class="area" points="{}"/>').format(frame.area(points)))
    parts.append(Markup('<polyline class="line" points="{}"/>').format(frame.line(points)))
    return _with_ends(parts, f"{past} ago", "now")


def bars(numbers: Sequence[float], name: str, form: Callable[[float], str], unit: int = 1000) -> Markup:
    """A bar for each partition from 0 on, as many as there is room for; arguments as of `plot`."""
    numbers = numbers[:MOST_ROWS]
    most = max(numbers, default=0.0)
    frame = _frame(0, len(numbers), most, unit)
    parts = _axes(frame, f"{name}: at most {form(most)}, at least {form(min(numbers, default=0.0))}", form)
    width = frame.width / (len(numbers) or 1)
    parts.append(Markup('<g class="bars">'))
    bar = Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}: {}</title></rect>')
    for place, number in enumerate(numbers):
        x, height = frame.x(place) + width * 0.1, frame.height * number / frame.top
        parts.append(bar.format(x, frame.y(number), width * 0.8, height, place, form(number)))
    parts.append(Markup("</g>"))
    return _with_ends(parts, "partition 0", str(len(numbers) - 1) if len(numbers) > 1 else "")


def _frame(begin: float, end: float, most: float, unit: int) -> _Frame:
    return _Frame(begin, end, _round_up(most, unit), _LEFT, _TOP, _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM)


def _axes(frame: _Frame, label: str, form: Callable[[float], str]) -> list[Markup]:
    """The beginning of a plot: three lines with their numbers."""
    parts = [Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(_WIDTH, _HEIGHT, label)]
    right = _WIDTH - _RIGHT
    for number in (0.0, frame.top / 2, frame.top):
        y = f"{frame.y(number):.1f}"
        parts.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(_LEFT, right, y, y))
        parts.append(Markup('<text x="{}" y="{}" dy="4">{}</text>').format(right + 6, y, form(number)))
    return parts


def _with_ends(parts: list[Markup], first: str, last: str) -> Markup:
    """The end of a plot: what its left and right ends are."""
    parts.append(Markup('<text x="{}" y="{}">{}</text>').format(_LEFT, _HEIGHT - 6, first))
    parts.append(Markup('<text class="end" x="{}" y="{}">{}</text></svg>').format(_WIDTH - _RIGHT, _HEIGHT - 6, last))
    return Markup("").join(parts)


def small_plot(points: Points, name: str, form: Callable[[float], str], least: float = 0) -> Markup:
    """A plot for a cell of a table, with the number at its top, at least `least`; empty for fewer than two points."""
    if len(points) < 2:
        return Markup("")
    top = max(least, *(number for _, number in points))
    frame = _Frame(points[0][0], points[-1][0], top or 1, 0, 2, _SMALL_WIDTH, _SMALL_HEIGHT - 3)
    shape = _thinned(points)
    scale = Markup("{}<br>").format(form(top)) if top else ""
    return Markup(
        '<span class="scaled"><svg class="small-plot" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        '<polygon class="area" points="{}"/><polyline class="line" points="{}"/></svg><small>{}0</small></span>'
    ).format(_SMALL_WIDTH, _SMALL_HEIGHT, escape(name), frame.area(shape), frame.line(shape), scale)


def _thinned(points: Points, most: int = 40) -> Points:
    """About as many points at most, each the largest of some neighbours."""
    width = -(-len(points) // most)
    return [max(points[at : at + width], key=lambda point: point[1]) for at in range(0, len(points), width)]


def _round_up(number: float, unit: int) -> float:
    """The next number that people would write at an axis; 1 for 0."""
    if number <= 0:
        return 1.0
    factor = 1.0
    while number >= factor * unit:
        factor *= unit
    power = factor
    while power * 10 < number:
        power *= 10
    while power > number:
        power /= 10
    return next(power * step for step in _STEPS if power * step >= number)


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def smooth(points: Points, width: int = 3) -> Points:
    """Means of neighbours: what is written in turns would look like a saw."""
    return [(time, _mean(points[max(0, at - width + 1) : at + 1])) for at, (time, _) in enumerate(points)]


def _mean(points: Sequence[tuple[float, float]]) -> float:
    return sum(number for _, number in points) / len(points)
