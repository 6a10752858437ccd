"""Locks that a process holds as long as it lives: however it ends, the system releases them.

That is when its last thread has ended, so whatever it was writing is written by then, or never will be. A process that
is stopped (SIGSTOP) keeps them.
"""

from __future__ import annotations

import fcntl

from pyspark_log.storage.fs import files


def hold(path: str, *, shared: bool = False) -> files.File | None:
    """Locks a file, which is created if it is missing; closing it unlocks it. Does not wait. OSError.

    `shared`: others may lock it likewise, and only them.

    Returns:
        The file; None: another one has locked it.
    """
    file = files.open_or_create(path)
    return file if _is_locked(file, shared=shared) else None


def is_held(path: str) -> bool:
    """Whether a file is locked by one that does not share it. Meanwhile no other can lock it. OSError."""
    try:
        file = files.open_read(path)
    except FileNotFoundError:
        return False
    if not _is_locked(file, shared=True):
        return True
    file.close()
    return False


def _is_locked(file: files.File, *, shared: bool) -> bool:
    """Locks a file, or closes it."""
    try:
        file.unshare_at_fork()
        fcntl.flock(file.fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BaseException as error:
        file.close()
        if isinstance(error, BlockingIOError):
            return False
        raise
    return True
