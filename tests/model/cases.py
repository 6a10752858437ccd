"""What is explored: small configurations of the protocol, each to its end, in three sizes.

"quick" are seconds altogether, for every run of the tests; "more" is a minute; "full" is for a machine that has nothing
else to do for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import (
    decided_away,
    deletion,
    fencing,
    helpers,
    janitor,
    locks,
    lost_locks,
    offsets,
    one_partition,
    stale,
    swap,
)
from .engine import Explorer, Model, Result
from .partition import Setup

SIZES = ("quick", "more", "full")
# More states than any of them has.
LIMIT = 20_000_000

APPENDS = ("append", "append two", "append synced")
ALL = (*APPENDS, "publish")

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A configuration.

    Attributes:
        name: what it is about.
        make: makes the model from settings; those that are fields of Setup go there.
        checks: the invariants that it could violate.
        settings: for each size; a larger one leaves out what it contains.
    """

    name: str
    make: Callable[..., Model]
    checks: str
    settings: Mapping[str, Sequence[Settings]]


def make(build: Callable[..., Model], settings: Settings, without: str = "", **others: Any) -> Model:
    """A model, perhaps without a rule."""
    of_setup = {name: value for name, value in settings.items() if name in Setup._fields}
    rest = {name: value for name, value in settings.items() if name not in Setup._fields}
    setup = Setup(**of_setup, without=frozenset({without} if without else ()))
    return build(setup=setup, **rest, **others)


def run(case: Case, settings: Settings, limit: int = LIMIT) -> Result:
    """Explores a case."""
    return Explorer(make(case.make, settings)).explore(limit)


CASES = (
    Case(
        "one partition: appends, publishes", one_partition.model, "I1 I2 I3 I6 I7 I15",
        {
            "quick": [dict(tasks=1, kinds=ALL)],
            "more": [dict(tasks=2, kinds=ALL)],
            "full": [dict(tasks=3, kinds=ALL), dict(tasks=2, kinds=ALL, kills=2, powers=2)],
        },
    ),
    Case(
        "one partition: rolls", one_partition.model, "I1 I2 I3 I6 I7 I15",
        {
            "quick": [dict(tasks=2, kinds=("append two", "publish"), limit=2, powers=0)],
            "more": [dict(tasks=2, kinds=ALL, limit=2)],
            "full": [dict(tasks=3, kinds=ALL, limit=2), dict(tasks=2, kinds=ALL, limit=1, kills=2, powers=2)],
        },
    ),
    Case(
        "one partition: slots can be torn", one_partition.model, "I1 I2 I3 I7",
        {
            "quick": [dict(tasks=1, kinds=ALL, torn=True)],
            "more": [dict(tasks=2, kinds=("append", "publish"), torn=True)],
            "full": [dict(tasks=3, kinds=("append", "append synced", "publish"), limit=2, torn=True)],
        },
    ),
    Case(
        "one partition: syncs fail", one_partition.model, "I1 I2 I3 I7 I15",
        {
            "quick": [dict(tasks=1, kinds=ALL, failing=(1, 1))],
            "more": [dict(tasks=2, kinds=("append", "append synced"), failing=(1, 1))],
            "full": [
                dict(tasks=2, kinds=ALL, failing=(1, 1)),
                dict(tasks=3, kinds=("append", "append synced", "publish"), failing=(0, 1), limit=2),
            ],
        },
    ),
    Case(
        "one partition: publishes without syncs, flushes", one_partition.model, "I1 I2 I3 I7",
        {
            "quick": [dict(tasks=1, kinds=("append", "publish unsynced", "settle"))],
            "more": [dict(tasks=2, kinds=("append", "publish unsynced", "settle"), limit=2)],
            "full": [dict(tasks=3, kinds=("append", "publish unsynced", "publish", "settle"), limit=2)],
        },
    ),
    Case(
        "one partition: two writers that keep files open", one_partition.model, "I1 I2 I3 I7 I10 I15",
        {
            "quick": [dict(tasks=2, kinds=("append", "publish two files"), writers=2, handles=True, powers=0)],
            "more": [dict(tasks=2, kinds=("append", "publish"), writers=2, handles=True, limit=2, powers=0)],
            "full": [
                dict(tasks=2, kinds=("append", "publish two files"), writers=2, handles=True),
                dict(tasks=2, kinds=ALL, writers=2, handles=True, limit=2),
            ],
        },
    ),
    Case(
        "staged files that become segments", one_partition.model, "I1 I2 I3 I6 I7 I9 I15",
        {
            "quick": [dict(tasks=1, kinds=("publish files", "publish two files"))],
            "more": [dict(tasks=2, kinds=("append", "publish files"), kills=0)],
            "full": [
                dict(tasks=2, kinds=("append", "append synced", "publish files", "publish two files", "publish")),
                dict(tasks=2, kinds=("append", "publish files", "publish two files"), failing=(0, 1)),
            ],
        },
    ),
    Case(
        "an intent with something else behind the end", stale.model, "I3 I7 I15",
        {"quick": [dict()], "more": [dict(powers=2)], "full": [dict(kills=2, powers=2)]},
    ),
    Case(
        "deleting and taking back records", one_partition.model, "I1 I2 I3 I7",
        {
            "quick": [dict(tasks=2, kinds=("append", "delete records", "truncate"), limit=1)],
            "more": [dict(tasks=2, kinds=(*ALL, "delete records", "truncate"), limit=2)],
            "full": [
                dict(tasks=3, kinds=("append", "publish", "delete records", "truncate"), limit=2),
                dict(tasks=3, kinds=("append two", "publish", "delete records", "truncate"), limit=1, kills=2),
            ],
        },
    ),
    Case(
        "deciding and fencing: a zombie, a restored checkpoint", fencing.model, "I3 I4 I5 I8 I9 I15",
        {
            "quick": [dict(limit=3, zombies=1, kills=0, back=2), dict(limit=2, zombies=0, back=1)],
            "more": [dict(limit=2, zombies=1), dict(limit=1, zombies=1, helpers=1, kills=0)],
            "full": [
                dict(limit=3, zombies=1, kills=2), dict(limit=2, zombies=1, powers=1),
                dict(limit=2, zombies=1, helpers=1, kills=0, back=1), dict(limit=2, zombies=2, kills=1),
            ],
        },
    ),
    Case(
        "deciding: a copied checkpoint", fencing.model, "I5 I8",
        {
            "quick": [dict(limit=2, zombies=0, copied=True, kills=0)],
            "more": [dict(limit=3, zombies=0, copied=True)],
            "full": [dict(limit=3, zombies=1, copied=True)],
        },
    ),
    Case(
        "two partitions: publishers, one-off publishers, helpers", helpers.model, "I3 I4 I5 I6 I7 I9 I15",
        {
            "quick": [dict(numbers=(0,), one_offs=0, helpers=1, kills=0)],
            "more": [dict(numbers=(0, 1), one_offs=0, helpers=0, skips=True), dict(numbers=(0,), one_offs=1, helpers=0)],
            "full": [
                dict(numbers=(0,), one_offs=0, helpers=2, kills=0), dict(numbers=(0, 1), one_offs=1, helpers=0),
                dict(numbers=(0,), one_offs=1, helpers=0, kills=0, powers=1),
                dict(numbers=(0,), one_offs=1, helpers=1, kills=0),
            ],
        },
    ),
    Case(
        "the janitor", janitor.model, "I3 I5 I9 I15",
        {
            "quick": [dict(numbers=(0,))],
            "more": [dict(numbers=(0, 1)), dict(numbers=(0,), kills=0, powers=1)],
            "full": [dict(numbers=(0,), publishers=2), dict(numbers=(0, 1), powers=1)],
        },
    ),
    Case(
        "positions of groups", offsets.model, "I3 I5 I11 I15",
        {
            "quick": [dict(members=2, commits=0), dict(members=1, commits=1)],
            "more": [dict(members=2, commits=1)],
            "full": [dict(members=1, commits=1, powers=1), dict(members=1, count=2, commits=1, kills=1)],
        },
    ),
    Case(
        "a topic is deleted", deletion.model, "I3 I5 I7 I9 I15",
        {
            "quick": [dict(helpers=0, writers=1)],
            "more": [dict(helpers=1), dict(helpers=0, kills=1)],
            "full": [dict(numbers=(0, 1), helpers=1, writers=1), dict(helpers=0, writers=1, kills=1, powers=1)],
        },
    ),
    Case(
        "compaction of decisions", decided_away.model, "I5 I13",
        {
            "quick": [dict(limit=1)],
            "more": [dict(limit=1, powers=1)],
            "full": [dict(limit=1, publishers=2)],
        },
    ),
    Case(
        "swap, with readers", swap.model, "I7 I12 I15 I16",
        {
            "quick": [dict()],
            "more": [dict(powers=1), dict(kills=0, writers=1)],
            "full": [dict(powers=1, kills=2), dict(readers=2, powers=1), dict(writers=2, times=2)],
        },
    ),
    Case(
        "lost locks", lost_locks.model, "I1 I2 I3 I7 I10",
        {
            "quick": [dict(tasks=2, limit=2)],
            "more": [dict(tasks=2, limit=2, losses=2), dict(tasks=2, limit=2, kills=1)],
            "full": [dict(tasks=3, limit=2, losses=2), dict(tasks=3, limit=2, kills=1), dict(tasks=2, limit=2, clients=3)],
        },
    ),
    Case(
        "no circle of waiters", locks.model, "I15",
        {"quick": [dict()], "more": [dict()], "full": [dict()]},
    ),
    Case(
        "turns", locks.model, "I15",
        {"quick": [dict(turns=True)], "more": [dict(turns=True, processes=4)], "full": [dict(turns=True, processes=5)]},
    ),
)  # fmt: skip
