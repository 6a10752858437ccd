"""Points in time as people give them."""

from __future__ import annotations

import click

from pyspark_log.arguments import point_in_time


def to_ms(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """An option's callback: ms since 1970 or ISO-8601 (UTC if it names no zone), as ms."""
    try:
        return None if text is None else point_in_time(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
