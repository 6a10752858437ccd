"""Verifies a whole store, and changes nothing.

Needs no lock and no write access; other processes may write meanwhile. Partitions are checked in parallel: reading,
checksums and the decoding of records let other threads run.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pyspark_log.config import TopicConfig
from pyspark_log.errors import (
    DescriptionError,
    InvalidConfigError,
    PylogError,
    ReadOnlyError,
    StoreError,
    StoreNotFoundError,
    UnknownTopicError,
)
from pyspark_log.storage.broker import BrokerLogReader
from pyspark_log.storage.catalog import (
    CUT_FOLDER,
    DELETED_FOLDER,
    OFFSETS_TOPIC,
    PARTITION_FOLDER,
    PUBLISH_TOPIC,
    STAGING_FOLDER,
    STATE_FOLDER,
    STORE_FILE,
    TOPICS_FOLDER,
    PartitionPath,
    TopicCatalog,
    check_name,
    local_path,
    read_partition_metadata,
)
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import Flags, read_slots
from pyspark_log.storage.log_manager import ASIDE_NAME, LogManager, hex_id
from pyspark_log.storage.maintenance.progress import Progress, ProgressCounter
from pyspark_log.storage.maintenance.verify.broker import BrokerCheck
from pyspark_log.storage.maintenance.verify.decisions import DecisionCheck, DecisionRecords, group_record_faults
from pyspark_log.storage.maintenance.verify.findings import Finding, Severity
from pyspark_log.storage.maintenance.verify.log_dir import log_dir_faults
from pyspark_log.storage.maintenance.verify.partition import PartitionCheck, PartitionReport
from pyspark_log.storage.maintenance.verify.segment import RecordCheck, Totals
from pyspark_log.storage.segment import LOG, list_segments, segment_path
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicDescription

_STATE_NAME = re.compile(r"([A-Za-z0-9_-]{22})-(0|[1-9]\d{0,9})(\.turn|\.segments|\.cleaner(\.turn)?)?")
_LOCK_NAME = re.compile(r"[a-z]+(-\d+)?\.lock(\.turn)?")
_UNFINISHED = re.compile(r"[0-9a-f]{16}\.tmp")
_ROOT_NAMES = {STORE_FILE, TOPICS_FOLDER, STATE_FOLDER, STAGING_FOLDER, CUT_FOLDER}


@dataclass(slots=True)
class Report:
    """What `verify` found.

    Attributes:
        findings: the worst first; of equals in the order of topics, partitions and offsets.
        partitions: how many partitions with records (or traces of them) were looked at.
        totals: segments, batches, records and bytes that were looked at.
        seconds: how long it took.
    """

    findings: list[Finding] = field(default_factory=list)
    partitions: int = 0
    totals: Totals = field(default_factory=Totals)
    seconds: float = 0.0

    @property
    def damaged(self) -> bool:
        """Whether anything is wrong with the records."""
        return any(finding.severity is Severity.DAMAGE for finding in self.findings)


def verify(
    path: str | os.PathLike[str], topic: str | None = None, *, jobs: int | None = None, progress: Progress | None = None
) -> Report:
    """Looks at every byte of a store, or of one topic of it; or of a folder of a Kafka broker, see verify_broker.

    Args:
        path: the folder, or a `file:` URI.
        topic: only this topic; what was published, and what belongs to no topic, is not looked at then.
        jobs: how many partitions are looked at side by side; None: as many as there are processors.
        progress: called now and then, by any thread but never by two at once.

    Raises:
        StoreNotFoundError: there is no store.json in the folder, nor anything else of a store.
        StoreVersionError: a newer version wrote it.
        SideFileError: a broker's meta.properties is damaged.
        UnknownTopicError: there is no such topic.
    """
    began = time.monotonic()
    brokers = _brokers(path)
    if brokers is not None:
        report = _check_brokers(brokers, topic, jobs or os.cpu_count() or 1, progress)
        report.seconds = time.monotonic() - began
        return report
    store, findings = open_damaged(path)
    described: list[TopicDescription] = []
    for name in [topic] if topic is not None else store.topics(internal=True):
        found = describe(store, name, findings)
        if found is not None:
            described.append(found)
        elif topic is not None and not any(finding.topic == topic for finding in findings):
            raise UnknownTopicError(f"there is no topic {topic!r}")
    decisions = DecisionRecords()
    reports = _check_partitions(store, described, decisions, jobs or os.cpu_count() or 1, progress)
    report = Report(findings)
    for part in reports:
        report.findings += part.findings
        report.totals.add(part.totals)
        report.partitions += bool(part.totals.segments or part.findings)
    if topic is None:
        check = DecisionCheck(store, decisions)
        for part in reports:
            if part.state is not None and part.state.applied >= 0:
                report.findings += check.applied_beyond(part.place.topic, part.place.partition, part.state.applied)
        report.findings += check.run()
        report.findings += log_dir_faults(store)
        report.findings += _twins(described)
        report.findings += _deleted(store)
        report.findings += unknown_files(store, described)
    _worst_first(report)
    report.seconds = time.monotonic() - began
    return report


def _worst_first(report: Report) -> None:
    order = list(Severity)
    report.findings.sort(key=lambda finding: order.index(finding.severity))


def _brokers(path: str | os.PathLike[str]) -> Store | None:
    """The folder of a broker at a path, if it is one."""
    try:
        store = Store.open(local_path(path))
    except StoreError:
        return None
    return store if store.is_brokers else None


def _check_brokers(store: Store, topic: str | None, jobs: int, progress: Progress | None) -> Report:
    """Looks at the partitions in a broker's folder, or at those of one topic."""
    readers = list[tuple[int, BrokerLogReader]]()
    for name in [topic] if topic is not None else store.topics(internal=True):
        for number in store.written_partitions(name):
            reader = store.logs.reader(name, number)
            assert isinstance(reader, BrokerLogReader)
            readers.append((_size(reader.place), reader))
    told = ProgressCounter(progress, sum(size for size, _ in readers))

    def look(reader: BrokerLogReader) -> PartitionReport:
        place = reader.place
        try:
            config = store.topic_config(place.topic)
            return BrokerCheck(reader, config, os.path.dirname(place.folder), told.add).run()
        except UnknownTopicError:
            return PartitionReport(place, None)
        except OSError as error:
            return PartitionReport(place, None, [_unreadable(store, place, error)])

    report = Report()
    readers.sort(key=lambda item: item[0], reverse=True)
    with ThreadPoolExecutor(max(1, min(jobs, len(readers)))) as pool:
        found = list(pool.map(look, [reader for _, reader in readers]))
    for part in sorted(found, key=lambda part: (part.place.topic, part.place.partition)):
        report.findings += part.findings
        report.totals.add(part.totals)
        report.partitions += bool(part.totals.segments or part.findings)
    _worst_first(report)
    return report


def open_damaged(path: str | os.PathLike[str]) -> tuple[Store, list[Finding]]:
    """Opens a store even if its store.json is damaged, then without settings.

    Errors as of `verify`, and ReadOnlyError: it is a folder of a Kafka broker.
    """
    folder = local_path(path)
    try:
        store = Store.open(folder)
        if store.is_brokers:
            raise ReadOnlyError(
                f"{folder} is a folder of a Kafka broker: this looks at stores. For Kafka's there is kafka-dump-log"
            )
    except StoreNotFoundError as error:
        if not files.is_folder(f"{folder}/{TOPICS_FOLDER}"):
            raise
        what = str(error)
    except DescriptionError as error:
        what = str(error)
    else:
        return store, []
    return Store(LogManager(folder, "", {})), [
        Finding(
            Severity.DAMAGE, "", -1, STORE_FILE, -1, -1, -1, what,
            "bring the file back from a copy: the store does not open without it",
        )
    ]  # fmt: skip


def describe(store: Store, name: str, findings: list[Finding]) -> TopicDescription | None:
    """A topic's description; None if there is none or it is damaged, which then is added to `findings`."""

    def found(severity: Severity, what: str, advice: str) -> None:
        findings.append(Finding(severity, name, -1, f"{TOPICS_FOLDER}/{name}.json", -1, -1, -1, what, advice))

    try:
        check_name(name)
    except InvalidConfigError as error:
        found(Severity.NOTE, f"not a file of the engine: {error}", "take it out of the store's folder")
        return None
    try:
        description = store.describe_topic(name)
        store.topic_config(name)
    except UnknownTopicError:
        return None
    except (PylogError, OSError) as error:
        found(
            Severity.DAMAGE, f"the topic's description cannot be used: {error}",
            "bring the file back from a copy: the topic does not open without it",
        )  # fmt: skip
        return None
    return description


# ---- partitions


def _check_partitions(
    store: Store,
    described: Sequence[TopicDescription],
    decisions: DecisionRecords,
    jobs: int,
    progress: Progress | None,
) -> list[PartitionReport]:
    """Looks at all partitions; the largest first, so that no thread is left alone with one at the end."""
    checks: dict[str, RecordCheck] = {PUBLISH_TOPIC: decisions.take, OFFSETS_TOPIC: group_record_faults}
    configs: dict[str, TopicConfig] = {}
    for topic in described:
        # It may be deleted by now, and another may have its name.
        with contextlib.suppress(UnknownTopicError):
            configs[topic.name] = store.topic_config(topic.name)
    places = [place for place in written_places(store, described) if place.topic in configs]
    work = [(0 if store.logs.log_dirs.problem_of(place) else _size(place), place) for place in places]
    told = ProgressCounter(progress, sum(size for size, _ in work))

    def look(place: PartitionPath) -> PartitionReport:
        problem = store.logs.log_dirs.problem_of(place)
        if problem:
            return PartitionReport(place, None, [_out_of_reach(store, place, problem)])
        check = PartitionCheck(place, configs[place.topic], store.path, told.add, checks.get(place.topic))
        try:
            return check.run()
        except OSError as error:
            return PartitionReport(place, None, [_unreadable(store, place, error)])

    def run(place: PartitionPath) -> PartitionReport:
        report = look(place)
        with contextlib.suppress(UnknownTopicError):
            now = store.logs.place(place.topic, place.partition)
            if report.findings and now.topic_id == place.topic_id and now != place:
                return run(now)  # It was moved meanwhile.
        return report

    work.sort(key=lambda item: item[0], reverse=True)
    with ThreadPoolExecutor(max(1, min(jobs, len(work)))) as pool:
        reports = list(pool.map(run, [place for _, place in work]))
    return sorted(reports, key=lambda report: (report.place.topic, report.place.partition))


def written_places(store: Store, described: Sequence[TopicDescription]) -> list[PartitionPath]:
    """The partitions of these topics that have files, in order; found by their files, however many there may be."""
    found: dict[str, set[int]] = {}  # by topic id, and by name
    looks = [(f"{store.path}/{STATE_FOLDER}", _STATE_NAME)]
    looks += [(folder.path, PARTITION_FOLDER) for folder in store.logs.log_dirs]
    for folder, pattern in looks:
        for name in _names(folder) if pattern is _STATE_NAME else _names_of_logs(folder):
            match = pattern.fullmatch(name)
            if match:
                found.setdefault(match[1], set()).add(int(match[2]))
    places = []
    for topic in described:
        for partition in sorted(found.get(topic.topic_id, set()) | found.get(topic.name, set())):
            # The topic may be deleted by now, and another may have its name.
            with contextlib.suppress(UnknownTopicError):
                place = store.logs.place(topic.name, partition)
                if place.topic_id == topic.topic_id:
                    places.append(place)
    return places


def _out_of_reach(store: Store, place: PartitionPath, problem: str) -> Finding:
    return Finding(
        Severity.DAMAGE, place.topic, place.partition, os.path.relpath(place.folder, store.path), -1, -1, -1,
        f"its log dir has failed, so it was not looked at: {problem}",
        "mend or mount it, or bring it back from a copy with all that is in it",
    )  # fmt: skip


def _unreadable(store: Store, place: PartitionPath, error: OSError) -> Finding:
    path = os.path.relpath(error.filename or place.folder, store.path)
    return Finding(
        Severity.DAMAGE, place.topic, place.partition, path, -1, -1, -1, f"cannot be read: {error.strerror}",
        "may this user read it? Is the disk well?",
    )  # fmt: skip


def _size(place: PartitionPath) -> int:
    try:
        return log_bytes(place.folder)
    except OSError:
        return 0  # It is reported when its turn comes.


def log_bytes(folder: str) -> int:
    """Bytes of the segments in a partition's folder."""
    size = 0
    for base in list_segments(folder):
        with contextlib.suppress(FileNotFoundError):
            size += files.size_of(segment_path(folder, base, LOG))
    return size


# ---- what belongs to no partition


def _twins(described: Sequence[TopicDescription]) -> Iterator[Finding]:
    """Topics with one id: they would share their state files."""
    first: dict[str, str] = {}
    for topic in described:
        other = first.setdefault(topic.topic_id, topic.name)
        if other != topic.name:
            yield Finding(
                Severity.DAMAGE, topic.name, -1, f"{TOPICS_FOLDER}/{topic.name}.json", -1, -1, -1,
                f"it has the topic id of {other}: one is a copy of the other", "take the copy away",
            )  # fmt: skip


def _deleted(store: Store) -> Iterator[Finding]:
    """Descriptions of deleted topics that cannot be read: their files would stay."""
    folder = f"{TOPICS_FOLDER}/{DELETED_FOLDER}"
    catalog = TopicCatalog(f"{store.path}/{TOPICS_FOLDER}", "")
    try:
        catalog.deleted()
    except (PylogError, OSError) as error:
        yield Finding(
            Severity.DAMAGE, "", -1, folder, -1, -1, -1,
            f"the description of a deleted topic cannot be used: {error}",
            "no topic can be made or deleted until it is brought back; or remove it, and what is left of the topic in "
            f"its log dirs and {STATE_FOLDER}/",
        )  # fmt: skip


def unknown_files(store: Store, described: Sequence[TopicDescription]) -> Iterator[Finding]:
    """Files of no topic; and those of topics whose descriptions are lost. `described`: the topics that there were."""
    logs = {folder.path for folder in store.logs.log_dirs}
    root = _ROOT_NAMES | {os.path.basename(path) for path in logs if os.path.dirname(path) == store.path}
    yield from (_alien(name) for name in _names(store.path) if name not in root)
    for name in _names(f"{store.path}/{TOPICS_FOLDER}"):
        if not name.endswith(".json") and name != DELETED_FOLDER:
            yield _alien(f"{TOPICS_FOLDER}/{name}")
    folders = [f"{path}/{name}" for path in sorted(logs) for name in _names_of_logs(path)]
    # After the folders, which are younger than the topics and partitions that they belong to.
    ids = {topic.topic_id: _partitions_now(store, topic) for topic in described}
    counts = {topic.name: ids[topic.topic_id] for topic in described}
    # Those that were made since are among them; they are left to the next look.
    damaged = set(store.topics(internal=True)) - {topic.name for topic in described}
    known = {topic.name: topic for topic in described} | {hex_id(topic.topic_id): topic for topic in described}
    for path in folders:
        shown = os.path.relpath(path, store.path)
        match = PARTITION_FOLDER.fullmatch(os.path.basename(path))
        if not files.is_folder(path):
            continue
        if _is_left_by_move(store, path, known):
            yield Finding(
                Severity.NOTE, "", -1, shown, -1, -1, -1, "a move has left it; it does not count",
                "none: `pylog clean` removes it",
            )  # fmt: skip
            continue
        if match and (match[1] in damaged or int(match[2]) < counts.get(match[1], 0)):
            continue
        topic_id = _topic_id(path)
        state = read_slots(f"{store.path}/{STATE_FOLDER}/{topic_id}-{match[2]}").state if match and topic_id else None
        deleted = files.exists(f"{store.path}/{TOPICS_FOLDER}/{DELETED_FOLDER}/{topic_id}.json")
        if match and state is not None and not deleted and not state.flags & Flags.DEAD:
            yield Finding(
                Severity.DAMAGE, match[1], int(match[2]), shown, -1,
                state.log_start, state.next_offset,
                f"the topic (id {topic_id}) is not described, or has fewer partitions",
                f"bring {TOPICS_FOLDER}/{match[1]}.json back: its records cannot be reached without it",
            )  # fmt: skip
        else:
            yield Finding(
                Severity.NOTE, "", -1, shown, -1, -1, -1, "a folder of no topic",
                "none, if its topic was deleted",
            )  # fmt: skip
    for name in _names(f"{store.path}/{STATE_FOLDER}"):
        match = _STATE_NAME.fullmatch(name)
        if match is None:
            if not _LOCK_NAME.fullmatch(name):
                yield _alien(f"{STATE_FOLDER}/{name}")
        elif not match[3] and not damaged and int(match[2]) >= ids.get(match[1], 0):
            yield Finding(
                Severity.NOTE, "", -1, f"{STATE_FOLDER}/{name}", -1, -1, -1, "a state file of no topic",
                "none, if its topic was deleted",
            )  # fmt: skip


def _is_left_by_move(store: Store, path: str, described: Mapping[str, TopicDescription]) -> bool:
    """Whether a folder is a partition's that is in another log dir, or was one on its way.

    Args:
        store, path: where.
        described: the topics, by their names and by their ids in hex.
    """
    name = os.path.basename(path)
    aside, match = ASIDE_NAME.fullmatch(name), PARTITION_FOLDER.fullmatch(name)
    if aside:
        return aside[1] in described
    topic = described.get(match[1]) if match else None
    if match is None or topic is None or int(match[2]) >= topic.partitions:
        return False
    with contextlib.suppress(UnknownTopicError):
        return store.logs.place(topic.name, int(match[2])).folder != path and _topic_id(path) == topic.topic_id
    return False


def _partitions_now(store: Store, topic: TopicDescription) -> int:
    try:
        return max(topic.partitions, store.describe_topic(topic.name).partitions)
    except PylogError:
        return topic.partitions


def _topic_id(folder: str) -> str | None:
    try:
        return read_partition_metadata(f"{folder}/partition.metadata")
    except PylogError:
        return None


def _alien(name: str) -> Finding:
    advice = "take it out of the store's folder"
    what = "not a file of the engine"
    if _UNFINISHED.fullmatch(os.path.basename(name)):
        what, advice = "a file whose writing was not finished", "none while others write; else remove it"
    return Finding(Severity.NOTE, "", -1, name, -1, -1, -1, what, advice)


def _names(folder: str) -> list[str]:
    try:
        return sorted(files.list_folder(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _names_of_logs(folder: str) -> list[str]:
    """The names in a log dir; empty if it has failed, which is reported elsewhere."""
    try:
        return _names(folder)
    except OSError:
        return []
