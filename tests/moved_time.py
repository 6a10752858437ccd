"""The time of day as no test should need it: it does not move, or passes fast.

It is that of the process that runs the test, and of those that it forks; not of other ones, and not of Java.
"""

import itertools
import os
import time

#: `still` or `jumps`; empty: the machine's.
KIND = os.environ.get("PYLOG_TEST_TIME", "")
# How much time passes between two reads of the clock, in ns.
_JUMP = 61_000_000_000
# How far the system's clock for files may lag, in ns.
_TICK = 20_000_000
_real, _stat, _fstat, _lstat = time.time_ns, os.stat, os.fstat, os.lstat
# What a status has beside its ten numbers.
_NAMES = [name for name in dir(os.stat_result) if name.startswith("st_")]


def begin():
    """A test begins: now, by the machine's clock."""
    if KIND == "still":
        stand_still()
    elif KIND == "jumps":
        _pass(_JUMP, setattr)
    elif KIND:
        raise ValueError(f"PYLOG_TEST_TIME={KIND}: must be still or jumps")


def stand_still(set_attribute=setattr):
    """From now on it is always now, and files that are changed are as new as that."""
    now = _pass(0, set_attribute)
    for name, look in (("stat", _stat), ("fstat", _fstat), ("lstat", _lstat)):
        set_attribute(os, name, _as_it_was(look, now))


def _pass(step, set_attribute):
    now = _real()
    looks = itertools.count(now, step)
    set_attribute(time, "time_ns", looks.__next__)
    set_attribute(time, "time", lambda: next(looks) / 1e9)
    return now


def _as_it_was(look, now):
    def status_of(*args, **kwargs):
        status = look(*args, **kwargs)
        if status.st_ctime_ns <= now - _TICK:
            return status
        facts = {name: getattr(status, name) for name in _NAMES}
        for kind in ("a", "m", "c"):
            if now - _TICK < facts[f"st_{kind}time_ns"] <= _real():
                facts |= {f"st_{kind}time_ns": now, f"st_{kind}time": now / 1e9}
        return os.stat_result((*status[:7], *(int(facts[f"st_{kind}time"]) for kind in ("a", "m", "c"))), facts)

    return status_of
