"""What a job says at its end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping

from pyspark_log.cli.support import human_size, print_json


def show_summary(facts: Mapping[str, int | float | str], *, as_json: bool) -> None:
    """Prints figures by their names, a line each, or as one JSON document; `bytes` are bytes, `seconds` seconds."""
    if as_json:
        rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in facts.items()}
        print_json(rounded | ({"warnings": _collected} if _collected else {}))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<{width}}  {_format_value(name, value)}")


@contextlib.contextmanager
def only_json() -> Iterator[None]:
    """Warnings that are logged in the block are shown in the summary, so that nothing but that is printed.

    spark-submit prints what Python writes to standard error on its standard output.
    """
    loggers = [logging.getLogger(name) for name in ("pyspark_log", "py.warnings")]
    before = [(one.handlers, one.propagate) for one in loggers]
    _collected.clear()
    logging.captureWarnings(True)
    for one in loggers:
        one.handlers, one.propagate = [_Collector(logging.WARNING)], False
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for one, (handlers, propagate) in zip(loggers, before, strict=True):
            one.handlers, one.propagate = handlers, propagate


# The warnings of this process's job.
_collected: list[str] = []


class _Collector(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the message."""
        _collected.append(" ".join(record.getMessage().split()))


def _format_value(name: str, value: float | str) -> str:
    if name == "bytes":
        return human_size(int(value))
    if isinstance(value, float):
        return f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else value
