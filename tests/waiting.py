"""Waiting for what another thread, process or machine does."""

import time

#: How long a test waits for what must happen, on a busy machine; in seconds.
PATIENCE = 240


def wait_until(condition, what, every=0.02):
    """What the condition gives as soon as it is true of it; it is asked each `every` seconds.

    `what` says what it waits for, or is called to say it when it was in vain. AssertionError, with that: it never is.
    """
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, f"it does not come to this: {what() if callable(what) else what}"
        time.sleep(every)
    return found
