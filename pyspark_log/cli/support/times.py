"""Points in time as people give them."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from pyspark_log import arguments


def to_ms(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """An option's callback: ms since 1970 or ISO-8601 (UTC if it names no zone), as ms."""
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        point = datetime.fromisoformat(text.upper())
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither ms since 1970 nor ISO-8601 (2013-06-01T12:00:00Z)") from None
    if point.tzinfo is None:
        point = point.replace(tzinfo=UTC)
    return arguments.to_ms(point)
