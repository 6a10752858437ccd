"""A topic is deleted while a publish gives something to it and to another one: the part for it is void."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..checker.machine import InvariantError, Model, Program, Steps, Thing, Watch
from ..observers.partition import watch
from ..observers.publishes import Look
from ..protocol.decision_log import D, Record
from ..protocol.publisher import Publisher, RefusedError
from ..protocol.setup import PLAIN, Setup
from ..protocol.writer import LogWriter
from .publishers import PLACES, attempts, helper, last, private, publisher, settled, things

# The lock of all topics, after that of the decision log and those of the partitions.
TOPICS_LOCK = 1 + len(PLACES)


class Topics(Thing):
    """The partitions whose topics are there, each one's own; "no " and its name once its deletion was reported."""

    reads = frozenset({"has", "landed"})
    syncs = frozenset({"delete", "deleted"})

    @classmethod
    def do_has(cls, value: frozenset[str], place: str) -> Any:
        return value, place in value

    @classmethod
    def do_delete(cls, value: frozenset[str], place: str) -> Any:
        """Its description is moved away, durably."""
        return value - {place}, None

    @classmethod
    def do_deleted(cls, value: frozenset[str], place: str) -> Any:
        return value | {"no " + place}, None

    @classmethod
    def do_landed(cls, value: frozenset[str], place: str) -> Any:
        """A record was appended."""
        if "no " + place in value:
            raise InvariantError("I7", f"a record is acknowledged in {place}, which was deleted")
        return value, None


class Careful(Publisher):
    """A publisher that checks whether a topic was recreated."""

    def is_applied_in(self, record: Record, place: str) -> Steps:
        """What was for a topic that is gone needs not be applied."""
        there = yield "topics", "has", place
        if not there:
            return True
        return (yield from super().is_applied_in(record, place))

    def before_deciding(self, wanted: Record) -> Steps:
        """The topics are there."""
        for number in range(len(wanted.places)):
            there = yield "topics", "has", wanted.places[number]
            if not there:
                raise RefusedError(f"the topic of {wanted.places[number]} is gone")


def deleter(process: int, place: str, setup: Setup) -> Steps:
    """Deletes the topic of a partition: first the description, then the log is dead for a waiting process."""
    yield "locks", "acquire", TOPICS_LOCK, process
    yield "topics", "delete", place
    if setup.keeps("a partition of a deleted topic is dead"):
        dead = LogWriter(place, 1 + PLACES.index(place), process, setup)
        yield "locks", "acquire", dead.lock, process
        dead.loaded = yield dead.slots, "load"
        yield from dead.save(dead.state._replace(dead=True), durable=True)
        yield from dead.leave()
    yield "topics", "deleted", place
    yield "locks", "release", TOPICS_LOCK, process


def writer(process: int, place: str, setup: Setup) -> Steps:
    """Appends to a topic that was there a moment ago."""
    there = yield "topics", "has", place
    if not there:
        return
    access = LogWriter(place, 1 + PLACES.index(place), process, setup)
    alive = yield from access.enter()
    if alive:
        yield from access.append((("a", "late", 0),), sync=False)
        yield "topics", "landed", place
        yield from access.leave()


def look(nothing: None, topics: frozenset[str], *seen: Any) -> None:
    """What must hold in the partitions that live."""
    Look(PLACES, False).check(frozenset(PLACES) - topics, *seen)


def model(
    numbers: Sequence[int] = (0,),
    helpers: int = 1,
    writers: int = 0,
    kills: int = 0,
    powers: int = 0,
    setup: Setup = PLAIN,
) -> Model:
    """A publisher to two topics, of which one is deleted, and helpers, and writers to that topic."""
    lives: dict[str, Sequence[Program | None]] = {
        "a": [
            partial(publisher, 0, setup, attempts("a", numbers, PLACES, life), False, PLACES, Careful)
            for life in range(2)
        ],
        "deleter": [partial(deleter, 1, "p", setup), partial(deleter, 1, "p", setup)],
    }
    for _ in range(helpers):
        process = len(lives)
        lives[f"helper {process}"] = [partial(helper, process, setup, True, PLACES, Careful)]
    for _ in range(writers):
        process = len(lives)
        lives[f"writer {process}"] = [partial(writer, process, "p", setup), None]
    names = [f"{name} {what}" for name in PLACES for what in ("state", "log")]
    sees = ("topics", "staging", "promises", D + " state", D + " log", *names)
    return Model(
        things=things(locks=1) | {"topics": (Topics, frozenset(PLACES))},
        lives=lives,
        kills=kills,
        powers=powers,
        watches=[Watch("nothing", sees, look), watch(D, unique=False), *map(watch, PLACES)],
        private=private(),
        alone=partial(last, setup, PLACES, Careful),
        settled=settled,
    )
