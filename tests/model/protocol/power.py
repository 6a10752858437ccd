"""Puts a partition right after the machine went down.

Models pyspark_log/storage/log/recovery/restart.py; docs/internals/protocol.md, "the steps after a power loss".
"""

from __future__ import annotations

from ..checker.machine import InvariantError, Steps
from ..world.log import Batch, Cells, whole_run
from ..world.state_file import Loaded, State
from .intent import Intents


class Recovery(Intents):
    """A held log that can be brought in line with its state."""

    def after_restart(self) -> Steps:
        """Brings files and state in line; only the last write says that it was done. SyncError."""
        self.forget()
        # What was read since the restart is on the disk, but not what an earlier try of this has written.
        again = self.state.suspect and self.keeps("recovery writes again what a failed sync of it may have lost")
        assert self.loaded is not None
        self.loaded = Loaded(self.state._replace(suspect=False), False, self.loaded.torn)
        if not self.keeps("the boot id is written last"):
            yield from self.save(self.state._replace(booted=True), durable=True)
        if self.state.intent:
            yield from self.settle_intent(again)
        state = self.state
        file = yield self.log, "open", state.base
        if file is None:
            if state.position:
                raise InvariantError("I1", f"segment {state.base} is missing, which held records")
            yield from self._finish(state)
            return
        cells = yield self.log, "cells", file
        found = self._whole(cells)
        if not self.keeps("whole batches beyond the end are adopted"):
            found = found[: max(0, state.position - self._known)]
        position = self._known + len(found)
        end = found[-1].next if found else state.next if self._known else state.base
        if len(cells) > position:
            yield self.log, "truncate", file, position
        if again:
            yield from self.write_again(file, state.synced, position)
        if state.reserve > end and self.keeps("the log continues at the reserve"):
            yield self.log, "write", file, position, Batch(end, state.reserve - end, None)
            position, end = position + 1, state.reserve
        if self.keeps("recovery syncs the log"):
            yield from self.sync_log(file)
        yield from self.drop_newer_segments()
        yield self.log, "sync_folder"
        yield from self._finish(state._replace(next=end, position=position, synced=position, reserve=end))

    @property
    def _known(self) -> int:
        """Up to which position the active segment is known to be whole."""
        return self.state.position if self.state.synced == self.state.position else 0

    def _whole(self, cells: Cells) -> tuple[Batch, ...]:
        if len(cells) < self._known:
            raise InvariantError("I1", f"the active segment has {len(cells)} batches, {self._known} were synced")
        return whole_run(cells, self._known, self.state.next if self._known else self.state.base)

    def _finish(self, state: State) -> Steps:
        """The last write carries the boot id."""
        state = state._replace(
            intent=None, cutting=False, suspect=False, booted=True, generation=self.next_generation()
        )
        assert self.loaded is not None
        if self.loaded.torn and self.keeps("torn slots are mended before the boot id is written"):
            yield self.slots, "mend"
        yield from self.save(state, durable=True)

    def settle_intent(self, again: bool) -> Steps:
        """Finishes an apply that was whole; drops any other with what is there of it. SyncError."""
        file = yield self.log, "open", self.state.base
        whole = False
        if file is not None:
            cells = yield self.log, "cells", file
            reached = self._known + len(self._whole(cells))
            # With a hole before the intent's records they cannot stay where they are.
            if reached >= self.state.position or not self.keeps("an intent after a hole is dropped"):
                whole = yield from self.is_whole()
        if whole:
            yield from self.finish(again=again)
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
        state = self.state._replace(intent=None)
        yield from self.save(state, durable=self.keeps("that an intent was dropped is synced"))
