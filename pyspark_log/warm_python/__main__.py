"""`python -m pyspark_log.warm_python FOLDER NAME`: the warm process of that name. `pylog-python` starts it."""

from __future__ import annotations

import gc
import os
import sys

from pyspark_log.warm_python.loaded import Loaded, load
from pyspark_log.warm_python.server import Server, lock, remove_leftovers
from pyspark_log.warm_python.start import THREADS


def main() -> None:
    """Loads, serves, and in a child runs what was asked for."""
    path = "/".join(sys.argv[1:])
    locked = lock(path)
    if locked is None:
        return
    remove_leftovers(path)
    del sys.path[0]  # The current folder, which `-m` has put there; each child has its own.
    # jemalloc, which Arrow brings along and does not use, would start a thread, too.
    os.environ.update(dict.fromkeys(THREADS, "1"), JE_ARROW_MALLOC_CONF="background_thread:false")
    load()
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        sys.exit(f"{threads} threads run, and a child would have one: nothing is started from here")
    loaded = Loaded()
    gc.collect()
    gc.freeze()  # A collection in a child would write to all pages, which are shared until then.
    gc.disable()
    start = Server(path, locked, loaded).serve()
    if start is not None:
        start.become()
        start.run()


if __name__ == "__main__":
    main()
