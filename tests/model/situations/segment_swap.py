"""The swap of compaction: a cleaned segment takes the place of the two that it was made of, beside readers and appends.

The engine's swap has one step more: a state between the new segment's coming and the going of the old ones, by which
readers know of it. Segments 0 and 2 (two batches each) become one that begins
at 0; segment 4 is active. The cleaned one has an empty batch for what is compacted away. A reader takes its time
between its looks at the state, the names and the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..checker.machine import InvariantError, Model, Program, Steps, Thing, Watch
from ..observers.partition import Seen, Witness, current
from ..protocol.appender import Appender
from ..protocol.setup import PLAIN, Setup
from ..world.locks import Locks
from ..world.log import Batch, File, Folder, Log
from ..world.state_file import Slots, State, StateFile

P = "p"
OLD = (Batch(0, 1, "a1"), Batch(1, 1, "b"), Batch(2, 1, "a2"), Batch(3, 1, "c"))
# a1 is gone, as a2 has its key.
CLEANED = (Batch(0, 1, None), *OLD[1:])
ACTIVE = Batch(4, 1, "d")


class Swap(NamedTuple):
    """What is being swapped: the new segment's base, and the bases of those that it takes the place of."""

    base: int
    olds: tuple[int, ...]


class Cleaner(Appender):
    """An appender that can swap, and finishes a swap that another has begun."""

    def swap(self) -> Steps:
        """Puts the cleaned file in the place of segments 0 and 2. The lock is held. SyncError."""
        there = yield self.log, "has", ("cleaned", 0)
        if not there:
            return
        if self.keeps("a swap begins with an intent"):
            intent = self.state._replace(intent=Swap(0, (0, 2)))  # type: ignore[arg-type]
            yield from self.save(intent, durable=self.keeps("the swap's intent is synced"))
        yield from self.finish_swap(Swap(0, (0, 2)))

    def finish_swap(self, swap: Swap) -> Steps:
        """The steps, each of which looks at what is there: they may have been made before. SyncError."""
        cleaned = yield self.log, "has", ("cleaned", swap.base)
        others = tuple(old for old in swap.olds if old != swap.base)
        if not self.keeps("the new segment comes before the old ones go"):
            yield from self._let_go(others)
        if cleaned and self.keeps("the new segment takes the old one's name in one step"):
            yield self.log, "rename", ("cleaned", swap.base), swap.base
        elif cleaned:
            yield self.log, "unlink", swap.base
            yield self.log, "rename", ("cleaned", swap.base), swap.base
        if self.keeps("the new segment's name is on the disk before the old ones go"):
            yield self.log, "sync_folder"
        yield from self._let_go(others)
        yield self.log, "sync_folder"
        yield from self.save(self.state._replace(intent=None, generation=self.state.generation + 1), durable=True)

    def _let_go(self, olds: Sequence[int]) -> Steps:
        for number in range(len(olds)):
            there = yield self.log, "has", olds[number]
            if there:
                yield self.log, "rename", olds[number], ("deleted", olds[number])

    def resolve(self) -> Steps:
        """A swap goes on where it stopped."""
        if self.keeps("who enters finishes a swap"):
            yield from self.finish_swap(self.state.intent)  # type: ignore[arg-type]

    def settle_intent(self, again: bool) -> Steps:
        """The same after a power loss."""
        yield from self.resolve()


def cleaner(who: int, setup: Setup) -> Steps:
    """Swaps once."""
    access = Cleaner(P, 0, who, setup)
    yield from access.enter()
    yield from access.swap()
    yield from access.leave()


def writer(who: int, setup: Setup, mark: str) -> Steps:
    """Appends a record, as others go on to do."""
    access = Cleaner(P, 0, who, setup)
    yield from access.enter()
    yield from access.append((mark,), sync=False)
    yield from access.leave()


class Reader:
    """A reader as Partition.read is: the list of segments is kept as long as the generation stays the same."""

    def __init__(self, setup: Setup) -> None:
        self.keeps = setup.keeps
        self.generation = -1
        self.bases: tuple[int, ...] = ()

    def frozen(self) -> Any:
        return self.generation, self.bases

    def read(self, start: int, end: int) -> Steps:
        """The batches of a range, in order, each as (base, what). InvariantError if it cannot."""
        found: tuple[tuple[int, Any], ...] = ()
        position, tries = start, 0
        state = yield P + " state", "look"
        while position < end:
            if state.generation != self.generation:
                bases = yield P + " log", "bases"
                self.bases = tuple(base for base in bases if base <= state.base)
                self.generation = state.generation
            below = [base for base in self.bases if base <= position]
            if below:
                base = below[-1]
                following = self.bases[self.bases.index(base) + 1 :]
                file = yield P + " log", "open", base
            if below and file is not None:
                cells = yield P + " log", "cells", file
                until = min(end, *following[:1]) if following else end
                size = state.position if base == state.base else len(cells)
                part = _part(cells[:size], base, position, until)
                if part is not None:
                    found, position = found + part, until
                    continue
            # Not there: what is looked for is in other files by now, or the segment is damaged.
            tries += 1
            if tries > 3:
                raise InvariantError("I16", f"no records at {position}: segments {self.bases}, state {state}")
            state = yield P + " state", "look"
            if self.keeps("who misses a segment lists them anew"):
                self.generation = -1
        return found


def _part(cells: Sequence[Batch | None], base: int, start: int, until: int) -> tuple[tuple[int, Any], ...] | None:
    """What a segment has of a range; None if it does not reach its end."""
    found, offset = [], base
    for batch in cells:
        if batch is None or batch.base != offset or offset >= until:
            break
        if batch.next > start:
            found.append((batch.base, batch.what))
        offset = batch.next
    return tuple(found) if offset >= until else None


def reader(setup: Setup, times: int) -> Steps:
    """Reads all, again and again, in one go or in two."""
    access = Reader(setup)
    for _time in range(times):
        start = yield "chance", "start"
        state = yield P + " state", "look"
        found = yield from access.read(start, state.next)
        check_read(found, start, state.next)


def check_read(found: Sequence[tuple[int, Any]], start: int, end: int) -> None:
    """I16: each offset has its old record or the cleaned one, once and in order."""
    bases = [base for base, _ in found]
    if bases != sorted(set(bases)) or (found and bases[0] != start):
        raise InvariantError("I16", f"offsets {bases} were read from {start} on")
    for batch in (*CLEANED, ACTIVE):
        if start <= batch.base < end and batch.what is not None and (batch.base, batch.what) not in found:
            raise InvariantError("I16", f"{batch.what} was not read: {found}")
    for base, what in found:
        if base < len(OLD) and what not in (OLD[base].what, CLEANED[base].what):
            raise InvariantError("I16", f"{what} was read at {base}")


def look(nothing: None, file: Slots, folder: Folder) -> None:
    """I16 for a reader that does all in one moment, also right after a power loss."""
    state, names = current(file), folder.segments
    bases = [base for base in names if base <= state.base]
    for start in range(5):
        position, found = start, ()
        while position < 5:
            below = [base for base in bases if base <= position]
            following = [base for base in bases if base > position]
            part = None
            if below:
                cells = folder.file(names[below[-1]]).cells
                until = following[0] if following else 5
                part = _part(cells, below[-1], position, until)
            if part is None:
                raise InvariantError("I16", f"no records at {position}: segments {bases}")
            found, position = found + part, until
        check_read(found, start, 5)


class Starts(Thing):
    """Where a reader begins."""

    reads = frozenset({"start"})

    @classmethod
    def do_start(cls, value: None) -> Any:
        return [(value, 0), (value, 1), (value, 2), (value, 3)]


def alone(setup: Setup) -> Steps:
    """One that comes when all others are dead: the swap is finished, and all can be read."""
    access = Cleaner(P, 0, 99, setup)
    yield from access.enter()
    yield from access.append(("last",), sync=False)
    yield from access.leave()
    found = yield from Reader(setup).read(0, 5)
    check_read(found, 0, 5)


def settled(values: Mapping[str, Any]) -> None:
    """A swap that was begun is finished: all of it, or nothing."""
    names = values[P + " log"].segments
    if current(values[P + " state"]).intent is not None:
        raise InvariantError("I15", "the swap is not finished")
    if 2 in names and ("cleaned", 0) not in values[P + " log"].names:
        raise InvariantError("I16", f"the swap stopped half way: {names}")


def model(
    readers: int = 1, times: int = 1, writers: int = 0, kills: int = 1, powers: int = 0, setup: Setup = PLAIN,
) -> Model:  # fmt: skip
    """A cleaner, readers that read so many times, and appends."""
    setup = setup._replace(handles=True)
    state = State(generation=1, base=4, next=5, position=1, synced=1, reserve=5)
    names = ((0, 0), (2, 1), (4, 2), (("cleaned", 0), 3))
    files = ((0, File(OLD[:2])), (1, File(OLD[2:])), (2, File((ACTIVE,))), (3, File(CLEANED)))
    lives: dict[str, Sequence[Program | None]] = {
        "cleaner": [partial(cleaner, 0, setup)],
        **{f"reader {number}": [partial(reader, setup, times)] for number in range(readers)},
        **{
            f"writer {number}": [
                partial(writer, 1 + readers + number, setup, f"w{number}{life}") for life in range(2)
            ]
            for number in range(writers)
        },
    }
    return Model(
        things={
            P + " state": (StateFile, StateFile.new(state)),
            P + " log": (Log, Folder(names, (), files)),
            P + " seen": (Witness, Seen()),
            "chance": (Starts, None),
            "nothing": (Thing, None),
            "locks": (Locks, (-1,)),
        },
        lives=lives, kills=kills, powers=powers, watches=[Watch("nothing", (P + " state", P + " log"), look)],
        private={P + " state": ("locks", 0)}, alone=partial(alone, setup), settled=settled,
    )  # fmt: skip
