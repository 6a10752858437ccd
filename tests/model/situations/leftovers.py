"""Resolving an intent with something else at its place: batches of an append, with right CRCs and offsets.

No run of the protocol gets there, since what is cut is synced before anything else. So it is taken as given: a disk
that brings back what was removed, a log file that was restored from a copy. Each place beyond the end has one of
several things, on the disk or in memory only, and the state has an intent of a decision of two batches.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from ..checker.machine import Model, Steps
from ..observers.partition import Seen, Witness, watch
from ..protocol.setup import PLAIN, Setup
from ..world.locks import Locks
from ..world.log import Batch, File, Folder, Log
from ..world.state_file import Intent, State, StateFile
from .one_partition import P, Script, Tasks, last, settled, worker


def things_at(place: int) -> tuple[Any, ...]:
    """What may be at a place of the intent's batches, with the offset of that place: scrap, or a batch."""
    return None, ("stale", place), ("d", 0, 0, 2), ("d", 0, 1, 2)


class GivenLog(Log):
    """A log that begins with what was found beyond its end."""

    syncs = Log.syncs | {"given"}

    @classmethod
    def do_given(cls, folder: Folder) -> Any:
        """Puts something at none, the first or both of the places, on the disk or in memory only."""
        found = []
        for whats in [(), *itertools.product(things_at(0)), *itertools.product(things_at(0), things_at(1))]:
            cells = tuple(what and Batch(1 + number, 1, what) for number, what in enumerate(whats))
            before = folder.file(0).cells
            found.append((folder.with_file(0, File((*before, *cells))), None))
            unsynced = tuple((1 + number, cell) for number, cell in enumerate(cells))
            found.append((folder.with_file(0, File(before, unsynced)), None))
        return found


def first_worker(setup: Setup) -> Steps:
    """Writes something beyond the end and then enters."""
    yield P + " log", "given"
    yield from worker(0, setup, (), True)


def model(kills: int = 1, powers: int = 1, setup: Setup = PLAIN) -> Model:
    """One partition with one record, an intent, and anything beyond the end."""
    before = Batch(0, 1, ("a", 0, 0))
    intent = Intent(0, (("d", 0, 0, 2), ("d", 0, 1, 2)), 3, 0, 3)
    state = State(next=1, position=1, synced=1, intent=intent)
    return Model(
        things={
            P + " state": (StateFile, StateFile.new(state)),
            P + " log": (GivenLog, Folder(((0, 0),), (), ((0, File((before,))),))),
            P + " seen": (Witness, Seen(durable=frozenset({0}))),
            "locks": (Locks, (-1,)),
            "script": (Script, Tasks(0, 0, ("publish",))),
        },
        lives={"holder": (partial(first_worker, setup), partial(worker, 0, setup, (), True))},
        kills=kills,
        powers=powers,
        watches=(watch(P),),
        private={P + " log": ("locks", 0), P + " state": ("locks", 0)},
        alone=partial(last, setup),
        settled=settled,
    )
