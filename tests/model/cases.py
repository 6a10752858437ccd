"""What is explored: small configurations of the protocol, each to its end, in three sizes.

"quick" are seconds, and in part for every run of the tests; "middle" is a minute; "full" is for a machine that has
nothing else to do for a while.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .checker.explorer import Explorer, Result
from .checker.machine import Model
from .protocol.setup import Setup
from .publish_log import situations as publish_log
from .situations import (
    committed_offsets,
    compacted_decisions,
    fencing,
    janitor,
    leftovers,
    lock_order,
    lost_locks,
    members,
    one_partition,
    publishers,
    segment_swap,
    topic_deletion,
)

SIZES = ("quick", "middle", "full")
# More states than any of them has.
LIMIT = 20_000_000

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


def given(**settings: Any) -> Settings:
    """Settings of a model."""
    return settings


def make(build: Callable[..., Model], settings: Settings, without: str = "") -> Model:
    """A model, perhaps without a rule."""
    of_setup = {name: value for name, value in settings.items() if name in Setup._fields}
    others = {name: value for name, value in settings.items() if name not in of_setup}
    usual: Setup = inspect.signature(build).parameters["setup"].default
    return build(setup=usual._replace(**of_setup, without=without), **others)


def run(case: Case, settings: Settings, limit: int = LIMIT) -> Result:
    """Explores a case."""
    return Explorer(make(case.make, settings)).explore(limit)


APPENDS = ("append", "append two", "append synced")
ALL = (*APPENDS, "publish")
# Cleaners of an object store: what nothing needs is listed, and deleted on another day.
HORIZON = (("horizon", "list"), ("delete",))
FLOOR = (("floor", "list"), ("delete",))
LIST = (("list",), ("delete",))
BOTH = (("horizon", "floor", "list"), ("delete",))
THRICE = (("floor", "list"), ("floor", "delete", "list"), ("delete",))

CASES = (
    Case(
        "one partition: appends, publishes", one_partition.model, "I1 I2 I3 I6 I7 I15",
        {
            "quick": [given(tasks=1, kinds=ALL)],
            "middle": [given(tasks=2, kinds=ALL)],
            "full": [given(tasks=3, kinds=ALL), given(tasks=2, kinds=ALL, kills=2, powers=2)],
        },
    ),
    Case(
        "one partition: rolls", one_partition.model, "I1 I2 I3 I6 I7 I15",
        {
            "quick": [given(tasks=2, kinds=("append two", "publish"), segment_size=2, powers=0)],
            "middle": [given(tasks=2, kinds=ALL, segment_size=2)],
            "full": [
                given(tasks=3, kinds=ALL, segment_size=2),
                given(tasks=2, kinds=ALL, segment_size=1, kills=2, powers=2),
            ],
        },
    ),
    Case(
        "one partition: slots can be torn", one_partition.model, "I1 I2 I3 I7",
        {
            "quick": [given(tasks=1, kinds=ALL, torn=True)],
            "middle": [given(tasks=2, kinds=("append", "publish"), torn=True)],
            "full": [given(tasks=3, kinds=("append", "append synced", "publish"), segment_size=2, torn=True)],
        },
    ),
    Case(
        "one partition: a slot is damaged", one_partition.model, "I1 I2 I3 I7",
        {
            "quick": [given(tasks=1, kinds=ALL, flips=True, powers=0)],
            "middle": [given(tasks=2, kinds=ALL, flips=True, powers=0)],
            "full": [given(tasks=3, kinds=ALL, flips=True, segment_size=2, powers=0)],
        },
    ),
    Case(
        "one partition: syncs fail", one_partition.model, "I1 I2 I3 I7 I15",
        {
            "quick": [given(tasks=1, kinds=ALL, failing=(1, 1))],
            "middle": [given(tasks=2, kinds=("append", "append synced"), failing=(1, 1))],
            "full": [
                given(tasks=2, kinds=ALL, failing=(1, 1)),
                given(tasks=3, kinds=("append", "append synced", "publish"), failing=(0, 1), segment_size=2),
            ],
        },
    ),
    Case(
        "one partition: publishes without syncs, flushes", one_partition.model, "I1 I2 I3 I7",
        {
            "quick": [given(tasks=1, kinds=("append", "publish unsynced", "flush"))],
            "middle": [given(tasks=2, kinds=("append", "publish unsynced", "flush"), segment_size=2)],
            "full": [given(tasks=3, kinds=("append", "publish unsynced", "publish", "flush"), segment_size=2)],
        },
    ),
    Case(
        "one partition: two writers that keep files open", one_partition.model, "I1 I2 I3 I7 I10 I15",
        {
            "quick": [given(tasks=2, kinds=("append", "publish two files"), writers=2, handles=True, powers=0)],
            "middle": [given(tasks=2, kinds=("append", "publish"), writers=2, handles=True, segment_size=2, powers=0)],
            "full": [
                given(tasks=2, kinds=("append", "publish two files"), writers=2, handles=True),
                given(tasks=2, kinds=ALL, writers=2, handles=True, segment_size=2),
            ],
        },
    ),
    Case(
        "staged files that become segments", one_partition.model, "I1 I2 I3 I6 I7 I9 I15",
        {
            "quick": [given(tasks=1, kinds=("publish files", "publish two files"))],
            "middle": [given(tasks=2, kinds=("append", "publish files"), kills=0)],
            "full": [
                given(tasks=2, kinds=("append", "append synced", "publish files", "publish two files", "publish")),
                given(tasks=2, kinds=("append", "publish files", "publish two files"), failing=(0, 1)),
            ],
        },
    ),
    Case(
        "an intent with something else after the end", leftovers.model, "I3 I7 I15",
        {"quick": [given()], "middle": [given(powers=2)], "full": [given(kills=2, powers=2)]},
    ),
    Case(
        "deleting and taking back records", one_partition.model, "I1 I2 I3 I7",
        {
            "quick": [given(tasks=2, kinds=("append", "delete records", "truncate"), segment_size=1)],
            "middle": [given(tasks=2, kinds=(*ALL, "delete records", "truncate"), segment_size=2)],
            "full": [
                given(tasks=3, kinds=("append", "publish", "delete records", "truncate"), segment_size=2),
                given(tasks=3, kinds=("append two", "publish", "delete records", "truncate"), segment_size=1, kills=2),
            ],
        },
    ),
    Case(
        "deciding and fencing: a zombie, a restored checkpoint", fencing.model, "I3 I4 I5 I8 I9 I15",
        {
            "quick": [given(batches=3, zombies=1, kills=0, back=2), given(batches=2, zombies=0, back=1)],
            "middle": [given(batches=1, zombies=1), given(batches=1, zombies=1, helpers=1, kills=0)],
            "full": [
                given(batches=2, zombies=1), given(batches=3, zombies=1, kills=0, back=1),
                given(batches=1, zombies=0, powers=1), given(batches=1, zombies=2, kills=0),
            ],
        },
    ),
    Case(
        "deciding: what errors say", fencing.model, "I5 I8 I9 I17",
        {
            "quick": [given(batches=1, zombies=1, kills=0, patient=False)],
            "middle": [given(batches=2, zombies=1, kills=0, patient=False)],
            "full": [given(batches=2, zombies=1, patient=False)],
        },
    ),
    Case(
        "deciding: a copied checkpoint", fencing.model, "I5 I8",
        {
            "quick": [given(batches=2, zombies=0, copied=True, kills=0)],
            "middle": [
                given(batches=2, zombies=0, copied=True),
                given(batches=2, zombies=0, copied=True, located=False, kills=0),
            ],
            "full": [
                given(batches=3, zombies=0, copied=True), given(batches=2, zombies=1, copied=True, kills=0),
                given(batches=2, zombies=0, copied=True, located=False),
            ],
        },
    ),
    Case(
        "two partitions: publishers, one-off publishers, helpers", publishers.model, "I3 I4 I5 I6 I7 I9 I15 I17",
        {
            "quick": [
                given(numbers=(0,), one_offs=0, helpers=1, kills=0),
                given(numbers=(0,), one_offs=0, helpers=0, kills=0, powers=1, failing=2),
            ],
            "middle": [
                given(numbers=(), one_offs=1, helpers=1, tidies=True),
                given(numbers=(0, 1), one_offs=0, helpers=0, skips=True), given(numbers=(0,), one_offs=1, helpers=0),
                given(numbers=(0, 1), one_offs=0, helpers=0, kills=0, powers=1, failing=2),
            ],
            "full": [
                given(numbers=(0,), one_offs=0, helpers=2, kills=0),
                given(numbers=(0, 1), one_offs=1, helpers=0, kills=0),
                given(numbers=(0,), one_offs=1, helpers=0, kills=0, powers=1),
                given(numbers=(0,), one_offs=1, helpers=1, kills=0),
            ],
        },
    ),
    Case(
        "the janitor", janitor.model, "I3 I5 I9 I15",
        {
            "quick": [given(numbers=(0,))],
            "middle": [given(numbers=(0, 1)), given(numbers=(0,), kills=0, powers=1)],
            "full": [given(numbers=(0,), publishers=2, kills=0), given(numbers=(0, 1), kills=0, powers=1)],
        },
    ),
    Case(
        "committed offsets", committed_offsets.model, "I3 I5 I11 I15",
        {
            "quick": [given(members=2, commits=0), given(members=1, commits=1), given(members=0, commits=2, sweeps=1)],
            "middle": [given(members=2, commits=1), given(members=1, commits=1, sweeps=1)],
            "full": [
                given(members=1, commits=1, powers=1), given(members=1, count=2, commits=1, kills=1),
                given(members=0, commits=2, sweeps=1, powers=1), given(members=1, commits=1, sweeps=1, kills=1),
            ],
        },
    ),
    Case(
        "members of a group", members.model, "I15 I18 I19 I20",
        {
            "quick": [given(records=1), given(partitions=1, records=2, removals=1), given(records=2, kills=1)],
            "middle": [given(members=3, records=2, kills=1)],
            "full": [
                given(members=3, records=1, most=1, removals=1, kills=1), given(most=3, removals=2, kills=1),
                given(members=3, partitions=3, records=1, removals=1),
            ],
        },
    ),
    Case(
        "a topic is deleted", topic_deletion.model, "I3 I5 I7 I9 I15",
        {
            "quick": [given(helpers=0, writers=1)],
            "middle": [given(helpers=1), given(helpers=0, kills=1)],
            "full": [given(numbers=(0, 1), helpers=1, writers=1), given(helpers=0, writers=1, powers=1)],
        },
    ),
    Case(
        "compaction of decisions", compacted_decisions.model, "I5 I13",
        {
            "quick": [given()],
            "middle": [given(numbers=(0,), powers=1)],
            "full": [given(powers=1, kills=0), given(publishers=2, kills=0)],
        },
    ),
    Case(
        "swap, with readers", segment_swap.model, "I7 I12 I15 I16",
        {
            "quick": [given()],
            "middle": [
                given(powers=1, kills=0), given(links=False), given(kills=0, writers=1),
                given(readers=0, truncates=True),
            ],
            "full": [
                given(powers=1), given(kills=2), given(powers=1, kills=0, links=False), given(readers=2, kills=0),
                given(writers=1, times=2, kills=0), given(readers=0, truncates=True, powers=1),
            ],
        },
    ),
    Case(
        "lost locks", lost_locks.model, "I1 I2 I3 I7 I10",
        {
            "quick": [given(tasks=2), given(tasks=3, losses=0, stray=1)],
            "middle": [
                given(tasks=2, losses=2), given(tasks=2, kills=1), given(tasks=3, stray=1), given(tasks=2, begun=True),
            ],
            "full": [given(tasks=3, losses=2), given(tasks=3, kills=1), given(tasks=2, clients=3)],
        },
    ),
    Case(
        "no circle of waiters", lock_order.model, "I15",
        {"quick": [given()], "middle": [given()], "full": [given()]},
    ),
    Case(
        "turns", lock_order.model, "I15",
        {
            "quick": [given(turns=True)],
            "middle": [given(turns=True, processes=4)],
            "full": [given(turns=True, processes=5)],
        },
    ),
    Case(
        "publish log: publishers, runs, lost answers", publish_log.publishers, "P1 P2 P3 P4 P6 P7 P8",
        {
            "quick": [
                given(runs="aa", failing=1), given(runs="", appends=2, failing=2),
                given(runs="ab", moves=True, failing=1, staged=True),
                given(runs="a", failing=2, revokes=True, staged=True),
            ],
            "middle": [
                given(runs="aa", failing=2, revokes=True, staged=True),
                given(runs="ab", appends=1, moves=True, kills=1),
                given(runs="aa", numbers=(0, 1), failing=1, kills=1),
            ],
            "full": [
                given(runs="aab", moves=True, kills=1), given(runs="aab", moves=True, failing=1),
                given(runs="aa", numbers=(0, 1), failing=2, revokes=True, staged=True),
                given(runs="aab", numbers=(0, 1)),
            ],
        },
    ),
    Case(
        "publish log: producers, coordinators, transactions", publish_log.served, "P1 P3 P7 P8 P9 P10 P11",
        {
            "quick": [
                given(producers=2, batches=2, failing=1), given(servers="cl", renews=1, commits=2),
                given(instances="ab"),
            ],
            "middle": [
                given(producers=3, batches=2, failing=1), given(servers="cl", renews=1, failing=1),
                given(instances="ab", failing=2),
            ],
            "full": [
                given(producers=3, batches=2, failing=2, kills=1), given(servers="clc", renews=1),
                given(servers="cl", renews=2, commits=2), given(instances="abc"),
                given(instances="ab", failing=2, kills=1), given(producers=2, instances="a"),
            ],
        },
    ),
    Case(
        "publish log: merges, deleted records, the horizon", publish_log.kept, "P1 P2 P5 P6 P7 P8",
        {
            "quick": [
                given(begun=("inline", "staged"), mergers=1, delete=1, cleaners=()),
                given(begun=("inline", "staged"), mergers=1, cleaners=(HORIZON,)),
                given(begun=(), appends=1, staged=True, asleep=False, cleaners=(HORIZON,)),
            ],
            "middle": [
                given(begun=(), appends=1, staged=True, asleep=False, failing=1, cleaners=(BOTH,)),
                given(begun=("inline", "staged"), mergers=2, readers=1, cleaners=()),
            ],
            "full": [
                given(begun=("inline", "staged"), mergers=1, delete=1, cleaners=(HORIZON,)),
                given(begun=("inline", "staged"), mergers=1, readers=1, cleaners=(BOTH,)),
                given(begun=(), appends=1, staged=True, asleep=False, cleaners=(HORIZON, HORIZON)),
            ],
        },
    ),
    Case(
        "publish log: the floor, and processes that sleep", publish_log.kept, "P1 P2 P5 P7 P8",
        {
            "quick": [
                given(readers=1), given(begun=("staged", "floor"), readers=1),
                given(begun=("empty",), appends=1), given(begun=("inline", "deleted"), tasks=1, appends=1),
            ],
            "middle": [
                given(begun=("empty", "inline"), appends=1, readers=1),
                given(begun=("empty", "inline"), runs=1, failing=1),
                given(begun=("empty",), appends=1, cleaners=(THRICE,), days=2), given(appends=1, failing=1, kills=1),
                given(readers=1, asleep=False, cleaners=((("floor",), ("floor", "list"), ("delete",)),)),
            ],
            "full": [
                given(appends=1, readers=1, failing=1), given(begun=("empty",), appends=2),
                given(appends=1, readers=1, kills=1),
                given(begun=("empty", "floor"), runs=2, cleaners=(LIST,)),
                given(readers=1, cleaners=(FLOOR, (("floor",),))),
            ],
        },
    ),
)  # fmt: skip
