"""Puts what a decision gives to a partition into its log, once.

Models pyspark_log/storage/publish/applier.py, what pyspark_log/storage/log/appending/append.py does with a
decision, and, as `install`, new_segment.py;
docs/internals/protocol.md, "the steps of a publish",
4, and "large output becomes segments". What the engine makes ready without the lock is made under it here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..checker.machine import InvariantError, Steps
from ..world.log import Batch
from ..world.state_file import Intent
from .held_log import SyncError
from .power import Recovery


class Piece(NamedTuple):
    """Batches of a decision for a partition, back to back.

    Attributes:
        whats: what they hold.
        file: the staged file that holds them and nothing else, if it is to become a segment.
    """

    whats: tuple[Any, ...]
    file: Any = None


class _Step(NamedTuple):
    """A piece, and its place in the log."""

    piece: Piece
    base: int
    position: int
    offset: int


class Applier(Recovery):
    """A held log to which decisions can be applied."""

    def apply(self, decision: int, pieces: Sequence[Piece], *, sync: bool = True) -> Steps:
        """Appends the pieces of a decision as one, unless that was done. SyncError.

        Args:
            decision: its number.
            pieces: what it gives to the partition.
            sync: whether the records are on the disk when they are visible.
        """
        if self.state.applied >= decision and self.keeps("what is applied is not applied again"):
            return
        layout = self._layout(pieces)
        last = layout[-1]
        count = len(last.piece.whats)
        digest = tuple(what for piece in pieces for what in piece.whats)
        intent = Intent(decision, digest, last.offset + count, last.base, last.position + count)
        if last.base != self.state.base or any(piece.file for piece in pieces):
            yield from self.drop_newer_segments()
        if self.keeps("an intent comes before the bytes"):
            yield from self._begin(intent, sync=sync)
        try:
            file = yield from self._write(layout, sync=sync)
        except SyncError:
            yield from self.drop()
            raise
        yield from self.fulfil(intent, synced=sync)
        self.use_segment(file)

    def _layout(self, pieces: Sequence[Piece]) -> tuple[_Step, ...]:
        """The place of each piece."""
        base, position, offset = self.state.base, self.state.position, self.state.next
        roll, steps = self.state.suspect, []
        for piece in pieces:
            full = bool(piece.file) or position + len(piece.whats) > self.setup.segment_size
            if (position or base != offset) and (roll or full):
                base, position, roll = offset, 0, False
            steps.append(_Step(piece, base, position, offset))
            position, offset = position + len(piece.whats), offset + len(piece.whats)
        return tuple(steps)

    def _begin(self, intent: Intent, *, sync: bool) -> Steps:
        state, reserve = self.state, self.state.reserve
        if not sync and intent.next > reserve:
            reserve = intent.next + self.setup.ahead
        durable = (sync and self.keeps("the intent is synced before the bytes")) or reserve != state.reserve
        yield from self.save(state._replace(intent=intent, reserve=reserve), durable=durable)

    def _write(self, layout: Sequence[_Step], *, sync: bool) -> Steps:
        """Writes all of it; gives the last segment's file. SyncError."""
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

    def install(self, step: _Step) -> Steps:
        """Makes a staged file the segment at `step.base`; gives its number. SyncError."""
        ready = ("ready", step.piece.file)
        yield self.log, "link", step.piece.file, ready
        file = yield self.log, "open", ready
        whats = step.piece.whats
        cells = yield self.log, "cells", file
        if [cell and cell.what for cell in cells[: len(whats)]] != list(whats):
            raise InvariantError("I9", f"{step.piece.file} holds {cells}")
        # It may have been a segment before, with more after it.
        if len(cells) > len(whats) and self.keeps("an installed file is cut to what was staged"):
            yield self.log, "truncate", file, len(whats)
        for number in range(len(whats)):
            yield self.log, "write", file, number, Batch(step.offset + number, 1, whats[number])
        if self.keeps("an installed file is synced before it gets its name"):
            yield from self.sync_log(file)
        # It takes the place of an active segment that is empty.
        if not self.keeps("an installed file replaces an empty segment in one step"):
            yield from self.unlink(step.base)
        yield from self.rename(ready, step.base)
        return file
