"""Logs that a client cannot flood: a line that comes again and again is written once a minute, with a count."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable

_EVERY = 60.0
# So many lines are remembered; all of them are forgotten then.
_MOST = 1000
# The port at the end of a client's address, and times as they are written for people.
_ANY = re.compile(r":[0-9]+(?=: )|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")


class OncePerMinute(logging.Filter):
    """Passes a warning or an error once a minute; the next one says how many like it came in between.

    Lines are alike if they differ in the port of a client or in a time alone.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: the time in seconds."""
        super().__init__()
        self._clock = clock
        # For each line when it was written last, and how many came since.
        self._written: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is to be written; adds the count."""
        if record.levelno < logging.WARNING:
            return True
        text, now = record.getMessage(), self._clock()
        line = _ANY.sub("", text)
        written, others = self._written.get(line, (now - _EVERY, 0))
        if now - written < _EVERY:
            self._written[line] = written, others + 1
            return False
        if len(self._written) >= _MOST:
            self._written.clear()
        self._written[line] = now, 0
        if others:
            record.msg, record.args = f"{text} (and {others:,} like it since the last such line)", None
        return True


def standard_error(*, each_line: bool = False) -> logging.Handler:
    """A handler for the log of a command; with `each_line` without a limit."""
    handler = logging.StreamHandler(sys.stderr)
    if not each_line:
        handler.addFilter(OncePerMinute())
    return handler
