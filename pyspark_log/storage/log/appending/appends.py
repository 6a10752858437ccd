"""What is appended to a partition, and what became of it."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from pyspark_log.errors import InvalidRecordError, OutcomeUnknownError, ProducerError


class Appended(NamedTuple):
    """The offsets [base_offset, next_offset) of appended records; `duplicate`: they had them before."""

    base_offset: int
    next_offset: int
    duplicate: bool = False


#: Of batches that were appended together, in their order: where each is in the log, or why it was refused.
Outcomes: TypeAlias = "list[Appended | ProducerError | InvalidRecordError]"


class Extent(NamedTuple):
    """How much is appended: bytes, records, and the largest time of a record (ms; -1: none has a time)."""

    size: int
    records: int
    newest: int


class PendingAppend:
    """Batches for which a thread waits. The thread that has the partition's lock may append them along with its own.

    Attributes:
        batches: as for `LogWriter.append_each`.
        sync: whether they are to be synced.
        size: their bytes.
    """

    __slots__ = ("_error", "_outcomes", "_process", "_token", "batches", "size", "sync")

    def __init__(self, batches: Sequence[bytes | bytearray], *, sync: bool) -> None:
        self.batches, self.sync = batches, sync
        self.size = sum(map(len, batches))
        self._process = os.getpid()
        self._token = [True]
        self._outcomes: Outcomes | None = None
        self._error: Exception | None = None

    def claim(self) -> bool:
        """Whether the calling thread appends the batches from now on; once True, never again.

        Never in a forked child: the thread that waits is in the parent.
        """
        if self._process != os.getpid():
            return False
        try:
            return self._token.pop()  # One step for all threads.
        except IndexError:
            return False

    def finish(self, outcomes: Outcomes) -> None:
        """Notes what became of the batches."""
        self._outcomes, self.batches = outcomes, ()

    def fail(self, error: BaseException) -> None:
        """Notes that the append has failed."""
        # A copy has no frames, which would keep these batches, and the error with them, until a garbage collection.
        self._error, self.batches = copy.copy(error) if isinstance(error, Exception) else None, ()

    def outcomes(self) -> Outcomes:
        """What became of the batches, which were claimed; or raises the error with which the append has failed.

        Raises:
            OutcomeUnknownError: the thread that has claimed them was interrupted, or is still at it.
        """
        if self._outcomes is not None:
            return self._outcomes
        if self._error is not None:
            raise copy.copy(self._error)  # Each thread adds to its own.
        raise OutcomeUnknownError(
            "this append was handed to another thread that has not finished; check the log end before trying again"
        )
