"""What must never be seen: the invariants of a partition, as an observer checks them after each step.

The observer is any number of readers at once: it checks every state that the files go through, and remembers which
record it saw at which offset, for ever. (A reader that takes its time between looking at the state and at the log is
in the models where files go: swap, retention.)
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, NamedTuple

from ..checker.machine import InvariantError, Thing, Watch
from ..world.log import Batch, Folder, whole_run
from ..world.state_file import Slots, State, is_damaged, newest


class Seen(NamedTuple):
    """What was seen and acknowledged in a partition.

    Attributes:
        used: which record was ever seen at which offset.
        firm: offsets of records that must stay visible; those that are acknowledged as durable, and, until the power
            goes, all that were seen.
        durable: offsets of records that were acknowledged as durable.
        end: the highest log end that was seen.
        start: the highest log start that was seen; a power loss can take it back as long as it is not acknowledged.
        deleted: the log start that was acknowledged.
        taken: records that were taken back.
        taking: records that a truncation was to take back, finished or not; None if there was none.
    """

    used: tuple[tuple[int, Any], ...] = ()
    firm: frozenset[int] = frozenset()
    durable: frozenset[int] = frozenset()
    end: int = 0
    start: int = 0
    deleted: int = 0
    taken: frozenset[Any] = frozenset()
    taking: frozenset[Any] | None = None


class Witness(Thing):
    """The observer of a partition. Writers report to it what they acknowledge."""

    @classmethod
    def do_acknowledge(cls, seen: Seen, base: int, whats: tuple[Any, ...], durable: bool) -> Any:
        offsets = range(base, base + len(whats))
        used = dict(seen.used)
        for offset, what in zip(offsets, whats, strict=True):
            if used.get(offset) != what:
                raise InvariantError("I7", f"{what} was acknowledged at {offset}, where {used.get(offset)} is")
        if durable:
            seen = seen._replace(durable=seen.durable.union(offsets))
        return seen._replace(firm=seen.firm.union(offsets)), None

    @classmethod
    def do_take_back(cls, seen: Seen, offset: int, whats: tuple[Any, ...]) -> Any:
        """Records from `offset` on are about to be taken back: readers may see them, or not, or others."""
        gone = frozenset(whats)
        kept = tuple((at, what) for at, what in seen.used if at < offset)
        left = seen._replace(
            used=kept,
            end=min(seen.end, offset),
            taking=gone.union(seen.taking or ()),
            firm=frozenset(at for at in seen.firm if at < offset),
            durable=frozenset(at for at in seen.durable if at < offset),
        )
        return left, None

    @classmethod
    def do_deleted(cls, seen: Seen, start: int) -> Any:
        """The records before `start` are gone for good."""
        return seen._replace(deleted=start), None

    @classmethod
    def do_taken_back(cls, seen: Seen, whats: tuple[Any, ...]) -> Any:
        """They are gone for good."""
        return seen._replace(taken=seen.taken.union(whats)), None

    @classmethod
    def crash(cls, seen: Seen) -> Any:
        return (seen._replace(firm=seen.durable, start=seen.deleted),)


def watch(name: str, *, unique: bool = True, flips: bool = False) -> Watch:
    """The observer of the partition `name`.

    Args:
        name: of the partition.
        unique: no two of its records are the same.
        flips: a bit of the state file may be damaged.
    """
    return Watch(name + " seen", (name + " state", name + " log"), partial(look, unique=unique, flips=flips))


def current(file: Slots) -> State:
    """The state as a reader takes it."""
    state: State = file.slots[newest(file)].now
    return state


def visible(state: State, folder: Folder) -> tuple[Batch, ...]:
    """The batches that readers can reach. InvariantError if one between the log's start and end cannot be."""
    names = folder.segments
    bases = [base for base in names if base <= state.base]
    found: list[Batch] = []
    for number, base in enumerate(bases):
        cells = folder.file(names[base]).cells
        if base == state.base:
            cells = cells[: state.position]
        if not state.booted:
            # Nothing was recovered yet. A reader gets what is whole, and an error elsewhere.
            found += [batch for batch in cells if batch and batch.base >= base and batch.next <= state.next]
            continue
        end = bases[number + 1] if number + 1 < len(bases) else state.next
        # Beyond an inactive segment's end there may be what a holder that had lost its lock has written.
        run = tuple(batch for batch in whole_run(cells, 0, base) if batch.next <= end)
        reached = run[-1].next if run else base
        if reached != end and end > state.start:
            raise InvariantError("I1", f"segment {base} can be read up to {reached}, and not to {end}")
        found += run
    if state.booted and state.next > state.start and (not bases or bases[-1] != state.base or bases[0] > state.start):
        raise InvariantError("I1", f"no segment for all of {state.start} to {state.next}: there are {bases}")
    return tuple(batch for batch in found if batch.next > state.start)


def look(seen: Seen, file: Slots, folder: Folder, unique: bool = True, flips: bool = False) -> Seen:
    """Checks I1, I2, I3, I6 and I7 for what is visible now, and remembers it."""
    if is_damaged(file) and not flips:
        raise InvariantError("I15", "what a power loss has left of the slots is taken for damage")
    if is_damaged(file) or current(file).dead:
        return seen  # Readers get an error.
    state = current(file)
    batches = visible(state, folder)
    shown = {batch.base: batch.what for batch in batches if batch.what is not None}
    back = [what for what in shown.values() if what in seen.taken]
    if back:
        raise InvariantError("I1", f"{back} were taken back, and are there again")
    shown = {base: what for base, what in shown.items() if what not in (seen.taking or ())}
    used = dict(seen.used)
    for offset, what in shown.items():
        if used.setdefault(offset, what) != what:
            raise InvariantError("I1", f"offset {offset} had {used[offset]} and has {what}")
    # What a publish without syncs has shown can come again after a power loss.
    whats = [what for what in used.values() if what[0] != "u"] if unique else []
    if len(set(whats)) != len(whats):
        twice = next(what for what in whats if whats.count(what) > 1)
        raise InvariantError("I3", f"{twice} was seen at the offsets {[o for o, w in used.items() if w == twice]}")
    if state.booted:
        missing = [offset for offset in seen.firm if offset not in shown and offset >= state.start]
        if missing:
            gone = [(offset, used.get(offset)) for offset in sorted(missing)]
            raise InvariantError("I7", f"these records are gone: {gone}")
        if state.next < seen.end or state.start < seen.start:
            raise InvariantError("I2", f"the log went from {seen.start}..{seen.end} to {state.start}..{state.next}")
        if seen.taking is None:
            _check_decisions(state, batches)
        seen = seen._replace(firm=seen.firm.union(shown))
    end = seen.end if seen.taking is not None else max(seen.end, state.next)
    return seen._replace(used=tuple(sorted(used.items())), start=max(seen.start, state.start), end=end)


def _check_decisions(state: State, batches: tuple[Batch, ...]) -> None:
    """Each decision is there whole and in order, or not at all, and the state knows which."""
    decisions = [batch.what for batch in batches if batch.what is not None and batch.what[0] == "d"]
    wanted = sorted(decisions)
    if decisions != wanted:
        raise InvariantError("I6", f"decisions are out of order: {decisions}")
    for _, decision, _, count, *_ in decisions:
        there = [what for what in decisions if what[1] == decision]
        if len(there) != count and state.start == 0:
            raise InvariantError("I3", f"decision {decision} is there in part: {there}")
        if state.applied < decision:
            raise InvariantError("I3", f"decision {decision} is visible, and the state says {state.applied}")
    for before, after in itertools.pairwise(batches):
        inside = before.what and before.what[0] == "d" and before.what[2] + 1 < before.what[3]
        if inside and (after.what is None or after.what[:2] != before.what[:2]):
            raise InvariantError("I6", f"{after.what} stands inside of decision {before.what[1]}")
