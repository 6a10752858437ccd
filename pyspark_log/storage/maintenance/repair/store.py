"""Creates a repaired copy of a damaged store in a new folder. The damaged one is not touched.

Undamaged batches are copied with their offsets. Damaged bytes are left out and kept as evidence. Indexes and state
files are rebuilt. Pending decisions are applied to the copy, so it needs no staged files. `store.json` is written
last: before that the folder is not a store, so no process takes an incomplete copy for one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark_log.errors import LogDamagedError, PylogError
from pyspark_log.storage.catalog import OFFSETS_TOPIC, PUBLISH_TOPIC, PartitionPath
from pyspark_log.storage.catalog.store_json import STAGING_FOLDER, STORE_FILE, TOPICS_FOLDER, StoreDescription
from pyspark_log.storage.catalog.topics import new_id
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state import PartitionState, read_slots, state_file
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.storage.maintenance.new_folder import new_folder
from pyspark_log.storage.maintenance.progress import Progress, ProgressCounter
from pyspark_log.storage.maintenance.repair.partition import DamagedPartition, Loss, PartitionCopy, PartitionRepairer
from pyspark_log.storage.maintenance.verify import Finding, RecordCheck, Severity, log_bytes
from pyspark_log.storage.maintenance.verify.decisions import DecisionRecords, check_group_records
from pyspark_log.storage.maintenance.verify.store import describe, open_damaged, written_places
from pyspark_log.storage.maintenance.verify.unowned import unknown_files
from pyspark_log.storage.publish import Decision, TopicIdPartition
from pyspark_log.storage.publish.applier import apply
from pyspark_log.storage.publish.staging import manifest
from pyspark_log.storage.publish.staging.staged_file import StagedRegion, region_fault
from pyspark_log.types import TopicDescription


@dataclass(slots=True)
class RepairReport:
    """The result of a repair.

    Attributes:
        path: the folder of the copy.
        findings: what is wrong with the store itself and its topics, and so is not as it was in the copy.
        copies: the partitions.
        unpublished: what had been decided to be published and could not be applied.
    """

    path: str
    findings: list[Finding] = field(default_factory=list)
    copies: list[PartitionCopy] = field(default_factory=list)
    unpublished: list[Loss] = field(default_factory=list)

    @property
    def losses(self) -> list[Loss]:
        """Everything that is not in the copy."""
        return [loss for copy in self.copies for loss in copy.losses] + self.unpublished

    @property
    def stopped(self) -> list[PartitionCopy]:
        """The partitions that have no state in the copy, and so cannot be used there."""
        return [copy for copy in self.copies if copy.state is None]

    @property
    def complete(self) -> bool:
        """Whether the copy has everything, and all of it can be used."""
        return not (self.findings or self.losses or self.stopped)


def repair(
    path: str | os.PathLike[str], into: str | os.PathLike[str], *, progress: Progress | None = None
) -> RepairReport:
    """Copies the undamaged part of a store into a new folder. No process should write to the store meanwhile.

    Args:
        path: the damaged store.
        into: a folder that is missing or empty, outside of the store; the folder above it exists.
        progress: called with the number of segment bytes read, and the total.

    Raises:
        StoreNotFoundError: there is no store, or nowhere to put the copy.
        StoreVersionError: a newer version wrote it.
        StoreExistsError: `into` is not empty, or lies in the store.
        LogDamagedError: the description of the decision log is missing, without which no copy can be right.
        OSError: e.g. a full disk. What was made of the copy is no store.
    """
    source, findings = open_damaged(path)
    folder = new_folder(source, into)
    return _Repair(source, folder, findings).run(progress)


class _Repair:
    def __init__(self, source: FolderStore, folder: str, findings: list[Finding]) -> None:
        self._source = source
        self._copy = FolderStore(LogManager(folder, source.cluster_id or new_id(), source.configs))
        self._decisions = self._copy.decisions
        self._decisions_known = True
        self._report = RepairReport(folder, findings)

    def run(self, progress: Progress | None) -> RepairReport:
        described = self._topics()
        damaged = self._find_damaged(described)
        counter = ProgressCounter(progress, sum(log_bytes(found.place.folder) for found in damaged))
        self._copy_decisions(damaged, counter)
        for found in damaged:
            if found.place.topic != PUBLISH_TOPIC:
                self._copy_partition(found, counter)
        self._publish()
        self._describe_store()
        return self._report

    def _topics(self) -> list[TopicDescription]:
        """Copies the descriptions of topics."""
        report, root = self._report, self._copy.path
        files.make_folder(f"{root}/{TOPICS_FOLDER}")
        self._copy.logs.make_folders()
        found = [describe(self._source, name, report.findings) for name in self._source.topics(internal=True)]
        described = [topic for topic in found if topic is not None]
        report.findings += unknown_files(self._source, described)
        report.findings = [finding for finding in report.findings if finding.severity is Severity.DAMAGE]
        for topic in described:
            name = f"{TOPICS_FOLDER}/{topic.name}.json"
            with files.open_read(f"{self._source.path}/{name}") as file:
                files.create_whole(f"{root}/{name}", file.pread(file.size(), 0))
        return described

    def _find_damaged(self, described: Sequence[TopicDescription]) -> list[DamagedPartition]:
        """The partitions that have anything to copy."""
        places = written_places(self._source, described)
        return [found for place in places if (found := self._damaged(place)) is not None]

    def _damaged(self, place: PartitionPath) -> DamagedPartition | None:
        return DamagedPartition.inspect(place, self._source.topic_config(place.topic))

    def _repairer(
        self, found: DamagedPartition, counter: ProgressCounter, check: RecordCheck | None
    ) -> PartitionRepairer:
        topic, partition = found.place.topic, found.place.partition
        return PartitionRepairer(
            found,
            self._copy.logs.reader(topic, partition).place,
            self._copy.topic_config(topic),
            (self._source.path, self._copy.path),
            counter.add,
            self._copy.logs.clock,
            check,
        )

    def _copy_decisions(self, damaged: Sequence[DamagedPartition], counter: ProgressCounter) -> None:
        """Copies the decision log. It comes first, as it says what partitions without a state must have."""
        applied = max((found.slots.state.applied for found in damaged if found.slots.state), default=-1)
        found = next((found for found in damaged if found.place.topic == PUBLISH_TOPIC), None)
        if found is None and applied < 0:
            return
        if found is None:
            if PUBLISH_TOPIC not in self._source.topics(internal=True):
                raise LogDamagedError(
                    f"{self._source.path}: partitions have applied decision {applied}, but there is no "
                    f"{TOPICS_FOLDER}/{PUBLISH_TOPIC}.json: restore it first"
                )
            place = self._source.logs.place(PUBLISH_TOPIC, 0)
            found = DamagedPartition(place, read_slots(place.state_path), [], True, True)
        # No decision may get a number that a partition already counts as applied.
        copy = self._repairer(found, counter, DecisionRecords().check).run(-1, applied + 1)
        self._finish(copy)
        self._decisions_known = not copy.losses
        self._decisions.follow()

    def _copy_partition(self, found: DamagedPartition, counter: ProgressCounter) -> None:
        place = found.place
        check = check_group_records if place.topic == OFFSETS_TOPIC else None
        last = self._copy.logs.reader(PUBLISH_TOPIC, 0).state().next_offset - 1 if self._has_decisions() else -1
        copy = self._repairer(found, counter, check).run(last)
        if found.needs_decisions and (reason := self._undecided(place, found.slots.state)):
            copy.state, copy.reason = None, reason
        self._finish(copy)

    def _has_decisions(self) -> bool:
        return PUBLISH_TOPIC in self._copy.topics(internal=True)

    def _undecided(self, place: PartitionPath, state: PartitionState | None) -> str:
        """Why it is unknown which decisions a partition has; "" if it has all."""
        if not self._decisions_known:
            return "its state is lost, and so are decisions: it is unknown which of them it has"
        mine = TopicIdPartition(place.topic, place.topic_id, place.partition)
        for offset, decision in sorted(self._decisions.undone.items()):
            if mine in decision.places and (state is None or state.applied < offset):
                return (
                    f"its state is lost, and decision {offset} (publisher {decision.publisher!r}) is not done: "
                    "it is unknown whether it has its records"
                )
        return ""

    def _finish(self, copy: PartitionCopy) -> None:
        if copy.state is not None:
            state_file.create(copy.place.state_path, copy.state)
        self._report.copies.append(copy)

    # ---- what was decided and not yet applied

    def _publish(self) -> None:
        undone = [decision for _, decision in sorted(self._decisions.undone.items())]
        for decision in undone:
            self._apply(decision)
        if undone:
            # Give up what could not be applied: otherwise later decisions would be blocked.
            with self._decisions.hold() as writer:
                writer.finish(undone, None)

    def _apply(self, decision: Decision) -> None:
        entries, problem = self._entries(decision)
        stopped = {(copy.place.topic, copy.place.partition) for copy in self._report.stopped}
        for place in decision.places:
            if (place.topic, place.partition) in stopped or self._has(decision, place):
                continue
            regions = entries.get(place, ())
            fault = problem or next(filter(None, map(region_fault, regions)), "")
            if not fault:
                writer = self._copy.logs.writer(place.topic, place.partition)
                # The staged files are those of the damaged store, which stays as it is.
                apply(writer, decision.offset, decision.time, regions, installs=False)
                continue
            what = f"decision {decision.offset} (publisher {decision.publisher!r}, number {decision.number})"
            self._report.unpublished.append(Loss(
                place.topic, place.partition, f"{STAGING_FOLDER}/{decision.manifest}", -1,
                sum(region.size for region in regions), -1, -1, f"{what} was not yet applied: {fault}",
            ))  # fmt: skip

    def _entries(self, decision: Decision) -> tuple[Mapping[TopicIdPartition, Sequence[StagedRegion]], str]:
        try:
            folder = f"{self._source.path}/{STAGING_FOLDER}"
            return manifest.read(folder, decision.manifest, decision.manifest_crc) if decision.manifest else {}, ""
        except (PylogError, OSError) as error:
            return {}, f"its manifest cannot be read: {error}"

    def _has(self, decision: Decision, place: TopicIdPartition) -> bool:
        try:
            if self._copy.describe_topic(place.topic).topic_id != place.topic_id:
                return True  # The topic that was meant is gone.
            return self._copy.logs.reader(place.topic, place.partition).state().applied >= decision.offset
        except PylogError:
            return True  # The topic is not in the copy, which is reported.

    def _describe_store(self) -> None:
        described = StoreDescription(self._copy.cluster_id, self._copy.configs)
        files.create_whole(f"{self._copy.path}/{STORE_FILE}", described.encode())
