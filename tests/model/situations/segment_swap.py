"""The swap of compaction: a cleaned segment takes the place of the two that it was made of, beside readers and appends.

Models pyspark_log/storage/log/recovery/swap.py.
Segments 0 and 2 (two batches each) become one segment at 0; segment 4 is
active. The cleaned one has an empty batch for what is compacted away. A reader takes its time between its looks at the
state, the names and the files. A cleaner that was killed comes again, and repeats everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..checker.machine import InvariantError, Model, Program, Steps, Thing, Watch
from ..observers.partition import Seen, Witness, current
from ..protocol.setup import PLAIN, Setup
from ..protocol.writer import LogWriter
from ..world.locks import Locks
from ..world.log import Batch, File, Folder, Log
from ..world.state_file import Slots, State, StateFile, Swap

P = "p"
OLD = (Batch(0, 1, "a1"), Batch(1, 1, "b"), Batch(2, 1, "a2"), Batch(3, 1, "c"))
# a1 is gone, as a2 has its key.
CLEANED = (Batch(0, 1, None), *OLD[1:])
ACTIVE = Batch(4, 1, "d")
CLEANED_NAME, SWAP_NAME, LINKED_NAME = ("cleaned", 0), ("swap", 0), ("linked", 0)

SWAP = Swap(0, 4)
# Where the log is cut.
TRUNCATED = 3


class Cleaner(LogWriter):
    """A writer that can swap, and finishes a swap that another has begun."""

    def clean(self) -> Steps:
        """One round: writes the cleaned segment, without the lock, and swaps; nothing if that was done. SyncError."""
        yield from self.enter()
        yield from self.unlink(CLEANED_NAME)
        bases, epoch = (yield self.log, "bases"), self.state.epoch
        yield from self.leave()
        if bases != (0, 2, 4):
            return
        file = yield from self.create(CLEANED_NAME)
        for number in range(len(CLEANED)):
            yield self.log, "write", file, number, CLEANED[number]
        if self.keeps("the cleaned segment is on the disk before the swap"):
            yield self.log, "sync", file
            yield self.log, "sync_folder"
        yield from self.enter()
        now = yield self.log, "bases"
        same = (now[:3], self.state.epoch) == (bases, epoch)
        if same or not self.keeps("only segments that are as they were are replaced"):
            yield from self.swap()
        else:
            yield from self.unlink(CLEANED_NAME)
        yield from self.leave()

    def swap(self) -> Steps:
        """Puts the cleaned file in the place of segments 0 and 2. The lock is held. SyncError."""
        if self.keeps("a swap begins with an intent"):
            durable = self.keeps("the swap's intent is synced")
            yield from self.save(self.state._replace(intent=SWAP), durable=durable)
        yield from self.finish_swap(SWAP)

    def finish_swap(self, swap: Swap) -> Steps:
        """The steps, each of which checks what is there: they may have been made before. SyncError."""
        told = self.keeps("readers hear of the swap before the old segments go")
        if not swap.swapped:
            if not (yield from self._is_ready(swap)):
                yield from self.save(self.state._replace(intent=None), durable=True)
                return
            if not self.keeps("the new segment comes before the old ones go"):
                yield from self._delete_old_segments(swap)
            yield from self._replace_first(swap)
            if told:
                now = self.state._replace(intent=swap._replace(swapped=True), generation=self.next_generation())
                yield from self.save(now, durable=True)
        yield from self._delete_old_segments(swap)
        generation = self.state.generation if told else self.next_generation()
        yield from self.save(self.state._replace(intent=None, generation=generation), durable=True)

    def _is_ready(self, swap: Swap) -> Steps:
        """Whether the cleaned segment is there under one of its names. If not, none of the old segments may go."""
        for name in (CLEANED_NAME, SWAP_NAME):
            if (yield self.log, "has", name):
                return True
        file = yield self.log, "open", swap.base
        cells = yield self.log, "cells", file
        return bool(cells) and cells[-1].next == swap.next

    def _replace_first(self, swap: Swap) -> Steps:
        if (yield self.log, "has", CLEANED_NAME):
            yield from self.rename(CLEANED_NAME, SWAP_NAME)
        yield self.log, "sync_folder"
        old = yield self.log, "open", swap.base
        new = yield self.log, "open", SWAP_NAME
        if new is not None and old != new:
            if not self.keeps("the new segment takes the old one's name in one step"):
                yield from self.unlink(swap.base)
            elif self.setup.links:
                # Readers on other hosts, which have the old one open, need it for a while.
                yield from self.unlink(("deleted", swap.base))
                yield from self.unlink(LINKED_NAME)
                yield self.log, "link", swap.base, ("deleted", swap.base)
            if self.setup.links:
                yield self.log, "link", SWAP_NAME, LINKED_NAME
                yield from self.rename(LINKED_NAME, swap.base)
            else:
                yield from self.rename(SWAP_NAME, swap.base)
        if self.keeps("the new segment's name is on the disk before the old ones go"):
            yield self.log, "sync_folder"

    def _delete_old_segments(self, swap: Swap) -> Steps:
        bases = yield self.log, "bases"
        for number in range(len(bases)):
            if swap.base < bases[number] < swap.next:
                yield from self.rename(bases[number], ("deleted", bases[number]))
        yield from self.unlink(SWAP_NAME)
        yield from self.unlink(LINKED_NAME)
        yield self.log, "sync_folder"

    def resolve(self) -> Steps:
        """A swap continues where it stopped."""
        if self.keeps("a process that enters finishes a swap"):
            yield from self.finish_swap(self.state.intent)

    def settle_intent(self, again: bool) -> Steps:
        """The same after a power loss."""
        yield from self.resolve()


def cleaner(process: int, setup: Setup) -> Steps:
    """Cleans once."""
    yield from Cleaner(P, 0, process, setup).clean()


def writer(process: int, setup: Setup, mark: str) -> Steps:
    """Appends a record, as other writers do meanwhile."""
    access = Cleaner(P, 0, process, setup)
    yield from access.enter()
    yield from access.append((mark,), sync=False)
    yield from access.leave()


def truncater(process: int, setup: Setup) -> Steps:
    """Takes back everything from offset 3 on."""
    access = Cleaner(P, 0, process, setup)
    yield from access.enter()
    if access.state.next > TRUNCATED:
        yield from access.truncate(TRUNCATED)
    yield from access.leave()


class Reader:
    """A reader as LogReader.read is: the list of segments is kept as long as the generation stays the same."""

    def __init__(self, setup: Setup) -> None:
        self.keeps = setup.keeps
        self.generation = -1
        self.bases: tuple[int, ...] = ()

    def frozen(self) -> Any:
        return self.generation, self.bases

    def read(self, start: int, end: int) -> Steps:
        """The batches of a range, in order, each as (base, what). InvariantError if it cannot."""
        found: tuple[tuple[int, Any], ...] = ()
        position = start
        state = yield P + " state", "look"
        while position < end:
            if state.generation != self.generation:
                bases = yield P + " log", "bases"
                all_count = not self.keeps("what is replaced does not count")
                self.bases = tuple(base for base in bases if state.counts(base) or (all_count and base <= state.base))
                self.generation = state.generation
            below = [base for base in self.bases if base <= position]
            file = None
            if below:
                base = below[-1]
                following = self.bases[self.bases.index(base) + 1 :]
                file = yield P + " log", "open", base
            if file is not None:
                cells = yield P + " log", "cells", file
                until = min(end, *following[:1]) if following else end
                size = state.position if base == state.base else len(cells)
                part = _part(cells[:size], base, position, until)
                if part is not None:
                    found, position = found + part, until
                    continue
            # Not there: the records are in other files by now, or the segment is damaged.
            now = yield P + " state", "look"
            looks = self.keeps("a reader that misses a segment looks at the state again")
            if now.generation == state.generation or not looks:
                raise InvariantError("I16", f"no records at {position}: segments {self.bases}, state {state}")
            state = now
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
    """I16: each offset below `end` has its old record or the cleaned one, once and in order."""
    bases = [base for base, _ in found]
    if bases != sorted(set(bases)) or (found and bases[0] != start):
        raise InvariantError("I16", f"offsets {bases} were read from {start} on")
    for batch in (*CLEANED, ACTIVE):
        if start <= batch.base < end and batch.what is not None and (batch.base, batch.what) not in found:
            raise InvariantError("I16", f"{batch.what} was not read: {found}")
    for base, what in found:
        if base < min(end, len(OLD)) and what not in (OLD[base].what, CLEANED[base].what):
            raise InvariantError("I16", f"{what} was read at {base}")


def look(nothing: None, file: Slots, folder: Folder) -> None:
    """I16 for a reader that does all in one moment, also right after a power loss."""
    state, names = current(file), folder.segments
    bases = [base for base in names if state.counts(base)]
    end = len(OLD) + 1 if state.epoch == 0 else TRUNCATED
    for start in range(end):
        position, found = start, ()
        while position < end:
            below = [base for base in bases if base <= position]
            following = [base for base in bases if base > position]
            part = None
            if below:
                cells = folder.file(names[below[-1]]).cells
                until = min(end, *following[:1]) if following else end
                part = _part(cells, below[-1], position, until)
            if part is None:
                raise InvariantError("I16", f"no records at {position}: segments {bases}")
            found, position = found + part, until
        check_read(found, start, end)


class Starts(Thing):
    """Where a reader begins."""

    reads = frozenset({"start"})

    @classmethod
    def do_start(cls, value: None) -> Any:
        return [(value, 0), (value, 1), (value, 2), (value, 3)]


def alone(setup: Setup) -> Steps:
    """A process that starts when all others are dead: the swap is finished, and all can be read."""
    access = Cleaner(P, 0, 99, setup)
    yield from access.enter()
    yield from access.append(("last",), sync=False)
    end = access.state.next
    yield from access.leave()
    yield from Reader(setup).read(0, end)


def settled(values: Mapping[str, Any]) -> None:
    """A swap that was begun is finished: all of it, or nothing."""
    log = values[P + " log"]
    if current(values[P + " state"]).intent is not None:
        raise InvariantError("I15", "the swap is not finished")
    if SWAP_NAME in log.names or LINKED_NAME in log.names:
        raise InvariantError("I15", f"files of the swap are left: {log.names}")
    if (2 in log.segments) != (log.file(log.segments[0]).cells == OLD[:2]):
        raise InvariantError("I16", f"the swap stopped half way: {log}")


def model(
    readers: int = 1,
    times: int = 1,
    writers: int = 0,
    truncates: bool = False,
    kills: int = 1,
    powers: int = 0,
    setup: Setup = PLAIN,
) -> Model:
    """A cleaner that comes again, readers that read several times, appends, and a truncation."""
    setup = setup._replace(handles=True)
    state = State(generation=1, base=4, next=5, position=1, synced=1, reserve=5)
    names = ((0, 0), (2, 1), (4, 2))
    files = ((0, File(OLD[:2])), (1, File(OLD[2:])), (2, File((ACTIVE,))))
    lives: dict[str, Sequence[Program | None]] = {
        "cleaner": [partial(cleaner, 0, setup)],
        **{f"reader {number}": [partial(reader, setup, times)] for number in range(readers)},
        **{
            f"writer {number}": [partial(writer, 1 + readers + number, setup, f"w{number}{life}") for life in range(2)]
            for number in range(writers)
        },
        **({"truncater": [partial(truncater, 1 + readers + writers, setup)]} if truncates else {}),
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
        lives=lives,
        kills=kills,
        powers=powers,
        watches=[Watch("nothing", (P + " state", P + " log"), look)],
        private={P + " state": ("locks", 0)},
        alone=partial(alone, setup),
        settled=settled,
    )
