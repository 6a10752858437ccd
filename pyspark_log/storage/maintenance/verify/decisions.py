"""Verifies decisions, and the staged output that they still need."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from pyspark_log.errors import PylogError, UnknownTopicError
from pyspark_log.storage.catalog import CUT_FOLDER, PUBLISH_TOPIC, STAGING_FOLDER
from pyspark_log.storage.fs import Process, files, shown
from pyspark_log.storage.groups import records as coordinator_records
from pyspark_log.storage.maintenance.verify.findings import REPAIR, Finding, Severity
from pyspark_log.storage.publish import (
    SUFFIX,
    Decision,
    DecisionLog,
    Origin,
    Region,
    SetAside,
    TopicIdPartition,
    decode_decision,
    is_ready_name,
    job_of,
    manifest,
    publisher_of,
    region_fault,
)
from pyspark_log.storage.store import Store

_GIVE_UP = "bring the file back; or give up what is not applied of it: pylog recover --set-aside DECISION"


def group_record_faults(columns: Mapping[str, pa.Array]) -> Iterator[tuple[int, str]]:
    """The records of `__consumer_offsets` that cannot be decoded: offset and reason."""
    for key, value, offset in _rows(columns):
        try:
            what = coordinator_records.decode_key(key or b"")
            if isinstance(what, coordinator_records.OffsetCommitKey) and value is not None:
                coordinator_records.decode_offset_value(value)
        except ValueError as error:
            yield offset, f"no group record of Kafka's: {error}"


def _rows(columns: Mapping[str, pa.Array]) -> Iterable[tuple[bytes | None, bytes | None, int]]:
    return zip(*(columns[name].to_pylist() for name in ("key", "value", "offset")), strict=True)


class DecisionRecords:
    """The decisions that a decision log holds, as far as it can be read.

    Attributes:
        last: the last decision of each publisher.
    """

    def __init__(self) -> None:
        self.last: dict[str, Decision] = {}

    def take(self, columns: Mapping[str, pa.Array]) -> Iterator[tuple[int, str]]:
        """Adds records; yields the offset of each that is not a decision, and why."""
        for key, value, offset in _rows(columns):
            try:
                publisher = publisher_of(key, offset)
                if key is None:
                    yield offset, "a decision without a publisher"
                elif value is None:
                    self.last.pop(publisher, None)
                else:
                    self.last[publisher] = decode_decision(publisher, value, offset)
            except PylogError as error:
                yield offset, str(error)

    def undone(self) -> list[Decision]:
        """Those that no record calls done, in their order."""
        return sorted((d for d in self.last.values() if not d.done), key=lambda decision: decision.offset)


class DecisionCheck:
    """The check of a store's decisions against its partitions and its staging folder."""

    def __init__(self, store: Store, records: DecisionRecords) -> None:
        """`records`: what the decision log held when it was looked at."""
        self._store = store
        self._records = records
        self._folder = f"{store.path}/{STAGING_FOLDER}"

    def run(self) -> Iterator[Finding]:
        """Everything that is wrong, and what each file in the staging folder is."""
        named: set[str] = set()
        for decision in self._records.last.values():
            aside = decision.set_aside
            lacking = aside.places if aside is not None and aside.decision == decision.offset else ()
            waiting = [p for p in decision.places if p not in lacking and not self._is_applied(decision, p)]
            if aside is not None:
                yield from self._aside(decision.publisher, aside)
            if decision.done and waiting:
                yield from self._taken_back(decision, waiting)
            elif not decision.done:
                yield from self._undone(decision, waiting, named)
        yield from self._unnamed(named)

    def applied_beyond(self, topic: str, partition: int, applied: int) -> Iterator[Finding]:
        """A partition that has a decision which the decision log has not. Ask after its state was read."""
        try:
            end = self._store.logs.reader(PUBLISH_TOPIC, 0).state().next_offset
        except UnknownTopicError:
            end = 0
        except PylogError:
            return  # It is damaged, which was reported.
        if applied >= end:
            yield Finding(
                Severity.DAMAGE, topic, partition, "state", -1, -1, -1,
                f"decision {applied} was applied here, but the decision log ends at {end}: they are not of one time, "
                "and the next decisions would be taken for applied",
                f"bring both back from one copy; or {REPAIR}",
            )  # fmt: skip

    def _is_applied(self, decision: Decision, place: TopicIdPartition) -> bool:
        try:
            if self._store.describe_topic(place.topic).topic_id != place.topic_id:
                return True  # The topic that was meant is gone.
            return self._store.logs.reader(place.topic, place.partition).state().applied >= decision.offset
        except UnknownTopicError:
            return True
        except (PylogError, OSError):
            return True  # Its damage is reported there; what was applied is unknown.

    def _finding(
        self, severity: Severity, decision: Decision, file: str, position: int, what: str, advice: str,
        place: TopicIdPartition | None = None,
    ) -> Finding:
        return Finding(
            severity, place.topic if place else PUBLISH_TOPIC, place.partition if place else 0, file, position,
            -1, -1, f"decision {decision.offset} (publisher {decision.publisher!r}, number {decision.number}): {what}",
            advice,
        )  # fmt: skip

    def _taken_back(self, decision: Decision, places: Sequence[TopicIdPartition]) -> Iterator[Finding]:
        for place in places:
            yield self._finding(
                Severity.DAMAGE, decision, "state", -1,
                "it is recorded as done, but the partition does not have it: its files were brought back from an "
                "older copy",
                "bring the whole store back from one copy", place,
            )  # fmt: skip

    def _aside(self, publisher: str, aside: SetAside) -> Iterator[Finding]:
        folder = f"{CUT_FOLDER}/decision-{aside.decision}"
        if files.is_folder(f"{self._store.path}/{folder}"):
            yield Finding(
                Severity.NOTE, PUBLISH_TOPIC, 0, folder, -1, -1, -1,
                f"decision {aside.decision} (publisher {publisher!r}, number {aside.number}) was set aside "
                f"({aside.origin}) and is not in {_names(aside.places)}",
                "none; remove the folder when what was staged is no longer wanted",
            )  # fmt: skip

    def _undone(self, decision: Decision, waiting: Sequence[TopicIdPartition], named: set[str]) -> Iterator[Finding]:
        named.add(decision.manifest)
        try:
            entries = self._entries(decision)
        except (PylogError, OSError) as error:
            if waiting and not self._finished_meanwhile(decision):
                yield self._finding(
                    Severity.DAMAGE, decision, self._staged(decision.manifest), -1,
                    f"its manifest cannot be read: {_said(error)}", _GIVE_UP,
                )  # fmt: skip
            return
        staged = {os.path.basename(path) for path in manifest.paths(entries)} | ({decision.manifest} - {""})
        named |= staged
        if waiting:
            size = sum(region.size for place in waiting for region in entries.get(place, ()))
            yield self._finding(
                Severity.NOTE, decision, self._staged(decision.manifest), -1,
                f"decided ({Origin(decision.host, decision.process, decision.time)}), and not yet applied in "
                f"{_names(waiting)}: {size} bytes are staged for it",
                "none: the process that reads or publishes next applies it, and so does pylog recover",
            )  # fmt: skip
        else:
            yield self._finding(
                Severity.NOTE, decision, self._staged(decision.manifest), -1,
                f"applied; its {len(staged)} staged files wait to be removed",
                "none: the next publish removes them",
            )  # fmt: skip
        for place in waiting:
            for region in entries.get(place, ()):
                what = region_fault(region)
                if what and not self._finished_meanwhile(decision):
                    yield self._finding(
                        Severity.DAMAGE, decision, self._staged(os.path.basename(region.path)), region.position,
                        what, _GIVE_UP, place,
                    )  # fmt: skip

    def _entries(self, decision: Decision) -> Mapping[TopicIdPartition, Sequence[Region]]:
        if not decision.manifest:
            return {}
        return manifest.read(self._folder, decision.manifest, decision.manifest_crc)

    def _finished_meanwhile(self, decision: Decision) -> bool:
        decisions = DecisionLog(self._store.logs)
        try:
            decisions.follow()
        except (PylogError, OSError):
            return False
        return decision.offset not in decisions.undone

    def _staged(self, name: str) -> str:
        return f"{STAGING_FOLDER}/{name}"

    def _unnamed(self, named: set[str]) -> Iterator[Finding]:
        try:
            names = sorted(set(files.list_folder(self._folder)) - named)
        except FileNotFoundError:
            return
        ours = (SUFFIX, manifest.SUFFIX, ".tmp", ".trash")
        staged = [name for name in names if name.endswith(ours) or is_ready_name(name)]
        jobs: dict[tuple[str, Process], list[str]] = {}
        for name in staged:
            job = job_of(name)
            jobs.setdefault(("", Process(0)) if job is None else (job.host, job.owner), []).append(name)
        for (host, owner), of_job in sorted(jobs.items()):
            sizes, times = zip(*(_size_and_time(f"{self._folder}/{name}") for name in of_job), strict=True)
            yield Finding(
                Severity.NOTE, "", -1, self._staged(of_job[0]), -1, -1, -1,
                f"{len(of_job)} staged files of {sum(sizes)} bytes that no decision names, this is the first: last "
                f"written {shown(max(times))}, {_whose(host, owner)}",
                "none while the job runs; pylog clean removes them when nothing was written for "
                "staged.output.expiration.ms (staged.output.orphan.expiration.ms if the process runs no more)",
            )  # fmt: skip
        for name in sorted(set(names) - set(staged)):
            yield Finding(
                Severity.NOTE, "", -1, self._staged(name), -1, -1, -1, "not a file of the engine",
                "take it out of the store's folder",
            )  # fmt: skip


def _said(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "the file is missing"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _names(places: Sequence[TopicIdPartition]) -> str:
    return ", ".join(f"{place.topic}-{place.partition}" for place in places) or "no partition"


def _size_and_time(path: str) -> tuple[int, int]:
    """A file's size in bytes, and when it was last written to (ms); zeros if it is gone."""
    try:
        status = files.status_of(path)
    except FileNotFoundError:
        return 0, 0
    return status.st_size, status.st_mtime_ns // 1_000_000


def _whose(host: str, owner: Process) -> str:
    if not host:
        return "whose they are is not known"
    if owner.is_near():
        return f"for process {owner.number} of this host, which {'runs no more' if owner.is_dead() else 'runs'}"
    return f"for process {owner.number} on {host}"
