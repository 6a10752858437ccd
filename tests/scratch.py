"""Folders for tests that sync much, or that make a store hundreds of times."""

import contextlib
import os
import tempfile
from pathlib import Path

#: Where they are: in memory where there is some; None: where the system has its temporary files.
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextlib.contextmanager
def memory_folder():
    """An empty folder that is deleted with what is in it."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder)
