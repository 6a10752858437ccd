"""A progress bar on standard error."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressBar:
    """Shows how much is done, how fast, and how long it takes yet; nothing where there is no terminal.

    For use with `with`: at its end the bar is removed.
    """

    def __init__(self, what: str = "", of: str = "bytes", after: float = 0) -> None:
        """A bar that is not shown yet.

        Args:
            what: what is being done, shown before the bar.
            of: what is counted.
            after: how long it takes at least, in seconds, before it is shown.
        """
        self._what, self._of, self._show_at = what, of, time.monotonic() + after
        self._shown: tuple[Progress, TaskID] | None = None
        self._visible = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        """Shows that `done` of `total` bytes, or what is counted, are done."""
        if not self._visible or time.monotonic() < self._show_at:
            return
        if self._shown is None:
            self._shown = self._begin()
        bar, task = self._shown
        bar.update(task, completed=done, total=total)

    def _begin(self) -> tuple[Progress, TaskID]:
        from rich import progress as rich  # noqa: PLC0415  (it takes long, and few commands need it)
        from rich.console import Console  # noqa: PLC0415

        counts = (
            (rich.DownloadColumn(binary_units=True), rich.TransferSpeedColumn())
            if self._of == "bytes"
            else (rich.MofNCompleteColumn(), rich.TextColumn(self._of))
        )
        bar = rich.Progress(
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.TaskProgressColumn(),
            *counts,
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
