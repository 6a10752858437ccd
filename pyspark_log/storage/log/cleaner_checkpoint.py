"""How far a partition's log is compacted, and why not further: one small file beside its state file.

A partition's cleaner holds the lock of this file, so that two cleaners never work on one log. How far the log is
compacted only saves work: if that is torn or too old, the next cleaner begins at the log start and finds less to do.
Which segments cleaners may have replaced is relied on. So a file that does not say it, as after a power loss in a
write, or because it was removed, means: perhaps all of them.

Layout: docs/internals/format.md.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from pyspark_log.config import LONG_MAX
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import contextmanager, files, lock_for
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.log.state.partition_state import PartitionState
from pyspark_log.storage.record import crc32c

VERSION = 2
#: How far cleaners may have been if the file does not say it: any segment may be compacted.
UNKNOWN = LONG_MAX
#: Bytes of the file: one sector, so that a write is seldom torn.
FILE_SIZE = 512
_BODY = struct.Struct(">BxHIqqq")
_CRC = struct.Struct(">I")
_MOST_REASON = FILE_SIZE - _BODY.size - _CRC.size


class CleanerCheckpoint(NamedTuple):
    """What the last cleaner recorded.

    Attributes:
        cleaned_to: the first offset that it did not clean: Kafka's cleaner checkpoint. 0: nothing is cleaned.
        truncations: how often the partition's log had been truncated by then.
        touched_to: no cleaner, not even a killed one, has replaced a segment above it; UNKNOWN: not known.
        time: when that was, in ms.
        reason: why the partition cannot be cleaned; "" if it can.
    """

    cleaned_to: int = 0
    truncations: int = 0
    touched_to: int = 0
    time: int = 0
    reason: str = ""


def _encode(state: CleanerCheckpoint) -> bytes:
    reason = state.reason.encode()[:_MOST_REASON].decode(errors="ignore").encode()
    body = _BODY.pack(VERSION, len(reason), state.truncations, state.cleaned_to, state.touched_to, state.time)
    body += reason.ljust(_MOST_REASON, b"\0")
    return body + _CRC.pack(crc32c(body))


def _decode(data: bytes) -> CleanerCheckpoint:
    if not data:
        return CleanerCheckpoint()  # Its cleaner has not reached its first swap.
    body = data[: -_CRC.size]
    if len(data) != FILE_SIZE or body[0] != VERSION or data[-_CRC.size :] != _CRC.pack(crc32c(body)):
        return CleanerCheckpoint(touched_to=UNKNOWN)
    _, size, truncations, cleaned_to, touched_to, time = _BODY.unpack_from(body)
    reason = body[_BODY.size : _BODY.size + size].decode(errors="replace")
    return CleanerCheckpoint(cleaned_to, truncations, touched_to, time, reason)


def read(place: PartitionPath) -> CleanerCheckpoint:
    """Reads the checkpoint. If it is missing, torn or of another version, any segment may be compacted. OSError."""
    try:
        with files.open_read(place.cleaner_path) as file:
            return _decode(file.pread(FILE_SIZE, 0))
    except FileNotFoundError:
        return CleanerCheckpoint(touched_to=UNKNOWN)


def write(place: PartitionPath, state: CleanerCheckpoint) -> None:
    """Replaces the checkpoint durably; the caller holds the lock of `cleaning`.

    Raises:
        OSError: also if that lock was lost meanwhile, on a shared file system. A server then refuses writes to a locked
            file, but only through the file that was locked.
    """
    file = lock_for(place.cleaner_path).file
    if not file.size():
        # The file's name must survive a power loss too: `verify` relies on what is written now.
        files.sync_folder(os.path.dirname(place.cleaner_path))
    file.pwrite(_encode(state), 0)
    file.sync()


@contextmanager
def cleaning(place: PartitionPath, timeout: float = DEFAULT_TIMEOUT) -> Iterator[None]:
    """Holds the lock of the partition's cleaner.

    Raises:
        LockTimeoutError: another cleaner works there for longer than `timeout` (s).
        OSError: the file cannot be created.
    """
    files.open_or_create(place.cleaner_path).close()
    with lock_for(place.cleaner_path).held(timeout):
        yield


def first_dirty(known: CleanerCheckpoint, state: PartitionState) -> int:
    """The first offset that is not compacted (LogCleanerManager.cleanableOffsets).

    If the log was truncated since, its offsets may have other records now: nothing counts as compacted.
    """
    same = known.truncations == state.truncations
    return known.cleaned_to if same and state.log_start <= known.cleaned_to <= state.next_offset else state.log_start
