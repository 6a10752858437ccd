"""Deciding and fencing: runs of one query on one checkpoint, one of them a zombie; copied and restored checkpoints.

A run plans a batch (durably, in the checkpoint), publishes it, and notes that it is committed, as Spark does. Killed,
it is followed by another run, which repeats what was planned and not committed. Two processes are two runs at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ..checker.machine import Model, Program, Steps, Thing
from ..observers.publishes import watches
from ..protocol.decided import GivenUpError
from ..protocol.decision_log import Content, Record
from ..protocol.held_log import SyncError
from ..protocol.publisher import OUTCOMES, NotPublishedError, PendingError, Publisher, RefusedError
from ..protocol.setup import PLAIN, Setup
from .publishers import helper, last, private, settled, things

PLACES = ("p",)


class Plans(NamedTuple):
    """A checkpoint: what each batch reads, how many batches are committed; and how many plans there ever were."""

    batches: tuple[int, ...] = ()
    committed: int = 0
    made: int = 0
    restored: bool = False


class Checkpoint(Thing):
    """Spark's offset log and commit log, both durable."""

    syncs = frozenset({"plan", "commit"})

    @classmethod
    def do_plan(cls, plans: Plans, batches: int) -> Any:
        """The next batch's number and plan: the uncommitted batch, or a new one; None after the last."""
        if len(plans.batches) == plans.committed:
            if plans.committed == batches:
                return plans, None
            plans = plans._replace(batches=(*plans.batches, plans.made), made=plans.made + 1)
        return plans, (len(plans.batches) - 1, plans.batches[-1])

    @classmethod
    def do_commit(cls, plans: Plans, number: int) -> Any:
        if number + 1 != len(plans.batches):
            return plans, None  # Another run has continued, or it was restored.
        return plans._replace(committed=number + 1), None


def run(process: int, setup: Setup, name: str, batches: int, checkpoint: str, located: bool, patient: bool) -> Steps:
    """A run of the query, until all batches are done or one is refused.

    After an error it publishes once more: the same if it is pending, and staged again if it is not published.
    """
    access = Publisher(process, PLACES, setup, patient=patient)
    claimed = False
    while True:
        batch = yield checkpoint, "plan", batches
        if batch is None:
            return
        number, plan = batch
        wanted = Record(
            "a",
            number,
            run=name,
            places=PLACES,
            location=checkpoint if located else "",
            content=Content("a", number, plan, name),
        )
        try:
            if not claimed:
                yield from access.claim("a", name, number)
                claimed = True
        except (RefusedError, SyncError, GivenUpError):
            return
        try:
            try:
                yield from access.publish(wanted, claimed=True)
            except RefusedError:
                return
            except PendingError:
                yield from access.publish(wanted, claimed=True)
            except NotPublishedError:
                again = wanted._replace(content=Content("a", number, plan, name + " again"))
                yield from access.publish(again, claimed=True)
        except OUTCOMES:
            return
        yield checkpoint, "commit", number


def restored(back: int, values: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """The checkpoint becomes that of `back` batches ago, once."""
    plans = values["checkpoint"]
    if not plans.restored and plans.committed == len(plans.batches) >= back:
        left = plans.committed - back
        yield {"checkpoint": plans._replace(batches=plans.batches[:left], committed=left, restored=True)}


def model(
    batches: int = 2, zombies: int = 1, copied: bool = False, located: bool = True, back: int = 0, helpers: int = 0,
    patient: bool = True, kills: int = 1, powers: int = 0, setup: Setup = PLAIN,
) -> Model:  # fmt: skip
    """A query of several batches and what may disturb it.

    Args:
        batches: how many.
        zombies: runs that begin while another is at work.
        copied: a query with a copy of the checkpoint at another place, made after the first batch.
        located: runs record where their checkpoint is; else only what they have planned distinguishes the queries.
        back: by how many batches the checkpoint may be restored to an earlier one; 0: it is not.
        helpers: passers-by that apply and record what is done.
        patient: runs wait for a partition's lock; else they give up, and publish the same again.
        kills, powers, setup: as in Model.
    """
    lives: dict[str, list[Program | None]] = {}
    for _ in range(1 + zombies):
        process = len(lives)
        lives[f"query {process}"] = [
            partial(run, process, setup, f"r{process}{life}", batches, "checkpoint", located, patient)
            for life in range(2)
        ]
    if copied:
        process = len(lives)
        lives[f"query {process}"] = [partial(run, process, setup, f"r{process}", batches, "copy", located, patient)]
    for _ in range(helpers):
        process = len(lives)
        lives[f"helper {process}"] = [partial(helper, process, setup, True, PLACES)]
    return Model(
        things=things(PLACES) | {"checkpoint": (Checkpoint, Plans()), "copy": (Checkpoint, Plans((0,), 1, 100))},
        lives=lives,
        kills=kills,
        powers=powers,
        watches=watches(PLACES),
        private=private(PLACES),
        alone=partial(last, setup, PLACES),
        settled=partial(settled, places=PLACES),
        steps=[("the checkpoint is restored", partial(restored, back))] if back else [],
    )
