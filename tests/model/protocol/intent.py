"""The intent to apply a decision: what the state says before the bytes come, and what becomes of it.

Models pyspark_log/storage/log/recovery/apply_intent.py; docs/internals/protocol.md, "resolving an intent".
"""

from __future__ import annotations

from typing import Any

from ..checker.machine import InvariantError, Steps
from ..world.log import whole_run
from ..world.state_file import Intent
from .held_log import HeldLog


class Intents(HeldLog):
    """A held log that knows what an intent is."""

    def fulfil(self, intent: Intent, *, synced: bool) -> Steps:
        """The intent comes true, in one write; `synced`: its records are on the disk."""
        rolled = intent.base != self.state.base
        # An active segment that was empty may be another file by now.
        changed = rolled or self.state.position == 0
        state = self.state._replace(
            intent=None,
            next=intent.next,
            base=intent.base,
            position=intent.position,
            synced=intent.position if synced else 0 if rolled else self.state.synced,
            generation=self.next_generation() if changed else self.state.generation,
            suspect=self.state.suspect and not rolled,
            claimed=False,
        )
        durable = changed and self.keeps("a roll is synced")
        if not self.keeps("the end and the decision's number move at once"):
            yield from self.save(state, durable=durable)
        yield from self.save(state._replace(applied=intent.decision), durable=durable)

    def resolve(self) -> Steps:
        """Finishes or drops the intent that a killed holder left. SyncError."""
        if (yield from self.is_whole()):
            yield from self.finish()
        else:
            yield from self.drop()

    def finish(self, *, again: bool = False) -> Steps:
        """Makes durable what was found, and moves the end; `again`: a sync of it may have failed. SyncError."""
        intent = self.state.intent
        bases = yield from self._bases()
        for number in range(len(bases)):
            file = yield self.log, "open", bases[number]
            if again:
                cells = yield self.log, "cells", file
                start = self.state.synced if bases[number] == self.state.base else 0
                yield from self.write_again(file, start, len(cells))
            if self.keeps("resolving syncs what it found"):
                yield from self.sync_log(file)
        if self.keeps("resolving syncs what it found"):
            yield self.log, "sync_folder"
        yield from self.fulfil(intent, synced=True)
        yield from self.save(self.state, durable=True)

    def drop(self) -> Steps:
        """Nothing of the intent stays. SyncError."""
        self.forget()
        yield from self.renew_empty()
        yield from self.cut()
        state = self.state._replace(intent=None, generation=self.next_generation())
        yield from self.save(state, durable=self.keeps("that an intent was dropped is synced"))

    def renew_empty(self) -> Steps:
        """Puts an empty file in the place of an active segment of which nothing counts.

        What is there may be staged output under a second name, which must not be cut.
        """
        file = yield self.log, "open", self.state.base
        if self.state.position or file is None or not self.keeps("a staged file is never cut"):
            return
        cells = yield self.log, "cells", file
        if cells:
            yield from self.replace(self.state.base)
            yield self.log, "sync_folder"

    def is_whole(self) -> Steps:
        """Whether exactly the intent's batches are beyond the end, and can be on the disk."""
        intent, state = self.state.intent, self.state
        if state.suspect and self.keeps("what a failed sync left is not mistaken for whole"):
            return False
        bases = yield from self._bases()
        if not bases or bases[-1] != intent.base:
            return False
        offset = state.next
        found: tuple[Any, ...] = ()
        for number in range(len(bases)):
            file = yield self.log, "open", bases[number]
            cells = yield self.log, "cells", file
            start = state.position if bases[number] == state.base else 0
            end = intent.position if bases[number] == intent.base else len(cells)
            if start > len(cells):
                raise InvariantError("I1", f"segment {bases[number]} is shorter than its state says")
            good = whole_run(cells[:end], start, offset)
            if start + len(good) < end:
                return False
            found += tuple(batch.what for batch in good)
            offset = good[-1].next if good else offset
        same = found == intent.digest or not self.keeps("the digest identifies the decision's bytes")
        return offset == intent.next and same

    def _bases(self) -> Steps:
        """The segments in which the intent's records are or will be, and the active one."""
        bases = yield self.log, "bases"
        return tuple(base for base in bases if self.state.base <= base <= self.state.intent.base)
