"""Exceptions in threads that an installed package started fail no test, as it would be whichever one runs then."""

import sys
import sysconfig
import threading
from pathlib import Path
from traceback import walk_stack, walk_tb

_LIBRARY = sysconfig.get_path("stdlib")
_INSTALLED = ("site-packages", "dist-packages")


def let_pass():
    """From now on such an exception is printed, and not kept for the test; those of other threads are."""
    kept, kept_unraisable = threading.excepthook, sys.unraisablehook

    def died(exception):
        foreign = _is_foreign(walk_tb(exception.exc_traceback))
        (threading.__excepthook__ if foreign else kept)(exception)

    def unraisable(exception):
        is_main = threading.current_thread() is threading.main_thread()
        foreign = not is_main and _is_foreign(reversed([*walk_stack(sys._getframe(1))]))
        (sys.__unraisablehook__ if foreign else kept_unraisable)(exception)

    threading.excepthook, sys.unraisablehook = died, unraisable


def _is_foreign(frames):
    """Whether the code that a thread began with, but for Python's library, is of an installed package."""
    for frame, _ in frames:
        path = frame.f_code.co_filename
        if any(name in Path(path).parts for name in _INSTALLED):
            return True
        if not path.startswith((_LIBRARY, "<")):
            return False
    return False
