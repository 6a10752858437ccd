"""A progress bar on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressBar:
    """Shows how many of the bytes are done, how fast, and how long it takes yet; nothing where there is no terminal.

    For use with `with`: at its end the bar is removed.
    """

    def __init__(self, what: str = "") -> None:
        """`what`: what is being done, shown before the bar."""
        self._what = what
        self._shown: tuple[Progress, TaskID] | None = None
        self._visible = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        """Shows that `done` of `total` bytes are done."""
        if not self._visible:
            return
        if self._shown is None:
            self._shown = self._begin()
        bar, task = self._shown
        bar.update(task, completed=done, total=total)

    def _begin(self) -> tuple[Progress, TaskID]:
        from rich import progress as rich  # noqa: PLC0415  (it takes long, and few commands need it)
        from rich.console import Console  # noqa: PLC0415

        bar = rich.Progress(
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.TaskProgressColumn(),
            rich.DownloadColumn(binary_units=True),
            rich.TransferSpeedColumn(),
            rich.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.start()
        return bar, bar.add_task(self._what, total=None)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown[0].stop()
            self._shown = None
