"""A process that follows the publish log and decides.

Models PublishLog of pyspark_log/storage/publish_log/log.py, last_after of floors.py, and read_last of checkpoint.py;
docs/internals/publish-log.md.
"""

from __future__ import annotations

from typing import Any

from ..checker.machine import InvariantError, Steps
from ..protocol.setup import Setup
from .entries import EMPTY, DamagedError, Entry, RefusedError, State, applied
from .objects import CREATED, LOST
from .proposals import Want, proposed

#: The key of the checkpoint that is a hint: the number of another one.
LAST = -1
# How often a process tries to create a decision that is not there after an answer.
_TRIES = 2


class UnknownError(Exception):
    """Something is decided or not."""


class Process:
    """A process with the state of the store as far as it has read it.

    Attributes:
        state: what it has read.
        newest: the last day on which it knew this to be the newest state; None: never.
    """

    def __init__(self, name: str, setup: Setup, state: State = EMPTY, newest: int | None = None) -> None:
        self.name, self.setup, self.state, self.newest = name, setup, state, newest
        self.has_begun = newest is not None
        self.calls = 0

    def frozen(self) -> Any:
        """All that it remembers."""
        return self.name, self.state, self.newest, self.has_begun, self.calls

    # ---- following

    def follow(self) -> Steps:
        """Takes in what was decided."""
        if not self.has_begun:
            self.state = yield from self._checkpoint()
            self.has_begun = True
        missing = None
        while True:
            today = yield "clock", "get"
            known = self.state
            is_whole = yield from self._take_in()
            if not self.setup.keeps("publish log: without a next decision, a process that has slept looks for a floor"):
                break
            floor = yield from self.floor_after(known)
            if floor is None:
                break
            if floor == missing:
                raise InvariantError("P8", f"there is no checkpoint at or after the floor {floor}")
            is_there = yield from self._begin_again(floor)
            missing = None if is_there else floor
        if not is_whole:
            raise InvariantError("P8", f"the decision after {self.state} contradicts it")
        self.newest = today

    def _take_in(self) -> Steps:
        """Takes in decisions until there is no next one; False: the next one contradicts those before."""
        while (entry := (yield "log", "get", self.state.number + 1)) is not None:
            try:
                self.state = applied(self.state, entry)
            except DamagedError:
                if not self.setup.keeps("publish log: what contradicts is no damage if there is a floor"):
                    raise InvariantError("P8", f"{entry} contradicts {self.state}") from None
                return False
        return True

    def _checkpoint(self) -> Steps:
        """The state of a late checkpoint."""
        last = yield "checkpoint", "get", LAST
        found = None if last is None else (yield "checkpoint", "get", last)
        return EMPTY if found is None else found

    def floor_after(self, known: State) -> Steps:
        """The last floor, if what was read or created after a state may be void; None: all of it counts."""
        today = yield "clock", "get"
        if self.newest == today:
            return None
        if not self.setup.keeps("publish log: floors are counted in the state before the sleep"):
            known = self.state
        count, floor = known.floors, -1
        while (found := (yield "floor", "get", count + 1)) is not None:
            count, floor = count + 1, found
        return None if floor <= known.number else floor

    def _begin_again(self, floor: int) -> Steps:
        """Begins with a checkpoint at or after a floor; False: it was deleted, for a later floor."""
        self.state, self.newest = (yield from self._checkpoint()), None
        if self.state.number >= floor:
            return True
        found = yield "checkpoint", "get", floor
        if found is None and not self.setup.keeps("publish log: a missing checkpoint was deleted for a later floor"):
            raise InvariantError("P8", f"there is no checkpoint {floor}")
        self.state = EMPTY if found is None else found
        return found is not None

    # ---- deciding

    def decide(self, want: Want) -> Steps:
        """Decides what is wanted; the decision, or None: there is nothing to decide.

        Raises:
            RefusedError: it is not decided.
            UnknownError: it is decided or not.
        """
        setup = self.setup
        self.calls += 1
        token = (self.name, self.calls)
        if not self.has_begun:
            yield from self.follow()
        entry = None
        while True:
            if entry is None or setup.keeps("publish log: what was checked on a state is the decision after it"):
                entry = yield from self._proposed(want, token)
            else:
                entry = entry._replace(number=self.state.number + 1)
            if entry is None:
                return None
            today = yield "clock", "get"
            known = self.state
            is_own, is_sure = yield from self._create(entry)
            if is_own and not setup.keeps("publish log: a process that has slept looks for a floor after it creates"):
                self.state = applied(self.state, entry)
                return entry
            if is_own or not is_sure:
                if (yield from self.floor_after(known)) is None:
                    if is_own:
                        self.newest, self.state = today, applied(self.state, entry)
                        return entry
                elif setup.keeps("publish log: what a process has tried to create before a floor is unknown"):
                    raise UnknownError
            yield from self.follow()

    def _proposed(self, want: Want, token: Any) -> Steps:
        """What is to be decided now; a refusal counts only in the newest state."""
        try:
            found = proposed(self.setup, self.state, want, token)
        except RefusedError:
            found = None
        if found is not None:
            return found
        yield from self.follow()
        return proposed(self.setup, self.state, want, token)

    def _create(self, entry: Entry) -> Steps:
        """Whether the decision of its number is this one; and whether it is certain that this one is none, if not."""
        is_sure = True
        for _ in range(_TRIES):
            answer = yield "log", "create", entry.number, entry
            if answer == CREATED:
                return True, True
            is_sure = is_sure and answer != LOST
            found = yield "log", "get", entry.number
            if found is not None:
                is_own = found.token == entry.token
                if not self.setup.keeps("publish log: after a refusal, a process reads whose decision it is"):
                    is_own = False
                if not self.setup.keeps("publish log: a decision with another token is another's"):
                    is_own = True
                return is_own, is_sure
        raise UnknownError
