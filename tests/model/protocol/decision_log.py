"""The decisions of a store, as records of a partition.

Models pyspark_log/storage/publish/decision.py and decision_log.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..world.log import Batch
from .apply import Piece

#: The decision log, as a partition.
D = "decisions"

#: In the place of a decision: the record itself decides; or its publisher has decided nothing yet.
DECIDES, UNDECIDED = -1, -2


class Content(NamedTuple):
    """What is published; also the name of what is staged for it.

    Attributes:
        pub, number: whose it is.
        plan: which records.
        attempt: which attempt to stage them.
    """

    pub: str
    number: int
    plan: Any
    attempt: Any


class Record(NamedTuple):
    """A record of the decision log: the last that is known of a publisher.

    Attributes:
        pub, number, run: which publisher decided which number, in which run. `run` "" does not count.
        decision: the offset of the record that decided; or DECIDES, or UNDECIDED.
        done: it is applied everywhere.
        forget: the publisher is no longer known.
        places: the partitions that get something.
        replaced: earlier runs, which may decide nothing.
        location: the publisher's checkpoint.
        content: what it publishes.
    """

    pub: str
    number: int
    run: str = ""
    decision: int = DECIDES
    done: bool = False
    forget: bool = False
    places: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    location: str = ""
    content: Content | None = None

    def __repr__(self) -> str:
        said = [str(value) for value in (self.run, self.content, ",".join(self.places)) if value]
        kind = "forgotten" if self.forget else f"{self.decision} done" if self.done else f"{self.decision}"
        return f"{self.pub}#{self.number}({' '.join(said)}: {kind})"


class Known(NamedTuple):
    """What the decision log says up to some end: the last decision of each publisher, and those not done."""

    last: tuple[tuple[str, Record], ...] = ()
    undone: tuple[tuple[int, Record], ...] = ()

    def of(self, pub: str) -> Record | None:
        """The last record of a publisher."""
        return dict(self.last).get(pub)


def known(batches: Iterable[Batch]) -> Known:
    """What records say, the later ones over the earlier."""
    last: dict[str, Record] = {}
    undone: dict[int, Record] = {}
    for batch in batches:
        for number, record in enumerate(batch.what or ()):
            if record is None:  # compacted away
                continue
            before = last.pop(record.pub, None)
            if before is not None:
                undone.pop(before.decision, None)
            if record.forget:
                continue
            if record.decision == DECIDES:
                record = record._replace(decision=batch.base + number)  # noqa: PLW2901
            last[record.pub] = record
            if not record.done and record.decision >= 0:
                undone[record.decision] = record
    return Known(tuple(sorted(last.items())), tuple(sorted(undone.items())))


def taken_over(last: Record, run: str) -> Record:
    """The last record of a publisher in the hands of a newer run."""
    return last._replace(run=run, replaced=(*last.replaced, last.run) if last.run else last.replaced)


def names_of(record: Record, files: bool) -> tuple[Any, ...]:
    """What is staged for a decision: tasks' output first, the manifest last."""
    manifest = ("manifest", record.content)
    return (("file", record.content), manifest) if files else (manifest,)


def pieces(record: Record) -> tuple[Piece, ...]:
    """What a decision gives to each of its partitions: one batch from each of two tasks."""
    return tuple(Piece((("d", record.decision, number, 2, record.content),)) for number in range(2))
