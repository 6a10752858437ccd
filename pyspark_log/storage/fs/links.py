"""Checks where a file can have a second name, and where it can be renamed to."""

from __future__ import annotations

import errno
import os

# Errors of link(2) where second names are not supported, not between these folders, or not for this user.
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP})


def forbids_links(error: OSError) -> bool:
    """Whether an error means that the file system, or the owner of a file, allows no second name for it."""
    return error.errno in _NO_LINKS


def on_one_device(folder: str, other: str) -> bool:
    """Whether files can be renamed from one folder to the other. OSError."""
    return os.stat(folder).st_dev == os.stat(other).st_dev
