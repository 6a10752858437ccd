"""What servers may decide in a state.

Models pyspark_log/storage/publish_log/serving/incoming.py and servers.py, ObjectGroups of
pyspark_log/server/served/objects/groups.py, and pyspark_log/server/transactions/transitions.py.
"""

from __future__ import annotations

from ..protocol.setup import Setup
from .entries import Batch, Claim, Entry, Kind, RefusedError, Served, State, Step


def proposed(setup: Setup, state: State, served: Served, entry: Entry) -> Entry | None:
    """The decision that is wanted; None: there is nothing to decide. RefusedError. `entry`: has its records."""
    if isinstance(served, Batch):
        return _with_batch(setup, state, served, entry)
    if isinstance(served, Step):
        return _with_step(setup, state, served, entry)
    if isinstance(served, Claim):
        return entry._replace(coordinator=served.run) if state.coordinator.run == served.before else None
    if state.coordinator != served.term and setup.keeps("publish log: a commit checks the term of its coordinator"):
        raise RefusedError
    return entry._replace(move=(state.committed, served.offset))


def _with_batch(setup: Setup, state: State, batch: Batch, entry: Entry) -> Entry | None:
    last = state.last_sequence(batch.producer)
    if batch.sequence <= last and setup.keeps("publish log: a batch is compared with its producer's last one"):
        return None
    if batch.sequence > last + 1 and setup.keeps("publish log: a batch follows its producer's last one"):
        raise RefusedError
    has_number = setup.keeps("publish log: a decision has the sequences of its batches")
    return entry._replace(adds=(("log", entry.number), 1), base=state.end, batch=batch if has_number else None)


def _with_step(setup: Setup, state: State, step: Step, entry: Entry) -> Entry | None:
    known, is_open = state.epoch(step.producer), state.open_of(step.producer) is not None
    if step.kind == Kind.INIT:
        aborts = setup.keeps("publish log: a new epoch aborts what is open")
        return entry._replace(step=step._replace(epoch=known.epoch + 1, move=None if aborts else 0))
    is_own = known.epoch == step.epoch
    if step.kind == Kind.BEGIN:
        if not is_own:
            raise RefusedError
        return entry._replace(step=step)
    if step.kind == Kind.STAGE:
        if not is_open or not (is_own or not setup.keeps("publish log: a part is of the epoch that is open")):
            raise RefusedError
        return entry._replace(step=step)
    if is_own and not is_open and known.is_committed:
        if setup.keeps("publish log: a commit that is repeated is compared with what is known"):
            return None
        raise RefusedError
    if not is_open or not (is_own or not setup.keeps("publish log: an end is of the epoch that is open")):
        raise RefusedError
    return entry._replace(step=step)
