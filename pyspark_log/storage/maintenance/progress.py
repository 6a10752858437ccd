"""The progress of a long operation on a store."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_log.storage.fs import Mutex

#: ProgressCounter how far it is: bytes of segments that were read, and bytes in all.
Progress = Callable[[int, int], None]


class ProgressCounter:
    """Adds up the bytes that all threads have checked, and reports them to a Progress."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total = progress, total
        self._done = 0
        self._mutex = Mutex()

    def add(self, size: int) -> None:
        """Adds bytes that were read."""
        if self._progress is not None:
            with self._mutex.lock:
                self._done += size
                # Other processes write meanwhile, and what changed is read twice.
                self._progress(self._done, max(self._done, self._total))
