"""Verifies decisions, and the staged output that they still need."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyspark_log.errors import PylogError, UnknownTopicError
from pyspark_log.storage.catalog import PUBLISH_TOPIC
from pyspark_log.storage.catalog.store_json import CUT_FOLDER, STAGING_FOLDER, STATE_FOLDER
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import Process, files
from pyspark_log.storage.fs.clock import format_time
from pyspark_log.storage.groups.log import records
from pyspark_log.storage.log.appending.new_segment import is_prepared_name
from pyspark_log.storage.maintenance.verify.findings import REPAIR, Finder, Finding
from pyspark_log.storage.publish import Decision, DecisionLog, TopicIdPartition
from pyspark_log.storage.publish.decision import Origin, SetAside, decode_decision, publisher_of
from pyspark_log.storage.publish.staging import manifest
from pyspark_log.storage.publish.staging.staged_file import SUFFIX, StagedRegion, job_of, region_fault
from pyspark_log.storage.segment.scanner import Intact

_GIVE_UP = "bring the file back; or give up what is not applied of it: pylog recover --set-aside DECISION"


def check_group_records(finding: Finder, path: str, piece: Intact) -> Iterator[Finding]:
    """The records of `__consumer_offsets` that cannot be decoded. A RecordCheck."""
    for key, value, offset in _rows(piece):
        try:
            what = records.decode_key(key or b"")
            if isinstance(what, records.OffsetCommitKey) and value is not None:
                records.decode_offset_value(value)
        except ValueError as error:
            yield _bad_record(finding, path, piece, offset, f"no group record of Kafka's: {error}")


def _rows(piece: Intact) -> Iterable[tuple[bytes | None, bytes | None, int]]:
    return zip(*(piece.columns[name].to_pylist() for name in ("key", "value", "offset")), strict=True)


def _bad_record(finding: Finder, path: str, piece: Intact, offset: int, what: str) -> Finding:
    header = next(header for header in piece.headers if offset < header.next_offset)
    return finding.damage(path, what, REPAIR, header.position, offset, offset + 1)


class DecisionRecords:
    """The decisions that a decision log holds, as far as it can be read.

    Attributes:
        last: the last decision of each publisher.
    """

    def __init__(self) -> None:
        self.last: dict[str, Decision] = {}

    def check(self, finding: Finder, path: str, piece: Intact) -> Iterator[Finding]:
        """Adds records; those that are no decisions are damage. A RecordCheck."""
        for key, value, offset in _rows(piece):
            try:
                publisher = publisher_of(key, offset)
                if key is None:
                    yield _bad_record(finding, path, piece, offset, "a decision without a publisher")
                elif value is None:
                    self.last.pop(publisher, None)
                else:
                    self.last[publisher] = decode_decision(publisher, value, offset)
            except PylogError as error:
                yield _bad_record(finding, path, piece, offset, str(error))


class DecisionCheck:
    """The check of a store's decisions against its partitions and its staging folder."""

    def __init__(self, store: FolderStore, decided: DecisionRecords) -> None:
        """`decided`: what the decision log held when it was read."""
        self._store, self._records = store, decided
        self._folder = f"{store.path}/{STAGING_FOLDER}"
        self._finding = Finder(store.path, PUBLISH_TOPIC, 0)

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
                what = (
                    "it is recorded as done, but the partition does not have it: its files were brought back from an "
                    "older copy"
                )
                advice = "bring the whole store back from one copy"
                for place in waiting:
                    finding = self._finding.at(place.topic, place.partition)
                    yield finding.damage(STATE_FOLDER, _of(decision, what), advice)
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
            what = (
                f"decision {applied} was applied here, but the decision log ends at {end}: they are out of step, "
                "and the next decisions would be mistaken for applied"
            )
            advice = f"bring both back from one copy; or {REPAIR}"
            yield self._finding.at(topic, partition).damage(STATE_FOLDER, what, advice)

    def _is_applied(self, decision: Decision, place: TopicIdPartition) -> bool:
        try:
            if self._store.describe_topic(place.topic).topic_id != place.topic_id:
                return True  # The topic that was meant is gone.
            return self._store.logs.reader(place.topic, place.partition).state().applied >= decision.offset
        except (PylogError, OSError):
            return True  # It was deleted; or its damage is reported there, and what was applied is unknown.

    def _aside(self, publisher: str, aside: SetAside) -> Iterator[Finding]:
        folder = f"{CUT_FOLDER}/decision-{aside.decision}"
        if files.is_folder(f"{self._store.path}/{folder}"):
            what = (
                f"decision {aside.decision} (publisher {publisher!r}, number {aside.number}) was set aside "
                f"({aside.origin}) and is not in {_names(aside.places)}"
            )
            yield self._finding.note(folder, what, "none; remove the folder when its staged output is no longer wanted")

    def _undone(self, decision: Decision, waiting: Sequence[TopicIdPartition], named: set[str]) -> Iterator[Finding]:
        named.add(decision.manifest)
        path = f"{STAGING_FOLDER}/{decision.manifest}"
        entries: Mapping[TopicIdPartition, Sequence[StagedRegion]] = {}
        try:
            if decision.manifest:
                entries = manifest.read(self._folder, decision.manifest, decision.manifest_crc)
        except (PylogError, OSError) as error:
            if waiting and not self._finished_meanwhile(decision):
                what = f"its manifest cannot be read: {_said(error)}"
                yield self._finding.damage(path, _of(decision, what), _GIVE_UP)
            return
        named |= {os.path.basename(path) for path in manifest.paths(entries)}
        if not waiting:
            return  # The next publish marks it as done, and removes what was staged.
        size = sum(region.size for place in waiting for region in entries.get(place, ()))
        what = (
            f"decided ({Origin(decision.host, decision.process, decision.time)}), and not yet applied in "
            f"{_names(waiting)}: {size} bytes are staged for it"
        )
        advice = "none: the process that reads or publishes next applies it, and so does pylog recover"
        yield self._finding.note(path, _of(decision, what), advice)
        for place in waiting:
            for region in entries.get(place, ()):
                problem = region_fault(region)
                if problem and not self._finished_meanwhile(decision):
                    finding = self._finding.at(place.topic, place.partition)
                    file = f"{STAGING_FOLDER}/{os.path.basename(region.path)}"
                    yield finding.damage(file, _of(decision, problem), _GIVE_UP, region.position)

    def _finished_meanwhile(self, decision: Decision) -> bool:
        decisions = DecisionLog(self._store.logs)
        try:
            decisions.follow()
        except (PylogError, OSError):
            return False
        return decision.offset not in decisions.undone

    def _unnamed(self, named: set[str]) -> Iterator[Finding]:
        try:
            names = sorted(set(files.list_folder(self._folder)) - named)
        except FileNotFoundError:
            return
        finding = self._finding.at("")
        ours = (SUFFIX, manifest.SUFFIX, files.UNFINISHED, ".trash")
        staged = [name for name in names if name.endswith(ours) or is_prepared_name(name)]
        jobs: dict[tuple[str, Process], list[str]] = {}
        for name in staged:
            job = job_of(name)
            jobs.setdefault(("", Process(0)) if job is None else (job.host, job.owner), []).append(name)
        for (host, owner), of_job in sorted(jobs.items()):
            sizes, times = zip(*(_size_and_time(f"{self._folder}/{name}") for name in of_job), strict=True)
            what = (
                f"{len(of_job)} staged files of {sum(sizes)} bytes that no decision names, this is the first: last "
                f"written {format_time(max(times))}, {_whose(host, owner)}"
            )
            advice = (
                "none while the job runs; pylog clean removes them when nothing was written for "
                "staged.output.expiration.ms (staged.output.orphan.expiration.ms if the process runs no more)"
            )
            yield finding.note(f"{STAGING_FOLDER}/{of_job[0]}", what, advice)
        for name in sorted(set(names) - set(staged)):
            yield finding.unknown(f"{STAGING_FOLDER}/{name}")


def _of(decision: Decision, what: str) -> str:
    return f"decision {decision.offset} (publisher {decision.publisher!r}, number {decision.number}): {what}"


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
