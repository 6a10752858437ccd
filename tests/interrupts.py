"""Ctrl-C at one of the moments at which Python runs the handlers of signals.

These are the beginning of a function, and the return from one in C.
"""

import contextlib
import sys


class Interrupt:
    """Raises KeyboardInterrupt at a moment, counted from 1.

    Attributes:
        seen: how many moments there were so far.
        at: where it was raised; None: it was not.
    """

    def __init__(self, moment, where):
        """`where`: given a frame, and "call" or "c_return", gives the frame whose moment that is; None: it is none."""
        self.moment, self._where, self.seen, self.at = moment, where, 0, None

    def _event(self, frame, event, _argument):
        found = self._where(frame, event) if event in ("call", "c_return") else None
        if found is not None:
            self.seen += 1
            if self.seen == self.moment:
                self.at = f"{found.f_code.co_filename}:{found.f_lineno}"
                raise KeyboardInterrupt

    @contextlib.contextmanager
    def armed(self):
        """Interrupts what runs inside, if its moment comes."""
        sys.setprofile(self._event)
        try:
            yield
        except KeyboardInterrupt:
            assert self.at is not None
        finally:
            sys.setprofile(None)
