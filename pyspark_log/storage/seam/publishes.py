"""Exactly-once publishes, as every kind of store has them: `store.publishes`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_log.types import OffsetStep

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_log.errors import PylogError
    from pyspark_log.storage.fs import Process
    from pyspark_log.storage.publish import AgreedTopic, Decision, PublishResult, StagedPart, StagingPlan
    from pyspark_log.storage.publish.decision import About


class StagingWriter(ABC):
    """Collects one task's output, in bounded memory, where no reader sees it. Not thread-safe.

    Attributes:
        agreed: the topics that it has written to and the plan lacks.
    """

    agreed: list[AgreedTopic]

    @abstractmethod
    def append(self, topic: str, data: pa.RecordBatch) -> None:
        """Adds records, with the columns of Store.append.

        Raises:
            UnknownTopicError: the plan lacks the topic and allows no others; or it may not be created.
            InvalidTopicError: the plan lacks it, and the name is invalid or the engine's own.
            InvalidRecordError: a column or record is refused.
            OSError: e.g. a full disk.
            ObjectStoreError: the object store does not answer.
        """

    @abstractmethod
    def finish(self) -> list[StagedPart]:
        """Ends the task's output, durably; the parts, each partition's in the order of its records.

        Raises: as `append`.
        """

    @abstractmethod
    def discard(self) -> None:
        """Removes staged output that will not be published; best effort."""


@dataclass(frozen=True, slots=True)
class NewPublish:
    """What is to be published: the arguments of `Publishes.publish`."""

    publisher: str
    number: int
    parts: Sequence[StagedPart]
    steps: Sequence[OffsetStep] = ()
    run: str = ""
    claimed: bool = False
    location: str = ""
    plan: str = ""
    one_off: bool = False
    about: About | None = None


class Publishes(ABC):
    """Stages output, and publishes it with the committed offsets of groups: all of it, once, or nothing.

    A job makes a `plan`, which its tasks need: each gives its `writer` rows, and what the writers return is published
    by one call of `publish`.
    """

    # ---- staging

    @abstractmethod
    def check_writable(self) -> None:
        """Refuses a store that is never written to, before anything is staged or committed. ReadOnlyError."""

    @abstractmethod
    def plan(
        self,
        topics: Iterable[str],
        compression_type: str | None = None,
        owner: Process | None = None,
        *,
        others: bool = False,
    ) -> StagingPlan:
        """Plans a job's output: looks its topics up, so that all tasks see the same ones.

        Args:
            topics: their names.
            compression_type: the codec of the writer's choice, for topics that leave it to the writer, or None.
            owner: the process without which the staged output is never published; None: this one. Once it is dead,
                its undecided staged output is deleted soon.
            others: whether tasks may write to topics that are not among these; then they create missing ones.

        Raises:
            ReadOnlyError: the store is never written to.
            UnknownTopicError: one of them does not exist.
            InvalidTopicError: it is one of the engine's own.
            InvalidConfigError: there is no such codec.
        """

    @abstractmethod
    def writer(self, plan: StagingPlan) -> StagingWriter:
        """A writer for one task of the plan, which was made for this store. ReadOnlyError."""

    @abstractmethod
    def discard(self, parts: Iterable[StagedPart]) -> None:
        """Removes staged output that was never given to `publish`, or that it has not published; best effort.

        What is published stays: a call that is repeated hands in the output that the first one has decided.
        """

    @abstractmethod
    def discard_job(self, plan: StagingPlan) -> None:
        """Removes all that the tasks of a plan have staged, if nothing of it was given to `publish`; best effort.

        In an object store it is not known by its plan; `pylog clean` deletes it later.
        """

    @abstractmethod
    def end_agreements(self, topics: Iterable[AgreedTopic]) -> None:
        """Removes what a job's tasks have agreed on for topics; all of them are done. Best effort."""

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
        about: About | None = None,
    ) -> PublishResult:
        """Makes staged output visible, exactly once. Returns when all of it is visible and durable.

        A publisher is a name with consecutive numbers (a streaming query and its batch ids). The last number again is a
        replay: it was published already and its output is dropped. The next number is new. Any other is refused.

        The type of an error gives the outcome. After an interrupt it is unknown: as after OutcomeUnknownError,
        repeating the call answers it.

        Args:
            publisher: the publisher's id; any text.
            number: which of its publishes this is; consecutive, from any start.
            parts: what StagingWriter.finish gave, of all tasks, in the order in which it is to appear.
            steps: moves of groups' committed offsets, which are made with it or not at all.
            run: which run of the publisher this is. A newer run fences the ones before it; "": no fencing.
            claimed: the run has claimed the publisher, so any other run that holds it is newer.
            location: the publisher's checkpoint. A publisher at another one is refused; "": no check.
            plan: identifies the output that is planned under this number. A replay with another plan than the number
                was published with is refused; "": no check.
            one_off: the publisher has this one publish only, and is forgotten when this call succeeds (if it is killed
                before that, when the store is cleaned).
            about: what people want to know of the publisher.

        Raises:
            PublishError: this call has published nothing, and nothing of it will appear. As
                PublishFailedError: something failed (the disk, a lock of the decision log, a publish of the same
                    publisher that must come first); what was staged is kept, so the same call can be repeated. All
                    others are refusals, and what was staged is removed:
                PublishNumberError: neither the next number nor the last one, or the last one with another plan.
                PublisherFencedError: a newer run, or another checkpoint, holds the publisher's id.
                OffsetConflictError: a group's committed offset is not what the publish started from.
                StagedOutputError: staged output is gone, or its topic is.
                SetAsideError: an administrator set it aside before any of it appeared.
                PublishError itself: the output is in too many pieces.
            InvalidConfigError: the same, for arguments: a committed offset is moved twice, or cannot be committed; or
                a decision cannot hold a text or number.
            PublishPendingError: it is decided, and appears as soon as it can be written; as
                PartlySetAsideError: some of it never does, as an administrator set it aside.
            OutcomeUnknownError: it is decided or not; repeating the call answers it, as a replay is recognised.
        """
        return self._publish(NewPublish(publisher, number, parts, steps, run, claimed, location, plan, one_off, about))

    @abstractmethod
    def _publish(self, new: NewPublish) -> PublishResult:
        """As `publish`."""

    @abstractmethod
    def claim(
        self, publisher: str, run: str, number: int | None = None, *, location: str = "", take_over: bool = False
    ) -> int:
        """Gives a publisher to a run: it alone publishes under that id, and earlier runs are fenced.

        What they have decided is visible before this returns.

        Args:
            publisher: the id.
            run: the publisher's run.
            number: what the run is about to publish. With a number that is refused, no run is fenced.
            location: the run's checkpoint; "": no check.
            take_over: whether a publisher that belongs to another checkpoint becomes that of this one: its runs are
                fenced, and its numbers may start from any. Otherwise that is refused.

        Returns:
            The last number that was decided; NO_NUMBER if there is none.

        Raises:
            InvalidConfigError: a decision cannot hold the id, run or number.
            PublishNumberError: neither the next number nor the last one.
            PublisherFencedError: a newer run or another checkpoint holds the publisher, and `number` is given.
            PublishFailedError: it failed, and can be tried again.
            PublishPendingError: the same, as `number` (if it is given; else the publisher's last one) is decided
                already and cannot be made visible yet.
            OutcomeUnknownError: it may be claimed; calling again answers it.
        """

    @abstractmethod
    def check_claim(self, publisher: str, run: str) -> None:
        """Checks that the run that has claimed a publisher still holds it. PublisherFencedError."""

    @abstractmethod
    def revoke(self, publisher: str, number: int, parts: Sequence[StagedPart], run: str) -> bool:
        """Removes staged output after a failed call of `publish`, of a run that has claimed the publisher.

        After an OutcomeUnknownError it is unknown whether that call made the decision. This settles it.

        Returns:
            False: it was decided under that number, and nothing is removed.

        Raises:
            PublisherFencedError: another run holds the publisher by now. The number is not decided, and never will be
                by this run; what was staged is removed.
            OutcomeUnknownError: it is still unknown. Either the call can be repeated, or another run holds the
                publisher, and only the topics show which of the two has decided the number (`__cause__`).
        """

    @abstractmethod
    def apply_pending(self) -> PylogError | OSError | None:
        """Makes visible what is decided and not applied yet, for publishers that died in between.

        Never raises. A process that may not write to the store applies nothing. In an object store what is decided is
        visible.

        Returns:
            Why something could not be made visible, which was also logged, once; None: nothing hindered it.
        """

    @abstractmethod
    def pending(self) -> list[Decision]:
        """The publishes that are decided and not visible everywhere yet. Raises: as `publishers`."""

    @abstractmethod
    def is_past_retention(self, topic: str, time: int) -> bool:
        """Whether the topic's retention deletes records of this time (ms) at the next cleaning. UnknownTopicError."""

    @abstractmethod
    def warn_of_old(self, topic: str, newest: int) -> bool:
        """Warns if records of the time `newest` (ms) and before are past the topic's retention; whether it did.

        The next cleaning deletes them, however lately they were published. UnknownTopicError.
        """

    # ---- publishers

    @abstractmethod
    def publishers(self) -> list[Decision]:
        """The last decision of each publisher, sorted by id.

        `done` is whether it is applied everywhere now, also if no record says so yet.

        Raises:
            CorruptRecordError, LogDamagedError, OSError: the log of decisions cannot be read.
        """

    @abstractmethod
    def delete_publisher(self, publisher: str) -> Decision:
        """Forgets a publisher; returns its last decision.

        A process that publishes under that id afterwards starts over: it may use any number, and output that it repeats
        is published again. So this is for publishers that never come back.

        Raises:
            UnsupportedByStoreError: the store keeps what a publisher has decided last.
            InvalidConfigError: there is no such publisher.
            PublishError: its last decision is not applied everywhere; nothing was changed.
            LockTimeoutError, OSError: it could not be recorded.
        """
