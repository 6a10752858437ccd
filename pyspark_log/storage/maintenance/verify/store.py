"""Verifies a whole store, and changes nothing.

Needs no lock and no write access; other processes may write meanwhile. Partitions are checked in parallel: reading,
checksums and the decoding of records let other threads run.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

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
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    PUBLISH_TOPIC,
    PartitionPath,
    check_name,
    local_path,
)
from pyspark_log.storage.catalog.log_dirs import PARTITION_FOLDER
from pyspark_log.storage.catalog.store_json import STATE_FOLDER, STORE_FILE, TOPICS_FOLDER
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files, side_by_side
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.storage.maintenance.progress import Progress, ProgressCounter
from pyspark_log.storage.maintenance.verify.broker import BrokerCheck
from pyspark_log.storage.maintenance.verify.decisions import DecisionCheck, DecisionRecords, check_group_records
from pyspark_log.storage.maintenance.verify.findings import Finder, Finding, Severity
from pyspark_log.storage.maintenance.verify.log.partition import PartitionCheck, PartitionReport
from pyspark_log.storage.maintenance.verify.log.segment import RecordCheck, Totals
from pyspark_log.storage.maintenance.verify.log_dir import log_dir_faults
from pyspark_log.storage.maintenance.verify.pieces import PieceCheck
from pyspark_log.storage.maintenance.verify.publish_log import LogCheck, damaged_documents, without_topic
from pyspark_log.storage.maintenance.verify.unowned import (
    STATE_NAME,
    deleted,
    names,
    names_of_logs,
    same_ids,
    unknown_files,
)
from pyspark_log.storage.object_store import ObjectStore
from pyspark_log.storage.objects import Objects, by_kind
from pyspark_log.storage.publish_log.state import State
from pyspark_log.storage.segment.file_names import LOG, list_segments, segment_path
from pyspark_log.types import TopicDescription, TopicPartition


@dataclass(slots=True)
class Report:
    """What `verify` found.

    Attributes:
        findings: the worst first; of equals in the order of topics, partitions and offsets.
        partitions: how many partitions with records (or traces of them) were checked.
        totals: segments, batches, records and bytes that were checked.
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
    """Checks every byte of a store, or of one topic of it; or of a folder of a Kafka broker, see verify_broker.

    Args:
        path: the folder, or a `file:` URI; or the URL of a store in an object store, whose pieces count as segments.
        topic: only this topic; what was published, and what belongs to no topic, is not checked then.
        jobs: how many partitions are checked side by side; None: as many as there are processors.
        progress: called now and then, by any thread but never by two at once.

    Raises:
        StoreNotFoundError: there is no store.json in the folder, nor anything else of a store.
        StoreVersionError: a newer version wrote it.
        SideFileError: a broker's meta.properties is damaged.
        UnknownTopicError: there is no such topic.
        ObjectStoreError: the object store does not answer.
    """
    threads = jobs or os.cpu_count() or 1
    verify_all = by_kind(path, folder=_verify_folder, objects=_verify_objects)
    return verify_all(path, topic, lambda checks: _side_by_side(checks, threads, progress))


def verify_elsewhere(
    path: str | os.PathLike[str],
    topic: str | None,
    check: Callable[[Sequence[TopicPartition]], Iterable[PartitionReport | None]],
) -> Report:
    """The same, with partitions that other processes check, by `check_partition`.

    Those of the engine's own topics are checked here: what was published is compared with them.

    Args:
        path, topic: as for `verify`.
        check: gets partitions, and returns what `check_partition` returns for each.

    Raises:
        StoreError, SideFileError, UnknownTopicError: as `verify`.
    """

    def run(checks: Sequence[_Check]) -> list[PartitionReport]:
        internal = [check for check in checks if check.at.topic in INTERNAL_TOPICS]
        others = [check.at for check in checks if check.at.topic not in INTERNAL_TOPICS]
        reports = [report for report in check(others) if report is not None]
        return _in_order([*reports, *_side_by_side(internal, os.cpu_count() or 1, None)])

    return by_kind(path, folder=_verify_folder, objects=_verify_objects)(path, topic, run)


def check_partition(path: str | os.PathLike[str], at: TopicPartition) -> PartitionReport | None:
    """Checks one partition; None: its topic was deleted. Raises: as `verify`."""
    try:
        checks = by_kind(path, folder=_checks_in_folder, objects=_checks_in_objects)(path, at.topic)
    except UnknownTopicError:
        return None
    return next((check.run(lambda _: None) for check in checks if check.at == at), None)


def _checks_in_folder(path: str | os.PathLike[str], topic: str) -> list[_Check]:
    """How to check each partition of a topic. UnknownTopicError."""
    brokers = _open_broker(path)
    if brokers is not None:
        return _broker_checks(brokers, topic)
    store, _ = open_damaged(path)
    return _store_checks(store, [store.describe_topic(topic)], DecisionRecords())


def _checks_in_objects(path: str | os.PathLike[str], topic: str) -> list[_Check]:
    """The same in an object store, by what this process knows of it."""
    log = ObjectStore.shared(path).log
    return _object_checks(log.objects, log.follow(), topic)


def _verify_folder(
    path: str | os.PathLike[str], topic: str | None, run: Callable[[Sequence[_Check]], list[PartitionReport]]
) -> Report:
    """The whole check; `run` runs the checks, and returns what they return in the order of partitions."""
    began = time.monotonic()
    brokers = _open_broker(path)
    if brokers is not None:
        return _report([], run(_broker_checks(brokers, topic)), [], began)
    store, findings = open_damaged(path)
    described: list[TopicDescription] = []
    for name in [topic] if topic is not None else store.topics(internal=True):
        found = describe(store, name, findings)
        if found is not None:
            described.append(found)
        elif topic is not None and not any(finding.topic == topic for finding in findings):
            raise UnknownTopicError(f"there is no topic {topic!r}")
    decisions = DecisionRecords()
    parts = run(_store_checks(store, described, decisions))
    others: list[Finding] = []
    if topic is None:
        check = DecisionCheck(store, decisions)
        for part in parts:
            if part.state is not None and part.state.applied >= 0:
                others += check.applied_beyond(part.place.topic, part.place.partition, part.state.applied)
        others += check.run()
        others += log_dir_faults(store)
        others += same_ids(store, described)
        others += deleted(store)
        others += unknown_files(store, described)
    return _report(findings, parts, others, began)


def _verify_objects(
    path: str | os.PathLike[str], topic: str | None, run: Callable[[Sequence[_Check]], list[PartitionReport]]
) -> Report:
    """The whole check of a store in an object store, or of one topic; `run` as for _verify_folder."""
    began, findings, others = time.monotonic(), list[Finding](), list[Finding]()
    objects = Objects(os.fspath(path))
    try:
        ObjectStore.open(path)
    except DescriptionError as error:
        advice = "bring the object back: the store does not open without it"
        findings.append(Finder(str(objects.address)).damage(STORE_FILE, str(error), advice))
    check = LogCheck(objects)
    check.run()
    findings += check.findings
    if topic is None:
        finder = Finder(str(objects.address))
        others += [*without_topic(check.state, finder), *damaged_documents(objects, check.state, finder)]
    elif topic not in check.state.topics and not findings:
        raise UnknownTopicError(f"there is no topic {topic!r}")
    return _report(findings, run(_object_checks(objects, check.state, topic)), others, began)


def _object_checks(objects: Objects, state: State, topic: str | None) -> list[_Check]:
    """How to check each partition in an object store that has records."""
    checks = list[_Check]()
    for described in sorted(state.topics.values(), key=lambda described: described.name):
        for number in range(described.partitions):
            at, log = TopicPartition(described.name, number), state.partitions.get((described.topic_id, number))
            if log is not None and topic in (None, described.name):
                check = PieceCheck(objects, at, log)
                checks.append(_Check(at, check, check.size))
    return checks


def _report(first: list[Finding], parts: list[PartitionReport], others: list[Finding], began: float) -> Report:
    """All that was found: of descriptions, in partitions, and elsewhere; `began`: by the monotonic clock."""
    report, order = Report(), list(Severity)
    found = [*first, *(finding for part in parts for finding in part.findings), *others]
    report.findings = sorted(found, key=lambda finding: order.index(finding.severity))
    for part in parts:
        report.totals.add(part.totals)
        report.partitions += bool(part.totals.segments or part.findings)
    report.seconds = time.monotonic() - began
    return report


def _open_broker(path: str | os.PathLike[str]) -> FolderStore | None:
    """The folder of a broker at a path, if it is one."""
    try:
        store = FolderStore.open(local_path(path))
    except StoreError:
        return None
    return store if store.is_brokers else None


def open_damaged(path: str | os.PathLike[str]) -> tuple[FolderStore, list[Finding]]:
    """Opens a store even if its store.json is damaged, then without configs.

    Errors as of `verify`, and ReadOnlyError: it is a folder of a Kafka broker.
    """
    folder = local_path(path)
    try:
        store = FolderStore.open(folder)
        if store.is_brokers:
            raise ReadOnlyError(
                f"{folder} is a folder of a Kafka broker: this command checks stores only; use kafka-dump-log"
            )
    except StoreNotFoundError as error:
        if not files.is_folder(f"{folder}/{TOPICS_FOLDER}"):
            raise
        what = str(error)
    except DescriptionError as error:
        what = str(error)
    else:
        return store, []
    advice = "bring the file back from a copy: the store does not open without it"
    return FolderStore(LogManager(folder, "", {})), [Finder(folder).damage(STORE_FILE, what, advice)]


def describe(store: FolderStore, name: str, findings: list[Finding]) -> TopicDescription | None:
    """A topic's description; None if there is none or it is damaged, which then is added to `findings`."""
    finding, path = Finder(store.path, name), f"{TOPICS_FOLDER}/{name}.json"
    try:
        check_name(name)
    except InvalidConfigError as error:
        findings.append(finding.note(path, f"not a file of the engine: {error}", "take it out of the store's folder"))
        return None
    try:
        description = store.describe_topic(name)
        store.topic_config(name)
    except UnknownTopicError:
        return None
    except (PylogError, OSError) as error:
        advice = "bring the file back from a copy: the topic does not open without it"
        findings.append(finding.damage(path, f"the topic's description cannot be used: {error}", advice))
        return None
    return description


# ---- partitions


class _Check(NamedTuple):
    """The check of one partition.

    Attributes:
        at: which one.
        run: does it; its argument is called with the number of bytes that were checked.
        size: looks how many bytes that will be.
    """

    at: TopicPartition
    run: Callable[[Callable[[int], None]], PartitionReport]
    size: Callable[[], int]

    @classmethod
    def of_folder(
        cls, place: PartitionPath, run: Callable[[PartitionPath, Callable[[int], None]], PartitionReport]
    ) -> _Check:
        """The check of a partition in a folder."""
        return cls(TopicPartition(place.topic, place.partition), partial(run, place), partial(_size, place))


def _store_checks(
    store: FolderStore, described: Sequence[TopicDescription], decisions: DecisionRecords
) -> list[_Check]:
    """How to check each partition of topics; the records of decisions are noted."""
    checks: dict[str, RecordCheck] = {PUBLISH_TOPIC: decisions.check, OFFSETS_TOPIC: check_group_records}
    configs: dict[str, TopicConfig] = {}
    for topic in described:
        # It may be deleted by now, and another may have its name.
        with contextlib.suppress(UnknownTopicError):
            configs[topic.name] = store.topic_config(topic.name)

    def check_place(place: PartitionPath, add: Callable[[int], None]) -> PartitionReport:
        if problem := store.logs.log_dirs.problem_of(place):
            finding = Finder(store.path, place.topic, place.partition)
            what = f"its log dir has failed, so it was not checked: {problem}"
            advice = "repair or mount it, or restore all of it from a copy"
            report = PartitionReport(place, None, [finding.damage(place.folder, what, advice)])
        else:
            check = PartitionCheck(place, configs[place.topic], store.path, add, checks.get(place.topic))
            report = _readable(store, place, check.run)
        with contextlib.suppress(UnknownTopicError):
            now = store.logs.place(place.topic, place.partition)
            if report.findings and now.topic_id == place.topic_id and now != place:
                return check_place(now, add)  # It was moved meanwhile.
        return report

    places = written_places(store, described)
    return [_Check.of_folder(place, check_place) for place in places if place.topic in configs]


def _broker_checks(store: FolderStore, topic: str | None) -> list[_Check]:
    """How to check each partition in a broker's folder, or at those of one topic."""
    readers = dict[PartitionPath, BrokerLogReader]()
    for name in [topic] if topic is not None else store.topics(internal=True):
        for number in store.written_partitions(name):
            reader = store.logs.reader(name, number)
            assert isinstance(reader, BrokerLogReader)
            readers[reader.place] = reader

    def check_place(place: PartitionPath, add: Callable[[int], None]) -> PartitionReport:
        try:
            config = store.topic_config(place.topic)
            check = BrokerCheck(readers[place], config, os.path.dirname(place.folder), add)
            return _readable(store, place, check.run)
        except UnknownTopicError:
            return PartitionReport(place, None)

    return [_Check.of_folder(place, check_place) for place in readers]


def _side_by_side(checks: Sequence[_Check], jobs: int, progress: Progress | None) -> list[PartitionReport]:
    """Checks all partitions; the largest first, so that no thread is left alone with one at the end."""
    sizes = {check: check.size() for check in checks}
    done = ProgressCounter(progress, sum(sizes.values()))
    by_size = sorted(checks, key=lambda check: sizes[check], reverse=True)
    return _in_order(side_by_side(lambda check: check.run(done.add), by_size, jobs))


def _in_order(reports: Iterable[PartitionReport]) -> list[PartitionReport]:
    return sorted(reports, key=lambda report: (report.place.topic, report.place.partition))


def _readable(store: FolderStore, place: PartitionPath, run: Callable[[], PartitionReport]) -> PartitionReport:
    """What a check finds; damage, if a folder or file cannot be read."""
    try:
        return run()
    except OSError as error:
        finding = Finder(store.path, place.topic, place.partition)
        return PartitionReport(place, None, [finding.unreadable(error.filename or place.folder, error)])


def written_places(store: FolderStore, described: Sequence[TopicDescription]) -> list[PartitionPath]:
    """The partitions of these topics that have files, in order; found by their files, however many there may be."""
    found: dict[str, set[int]] = {}  # by topic id, and by name
    checks = [(f"{store.path}/{STATE_FOLDER}", STATE_NAME)]
    checks += [(folder.path, PARTITION_FOLDER) for folder in store.logs.log_dirs]
    for folder, pattern in checks:
        for name in names(folder) if pattern is STATE_NAME else names_of_logs(folder):
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
