"""Kafka's clients, and what their servers do for them: producers, consumers of a group, transactions.

Models pyspark_log/server/served/objects/append.py, groups.py and transactions.py beside it. A client's request is a
call of the process that is its server. One that is sent again, to another server, is a call of another process, while
the first may be at work.
"""

from __future__ import annotations

from ..checker.machine import Steps
from .entries import PARTS, Batch, Claim, Commit, Kind, RefusedError, Step
from .process import Process, UnknownError
from .proposals import Want


def producer(process: Process, name: str, batches: int) -> Steps:
    """Batches of an idempotent producer, one after the other, without a wait for what became of those before."""
    for sequence in range(batches):
        label = f"{name}{sequence}"
        try:
            yield from process.decide(Want(records=(label,), served=Batch(name, sequence)))
        except (RefusedError, UnknownError):
            continue
        yield "truth", "appended", (label,)


def coordinator(process: Process, run: int, dead: int, commits: int, leaves: bool = False) -> Steps:
    """A server that coordinates in place of a dead one (0: of none), and a consumer that commits there what follows."""
    try:
        yield from process.follow()
        loaded = process.state.committed
        claimed = yield from process.decide(Want(served=Claim(run, dead)))
        if claimed is None and process.setup.keeps("publish log: a server commits only if it coordinates"):
            return
        term = process.state.coordinator
        if process.setup.keeps("publish log: a coordinator loads what it coordinates after its claim"):
            loaded = process.state.committed
        for offset in range(loaded + 1, loaded + 1 + commits):
            yield from process.decide(Want(served=Commit(term, offset)))
        if leaves:
            yield from process.decide(Want(served=Claim(0, run)))
    except (RefusedError, UnknownError):
        return


def renewer(process: Process, run: int) -> Steps:
    """The thread of a server that says that it is there, and coordinates if no other does."""
    try:
        yield from process.decide(Want(served=Claim(run, 0)))
    except UnknownError:
        return


def transaction(process: Process, producer: str, name: str) -> Steps:
    """An instance of a transactional producer, which reads what is committed, and commits one more with its records."""
    labels = tuple(f"{name}{number}" for number in range(PARTS))
    is_sure, epoch = True, 0
    try:
        yield from process.decide(Want(served=Step(Kind.INIT, producer, 0)))
        epoch, committed = process.state.epoch(producer).epoch, process.state.committed
        yield from process.decide(Want(served=Step(Kind.BEGIN, producer, epoch)))
        for number in range(PARTS):
            move = committed + 1 if number else None
            yield from process.decide(Want(records=(labels[number],), served=Step(Kind.STAGE, producer, epoch, move)))
        ends = Want(served=Step(Kind.COMMIT, producer, epoch))
        try:
            yield from process.decide(ends)
        except UnknownError:
            is_sure = False
            yield from process.decide(ends)
        yield "truth", "appended", labels
    except RefusedError:
        if is_sure or process.state.epoch(producer).epoch == epoch:
            yield "truth", "refused", labels
    except UnknownError:
        return
