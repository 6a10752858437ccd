"""Staged output on its way into a decision: what is made of it, and what is removed when it is decided, or is not."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pyspark_log.errors import PylogError
from pyspark_log.storage.publish import manifest
from pyspark_log.storage.publish.applier import entries_of, staging_folder, unlink_all
from pyspark_log.storage.publish.decision import TopicIdPartition
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.gather import Gathered, gather
from pyspark_log.storage.publish.staging import StagedPart
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Output:
    """Staged output as a decision can name it.

    Attributes:
        pieces: as it was handed in.
        parts: as it is published, which is the same where nothing was copied together.
        time: the time (ms) that records of topics with LogAppendTime must get; 0: any.
        manifest: the manifest's name; "": there is nothing to publish.
        manifest_crc: the CRC-32C of its description.
    """

    pieces: Sequence[StagedPart]
    parts: Sequence[StagedPart]
    time: int
    manifest: str = ""
    manifest_crc: int = 0

    @classmethod
    def make(
        cls, store: Store, pieces: Sequence[StagedPart], offsets: Sequence[OffsetStep], *, gathers: bool, sync: bool
    ) -> Output:
        """Copies together what is in many little pieces, and writes the manifest. Errors as of both."""
        gathered = gather(store, pieces, sync=sync) if gathers else Gathered(pieces, 0)
        output = cls(pieces, gathered.parts, gathered.time)
        if not gathered.parts:
            return output
        try:
            name, crc = manifest.write(staging_folder(store), gathered.parts, offsets, sync=sync)
        except BaseException:
            output.remove_made(store)
            raise
        return replace(output, manifest=name, manifest_crc=crc)

    def places(self) -> tuple[TopicIdPartition, ...]:
        """The partitions that get something, in the order of the parts."""
        return tuple(dict.fromkeys(TopicIdPartition(part.topic, part.topic_id, part.partition) for part in self.parts))

    def remove_made(self, store: Store) -> None:
        """Removes what was made of the pieces, which stay; no decision names it."""
        _unlink_names(store, self._files(self.parts) - self._files(self.pieces) | {self.manifest})

    def remove_gathered(self, store: Store) -> None:
        """Removes the pieces that were copied together; the decision names the copies."""
        _unlink_names(store, self._files(self.pieces) - self._files(self.parts))

    def drop(self, store: Store, decisions: DecisionLog, publisher: str) -> None:
        """Removes all of it, as it will not be published.

        But not what the publisher's last decision names: a call that is made again after an error hands in the
        very files that the first call may have decided.
        """
        names = self._files(self.pieces) | self._files(self.parts) | {self.manifest}
        last = decisions.last.get(publisher)
        if last is not None and not last.done:
            try:
                names -= {os.path.basename(path) for path in manifest.paths(entries_of(store, decisions, last))}
            except (PylogError, OSError) as error:
                log.warning("%s: what was staged is left to be removed by age: %s", store.path, error)
                return
        _unlink_names(store, names)

    @staticmethod
    def _files(parts: Iterable[StagedPart]) -> set[str]:
        return {part.file for part in parts}


def discard(store: Store, parts: Iterable[StagedPart]) -> None:
    """Removes staged output that was never handed to `publish`, as far as it can."""
    _unlink_names(store, {part.file for part in parts})


def _unlink_names(store: Store, names: Iterable[str]) -> None:
    """Removes files of the staging folder; "" is none."""
    unlink_all(store, [f"{staging_folder(store)}/{name}" for name in names if name])
