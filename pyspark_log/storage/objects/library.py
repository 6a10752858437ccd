"""The package obstore, in a process that may have been forked.

obstore runs its requests in threads of its own, which a forked child has not: there each call would wait for ever, also
with objects that the child has made. Spark forks its workers, and so does multiprocessing. So a child of a process that
has used obstore loads its compiled module again, from a copy, which has threads of its own (Linux: 16 ms).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from importlib.machinery import ExtensionFileLoader
from types import ModuleType

from pyspark_log.errors import InvalidConfigError

_NAME = "obstore"
_COMPILED = "obstore._obstore"
# By default it starts a thread for each core, in each process.
_THREADS = ("TOKIO_WORKER_THREADS", "2")

_loaded_by = 0  # the process that has loaded it; 0: none yet
_file: str | None = None  # of its compiled module, which copies do not have


def library() -> ModuleType:
    """The package, usable in this process. InvalidConfigError: it is not installed, or cannot be used after a fork."""
    global _loaded_by, _file  # noqa: PLW0603  (a module is loaded for a whole process)
    if _loaded_by == os.getpid():
        return sys.modules[_NAME]
    os.environ.setdefault(*_THREADS)
    if _loaded_by:
        _load_again(_file)
    try:
        found = importlib.import_module(_NAME)
    except ImportError as error:
        raise InvalidConfigError(
            f"an object store needs the package obstore, with Python 3.11 or later: pip install 'pyspark-log[objects]' "
            f"({error})"
        ) from None
    if not _loaded_by:
        _file = sys.modules[_COMPILED].__file__
    _loaded_by = os.getpid()
    return found


def _load_again(path: str | None) -> None:
    """Replaces the loaded modules by a copy. What was made by the former ones must not be used any more."""
    if path is None or not hasattr(os, "memfd_create"):
        raise InvalidConfigError(
            "an object store was used before this process was forked, which works on Linux only: start processes by "
            "the method 'spawn'"
        )
    copy = os.memfd_create(_NAME)
    try:
        with open(path, "rb") as file:
            left = os.fstat(file.fileno()).st_size
            while left:
                left -= os.sendfile(copy, file.fileno(), None, left)
        for name in [name for name in sys.modules if name.partition(".")[0] == _NAME]:
            del sys.modules[name]
        where = f"/proc/self/fd/{copy}"
        spec = importlib.util.spec_from_file_location(_COMPILED, where, loader=ExtensionFileLoader(_COMPILED, where))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[_COMPILED] = module
    finally:
        os.close(copy)
