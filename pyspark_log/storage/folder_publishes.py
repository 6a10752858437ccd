"""The publishes of a store in a folder: its log of decisions, and what applies them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from pyspark_log.errors import PylogError
from pyspark_log.storage import seam
from pyspark_log.storage.fs import Process
from pyspark_log.storage.groups import CommittedOffsets, OffsetMoves
from pyspark_log.storage.ingest.encoder import is_past_retention, warn_past_retention
from pyspark_log.storage.publish import (
    AgreedTopic,
    Decision,
    DecisionLog,
    PublishResult,
    StagedPart,
    StagedWriter,
    StagingPlan,
    apply_pending,
    publish,
    staging_folder,
)
from pyspark_log.storage.publish.applier import unlink_all
from pyspark_log.storage.publish.claims import check_claim, claim, revoke
from pyspark_log.storage.publish.pending import not_applied
from pyspark_log.storage.publish.prepare import discard, discard_job
from pyspark_log.storage.publish.publisher_admin import delete_publisher, publishers


class FolderPublishes(seam.Publishes):
    """The publishes of a store in a folder."""

    def __init__(self, decisions: DecisionLog, offsets: CommittedOffsets, create: Callable[[str], bool]) -> None:
        """Of one store; `create` creates a missing topic, if that is allowed, and says whether it did."""
        self._decisions, self._logs, self._offsets, self._create = decisions, decisions.logs, offsets, create

    # ---- staging

    def check_writable(self) -> None:
        self._logs.check_writable()

    def plan(
        self,
        topics: Iterable[str],
        compression_type: str | None = None,
        owner: Process | None = None,
        *,
        others: bool = False,
    ) -> StagingPlan:
        return StagingPlan.make(self._logs, topics, compression_type, owner, others=others)

    def writer(self, plan: StagingPlan) -> StagedWriter:
        return StagedWriter(self._logs, plan, self._create)

    def discard(self, parts: Iterable[StagedPart]) -> None:
        discard(self._logs, parts)

    def discard_job(self, plan: StagingPlan) -> None:
        discard_job(self._logs, plan.job)

    def end_agreements(self, topics: Iterable[AgreedTopic]) -> None:
        folder = staging_folder(self._logs)
        unlink_all(self._logs, sorted({f"{folder}/{one.file}" for one in topics}))

    # ---- publishing

    def _publish(self, new: seam.NewPublish) -> PublishResult:
        return publish(self._decisions, new, [OffsetMoves(self._offsets, new.steps)] if new.steps else [])

    def claim(
        self, publisher: str, run: str, number: int | None = None, *, location: str = "", take_over: bool = False
    ) -> int:
        return claim(self._decisions, publisher, run, number, location=location, take_over=take_over)

    def check_claim(self, publisher: str, run: str) -> None:
        check_claim(self._decisions, publisher, run)

    def revoke(self, publisher: str, number: int, parts: Sequence[StagedPart], run: str) -> bool:
        return revoke(self._decisions, publisher, number, parts, run)

    def apply_pending(self) -> PylogError | OSError | None:
        return apply_pending(self._decisions)

    def pending(self) -> list[Decision]:
        return not_applied(self._decisions)

    def is_past_retention(self, topic: str, time: int) -> bool:
        return is_past_retention(time, self._logs.topic_config(topic), self._logs.clock())

    def warn_of_old(self, topic: str, newest: int) -> bool:
        config = self._logs.topic_config(topic)
        if not is_past_retention(newest, config, self._logs.clock()):
            return False
        warn_past_retention(newest, config, f"{self._logs.path}: topic {topic}")
        return True

    # ---- publishers

    def publishers(self) -> list[Decision]:
        waiting = {one.offset for one in self.pending()}
        return [replace(one, done=one.offset not in waiting) for one in publishers(self._decisions)]

    def delete_publisher(self, publisher: str) -> Decision:
        return delete_publisher(self._decisions, publisher)
