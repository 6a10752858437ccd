"""A progress bar on standard error, if that is a terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class ProgressBar:
    """Shows how many of a number of tasks are done, while the `with` block runs."""

    def __init__(self, what: str, total: int) -> None:
        """`what`: the words before the bar."""
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task(what, total=total)

    def show(self, done: int) -> None:
        """Shows how many are done."""
        self._bar.update(self._task, completed=done)

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
