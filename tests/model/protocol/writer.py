"""Changes one partition's log: appends, flushes, and what lets records go.

Models pyspark_log/storage/log/appending/writer.py and append.py, truncate of replica.py beside them, and delete_before
of pyspark_log/storage/log/retention.py;
docs/internals/protocol.md, "the steps of an append", 4 to 7, and "how records and topics go".
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ..checker.machine import Steps
from ..world.log import Batch
from ..world.state_file import State
from .apply import Applier
from .held_log import SyncError


class LogWriter(Applier):
    """All that one process can do to a partition."""

    def append(self, whats: Sequence[Any], *, sync: bool, counts: Sequence[int] = ()) -> Steps:
        """Appends batches; gives their first offset. SyncError.

        Args:
            whats: what they hold.
            sync: makes them durable first.
            counts: how many offsets each takes; one if nothing is said.
        """
        full = self.state.position + len(whats) > self.setup.segment_size
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
            except SyncError:
                yield from self._undo()
                raise
        # A power loss can take this back and leave the batches, which are then adopted.
        if not early:
            yield from self.save(self._longer(sum(counts), len(whats), sync=sync), durable=False)
        return base

    def _longer(self, offsets: int, batches: int, *, sync: bool) -> State:
        state = self.state
        position = state.position + batches
        return state._replace(
            next=state.next + offsets, position=position, synced=position if sync else state.synced, claimed=False
        )

    def _undo(self) -> Steps:
        """After a failed sync: nothing stays beyond the end; if even that fails, the next holder cuts."""
        try:
            yield from self.cut()
        except SyncError:
            self.forget()

    def flush(self) -> Steps:
        """Makes all durable and gives the reserve back. SyncError."""
        if self.state.suspect:
            yield from self.roll()
        file = yield from self.segment()
        if self.state.synced < self.state.position or self.state.reserve > self.state.next:
            yield from self.sync_log(file)
            settled = self.state._replace(synced=self.state.position, reserve=self.state.next)
            yield from self.save(settled, durable=True)

    def delete_before(self, offset: int) -> Steps:
        """Moves the log's start, and deletes segments below it. SyncError."""
        if offset > self.state.start:
            yield from self.flush()
            if self.keeps("the log start is written before files go"):
                yield from self.save(self.state._replace(start=offset), durable=self.keeps("the log start is synced"))
        bases = yield self.log, "bases"
        bases = tuple(base for base in bases if base <= self.state.base)
        gone = tuple(base for base, following in itertools.pairwise(bases) if following <= offset)
        if gone:
            state = self.state._replace(generation=self.next_generation())
            yield from self.save(state, durable=self.keeps("the log start is synced"))
        for number in range(len(gone)):
            yield from self.rename(gone[number], ("deleted", gone[number]))
        if not self.keeps("the log start is written before files go"):
            yield from self.save(self.state._replace(start=offset), durable=True)

    def truncate(self, offset: int) -> Steps:
        """Takes back records from `offset` on, which begins a batch. SyncError."""
        bases = yield self.log, "bases"
        base = [base for base in bases if base <= min(offset, self.state.base)][-1]
        file = yield self.log, "open", base
        cells = yield self.log, "cells", file
        position = sum(batch is not None and batch.base < offset for batch in cells)
        state = self.state._replace(
            cutting=True,
            base=base,
            position=position,
            next=offset,
            synced=min(position, self.state.synced) if base == self.state.base else position,
            generation=self.next_generation(),
            epoch=self.state.epoch + 1,
        )
        yield from self.save(state, durable=self.keeps("a truncation is synced before files are cut"))
        self.forget()
        yield from self.cut()
