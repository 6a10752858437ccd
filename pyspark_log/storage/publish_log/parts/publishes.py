"""Exactly-once publishes of a store in an object store.

A publish is decided, and visible everywhere, by one request. So nothing is ever pending, and nothing has to be applied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NoReturn

from pyspark_log.config import TopicConfig, check_compression_type
from pyspark_log.errors import OutcomeUnknownError, PublishError, PublishFailedError, PylogError, condition_of
from pyspark_log.storage import seam
from pyspark_log.storage.abilities import Missing, refuse
from pyspark_log.storage.catalog import check_not_internal
from pyspark_log.storage.fs import Process
from pyspark_log.storage.groups.committed_offsets import check as check_offsets
from pyspark_log.storage.ingest.encoder import is_past_retention, warn_past_retention
from pyspark_log.storage.publish import AgreedTopic, Decision, PlannedTopic, PublishResult, StagedPart, StagingPlan
from pyspark_log.storage.publish.claims import check_fenced, check_given
from pyspark_log.storage.publish.decision import NO_NUMBER, UNKNOWN, Origin
from pyspark_log.storage.publish.staging.staged_file import Job
from pyspark_log.storage.publish_log import proposals
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.parts.staging import ObjectStagedWriter, outputs
from pyspark_log.storage.publish_log.proposals import Output, Proposal, topic_of
from pyspark_log.storage.publish_log.state import State

log = logging.getLogger(__name__)


class ObjectPublishes(seam.Publishes):
    """The publishes of a store in an object store."""

    def __init__(
        self,
        publish_log: PublishLog,
        cluster_id: str,
        configs: Mapping[str, str],
        clock: Callable[[], int],
        ensure_topic: Callable[[str], bool],
    ) -> None:
        """Of one store; `ensure_topic` creates a missing topic, if that is allowed, and says whether it did."""
        self._log, self._objects, self._cluster_id = publish_log, publish_log.objects, cluster_id
        self._configs, self._clock, self._ensure_topic = configs, clock, ensure_topic

    # ---- staging

    def check_writable(self) -> None:
        """A store in an object store is never read-only by itself."""

    def plan(
        self,
        topics: Iterable[str],
        compression_type: str | None = None,
        owner: Process | None = None,
        *,
        others: bool = False,
    ) -> StagingPlan:
        check_compression_type(compression_type)
        state, planned = self._log.follow(), dict[str, PlannedTopic]()
        for name in topics:
            check_not_internal(name)
            planned[name] = self._planned(state, name, compression_type)
        return StagingPlan(self._cluster_id, planned, Job.new(owner), compression_type=compression_type, others=others)

    def _planned(self, state: State, name: str, compression_type: str | None) -> PlannedTopic:
        topic = topic_of(state, name)
        config = TopicConfig.resolve(topic.configs, self._configs, compression_type)
        return PlannedTopic(topic.topic_id, topic.partitions, config)

    def writer(self, plan: StagingPlan) -> ObjectStagedWriter:

        def find(name: str) -> tuple[PlannedTopic, bool]:
            check_not_internal(name)
            is_new = self._ensure_topic(name)
            return self._planned(self._log.follow(), name, plan.compression_type), is_new

        return ObjectStagedWriter(self._objects, plan, find, self._clock)

    def discard(self, parts: Iterable[StagedPart]) -> None:
        self._discard((part.file, part.topic_id, part.partition) for part in parts)

    def _discard_outputs(self, added: Iterable[Output]) -> None:
        """The same, by what was to be published."""
        self._discard(
            (region.object, output.topic_id, output.partition) for output in added for region in output.regions
        )

    def _discard(self, triples: Iterable[tuple[str, str, int]]) -> None:
        """The same, by object, topic id and partition."""
        places: dict[str, set[tuple[str, int]]] = {}
        for name, topic_id, partition in triples:
            if name:
                places.setdefault(name, set()).add((topic_id, partition))
        if not places:
            return
        try:
            state = self._log.follow()
            logs = [state.partitions[at] for at in set().union(*places.values()) if at in state.partitions]
            published = {piece.object for each in logs for piece in each.pieces}
            self._objects.delete(sorted(places.keys() - published))
        except (PylogError, OSError) as error:
            log.warning("%s: staged output remains: %s", self._objects.address, error)

    def discard_job(self, plan: StagingPlan) -> None:
        """What the tasks of a plan have staged is not known by its plan; `pylog clean` deletes it later."""

    def end_agreements(self, topics: Iterable[AgreedTopic]) -> None:
        """There are none."""

    # ---- publishing

    def _publish(self, new: seam.NewPublish) -> PublishResult:
        check_given(new.publisher, new.number, new.run, new.location, new.plan)
        for step in new.steps:
            check_offsets(step.group, {step.at: step.offset})
        asked = self._wanted(new.publisher, new.number, new.run, new.location, new.plan)
        asked = replace(asked, about=new.about or UNKNOWN)
        added = list[Output]()
        try:
            added, data = outputs(self._objects, new.parts, self._clock())

            def propose(state: State) -> Proposal | None:
                proposal = proposals.publish(state, asked, added, new.steps, claimed=new.claimed)
                if proposal is None:
                    return None
                # Nothing has to be known later of a publisher with one publish: its decision is known by its token.
                return replace(proposal, data=data, publisher=None if new.one_off else proposal.publisher)

            entry = self._log.decide(propose)
        except PublishError:
            self._discard_outputs(added)
            raise
        except OutcomeUnknownError:
            raise
        except (PylogError, OSError) as error:
            raise PublishFailedError(
                f"number {new.number} of publisher {new.publisher!r} was not published: "
                f"[{condition_of(error)}] {error}",
                condition_of(error),
                getattr(error, "retriable", False),
            ) from error
        if entry is not None:
            return PublishResult(entry.number, replayed=False, records=sum(part.count for part in new.parts))
        self._discard_outputs(added)
        last = self._log.follow(inf).publishers[new.publisher]
        return PublishResult(last.offset, replayed=True, records=last.records)

    def claim(
        self, publisher: str, run: str, number: int | None = None, *, location: str = "", take_over: bool = False
    ) -> int:
        check_given(publisher, 0 if number is None else number, run, location)
        decision = self._wanted(publisher, NO_NUMBER, run, location)
        try:
            self._log.decide(lambda state: proposals.claim(state, decision, number, take_over=take_over))
        except (PublishError, OutcomeUnknownError):
            raise
        except (PylogError, OSError) as error:
            raise PublishFailedError(
                f"publisher {publisher!r} could not be claimed: [{condition_of(error)}] {error}",
                condition_of(error),
                getattr(error, "retriable", False),
            ) from error
        return self._log.follow(inf).publishers[publisher].number

    def _wanted(self, publisher: str, number: int, run: str, location: str, plan: str = "") -> Decision:
        host, process, time = Origin.here(self._clock())
        return Decision(publisher, number, run=run, location=location, plan=plan, host=host, process=process, time=time)

    def check_claim(self, publisher: str, run: str) -> None:
        last = self._log.follow().publishers.get(publisher)
        check_fenced(self._wanted(publisher, NO_NUMBER, run, ""), last, claimed=True)

    def revoke(self, publisher: str, number: int, parts: Sequence[StagedPart], run: str) -> bool:
        # A call whose outcome is unknown may still be decided later, until the run publishes again or is fenced. So a
        # claim comes in between, after which it cannot be.
        try:
            self._log.decide(lambda state: self._retaken(state, publisher, run))
            last = self._log.follow(inf).publishers.get(publisher)
        except (PylogError, OSError) as error:
            raise OutcomeUnknownError(
                f"whether number {number} of publisher {publisher!r} is decided could not be determined now: "
                f"[{condition_of(error)}] {error}"
            ) from error
        if last is not None and last.number >= number:
            return False
        self.discard(parts)
        if last is not None and last.run != run:
            check_fenced(self._wanted(publisher, number, run, ""), last, claimed=True)
        return True

    def _retaken(self, state: State, publisher: str, run: str) -> Proposal | None:
        """What is known of a publisher once more, so that the number in question is taken; None: by another run."""
        last = state.publishers.get(publisher)
        return Proposal(publisher=last) if last is not None and last.run == run else None

    def apply_pending(self) -> PylogError | OSError | None:
        return None

    def pending(self) -> list[Decision]:
        return []

    def is_past_retention(self, topic: str, time: int) -> bool:
        return is_past_retention(time, self._planned(self._log.follow(inf), topic, None).config, self._clock())

    def warn_of_old(self, topic: str, newest: int) -> bool:
        config = self._planned(self._log.follow(inf), topic, None).config
        if not is_past_retention(newest, config, self._clock()):
            return False
        warn_past_retention(newest, config, f"{self._objects.address}: topic {topic}")
        return True

    # ---- publishers

    def publishers(self) -> list[Decision]:
        by_name = self._log.follow().publishers
        return [by_name[name] for name in sorted(by_name)]

    def delete_publisher(self, publisher: str) -> NoReturn:
        refuse(Missing.PUBLISHER_DELETION, f"publisher {publisher!r}")
