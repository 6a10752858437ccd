"""Committed offsets that move with a publish: members that process and commit in one decision, and a plain commit.

A sweep takes back an offset that has expired: it was committed by itself, before the sweep began.

Each member reads the committed offset, and publishes what it made of the next record together with a step from that
offset to the next: a plan is (from, to).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..checker.machine import InvariantError, Model, Program, Steps, Watch
from ..observers.partition import current, visible
from ..observers.publishes import watches
from ..protocol.decided import GivenUpError
from ..protocol.decision_log import Content, Record
from ..protocol.held_log import SyncError
from ..protocol.publisher import OUTCOMES, Publisher, RefusedError
from ..protocol.setup import PLAIN, Setup
from ..world.log import Batch, Folder
from ..world.state_file import Slots
from .publishers import last, private, settled, things

#: The partition of `__consumer_offsets` that has the group.
O = "o"  # noqa: E741
PLACES = (O,)


class Member(Publisher):
    """A process that reads for the group."""

    def committed(self) -> Steps:
        """The group's committed offset: what its log says, and what is decided to follow. No lock is needed."""
        yield from self.follow()
        undone = self.known.undone
        state = yield O + " state", "look"
        batches = yield O + " log", "readable", state
        offset = offset_after(batches)
        if self.keeps("what is decided counts before it is applied"):
            for number, record in undone:
                if number > state.applied:
                    offset = record.content.plan[1]
        return offset

    def before_deciding(self, wanted: Record) -> Steps:
        """The committed offset must be the one started from, and no process commits until the decision is made."""
        log = self.writers[O]
        if self.keeps("a publisher that decides holds the group's partition"):
            yield from log.enter()
            unsynced = log.state.synced < log.state.position
            if unsynced and self.keeps("committed offsets are durable before a decision rests on them"):
                yield from log.flush()
        offset = yield from self.committed()
        if offset != wanted.content.plan[0]:
            raise RefusedError(f"{wanted.pub} started from {wanted.content.plan[0]}, and {offset} is committed")

    def after_deciding(self) -> Steps:
        if self.keeps("a publisher that decides holds the group's partition"):
            yield from self.writers[O].leave()

    def _enter_behind(self, waits: bool) -> Steps:
        """Takes the lock of the group's partition, when all that was decided is applied if `waits`. SyncError."""
        log = self.writers[O]
        while True:
            yield from self.follow()
            undone = self.known.undone
            if undone and waits:
                yield from self.apply(undone[-1][1])
            yield from log.enter()
            yield from self.follow()
            if not waits or all(number <= log.state.applied for number, _ in self.known.undone):
                return
            yield from log.leave()

    def commit(self, mark: str, offset: int) -> Steps:
        """A commit by itself, after what was decided before. SyncError, GivenUpError."""
        log = self.writers[O]
        yield from self._enter_behind(self.keeps("a commit comes after what is decided"))
        yield from log.append((("c", mark, offset),), sync=False)
        yield from log.leave()

    def expire(self, mark: str) -> Steps:
        """Takes the committed offset back if it has expired by now. SyncError, GivenUpError."""
        log = self.writers[O]
        state = yield O + " state", "look"
        now = state.next
        expired = yield from self._expired(now)
        if expired is None:
            return
        yield from self._enter_behind(self.keeps("a sweep comes after what is decided"))
        if self.keeps("what has expired is checked again under the lock"):
            expired = yield from self._expired(now)
        if expired is not None:
            yield from log.append((("x", mark, expired),), sync=False)
        yield from log.leave()

    def _expired(self, now: int) -> Steps:
        """Where in the log the last commit is, if it was made by itself before `now`; else None."""
        state = yield O + " state", "look"
        batches = yield O + " log", "readable", state
        last = last_commit(batches)
        return last.base if last is not None and last.what[0] == "c" and last.base < now else None


def last_commit(batches: Sequence[Batch]) -> Batch | None:
    """The batch of the last commit in the records of a log; None if it was taken back."""
    found = None
    for batch in batches:
        if batch.what is not None:
            found = None if batch.what[0] == "x" else batch
    return found


def offset_after(batches: Sequence[Batch]) -> int:
    """The committed offset after the records of a log."""
    last = last_commit(batches)
    if last is None:
        return 0
    return last.what[2] if last.what[0] == "c" else last.what[4].plan[1]


def member(process: int, setup: Setup, count: int, life: int) -> Steps:
    """Processes `count` records, one by one; stops when it is refused."""
    access = Member(process, PLACES, setup)
    pub = f"t{process}{life}"
    for number in range(count):
        offset = yield from access.committed()
        content = Content(pub, number, (offset, offset + 1), 0)
        try:
            yield from access.publish(Record(pub, number, places=PLACES, content=content))
        except OUTCOMES:
            return


def committer(process: int, setup: Setup, life: int) -> Steps:
    """Reads the committed offset and commits the next one by itself."""
    access = Member(process, PLACES, setup)
    offset = yield from access.committed()
    try:
        yield from access.commit(f"c{process}{life}", offset + 1)
    except (SyncError, GivenUpError):
        return


def sweeper(process: int, setup: Setup, life: int) -> Steps:
    """Checks once for a committed offset that has expired."""
    try:
        yield from Member(process, PLACES, setup).expire(f"x{process}{life}")
    except (SyncError, GivenUpError):
        return


def look(nothing: None, file: Slots, folder: Folder) -> None:
    """I11: each decided step begins where the group was; only a committed offset that has expired is taken back."""
    state, offset, last = current(file), 0, -1
    if not state.booted:
        return
    for batch in visible(state, folder):
        if batch.what is None or batch.what[0] == "a":
            continue
        if batch.what[0] == "x":
            if batch.what[2] != last:
                raise InvariantError("I11", f"{batch.what} took back what was committed again at offset {last}")
            offset = 0
        elif batch.what[0] == "c":
            offset = batch.what[2]
        elif batch.what[2] == 0:  # the first batch of a decision; the others say the same
            begun, ended = batch.what[4].plan
            if begun != offset:
                raise InvariantError("I11", f"{batch.what[4]} was decided where the group was at {offset}")
            offset = ended
        last = batch.base


def model(
    members: int = 2,
    count: int = 1,
    commits: int = 1,
    sweeps: int = 0,
    kills: int = 0,
    powers: int = 0,
    setup: Setup = PLAIN,
) -> Model:
    """Members that process `count` records each, and plain commits and sweeps beside them."""
    lives: dict[str, Sequence[Program | None]] = {}
    for process in range(members):
        lives[f"member {process}"] = [partial(member, process, setup, count, life) for life in range(2)]
    for _ in range(commits):
        process = len(lives)
        lives[f"committer {process}"] = [partial(committer, process, setup, life) for life in range(2)]
    for _ in range(sweeps):
        process = len(lives)
        lives[f"sweeper {process}"] = [partial(sweeper, process, setup, life) for life in range(2)]
    groups = Watch("nothing", (O + " state", O + " log"), look)
    return Model(
        things=things(PLACES), lives=lives, kills=kills, powers=powers, watches=[*watches(PLACES), groups],
        private=private(PLACES), alone=partial(last, setup, PLACES), settled=partial(settled, places=PLACES),
    )  # fmt: skip
