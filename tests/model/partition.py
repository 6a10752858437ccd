"""The protocol of one partition, step by step as the engine does it: entering, appending, applying, recovery.

Each rule of the protocol can be left out, by its name in `Setup.without`; that is how the checker is shown to see
what the rule is for.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from .disk import Batch, Intent, Loaded, State
from .engine import Thing, Violation

Steps = Generator[tuple[Any, ...], Any, Any]


class Setup(NamedTuple):
    """How a partition is set.

    Attributes:
        limit: how many batches a segment takes.
        ahead: how many offsets a reserve goes beyond the end.
        handles: processes keep files open between two holds. (What else they keep only saves them a sync that
            would find nothing.)
        files: what is staged is a file of a task's beside the manifest; else the manifest holds it.
        without: names of rules that are left out.
    """

    limit: int = 100
    ahead: int = 1
    handles: bool = False
    files: bool = False
    without: frozenset[str] = frozenset()


class Piece(NamedTuple):
    """Batches of a decision for a partition, back to back; `file`: the staged file that holds them and nothing else,
    if it is to become a segment."""

    whats: tuple[Any, ...]
    file: Any = None


class Step(NamedTuple):
    """A piece, and where in the log it goes."""

    piece: Piece
    base: int
    position: int
    offset: int


class SyncFailed(Exception):
    """A sync failed: what was being done is given up where it stood."""


class Locks(Thing):
    """Locks, each held by a process or by nobody (-1)."""

    reads = frozenset({"acquire", "try", "release"})

    @classmethod
    def do_acquire(cls, holders: tuple[int, ...], lock: int, who: int) -> Any:
        return [(_with(holders, lock, who), None)] if holders[lock] < 0 else []

    @classmethod
    def do_try(cls, holders: tuple[int, ...], lock: int, who: int) -> Any:
        """Takes it if it is free; gives whether it was."""
        return (_with(holders, lock, who), True) if holders[lock] < 0 else (holders, False)

    @classmethod
    def do_release(cls, holders: tuple[int, ...], lock: int, who: int) -> Any:
        return (_with(holders, lock, -1) if holders[lock] == who else holders), None

    @classmethod
    def released(cls, holders: tuple[int, ...], who: int) -> Any:
        return tuple(-1 if holder == who else holder for holder in holders)


def _with(holders: tuple[int, ...], lock: int, who: int) -> tuple[int, ...]:
    return (*holders[:lock], who, *holders[lock + 1 :])


class Appender:
    """One process's access to a partition: `appender.py`, `apply.py` and `power.py` of the engine in small.

    What it keeps between two holds is which state it saw last and which file it has open.
    """

    def __init__(self, name: str, lock: int, who: int, setup: Setup) -> None:
        self.slots, self.log = name + " state", name + " log"
        self.lock, self.who, self.setup = lock, who, setup
        self.loaded: Loaded | None = None
        self.seen: State | None = None
        self.file: int | None = None
        self.file_base = 0

    def frozen(self) -> Any:
        return self.slots, self.lock, self.who, self.loaded, self.seen, self.file, self.file_base

    def keeps(self, rule: str) -> bool:
        return rule not in self.setup.without

    @property
    def state(self) -> State:
        assert self.loaded is not None
        return self.loaded.state

    # ---- holding the lock

    def enter(self) -> Steps:
        """Takes the lock and puts the log in order; False if the partition is dead (and the lock free again)."""
        yield "locks", "acquire", self.lock, self.who
        return (yield from self.entered())

    def entered(self) -> Steps:
        """What follows when the lock is there."""
        self.loaded = yield self.slots, "load"
        if self.state.dead:
            yield from self.leave()
            return False
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
        yield "locks", "release", self.lock, self.who

    def save(self, state: State, *, durable: bool) -> Steps:
        """Writes a slot; syncs it if `durable`."""
        pair: tuple[int, ...] = (2, 3) if durable else (0, 1)
        if not self.keeps("the pairs of slots never mix"):
            pair = (0, 1, 2, 3)
        yield self.slots, "write", pair, state
        if durable:
            yield from self.sync_state()
        self.loaded = Loaded(state, durable)
        self.seen = state

    def sync_state(self) -> Steps:
        """Syncs the state file. SyncFailed."""
        done = yield self.slots, "sync"
        if not done:
            raise SyncFailed

    # ---- the active segment

    def forget(self) -> None:
        """The next use looks at the files anew."""
        self.file, self.file_base, self.seen = None, 0, None

    def catch_up(self) -> None:
        """Goes on where another process left off."""
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
                    raise Violation("I1", f"segment {self.state.base} is missing, which held records")
                self.file = yield from self.new_segment(self.state.base)
        return self.file

    def new_segment(self, base: int) -> Steps:
        """Makes an empty segment, durably; one that is there is a leftover."""
        bases = yield self.log, "bases"
        if base not in bases:
            file = yield self.log, "create", base
        elif self.keeps("a segment of that name is replaced in one step"):
            yield self.log, "unlink", ("new", self.who)
            file = yield self.log, "create", ("new", self.who)
            yield self.log, "rename", ("new", self.who), base
        else:
            yield self.log, "unlink", base
            file = yield self.log, "create", base
        if self.keeps("the folder is synced when a segment is made"):
            yield self.log, "sync_folder"
        return file

    def sync_log(self, file: int) -> Steps:
        """Syncs a segment. SyncFailed; then nobody knows what is on the disk, and the state says so.

        It says so before, as there may be nobody to say it after.
        """
        suspect = self.state.suspect
        if not suspect and self.keeps("a segment is suspect while it is being synced"):
            yield from self.save(self.state._replace(suspect=True), durable=False)
        done = yield self.log, "sync", file
        if not done:
            if not self.state.suspect and self.keeps("a failed sync makes the segment suspect"):
                yield from self.save(self.state._replace(suspect=True), durable=False)
            raise SyncFailed
        # The next write of the state says it.
        self.loaded = Loaded(self.state._replace(suspect=suspect), False)

    def close_segment(self, file: int, position: int) -> Steps:
        """Makes a segment durable before another one begins. SyncFailed."""
        if self.state.suspect and self.keeps("what a failed sync may have lost is written again"):
            yield from self.write_again(file, self.state.synced, position)
        if self.keeps("the old segment is synced before a new one is made"):
            yield from self.sync_log(file)

    def write_again(self, file: int, start: int, end: int) -> Steps:
        """Writes what stands in a file over itself."""
        cells = yield self.log, "cells", file
        for at in range(start, end):
            yield self.log, "write", file, at, cells[at]

    # ---- cutting

    def cut_leftovers(self) -> Steps:
        """Removes what a killed holder left behind the end."""
        file = yield from self.segment()
        cells = yield self.log, "cells", file
        if len(cells) < self.state.position:
            raise Violation("I1", f"the active segment has {len(cells)} batches of {self.state.position}")
        if not self.keeps("entering cuts what is behind the end"):
            return
        if len(cells) > self.state.position or self.state.cutting:
            yield from self.cut()

    def cut(self) -> Steps:
        """Removes all that stands behind the end, and says so while it does."""
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
                yield self.log, "unlink", bases[number]

    # ---- appending

    def append(self, whats: Sequence[Any], *, sync: bool, counts: Sequence[int] = ()) -> Steps:
        """Appends batches; gives their first offset. SyncFailed.

        Args:
            whats: what they hold.
            sync: makes them durable first.
            counts: how many offsets each takes; one if nothing is said.
        """
        full = self.state.position + len(whats) > self.setup.limit
        if self.state.suspect or (self.state.position and full):
            yield from self.roll()
        counts = counts or (1,) * len(whats)
        base, end = self.state.next, self.state.next + sum(counts)
        if not sync and end > self.state.reserve and self.keeps("offsets are reserved before they are shown"):
            yield from self.save(self.state._replace(reserve=end + self.setup.ahead), durable=True)
        file = yield from self.segment()
        early = not self.keeps("the end moves when all is written")
        for number in range(len(whats)):
            batch = Batch(base + sum(counts[:number]), counts[number], whats[number])
            yield self.log, "write", file, self.state.position + (0 if early else number), batch
            if early:
                yield from self.save(self._longer(counts[number], 1, sync=False), durable=False)
        if sync and self.keeps("a synced append syncs the log"):
            try:
                yield from self.sync_log(file)
            except SyncFailed:
                yield from self.cut()
                raise
        # A power loss can take this back and leave the batches, which are then adopted.
        if not early:
            yield from self.save(self._longer(sum(counts), len(whats), sync=sync), durable=False)
        return base

    def _longer(self, offsets: int, batches: int, *, sync: bool) -> State:
        state = self.state
        position = state.position + batches
        return state._replace(
            next=state.next + offsets, position=position, synced=position if sync else state.synced
        )

    def settle(self) -> Steps:
        """Makes all durable and gives the reserve back."""
        if self.state.suspect:
            yield from self.roll()
        file = yield from self.segment()
        if self.state.synced < self.state.position or self.state.reserve > self.state.next:
            yield from self.sync_log(file)
            settled = self.state._replace(synced=self.state.position, reserve=self.state.next)
            yield from self.save(settled, durable=True)

    def roll(self) -> Steps:
        """Begins a new segment at the end. SyncFailed."""
        file = yield from self.segment()
        yield from self.close_segment(file, self.state.position)
        yield from self.drop_newer_segments()
        file = yield from self.new_segment(self.state.next)
        state = self.state._replace(
            base=self.state.next, position=0, synced=0, generation=self.state.generation + self.setup.handles, suspect=False
        )
        yield from self.save(state, durable=self.keeps("a roll is synced"))
        self.file, self.file_base = file, state.base

    # ---- letting records go

    def delete_before(self, offset: int) -> Steps:
        """Moves the log's start, and lets go of segments below it. SyncFailed."""
        if offset > self.state.start:
            yield from self.settle()
            if self.keeps("the log start is written before files go"):
                yield from self.save(self.state._replace(start=offset), durable=self.keeps("the log start is synced"))
        bases = yield self.log, "bases"
        bases = tuple(base for base in bases if base <= self.state.base)
        gone = [base for base, following in zip(bases, bases[1:], strict=False) if following <= offset]
        if gone:
            state = self.state._replace(generation=self.state.generation + self.setup.handles)
            yield from self.save(state, durable=self.keeps("the log start is synced"))
        for number in range(len(gone)):
            yield self.log, "rename", gone[number], ("deleted", gone[number])
        if not self.keeps("the log start is written before files go"):
            yield from self.save(self.state._replace(start=offset), durable=True)

    def truncate(self, offset: int) -> Steps:
        """Takes back records from `offset` on, which begins a batch. SyncFailed."""
        bases = yield self.log, "bases"
        base = [base for base in bases if base <= min(offset, self.state.base)][-1]
        file = yield self.log, "open", base
        cells = yield self.log, "cells", file
        position = sum(batch is not None and batch.base < offset for batch in cells)
        synced = min(position, self.state.synced) if base == self.state.base else position
        state = self.state._replace(
            cutting=True, base=base, position=position, synced=synced, next=offset,
            generation=self.state.generation + self.setup.handles, epoch=self.state.epoch + 1,
        )  # fmt: skip
        yield from self.save(state, durable=self.keeps("a truncation is synced before files are cut"))
        self.forget()
        yield from self.cut()

    # ---- applying

    def apply(self, decision: int, pieces: Sequence[Piece], *, sync: bool = True) -> Steps:
        """Appends the pieces of a decision as one, unless that was done. SyncFailed.

        Args:
            decision: its number.
            pieces: what it gives to the partition.
            sync: whether the records are on the disk when they are visible.
        """
        if self.state.applied >= decision and self.keeps("what is applied is not applied again"):
            return
        layout = self._layout(pieces)
        digest = tuple(what for piece in pieces for what in piece.whats)
        yield from self.drop_newer_segments()
        last = layout[-1]
        end = last.offset + len(last.piece.whats)
        intent = Intent(decision, digest, end, last.base, last.position + len(last.piece.whats))
        if self.keeps("an intent comes before the bytes"):
            reserve = end + self.setup.ahead if not sync and end > self.state.reserve else self.state.reserve
            durable = (sync and self.keeps("the intent is synced before the bytes")) or reserve != self.state.reserve
            yield from self.save(self.state._replace(intent=intent, reserve=reserve), durable=durable)
        try:
            file = yield from self.write_pieces(layout, sync)
        except SyncFailed:
            yield from self.drop()
            raise
        yield from self.move_end(intent, synced=sync)
        self.file, self.file_base = file, self.state.base

    def _layout(self, pieces: Sequence[Piece]) -> tuple[Step, ...]:
        """Where each piece goes."""
        base, position, offset = self.state.base, self.state.position, self.state.next
        roll, steps = self.state.suspect, []
        for piece in pieces:
            full = bool(piece.file) or position + len(piece.whats) > self.setup.limit
            if (position or base != offset) and (roll or full):
                base, position, roll = offset, 0, False
            steps.append(Step(piece, base, position, offset))
            position, offset = position + len(piece.whats), offset + len(piece.whats)
        return tuple(steps)

    def write_pieces(self, layout: Sequence[Step], sync: bool) -> Steps:
        """Writes all of it; gives the last segment's file. SyncFailed."""
        file, base, position = (yield from self.segment()), self.state.base, self.state.position
        copied, installed = False, False
        for number in range(len(layout)):
            step = layout[number]
            whats = step.piece.whats
            if step.base != base:
                yield from self.close_segment(file, position)
            if step.piece.file:
                file = yield from self.install(step)
                installed = True
            else:
                if step.base != base:
                    file = yield from self.new_segment(step.base)
                for one in range(len(whats)):
                    yield self.log, "write", file, step.position + one, Batch(step.offset + one, 1, whats[one])
                copied = True
            base, position = step.base, step.position + len(whats)
        if copied and sync and self.keeps("the bytes are synced before the end moves"):
            yield from self.sync_log(file)
        if installed and self.keeps("the folder is synced when a file is installed"):
            yield self.log, "sync_folder"
        return file

    def install(self, step: Step) -> Steps:
        """Makes a staged file the segment at `step.base`; gives its number. SyncFailed."""
        ready = ("ready", step.piece.file)
        yield self.log, "link", step.piece.file, ready
        file = yield self.log, "open", ready
        whats = step.piece.whats
        cells = yield self.log, "cells", file
        if [cell and cell.what for cell in cells[: len(whats)]] != list(whats):
            raise Violation("I9", f"{step.piece.file} holds {cells}")
        # It may have been a segment before, with more behind it.
        if len(cells) > len(whats) and self.keeps("an installed file is cut to what was staged"):
            yield self.log, "truncate", file, len(whats)
        for number in range(len(whats)):
            yield self.log, "write", file, number, Batch(step.offset + number, 1, whats[number])
        if self.keeps("an installed file is synced before it gets its name"):
            yield from self.sync_log(file)
        # It takes the place of an active segment that is empty.
        if self.keeps("an installed file replaces an empty segment in one step"):
            yield self.log, "rename", ready, step.base
        else:
            yield self.log, "unlink", step.base
            yield self.log, "rename", ready, step.base
        return file

    def move_end(self, intent: Intent, *, synced: bool) -> Steps:
        """The intent comes true, in one write; `synced`: its records are on the disk."""
        rolled = intent.base != self.state.base
        # An active segment that was empty may be another file by now.
        changed = rolled or self.state.position == 0
        at = intent.position if synced else 0 if rolled else self.state.synced
        state = self.state._replace(
            intent=None, next=intent.next, base=intent.base, position=intent.position, synced=at,
            generation=self.state.generation + (changed and self.setup.handles),
            suspect=self.state.suspect and not rolled,
        )  # fmt: skip
        durable = changed and self.keeps("a roll is synced")
        if not self.keeps("the end and the decision's number move at once"):
            yield from self.save(state, durable=durable)
        yield from self.save(state._replace(applied=intent.decision), durable=durable)

    def renew_empty(self) -> Steps:
        """Puts an empty file in the place of an active segment of which nothing counts.

        What is there may be staged output under a second name, which must not be cut.
        """
        file = yield self.log, "open", self.state.base
        if self.state.position or file is None or not self.keeps("a staged file is never cut"):
            return
        cells = yield self.log, "cells", file
        if not cells:
            return
        new = ("new", self.who)
        yield self.log, "unlink", new
        yield self.log, "create", new
        yield self.log, "rename", new, self.state.base
        yield self.log, "sync_folder"

    def drop(self) -> Steps:
        """Nothing of the intent stays."""
        self.forget()
        yield from self.renew_empty()
        yield from self.cut()
        state = self.state._replace(intent=None, generation=self.state.generation + self.setup.handles)
        yield from self.save(state, durable=self.keeps("that an intent was dropped is synced"))

    def resolve(self) -> Steps:
        """Finishes or drops the intent that a killed holder left."""
        if (yield from self.is_whole()):
            yield from self.finish_intent(False)
        else:
            yield from self.drop()

    def finish_intent(self, again: bool) -> Steps:
        """Makes durable what was found, and moves the end; `again`: a sync of it may have failed."""
        intent = self.state.intent
        assert intent is not None
        bases = yield self.log, "bases"
        for number in range(len(bases)):
            if self.state.base <= bases[number] <= intent.base:
                file = yield self.log, "open", bases[number]
                if again:
                    cells = yield self.log, "cells", file
                    start = self._known if bases[number] == self.state.base else 0
                    yield from self.write_again(file, start, len(cells))
                if self.keeps("resolving syncs what it found"):
                    yield from self.sync_log(file)
        if self.keeps("resolving syncs what it found"):
            yield self.log, "sync_folder"
        yield from self.move_end(intent, synced=True)
        yield from self.save(self.state, durable=True)

    def is_whole(self) -> Steps:
        """Whether exactly the intent's batches stand behind the end."""
        intent, state = self.state.intent, self.state
        assert intent is not None
        if state.suspect and self.keeps("what a failed sync left is not taken for whole"):
            return False
        bases = yield self.log, "bases"
        bases = tuple(base for base in bases if state.base <= base <= intent.base)
        if not bases or bases[-1] != intent.base:
            return False
        offset, found = state.next, ()
        for number in range(len(bases)):
            file = yield self.log, "open", bases[number]
            cells = yield self.log, "cells", file
            start = state.position if bases[number] == state.base else 0
            end = intent.position if bases[number] == intent.base else len(cells)
            if start > len(cells):
                raise Violation("I1", f"segment {bases[number]} is shorter than its state says")
            good = whole_run(cells[:end], start, offset)
            if start + len(good) < end:
                return False
            found += tuple(batch.what for batch in good)
            offset = good[-1].next if good else offset
        same = found == intent.digest or not self.keeps("the digest tells the decision's bytes from others")
        return offset == intent.next and same

    # ---- after a power loss

    def after_restart(self) -> Steps:
        """Puts the partition right after the machine went down."""
        self.forget()
        # What was read since the restart is on the disk, but not what an earlier try of this has written.
        again = self.state.suspect and self.keeps("recovery writes again what a failed sync of it may have lost")
        self.loaded = Loaded(self.state._replace(suspect=False), False)
        if not self.keeps("the boot id is written last"):
            yield from self.save(self.state._replace(booted=True), durable=True)
        if self.state.intent:
            yield from self.settle_intent(again)
        state = self.state
        file = yield self.log, "open", state.base
        if file is None:
            if state.position:
                raise Violation("I1", f"segment {state.base} is missing, which held records")
            yield from self.finish_restart(state)
            return
        cells = yield self.log, "cells", file
        found = self._whole(cells)
        if not self.keeps("whole batches behind the end are adopted"):
            found = found[: max(0, state.position - self._known)]
        position = self._known + len(found)
        end = found[-1].next if found else state.next if self._known else state.base
        if len(cells) > position:
            yield self.log, "truncate", file, position
        if again:
            yield from self.write_again(file, self._known, position)
        if state.reserve > end and self.keeps("the log goes on at the reserve"):
            yield self.log, "write", file, position, Batch(end, state.reserve - end, None)
            position, end = position + 1, state.reserve
        if self.keeps("recovery syncs the log"):
            yield from self.sync_log(file)
        yield from self.drop_newer_segments()
        yield self.log, "sync_folder"
        yield from self.finish_restart(
            state._replace(next=end, position=position, synced=position, reserve=end)
        )

    @property
    def _known(self) -> int:
        """Up to which position the active segment is known to be whole."""
        return self.state.position if self.state.synced == self.state.position else 0

    def _whole(self, cells: tuple[Batch | None, ...]) -> tuple[Batch, ...]:
        if len(cells) < self._known:
            raise Violation("I1", f"the active segment has {len(cells)} batches, of which {self._known} were synced")
        return whole_run(cells, self._known, self.state.next if self._known else self.state.base)

    def finish_restart(self, state: State) -> Steps:
        """The last write carries the boot id."""
        yield from self.save(
            state._replace(
                intent=None, cutting=False, suspect=False, booted=True,
                generation=state.generation + self.setup.handles,
            ),
            durable=True,
        )  # fmt: skip

    def settle_intent(self, again: bool) -> Steps:
        """Finishes an apply that was whole; drops any other with what is there of it."""
        file = yield self.log, "open", self.state.base
        whole = False
        if file is not None:
            cells = yield self.log, "cells", file
            reached = self._known + len(self._whole(cells))
            if reached >= self.state.position or not self.keeps("an intent behind a hole is dropped"):
                whole = yield from self.is_whole()
        if whole:
            yield from self.finish_intent(again)
            return
        if self.keeps("what is there of a dropped intent is cut"):
            yield from self.renew_empty()
            file = yield self.log, "open", self.state.base
            if file is not None:
                cells = yield self.log, "cells", file
                if len(cells) > self.state.position:
                    yield self.log, "truncate", file, self.state.position
                yield from self.sync_log(file)
            yield from self.drop_newer_segments()
            yield self.log, "sync_folder"
        yield from self.save(
            self.state._replace(intent=None), durable=self.keeps("that an intent was dropped is synced")
        )


def whole_run(cells: Sequence[Batch | None], position: int, offset: int) -> tuple[Batch, ...]:
    """The batches from `position` on as long as each is whole and begins where the one before it ends."""
    found = []
    for batch in cells[position:]:
        if batch is None or batch.base != offset:
            break
        found.append(batch)
        offset = batch.next
    return tuple(found)
