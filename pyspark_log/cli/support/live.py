"""A text in the terminal that is made again and again, as `top` does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

interval_option = click.option(
    "--interval", type=click.FloatRange(min=0.1), default=2.0, show_default=True, metavar="SECONDS",
    help="How long from one look to the next.",
)


def watch(look: Callable[[], str], interval: float) -> None:
    """Shows what `look` returns, every `interval` seconds, until Ctrl-C. click.UsageError: this is no terminal."""
    if not sys.stdout.isatty():
        raise click.UsageError("standard output is no terminal, which a live view needs")
    from rich.live import Live  # noqa: PLC0415  (it takes long, and few commands need it)
    from rich.text import Text  # noqa: PLC0415

    with Live(Text(look()), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            live.update(Text(look()), refresh=True)
