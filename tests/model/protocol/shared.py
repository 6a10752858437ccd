"""What a held log does besides on a shared file system, where its lock can be given to another without its knowing.

Models what pyspark_log/storage/log/lease.py does where it is `shared`; docs/internals/protocol.md, "when a lock is
lost". A holder's writes to the state file, which is the locked one, are refused once it has lost the lock; all its
other changes go through, however late. A process that changes a log says so in the state first, by a claim; a process
that finds a claim not taken back continues in another segment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from ..checker.machine import InvariantError, Steps
from ..world.state_file import Loaded, State
from .held_log import SyncError
from .setup import Setup
from .writer import LogWriter


class LockLostError(SyncError):
    """The lock is lost: a write was refused."""


class SharedLogWriter(LogWriter):
    """A writer on a shared file system, whose files are with one `Server`."""

    def __init__(self, name: str, process: int, setup: Setup) -> None:
        super().__init__(name, 0, process, setup)
        self.slots = self.log = name
        #: Whether the holder before may have lost its lock, and may still write to the log.
        self.cut_off = False

    def frozen(self) -> Any:
        return super().frozen(), self.cut_off

    # ---- the lock and the state

    def enter(self) -> Steps:
        """Takes the lock; if it finds a claim, it repairs the log, and continues in another segment."""
        yield self.slots, "acquire", self.process
        self.loaded = yield self.slots, "load"
        unfinished = self.state.claimed or self.state.cutting or self.state.intent
        self.cut_off = bool(unfinished) and self.keeps("a writer that finds a claim continues in another segment")
        if self.cut_off:
            yield from self.claim()
        if self.state.intent:
            yield from self.resolve()
        yield from self.cut_leftovers()
        if self.cut_off:
            yield from self.roll(epochs=1)
        return True

    def leave(self) -> Steps:
        """Takes the claim back, and lets the lock go."""
        if self.state.claimed:
            with contextlib.suppress(LockLostError):
                yield from self.save(self.state._replace(claimed=False), durable=False)
        yield from self.give_up()

    def give_up(self) -> Steps:
        """Lets the lock go after an error: the claim stays."""
        self.loaded, self.cut_off = None, False
        self.forget()
        yield self.slots, "release", self.process

    def save(self, state: State, *, durable: bool) -> Steps:
        """Writes a state. LockLostError."""
        if self.cut_off:
            state = self.claiming(state)
        guarded = self.keeps("a state written without the lock is refused")
        done = yield self.slots, "save", self.process, state, guarded
        if not done:
            raise LockLostError
        self.loaded = Loaded(state, durable)
        self.seen = state

    def claiming(self, state: State) -> State:
        """A state that says that the log is about to be changed."""
        return state._replace(claimed=True) if self.keeps("a claim comes before the log is changed") else state

    def claim(self) -> Steps:
        """Says so. LockLostError."""
        yield from self.save(self.claiming(self.state), durable=True)

    def sync_log(self, file: int) -> Steps:
        """The server has it."""
        yield from ()

    # ---- changes by name

    @property
    def may_cut(self) -> bool:
        """Whether files may be cut or replaced: not by a process that may have lost its lock to another."""
        return self.cut_off

    def create(self, name: Any) -> Steps:
        return (yield from self._by_name("create", name))

    def unlink(self, name: Any) -> Steps:
        yield from self._by_name("unlink", name)

    def rename(self, name: Any, target: Any) -> Steps:
        yield from self._by_name("rename", name, target)

    def _by_name(self, name: str, *args: Any) -> Steps:
        """LockLostError, also if a file of that name was made by a process that did not have the lock."""
        claimed = self.keeps("a claim comes right before a change by name")
        done = yield self.log, "by_name", self.process, claimed, name, *args
        if not done:
            raise LockLostError
        return done[0]

    def drop_newer_segments(self) -> Steps:
        """Removes them, whichever process has made them. LockLostError."""
        if self.may_cut or self.keeps("newer segments go even where no claim was found"):
            yield from super().drop_newer_segments()

    def new_segment(self, base: int) -> Steps:
        """Makes an empty segment. LockLostError, if there is one already that is not to be replaced."""
        if self.may_cut:
            return (yield from super().new_segment(base))
        return (yield from self.create(base))

    def renew_empty(self) -> Steps:
        """Nothing is installed here."""
        yield from ()

    # ---- cutting

    def cut_leftovers(self) -> Steps:
        """What is beyond the end was written by a process that was cut off."""
        file = yield from self.segment()
        cells = yield self.log, "cells", file
        if len(cells) < self.state.position:
            raise InvariantError("I1", f"the active segment has {len(cells)} batches of {self.state.position}")
        if len(cells) > self.state.position or self.state.cutting:
            self.cut_off = True
            yield from self.cut()

    def cut(self) -> Steps:
        """Cuts as usual if no other process can be at work; else leaves it to the next process. LockLostError."""
        if self.may_cut:
            yield from super().cut()
        else:
            self.forget()

    def drop(self) -> Steps:
        """The same of an intent. LockLostError."""
        self.forget()
        if self.may_cut:
            yield from super().drop()

    # ---- changing the log

    def roll(self, epochs: int = 0) -> Steps:
        """Begins a new segment, in which no other process can write. LockLostError."""
        yield from self.claim()
        file = yield from self.segment()
        yield from self.close_segment(file, self.state.position)
        yield from self.drop_newer_segments()
        file = yield from self.new_segment(self.state.next)
        self.cut_off = False
        state = self.state
        yield from self.save(
            state._replace(base=state.next, position=0, synced=0, epoch=state.epoch + epochs), durable=True
        )
        self.use_segment(file)

    def append(self, whats: Sequence[Any], *, sync: bool = True, counts: Sequence[int] = ()) -> Steps:
        """Appends; whatever `sync` says, it is with the server. LockLostError."""
        if self.state.position and self.state.position + len(whats) > self.setup.segment_size:
            yield from self.roll()
        yield from self.segment()
        yield from self.claim()
        return (yield from super().append(whats, sync=True, counts=counts))
