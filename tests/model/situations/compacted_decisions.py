"""Compaction of the decision log beside publishers: what is known of a publisher is never lost.

The swap of files has a model of its own; here it is one step, under the log's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..checker.machine import InvariantError, Model, Program, Steps
from ..observers.publishes import watches
from ..protocol.decision_log import D, Record, known
from ..protocol.publisher import Publisher
from ..protocol.setup import Setup
from ..world.log import Batch, File, Folder, Log
from .publishers import attempts, last, private, publisher, things

PLACES = ("p",)
ONE_BATCH = Setup(segment_size=1)


class Compacted(Log):
    """A decision log that can be compacted."""

    @classmethod
    def do_compact(cls, folder: Folder, keeps_last: bool) -> Any:
        """Drops, of all segments but the active one, the records that a later one of the same publisher follows.

        Offsets stay as they are; `keeps_last` False drops all.
        """
        bases = list(folder.segments)
        before = [batch for base in bases for batch in folder.file(folder.segments[base]).cells if batch]
        after = {batch.base: _without(batch, before[at + 1 :], keeps_last) for at, batch in enumerate(before)}
        for base in bases[:-1]:
            number = folder.segments[base]
            cells = tuple(batch and after[batch.base] for batch in folder.file(number).cells)
            folder = folder.with_file(number, File(cells))
        kept = [batch for base in bases for batch in folder.file(folder.segments[base]).cells if batch]
        if known(kept) != known(before):
            raise InvariantError("I13", f"compaction has lost something of {known(before)}: {known(kept)}")
        return folder, None


def _without(batch: Batch, later: Sequence[Batch], keeps_last: bool) -> Batch:
    newer = {record.pub for other in later for record in filter(None, other.what)}
    left: list[Record | None] = []
    for number, record in enumerate(batch.what):
        newer_here = {other.pub for other in filter(None, batch.what[number + 1 :])}
        gone = record is None or record.pub in newer | newer_here or not keeps_last
        left.append(None if gone else record)
    return batch._replace(what=tuple(left))


def compactor(process: int, setup: Setup) -> Steps:
    """Compacts twice."""
    access = Publisher(process, PLACES, setup)
    log = access.writers[D]
    for _time in range(2):
        yield from log.enter()
        yield log.log, "compact", access.keeps("the last record of a publisher stays")
        yield from log.leave()


def settled(values: Any) -> None:
    """Nothing is left undone."""
    log = values[D + " log"]
    batches = [batch for number in log.segments.values() for batch in log.file(number).cells]
    if known(batches).undone:
        raise InvariantError("I15", f"not recorded as done: {known(batches).undone}")


def model(
    numbers: Sequence[int] = (0, 1), publishers: int = 1, kills: int = 1, powers: int = 0, setup: Setup = ONE_BATCH
) -> Model:
    """Publishers, and a compactor."""
    lives: dict[str, Sequence[Program | None]] = {}
    for process in range(publishers):
        lives[f"publisher {process}"] = [
            partial(publisher, process, setup, attempts(f"a{process}", numbers, PLACES, life), False, PLACES)
            for life in range(2)
        ]
    lives["compactor"] = [partial(compactor, publishers, setup)]
    return Model(
        things=things(PLACES) | {D + " log": (Compacted, Log.new())},
        lives=lives,
        kills=kills,
        powers=powers,
        watches=watches(PLACES, compacted=True),
        private=private(PLACES),
        alone=partial(last, setup, PLACES),
        settled=settled,
    )
