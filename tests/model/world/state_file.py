"""A state file: four slots, of each of which the disk has what was synced, or any write since.

Models pyspark_log/storage/log/state/state_file.py;
docs/internals/format.md has its layout. A sync that fails says so once: later ones
do nothing, and succeed, until something is written again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..checker.machine import Thing


class Intent(NamedTuple):
    """What is being applied, and where it begins and ends; `digest`: the `what` of all of its batches."""

    decision: int
    digest: tuple[Any, ...]
    next: int
    base: int
    position: int


class Swap(NamedTuple):
    """A cleaned segment takes the place of those in [base, next); `swapped`: to readers the others are no more."""

    base: int
    next: int
    swapped: bool = False


class State(NamedTuple):
    """What a slot says. `booted`: it was written since the machine started; `base`, `position`: the active segment."""

    seq: int = 0
    booted: bool = True
    cutting: bool = False
    suspect: bool = False
    dead: bool = False
    generation: int = 0
    start: int = 0
    base: int = 0
    next: int = 0
    position: int = 0
    synced: int = 0
    reserve: int = 0
    applied: int = -1
    intent: Any = None  # an Intent, or a Swap
    claimed: bool = False
    epoch: int = 0
    torn: bool = False  # the slot holds no state

    def counts(self, base: int) -> bool:
        """Whether the segment with that base counts, if it is there."""
        swap = self.intent if isinstance(self.intent, Swap) else None
        replaced = swap is not None and swap.swapped and swap.base < base < swap.next
        return base <= self.base and not replaced

    def __repr__(self) -> str:
        said = [f"{name}={value}" for name, value in self._asdict().items() if value != State._field_defaults[name]]
        return f"<{' '.join(said)}>"


#: A slot that is not valid.
TORN = State(torn=True, booted=False)


class Loaded(NamedTuple):
    """The state as it was read.

    Attributes:
        state: the newest valid one.
        synced_pair: it is from slot 2 or 3.
        torn: a slot is not valid.
    """

    state: State
    synced_pair: bool
    torn: bool = False


class _Slot(NamedTuple):
    """`synced` is on the disk; any of `pending` may be, and the last of it is what is read."""

    synced: State | None
    pending: tuple[State, ...] = ()

    @property
    def now(self) -> State | None:
        return self.pending[-1] if self.pending else self.synced

    def __repr__(self) -> str:
        return f"{self.synced}" + "".join(f" or {state}" for state in self.pending)


class Slots(NamedTuple):
    """The four slots; `dirty`: there are writes that a sync would make durable; `failing`: how many syncs may fail."""

    slots: tuple[_Slot, ...]
    dirty: bool = False
    failing: int = 0


class StateFile(Thing):
    """Four slots; the valid one with the highest number counts.

    Of the numbers only the order matters, so they are kept small. The slots share a page of memory: after a sync has
    failed, the next write to any of them makes all of it dirty again.
    """

    reads = frozenset({"load", "look"})
    syncs = frozenset({"sync"})
    # Whether a power loss may also leave a slot torn.
    torn = False

    @staticmethod
    def new(state: State = State(), failing: int = 0) -> Slots:  # noqa: B008
        """As it is made: one slot, synced."""
        return Slots((_Slot(None), _Slot(None), _Slot(state._replace(seq=1)), _Slot(None)), failing=failing)

    @classmethod
    def do_load(cls, file: Slots) -> Any:
        number = newest(file)
        state = file.slots[number].now
        if state is None or state.torn:
            return file, Loaded(TORN._replace(booted=True), False, True)  # No slot is valid.
        return file, Loaded(state._replace(seq=0), number >= 2, has_torn(file))

    @classmethod
    def do_write(cls, file: Slots, pair: Sequence[int], state: State) -> Any:
        """Writes over the older slot of a pair."""
        number = min(pair, key=lambda number: _seq(file.slots[number].now))
        state = state._replace(seq=1 + max(_seq(slot.now) for slot in file.slots))
        pending = dict.fromkeys((*file.slots[number].pending, state))
        now = list(file.slots)
        now[number] = _Slot(file.slots[number].synced, tuple(pending))
        return Slots(_ranked(now), True, file.failing), None

    @classmethod
    def do_mend(cls, file: Slots) -> Any:
        """Writes the newest state over the slots that are not valid."""
        state = file.slots[newest(file)].now
        slots = [
            _Slot(slot.synced, (*slot.pending, state)) if slot.now and slot.now.torn else slot for slot in file.slots
        ]
        return Slots(_ranked(slots), True, file.failing), None

    @classmethod
    def do_flip(cls, file: Slots) -> Any:
        """A bit of the newest slot is damaged."""
        slots = list(file.slots)
        slots[newest(file)] = _Slot(TORN)
        return file._replace(slots=_ranked(slots)), None

    @classmethod
    def do_rewrite(cls, file: Slots) -> Any:
        """Writes the newest slot once more, as it is."""
        return file._replace(dirty=True), None

    @classmethod
    def do_sync(cls, file: Slots) -> Any:
        """Makes it durable; False if that failed. Without a write since, nothing happens."""
        if not file.dirty:
            return file, True
        done = (Slots(_ranked([_Slot(slot.now) for slot in file.slots]), False, file.failing), True)
        return [done, (Slots(file.slots, False, file.failing - 1), False)] if file.failing else done

    @classmethod
    def calm(cls, file: Slots) -> Any:
        return Slots(_ranked([_Slot(slot.now) for slot in file.slots]), False, file.failing)

    @classmethod
    def hidden(cls, file: Slots, name: str, args: tuple[Any, ...]) -> bool:
        """A reader takes of a state only where the log starts and ends, what is applied, and what is replaced."""
        now = file.slots[newest(file)].now
        if name == "flip" or now is None:
            return False
        return name != "write" or shown(args[1]) == shown(now)

    @classmethod
    def do_look(cls, file: Slots) -> Any:
        """What a reader takes."""
        state = file.slots[newest(file)].now
        assert state is not None
        return file, shown(state)

    @classmethod
    def crash(cls, file: Slots) -> Iterable[Any]:
        each = []
        for slot in file.slots:
            found = [slot.synced, *slot.pending, *([TORN] if cls.torn and slot.pending else [])]
            each.append([_Slot(state and state._replace(booted=False)) for state in found])
        return [Slots(_ranked(left), False, file.failing) for left in itertools.product(*each)]


def shown(state: State) -> State:
    """What a reader takes of a state."""
    return State(
        booted=state.booted, dead=state.dead, generation=state.generation, start=state.start, base=state.base,
        next=state.next, position=state.position, applied=state.applied,
        intent=state.intent if isinstance(state.intent, Swap) and state.intent.swapped else None,
    )  # fmt: skip


def _seq(state: State | None) -> int:
    return state.seq if state and not state.torn else 0


def has_torn(file: Slots) -> bool:
    """Whether a slot is not valid."""
    return any(slot.now and slot.now.torn for slot in file.slots)


def is_damaged(file: Slots) -> bool:
    """Whether a slot is not valid, and no power loss explains it."""
    state = file.slots[newest(file)].now
    return has_torn(file) and (state is None or state.torn or state.booted)


def newest(file: Slots) -> int:
    """The slot that counts."""
    return max(range(4), key=lambda number: _seq(file.slots[number].now))


def _ranked(slots: Sequence[_Slot]) -> tuple[_Slot, ...]:
    """The same slots with the smallest numbers that keep their order."""
    seqs = {_seq(state) for slot in slots for state in (slot.synced, *slot.pending) if state and not state.torn}
    rank = {seq: number for number, seq in enumerate(sorted(seqs), 1)}

    def ranked(state: State | None) -> State | None:
        return state if state is None or state.torn else state._replace(seq=rank[state.seq])

    return tuple(_Slot(ranked(slot.synced), tuple(map(ranked, slot.pending))) for slot in slots)


class TornStateFile(StateFile):
    """One whose slots can also be torn."""

    torn = True
