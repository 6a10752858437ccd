"""A partition's log while its lock is held: the state, the active segment, and the changes that others are made of.

Models pyspark_log/storage/log/lease.py and held_log.py; docs/internals/protocol.md, "the steps of an append", 1 to 4.
"""

from __future__ import annotations

from typing import Any

from ..checker.machine import InvariantError, Steps
from ..world.state_file import Loaded, State
from .setup import Setup


class SyncError(Exception):
    """A sync failed: the task is given up at that step."""


class DamagedError(SyncError):
    """A slot of the state file is not valid, and no power loss explains it: nothing is read or written."""


class HeldLog:
    """One process's access to a partition.

    What it keeps between two holds is which state it saw last and which file it has open.
    """

    def __init__(self, name: str, lock: int, process: int, setup: Setup) -> None:
        self.slots, self.log = name + " state", name + " log"
        self.lock, self.process, self.setup = lock, process, setup
        self.keeps = setup.keeps
        self.loaded: Loaded | None = None
        self.seen: State | None = None
        self.file: int | None = None
        self.file_base = 0

    def frozen(self) -> Any:
        return self.slots, self.lock, self.process, self.loaded, self.seen, self.file, self.file_base

    @property
    def state(self) -> State:
        assert self.loaded is not None, "the lock is not held"
        return self.loaded.state

    # ---- holding the lock

    def enter(self) -> Steps:
        """Takes the lock and puts the log in order; False if the partition is dead (and the lock free again)."""
        yield "locks", "acquire", self.lock, self.process
        return (yield from self.entered())

    def entered(self) -> Steps:
        """What follows when the lock is there."""
        self.loaded = yield self.slots, "load"
        if self.state.dead:
            yield from self.leave()
            return False
        if self.loaded.torn and self.state.booted and self.keeps("a slot that no power loss explains is damage"):
            raise DamagedError
        mine = self.state == self.seen
        if not mine and self.loaded.synced_pair and self.keeps("entering syncs a state of the synced pair"):
            if self.keeps("entering writes the state once more before it syncs"):
                yield self.slots, "rewrite"
            yield from self.sync_state()
        if not self.state.booted:
            yield from self.after_restart()
        elif self.state.intent:
            self.forget()
            yield from self.resolve()
        elif not mine:
            self.catch_up()
        yield from self.cut_leftovers()
        return True

    def leave(self) -> Steps:
        """Lets the lock go."""
        self.loaded = None
        if not self.setup.handles:
            self.forget()
        yield "locks", "release", self.lock, self.process

    def resolve(self) -> Steps:
        """Finishes or drops the intent that a killed holder left."""
        raise NotImplementedError

    def after_restart(self) -> Steps:
        """Puts the partition right after the machine went down."""
        raise NotImplementedError

    # ---- the state

    def save(self, state: State, *, durable: bool) -> Steps:
        """Writes a slot; syncs it if `durable`. SyncError."""
        pair: tuple[int, ...] = (2, 3) if durable else (0, 1)
        if not self.keeps("the pairs of slots never mix"):
            pair = (0, 1, 2, 3)
        yield self.slots, "write", pair, state
        if durable:
            yield from self.sync_state()
        self.loaded = Loaded(state, durable, self.loaded is not None and self.loaded.torn)
        self.seen = state

    def sync_state(self) -> Steps:
        """Syncs the state file. SyncError."""
        done = yield self.slots, "sync"
        if not done:
            raise SyncError

    def next_generation(self) -> int:
        """The number of the list of segments when it has changed. It is counted only where files are kept open."""
        return self.state.generation + self.setup.handles

    # ---- the active segment

    def forget(self) -> None:
        """The next use opens the files again."""
        self.file, self.file_base, self.seen = None, 0, None

    def use_segment(self, file: int) -> None:
        """The active segment is another file, after `save` has made it the active one."""
        self.file, self.file_base = file, self.state.base

    def catch_up(self) -> None:
        """Continues where another process left off."""
        if self.file is not None and self.keeps("another generation means other files"):
            assert self.seen is not None
            if (self.state.generation, self.state.base) != (self.seen.generation, self.file_base):
                self.forget()
        self.seen = self.state

    def segment(self) -> Steps:
        """The active segment's file."""
        if self.file is None:
            self.file, self.file_base = (yield self.log, "open", self.state.base), self.state.base
            if self.file is None:
                if self.state.position:
                    raise InvariantError("I1", f"segment {self.state.base} is missing, which held records")
                self.file = yield from self.new_segment(self.state.base)
        return self.file

    def new_segment(self, base: int) -> Steps:
        """Makes an empty segment, durably; an existing file is a leftover."""
        bases = yield self.log, "bases"
        if base not in bases:
            file = yield from self.create(base)
        elif self.keeps("a segment of that name is replaced in one step"):
            file = yield from self.replace(base)
        else:
            yield from self.unlink(base)
            file = yield from self.create(base)
        if self.keeps("the folder is synced when a segment is made"):
            yield self.log, "sync_folder"
        return file

    def close_segment(self, file: int, position: int) -> Steps:
        """Makes a segment durable before another one begins. SyncError."""
        if self.state.suspect and self.keeps("what a failed sync may have lost is written again"):
            yield from self.write_again(file, self.state.synced, position)
        if self.keeps("the old segment is synced before a new one is made"):
            yield from self.sync_log(file)

    def roll(self, epochs: int = 0) -> Steps:
        """Begins a new segment at the end. SyncError."""
        file = yield from self.segment()
        yield from self.close_segment(file, self.state.position)
        yield from self.drop_newer_segments()
        file = yield from self.new_segment(self.state.next)
        state = self.state._replace(
            base=self.state.next,
            position=0,
            synced=0,
            generation=self.next_generation(),
            suspect=False,
            epoch=self.state.epoch + epochs,
        )
        yield from self.save(state, durable=self.keeps("a roll is synced"))
        self.use_segment(file)

    # ---- changes by name

    def create(self, name: Any) -> Steps:
        """Makes an empty file; gives its number."""
        return (yield self.log, "create", name)

    def unlink(self, name: Any) -> Steps:
        """Removes a name, if it is there."""
        yield self.log, "unlink", name

    def rename(self, name: Any, target: Any) -> Steps:
        """Renames a file; one of the name `target` is replaced."""
        yield self.log, "rename", name, target

    def replace(self, base: int) -> Steps:
        """Puts an empty file in the place of a segment, in one step; gives its number."""
        new = ("new", self.process)
        yield from self.unlink(new)
        file = yield from self.create(new)
        yield from self.rename(new, base)
        return file

    # ---- syncing

    def sync_log(self, file: int) -> Steps:
        """Syncs a segment. SyncError; then it is unknown what is on the disk, and the state says so.

        It says so before the sync, as no process may be left to say it afterwards.
        """
        suspect = self.state.suspect
        if not suspect and self.keeps("a segment is suspect while it is being synced"):
            yield from self.save(self.state._replace(suspect=True), durable=False)
        done = yield self.log, "sync", file
        if not done:
            raise SyncError
        # The next write of the state says it.
        assert self.loaded is not None
        self.loaded = Loaded(self.state._replace(suspect=suspect), False, self.loaded.torn)

    def write_again(self, file: int, start: int, end: int) -> Steps:
        """Writes what a file holds over itself."""
        cells = yield self.log, "cells", file
        for at in range(start, end):
            yield self.log, "write", file, at, cells[at]

    # ---- cutting

    def cut_leftovers(self) -> Steps:
        """Removes what a killed holder left beyond the end."""
        file = yield from self.segment()
        cells = yield self.log, "cells", file
        if len(cells) < self.state.position:
            raise InvariantError("I1", f"the active segment has {len(cells)} batches of {self.state.position}")
        left = len(cells) > self.state.position or self.state.cutting
        if left and self.keeps("entering cuts what is beyond the end"):
            yield from self.cut()

    def cut(self) -> Steps:
        """Removes all that is beyond the end, and says so while it does. SyncError."""
        if self.keeps("what is cut is open before that is said"):
            yield from self.segment()
        if self.keeps("a flag while cutting"):
            yield from self.save(self.state._replace(cutting=True), durable=False)
        yield from self.drop_newer_segments()
        file = yield from self.segment()
        cells = yield self.log, "cells", file
        if len(cells) > self.state.position:
            yield self.log, "truncate", file, self.state.position
        if self.keeps("the cut is synced"):
            yield from self.sync_log(file)
            yield self.log, "sync_folder"
        if self.state.cutting:
            yield from self.save(self.state._replace(cutting=False), durable=False)

    def drop_newer_segments(self) -> Steps:
        """Removes the names of segments above the active one."""
        if not self.keeps("newer segments go before one is made"):
            return
        bases = yield self.log, "bases"
        for number in range(len(bases)):
            if bases[number] > self.state.base:
                yield from self.unlink(bases[number])
