"""`pylog serve` that ends before its change to files of a number, as by a kill: `python -m tests.server_to_kill ...`.

The environment's `STOP_AT` is the number; the changes are counted from SIGUSR1 on. The arguments are those of the
command.
"""

import os
import signal
import sys

from pyspark_log.cli import start
from pyspark_log.storage.fs import files


def main():
    """Serves until it is ended."""
    left, counts = int(os.environ["STOP_AT"]), False

    def observe(_change):
        nonlocal left
        if counts:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def begin(*_):
        nonlocal counts
        counts = True

    signal.signal(signal.SIGUSR1, begin)
    files.set_observer(observe)
    sys.argv = ["pylog", "serve", *sys.argv[1:]]
    start.main()


if __name__ == "__main__":
    main()
