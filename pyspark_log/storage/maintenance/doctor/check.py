"""Defines a check: its texts, its inputs, and how its result becomes a finding."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import NamedTuple

from pyspark_log.errors import PylogError
from pyspark_log.storage.maintenance.doctor.findings import Finding, Verdict
from pyspark_log.storage.maintenance.doctor.operations import Operations, Side

# The system's errors where there is no room: they say nothing of what is checked.
_FULL = (errno.ENOSPC, errno.EDQUOT)


class RefutedError(Exception):
    """The file system violated a requirement; the message says how."""


class Remark(NamedTuple):
    """The result of a check that passed with a limit.

    Attributes:
        measured: what was seen.
        meaning: what that means for the user.
    """

    measured: str
    meaning: str


class Bench(NamedTuple):
    """What a check works with.

    Attributes:
        folder: an empty folder in the file system.
        mine: operations of this process in that folder.
        other: the other side's operations in it.
    """

    folder: str
    mine: Operations
    other: Side


class Check(NamedTuple):
    """A check and its words.

    Attributes:
        name: what is checked.
        good: what it means if it passes.
        bad: what it means if it does not.
        run: the check.
    """

    name: str
    good: str
    bad: str
    run: Callable[[Bench], str | Remark]


def conduct(check: Check, bench: Bench) -> Finding:
    """Runs a check; any error in it becomes its finding."""
    try:
        outcome = check.run(bench)
    except RefutedError as refuted:
        return Finding(check.name, Verdict.FAILED, str(refuted), check.bad)
    except (OSError, PylogError) as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            return Finding(check.name, Verdict.WARNING, os.strerror(error.errno), "not checked: it needs some room")
        return Finding(check.name, Verdict.FAILED, f"{type(error).__name__}: {error}", check.bad)
    if isinstance(outcome, Remark):
        return Finding(check.name, Verdict.WARNING, outcome.measured, outcome.meaning)
    return Finding(check.name, Verdict.OK, outcome, check.good)


def expect(fact: bool, otherwise: str) -> None:
    """RefutedError, with what was seen `otherwise`, unless `fact` holds."""
    if not fact:
        raise RefutedError(otherwise)
