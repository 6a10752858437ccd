"""Waits for changes of partitions, for readers at the end of their logs."""

from __future__ import annotations

import time
from collections.abc import Iterable

from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state.state_file import FILE_SIZE

# How long a wait sleeps between two checks of all state files, in seconds; and longer for each of them, so that checks
# of a few microseconds never need more than a twentieth of a processor. A file that is opened for it takes longer.
_PAUSE = 0.001
_PAUSE_EACH, _PAUSE_OPENED = 0.0001, 0.0003
# How many files stay open.
_MOST_OPEN = 200


class StateWatch:
    """Waits until the state of one of some partitions changes, as it does with each append."""

    def __init__(self) -> None:
        """Nothing is noted yet."""
        self._noted: list[tuple[files.File | str, bytes]] = []

    def note(self, state_paths: Iterable[str]) -> None:
        """Notes the states of partitions; call it before they are read. OSError.

        What happens to a partition that has no state file yet is not noticed. The files are opened each time: a store's
        folder can be replaced, and a client of a shared file system surely sees what others wrote only in a file that
        it opened after that.
        """
        self._noted = []
        for path in state_paths:
            try:
                file = files.open_read(path)
            except FileNotFoundError:
                continue
            kept = file if len(self._noted) < _MOST_OPEN else path
            self._noted.append((kept, file.pread(FILE_SIZE, 0)))

    def wait(self, seconds: float) -> None:
        """Returns when a state is another than was noted, or after `seconds`. OSError."""
        deadline = time.monotonic() + seconds
        kept = min(len(self._noted), _MOST_OPEN)
        pause = max(_PAUSE, _PAUSE_EACH * kept + _PAUSE_OPENED * (len(self._noted) - kept))
        while all(_content(file) == noted for file, noted in self._noted):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(pause, left))


def _content(file: files.File | str) -> bytes:
    try:
        return (files.open_read(file) if isinstance(file, str) else file).pread(FILE_SIZE, 0)
    except FileNotFoundError:
        return b""  # its topic was deleted
