"""A text in the terminal that is updated until the user ends it, as `top` does."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator

import click

interval_option = click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two updates.",
)

# What a terminal sends for a key without a character.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])")


def is_end(key: str) -> bool:
    """Whether a key ends a view."""
    return key in ("q", "Q")


def watch(
    refresh: Callable[[], None], show: Callable[[], str], interval: float, press: Callable[[str], bool] = is_end
) -> None:
    """Shows a text that changes, until a key or Ctrl-C ends it.

    Args:
        refresh: called every `interval` seconds.
        show: returns the text, styled with ANSI codes; called after each refresh and each key.
        interval: in seconds.
        press: gets each key, and returns whether it ends the view. Of keys without a character there is only Esc.

    Raises:
        click.UsageError: standard output is no terminal.
    """
    if not sys.stdout.isatty():
        raise click.UsageError("A live view needs a terminal as standard output.")
    from rich.live import Live  # noqa: PLC0415  (it takes long, and few commands need it)
    from rich.text import Text  # noqa: PLC0415

    refresh()
    with _keyboard() as keys, Live(Text.from_ansi(show()), screen=True, auto_refresh=False) as live:
        due = time.monotonic() + interval
        while True:
            pressed = keys(max(due - time.monotonic(), 0.0))
            if pressed is None or any(press(key) for key in pressed):
                return
            if not pressed:
                refresh()
                due = time.monotonic() + interval
            live.update(Text.from_ansi(show()), refresh=True)


@contextlib.contextmanager
def _keyboard() -> Iterator[Callable[[float], list[str] | None]]:
    """A function that waits for keys, that many seconds at most, and returns them; None: the terminal is closed.

    Standard input need not be a terminal.
    """
    fd = sys.stdin.fileno()
    if not os.isatty(fd):
        yield _asleep
        return
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield lambda seconds: _keys(os.read(fd, 1024)) if select.select([fd], [], [], seconds)[0] else []
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _asleep(seconds: float) -> list[str]:
    time.sleep(seconds)
    return []


def _keys(typed: bytes) -> list[str] | None:
    """The keys in what a terminal sent at once, without arrows and the like; None: it has sent its end."""
    return None if not typed else list(_SEQUENCE.sub("", typed.decode(errors="ignore")))
