"""The fold: records of a cluster's metadata in their order become images, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from pyspark_log.kafka.records import MetadataRecord
from pyspark_log.server.cluster.batches import Batch
from pyspark_log.server.cluster.draft import Draft
from pyspark_log.server.cluster.errors import MetadataError
from pyspark_log.server.cluster.image import START, Image, Position

_BEGIN, _END, _ABORT = "BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"

_Key = TypeVar("_Key")


class Change(NamedTuple):
    """The step from one image to the next.

    Attributes:
        topics: the ids of topics that are not the same in both. What else differs, `differing` finds.
    """

    before: Image
    after: Image
    topics: Collection[bytes]


class Fold:
    """Holds the image, and takes what follows.

    Attributes:
        image: the newest one.
        position: the last record that was taken. It is after the image's while a transaction of records is open: they
            are held back until it ends.
    """

    def __init__(self) -> None:
        self.image = Image()
        self.position = START
        self._held: list[MetadataRecord] | None = None

    def apply(self, batches: Iterable[Batch]) -> Change:
        """Takes the batches that follow.

        Raises:
            MetadataError: they do not follow from what was there. The fold is not to be used any more.
        """
        before, draft, complete = self.image, Draft(self.image), self.image.position
        for batch in batches:
            for offset, record in enumerate(batch.records, batch.base_offset):
                if record.name == _BEGIN and offset > batch.base_offset:
                    complete = Position(offset - 1, batch.epoch)
                self._take(record, draft)
            self.position = Position(batch.last_offset, batch.epoch)
            if self._held is None:
                complete = self.position
        self.image = draft.finish(complete)
        return Change(before, self.image, draft.topics)

    def load(self, batches: Iterable[Batch], position: Position) -> Change:
        """Replaces the image with a snapshot, whose offsets are its own.

        Args:
            position: the last record of the log that is in the snapshot.

        Raises:
            MetadataError: it contradicts itself.
        """
        before, draft = self.image, Draft(Image())
        self._held = None
        for batch in batches:
            for record in batch.records:
                self._take(record, draft)
        if self._held is not None:
            raise MetadataError("a snapshot of the cluster's metadata ends in a transaction")
        self.image, self.position = draft.finish(position), position
        return Change(before, self.image, differing(before.topics, self.image.topics))

    def _take(self, record: MetadataRecord, draft: Draft) -> None:
        held = self._held
        if record.name == _BEGIN:
            if held is not None:
                raise MetadataError("a transaction of the cluster's metadata begins in another one")
            self._held = []
        elif record.name in (_END, _ABORT):
            if held is None:
                raise MetadataError("a transaction of the cluster's metadata ends that has not begun")
            self._held = None
            for one in held if record.name == _END else ():
                draft.apply(one)
        elif held is not None:
            held.append(record)
        else:
            draft.apply(record)


def differing(before: Mapping[_Key, object], after: Mapping[_Key, object]) -> list[_Key]:
    """The keys whose values are not the same, or that only one has: what changed of configs, say."""
    if before is after:
        return []
    changed = [key for key, value in after.items() if (old := before.get(key)) is not value and old != value]
    return changed + [key for key in before if key not in after]
