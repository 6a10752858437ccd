"""Publishers, one-off publishers and helpers at work at once in two partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..checker.machine import InvariantError, Model, Program, Steps, Thing
from ..observers.partition import Seen, Witness, current, visible
from ..observers.publishes import Promises, decisions, watches
from ..protocol.decided import GivenUpError
from ..protocol.decision_log import Content, D, Record, known
from ..protocol.held_log import SyncError
from ..protocol.publisher import OUTCOMES, Publisher
from ..protocol.setup import PLAIN, Setup
from ..world.locks import Chance, Locks
from ..world.log import Log
from ..world.staging import Staging
from ..world.state_file import StateFile

PLACES = ("p", "q")


def publisher(
    process: int,
    setup: Setup,
    wanted: Sequence[Record],
    one_off: bool,
    places: Sequence[str] = PLACES,
    kind: type[Publisher] = Publisher,
) -> Steps:
    """Publishes each of `wanted`, in order; stops at an error."""
    access = kind(process, places, setup)
    for number in range(len(wanted)):
        try:
            yield from access.publish(wanted[number], one_off=one_off)
        except OUTCOMES:
            return


def helper(
    process: int, setup: Setup, tidies: bool, places: Sequence[str] = PLACES, kind: type[Publisher] = Publisher
) -> Steps:
    """A process that helps to apply; `tidies`: and records what is done."""
    access = kind(process, places, setup, patient=False)
    try:
        yield from access.help()
        if tidies:
            yield from access.tidy()
    except (SyncError, GivenUpError):
        return


def last(setup: Setup, places: Sequence[str] = PLACES, kind: type[Publisher] = Publisher) -> Steps:
    """A process that starts when all others are dead, and finishes what was decided."""
    access = kind(99, places, setup)
    yield from access.help()
    yield from access.tidy()
    for number in range(len(places)):
        writer = access.writers[places[number]]
        alive = yield from writer.enter()
        if alive:
            yield from writer.append((("a", "last", 0),), sync=True)
            yield from writer.leave()


def settled(values: Mapping[str, Any], places: Sequence[str] = PLACES) -> None:
    """Everything that was decided is in each of its partitions that still lives, and recorded as done."""
    batches = visible(current(values[D + " state"]), values[D + " log"])
    decided = decisions(batches)
    left = known(batches)
    if left.undone:
        raise InvariantError("I15", f"not recorded as done: {left.undone}")
    forgotten = [promise.pub for promise in values["promises"] if promise.is_forgotten and left.of(promise.pub)]
    if forgotten:
        raise InvariantError("I15", f"{forgotten} were to be forgotten, and are known for ever")
    for place in places:
        if "topics" in values and place not in values["topics"]:
            continue
        found = visible(current(values[place + " state"]), values[place + " log"])
        there = [batch.what[1:3] for batch in found if batch.what is not None and batch.what[0] == "d"]
        wanted = [(record.decision, part) for record in decided if place in record.places for part in range(2)]
        if there != wanted:
            raise InvariantError("I3", f"{place} should have {wanted}, and has {there}")


def things(places: Sequence[str] = PLACES, locks: int = 0) -> dict[str, tuple[type[Thing], Any]]:
    """A store with these partitions and nothing in it; `locks`: how many more locks than those of partitions."""
    found: dict[str, tuple[type[Thing], Any]] = {}
    for name in (D, *places):
        found |= {
            name + " state": (StateFile, StateFile.new()),
            name + " log": (Log, Log.new()),
            name + " seen": (Witness, Seen()),
        }
    found |= {
        "staging": (Staging, (frozenset(), ())),
        "promises": (Promises, frozenset()),
        "chance": (Chance, None),
        "nothing": (Thing, None),
        "locks": (Locks, (-1,) * (1 + len(places) + locks)),
    }
    return found


def private(places: Sequence[str] = PLACES) -> dict[str, tuple[str, int]]:
    """What only the holder of a lock changes. Of a log's files others see what is below its end."""
    return {f"{name} {what}": ("locks", lock) for lock, name in enumerate((D, *places)) for what in ("log", "state")}


def attempts(pub: str, numbers: Sequence[int], places: Sequence[str], life: int) -> tuple[Record, ...]:
    """What a publisher publishes in its n-th life: the same numbers, staged again."""
    return tuple(Record(pub, number, places=tuple(places), content=Content(pub, number, 0, life)) for number in numbers)


def model(
    numbers: Sequence[int] = (0, 1), one_offs: int = 1, helpers: int = 1, tidies: bool = False, kills: int = 1,
    powers: int = 0, skips: bool = False, failing: int = 0, setup: Setup = PLAIN,
) -> Model:  # fmt: skip
    """A publisher of several numbers, publishers of one each, and helpers.

    Args:
        numbers: what the first one publishes.
        one_offs: publishers of one number each, which are forgotten then.
        helpers: passers-by; `tidies`: they record what is done.
        skips: after a restart the first one continues with its second number.
        failing: how many syncs of the decision log may fail; then with one kill or loss of power at most, as the last
            life publishes once more what was acknowledged to it.
        kills, powers, setup: as in Model.
    """
    lives: dict[str, Sequence[Program | None]] = {}
    lives["a"] = [
        partial(publisher, 0, setup, attempts("a", numbers[life if skips else 0 :], PLACES, life), False)
        for life in range(2)
    ]
    for one in range(one_offs):
        lives[f"b{one}"] = [partial(publisher, len(lives), setup, attempts(f"b{one}", (0,), PLACES[1:], 0), True), None]
    for _ in range(helpers):
        process = len(lives)
        lives[f"helper {process}"] = [partial(helper, process, setup, tidies)]
    return Model(
        things=things() | {D + " log": (Log, Log.new(failing=failing))},
        lives=lives,
        kills=kills,
        powers=powers,
        watches=watches(PLACES),
        private=private(),
        alone=partial(last, setup),
        settled=settled,
    )
