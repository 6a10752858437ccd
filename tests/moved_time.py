"""The time of day as no test should need it: it stands still, or passes fast.

It is that of the process that runs the test, and of those that it forks; not of other ones, and not of Java.
"""

import itertools
import os
import time

#: How many ns pass from one look at the clock to the next one, as PYLOG_TEST_TIME says.
STEPS = {"still": 0, "jumps": 61_000_000_000}
_real, _stat, _fstat, _lstat = time.time_ns, os.stat, os.fstat, os.lstat
# What a status has beside its ten numbers.
_NAMES = [name for name in dir(os.stat_result) if name.startswith("st_")]


def begin():
    """A test begins: now, by the machine's clock."""
    if kind := os.environ.get("PYLOG_TEST_TIME"):
        now, step = _real(), STEPS[kind]
        looks = itertools.count(now, step)
        time.time_ns = looks.__next__
        time.time = lambda: next(looks) / 1e9
        if not step:
            os.stat, os.fstat, os.lstat = (_as_it_was(look, now) for look in (_stat, _fstat, _lstat))


def _as_it_was(look, now):
    """Files that the machine changed since then are as new as the clock says."""

    def status_of(*args, **kwargs):
        status = look(*args, **kwargs)
        if status.st_ctime_ns <= now:
            return status
        facts = {name: getattr(status, name) for name in _NAMES}
        for kind in ("a", "m", "c"):
            at = facts[f"st_{kind}time_ns"]
            if now < at <= _real():
                facts |= {f"st_{kind}time_ns": now, f"st_{kind}time": now / 1e9}
        return os.stat_result((*status[:7], *(int(facts[f"st_{kind}time"]) for kind in ("a", "m", "c"))), facts)

    return status_of
