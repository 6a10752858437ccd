"""Interprets a file of a partition that is missing or too short: damage, or a deleted topic."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from pyspark_log.errors import LogDamagedError, LogDirOfflineError, UnknownTopicError
from pyspark_log.storage.catalog import LogDirs, PartitionPath
from pyspark_log.storage.segment.file_names import list_segments


@contextlib.contextmanager
def missing_is_damage(place: PartitionPath) -> Iterator[None]:
    """Reports a missing segment file as LogDamagedError."""
    try:
        yield
    except OSError as error:
        # On a network file system a file that another machine deleted is stale.
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        raise LogDamagedError(f"{place}: {error.filename} is missing: it was removed or moved") from None


def check_length(place: PartitionPath, path: str, size: int, held: int) -> None:
    """Raises LogDamagedError if a log file is shorter than its state says.

    Args:
        place: the partition.
        path: the file.
        size: its size in bytes.
        held: its size in bytes by the partition's state.
    """
    if size < held:
        raise LogDamagedError(
            f"{place}: {path} has {size} bytes, of which {held} were written and acknowledged: another program "
            "truncated it",
            "nothing is changed: restore it from a copy, or make a copy of the store without the lost records "
            "(pylog repair)",
        )


def no_state(place: PartitionPath) -> UnknownTopicError | LogDamagedError:
    """Returns the error for a partition that has segments but no state file."""
    if not list_segments(place.folder):
        return UnknownTopicError(f"{place}: the topic was deleted")
    owner = place.owner()
    if owner in ("", place.topic_id):
        return LogDamagedError(
            f"{place}: {place.folder} holds segments, but its state file {place.state_path} is missing",
            "restore it from a copy of the store",
        )
    return UnknownTopicError(
        f"{place}: the topic was deleted; or, if it is there, {place.folder} is of an earlier one of that name, "
        f"with the topic id {owner}: see `pylog verify`"
    )


def holds_segments(folders: LogDirs | None, place: PartitionPath) -> bool:
    """Whether a partition without a state has segments; False if its log dir has failed. OSError.

    A partition that was never written to is expected in the first log dir, which a failure must not take offline.
    """
    try:
        return bool(list_segments(place.folder))
    except OSError as error:
        if folders is not None and isinstance(folders.explained(error, place), LogDirOfflineError):
            return False
        raise
