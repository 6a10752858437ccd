"""Values of options as people give them: points in time, patterns, and pairs of a name and a value."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from pyspark_log.arguments import point_in_time
from pyspark_log.storage.fs import files
from pyspark_log.units import TIMES_MS, with_unit


def to_ms(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """An option's callback: ms since 1970 or ISO-8601 (UTC if it names no zone), as ms."""
    try:
        return None if text is None else point_in_time(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def duration_ms(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """An option's callback: ms, or a number with one of the units `ms` to `w`, as ms; more than none."""
    try:
        duration = None if text is None else with_unit(text, TIMES_MS)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if duration is not None and duration <= 0:
        raise click.BadParameter(f"{text!r} is no time to wait")
    return duration


def named_values(_ctx: click.Context, _param: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """The callback of an option that is given as NAME=VALUE, several times."""
    found = dict[str, str]()
    for text in given:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def check_schemas(_ctx: click.Context, _param: click.Parameter, place: str | None) -> str | None:
    """The callback of an option that names a registry, by its URL, or a folder, which must be there."""
    if place is not None and not place.startswith(("http://", "https://")) and not files.is_folder(place):
        raise click.BadParameter(f"{place!r} is neither the URL of a schema registry nor a folder")
    return place


class Pattern(click.ParamType["re.Pattern[str]"]):
    """A regular expression."""

    name = "pattern"

    def convert(
        self, value: str | re.Pattern[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> re.Pattern[str]:
        """The expression, compiled."""
        if isinstance(value, re.Pattern):
            return value
        try:
            return re.compile(value)
        except re.error as error:
            self.fail(f"{value!r} is not a regular expression: {error}", param, ctx)
