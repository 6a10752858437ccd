"""Exactly-once publishes of a store, for programs that write to it: `store.publishes`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from pyspark_log.errors import PylogError
from pyspark_log.storage.fs import Process
from pyspark_log.storage.groups import CommittedOffsets, OffsetMoves
from pyspark_log.storage.ingest.timestamps import is_past_retention, warn_past_retention
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
from pyspark_log.storage.publish.decision import UNKNOWN, About
from pyspark_log.storage.publish.pending import not_applied
from pyspark_log.storage.publish.prepare import discard, discard_job
from pyspark_log.storage.publish.publisher_admin import delete_publisher, publishers
from pyspark_log.types import OffsetStep


class Publishes:
    """Stages output, and publishes it with the committed offsets of groups: all of it, once, or nothing.

    A job makes a `plan`, which its tasks need: each gives its `writer` rows, and what the writers return is published
    by one call of `publish`.
    """

    def __init__(self, decisions: DecisionLog, offsets: CommittedOffsets, create: Callable[[str], bool]) -> None:
        """Of one store; `create` creates a missing topic, if that is allowed, and says whether it did."""
        self._decisions, self._logs, self._offsets, self._create = decisions, decisions.logs, offsets, create

    # ---- staging

    def check_writable(self) -> None:
        """Refuses a store that is never written to, before anything is staged. ReadOnlyError."""
        self._logs.check_writable()

    def plan(
        self,
        topics: Iterable[str],
        compression_type: str | None = None,
        owner: Process | None = None,
        *,
        others: bool = False,
    ) -> StagingPlan:
        """Plans a job's output; arguments and errors are those of StagingPlan.make. ReadOnlyError."""
        return StagingPlan.make(self._logs, topics, compression_type, owner, others=others)

    def writer(self, plan: StagingPlan) -> StagedWriter:
        """A writer for one task of the plan, which was made for this store. ReadOnlyError."""
        return StagedWriter(self._logs, plan, self._create)

    def discard(self, parts: Iterable[StagedPart]) -> None:
        """Removes staged output that was never given to `publish`, or that it has not published; best effort."""
        discard(self._logs, parts)

    def discard_job(self, plan: StagingPlan) -> None:
        """Removes all that the tasks of a plan have staged, if nothing of it was given to `publish`; best effort."""
        discard_job(self._logs, plan.job)

    def end_agreements(self, topics: Iterable[AgreedTopic]) -> None:
        """Removes what a job's tasks have agreed on for topics; all of them are done. Best effort."""
        folder = staging_folder(self._logs)
        unlink_all(self._logs, sorted({f"{folder}/{one.file}" for one in topics}))

    # ---- publishing

    def publish(
        self,
        publisher: str,
        number: int,
        parts: Sequence[StagedPart],
        *,
        steps: Sequence[OffsetStep] = (),
        run: str = "",
        claimed: bool = False,
        location: str = "",
        plan: str = "",
        one_off: bool = False,
        about: About = UNKNOWN,
        sync: bool = True,
    ) -> PublishResult:
        """Makes staged output visible, exactly once; its arguments and errors are those of publish.publish.

        `steps`: moves of groups' committed offsets, which are made with it or not at all.
        """
        return publish(
            self._decisions,
            publisher,
            number,
            parts,
            participants=[OffsetMoves(self._offsets, steps)] if steps else [],
            run=run,
            claimed=claimed,
            location=location,
            plan=plan,
            one_off=one_off,
            about=about,
            sync=sync,
        )

    def claim(
        self, publisher: str, run: str, number: int | None = None, *, location: str = "", take_over: bool = False
    ) -> int:
        """Gives a publisher to a run, and fences earlier runs; as publish.claim. Returns the last decided number."""
        return claim(self._decisions, publisher, run, number, location=location, take_over=take_over)

    def check_claim(self, publisher: str, run: str) -> None:
        """Checks that the run that has claimed a publisher still holds it. PublisherFencedError."""
        check_claim(self._decisions, publisher, run)

    def revoke(self, publisher: str, number: int, parts: Sequence[StagedPart], run: str) -> bool:
        """Removes staged output after a failed `publish`; False if that has decided it after all. As publish.revoke."""
        return revoke(self._decisions, publisher, number, parts, run)

    def apply_pending(self) -> PylogError | OSError | None:
        """Makes visible what is decided and not applied yet, for publishers that died in between.

        Never raises. A process that may not write to the store applies nothing.

        Returns:
            Why something could not be made visible, which was also logged, once; None: nothing hindered it.
        """
        return apply_pending(self._decisions)

    def pending(self) -> list[Decision]:
        """The publishes that are decided and not visible everywhere yet. Raises: as DecisionLog.follow."""
        return not_applied(self._decisions)

    def is_past_retention(self, topic: str, time: int) -> bool:
        """Whether the topic's retention deletes records of this time (ms) at the next cleaning. UnknownTopicError."""
        return is_past_retention(time, self._logs.topic_config(topic), self._logs.clock())

    def warn_of_old(self, topic: str, newest: int) -> bool:
        """Warns if records of the time `newest` (ms) and before are past the topic's retention; whether it did.

        The next cleaning deletes them, however lately they were published. UnknownTopicError.
        """
        config = self._logs.topic_config(topic)
        if not is_past_retention(newest, config, self._logs.clock()):
            return False
        warn_past_retention(newest, config, f"{self._logs.path}: topic {topic}")
        return True

    # ---- publishers

    def publishers(self) -> list[Decision]:
        """The last decision of each publisher, sorted by id. Raises: as DecisionLog.follow.

        `done` is whether it is applied everywhere now, also if no record says so yet.
        """
        waiting = {one.offset for one in self.pending()}
        return [replace(one, done=one.offset not in waiting) for one in publishers(self._decisions)]

    def delete_publisher(self, publisher: str) -> Decision:
        """Forgets a publisher, as if it had never published; as publish.delete_publisher. Returns its last decision."""
        return delete_publisher(self._decisions, publisher)
