"""Copies topics from the folder of a Kafka broker into a store. Offsets, times and producers stay as they are.

Every record is checked, so a damaged batch ends the import before the store has changed. Empty batches fill the gaps
that compaction has left. All partitions of a topic appear atomically; until then they are in folders with Kafka's name
for a replica that is being moved (`-future`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pyspark_log.config import TopicConfig, check_topic_configs
from pyspark_log.errors import CorruptRecordError, InvalidConfigError, LogDamagedError, TopicExistsError
from pyspark_log.storage.broker import BrokerLogReader
from pyspark_log.storage.catalog import check_not_internal
from pyspark_log.storage.catalog.topics import check_partitions, new_id
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.leader_epochs import Epochs
from pyspark_log.storage.log.state import PartitionState
from pyspark_log.storage.log_manager.deletion import FUTURE, aside_name
from pyspark_log.storage.maintenance.progress import Progress, ProgressCounter
from pyspark_log.storage.maintenance.transfer.log_copy import LogCopy
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.layout import MAGIC
from pyspark_log.storage.segment.scanner import Damaged, Intact, SegmentScanner
from pyspark_log.types import TopicDescription, TopicPartition


@dataclass(frozen=True, slots=True)
class ImportedPartition:
    """The result for one partition.

    Attributes:
        at: which one.
        log_start, log_end: the offsets of its records, the second exclusive.
        last_stable_offset: from here on a transaction is open, which no process will end: readers of committed
            records stop here.
        batches, bytes: what was copied.
    """

    at: TopicPartition
    log_start: int
    log_end: int
    last_stable_offset: int
    batches: int
    bytes: int


def import_kafka(
    store: FolderStore,
    source: FolderStore,
    topic: str,
    configs: Mapping[str, str] | None = None,
    *,
    take_what_is_there: bool = False,
    progress: Progress | None = None,
) -> list[ImportedPartition]:
    """Copies one topic, atomically and durably. Its broker may be running; what it adds meanwhile is left out.

    Args:
        store: the target; it has no topic of that name.
        source: a broker's folder, opened as a store.
        topic: which one.
        configs: of the new topic, by Kafka's names. Those of the broker are not in its folder. Without
            `retention.ms` nothing is deleted by time, as old records would be with the default.
        take_what_is_there: copies a log, too, that has lost its end, or whose index of aborted transactions its markers
            refute (they count then). Both are logged.
        progress: called with the number of segment bytes read, and the total.

    Returns:
        The partitions that are in the folder.

    Raises:
        InvalidConfigError: `source` is a store, or a config is refused.
        InvalidTopicError: one of the engine's own topics.
        UnknownTopicError: the folder has no partition of the topic.
        TopicExistsError: the store has a topic of that name.
        CorruptRecordError, LogDamagedError: the source is damaged, with the place, or has lost its end; or segments
            were removed meanwhile.
        OSError: e.g. a full disk.
    """
    if not source.is_brokers:
        raise InvalidConfigError(f"{source.path} is a store, not a folder of a Kafka broker")
    store.check_writable()
    check_not_internal(topic)
    configs = {"retention.ms": "-1", **(configs or {})}
    check_topic_configs(configs)
    found = source.describe_topic(topic)
    if topic in store.topics(internal=True):
        raise TopicExistsError(f"topic {topic!r} exists already")
    store.logs.make_folders()
    description = TopicDescription(topic, new_id(), found.partitions, configs)
    config = TopicConfig.resolve(configs, store.configs)
    check_partitions(topic, found.partitions)
    for number in source.written_partitions(topic):
        fault = _fault(source, topic, number)
        if fault and not take_what_is_there:
            raise LogDamagedError(
                f"{fault}. Nothing of the topic was imported; --take-what-is-there (take_what_is_there=True) copies it "
                "as it is"
            )
    numbers = [number for number in source.written_partitions(topic) if source.segment_files(topic, number)]
    counter = ProgressCounter(progress, sum(source.size(topic, number) for number in numbers))
    given: Counter[int] = Counter()
    folders: dict[int, str] = {}
    states: dict[int, PartitionState] = {}
    imported = []
    try:
        for number in numbers:
            log_dir = store.logs.log_dirs.choose(f"{topic}-{number}", given)
            given[log_dir] += 1
            aside = aside_name(topic, description.topic_id, number, FUTURE)
            folder = folders[number] = f"{store.logs.log_dirs.at(log_dir).path}/{aside}"
            one = _PartitionImport(source, TopicPartition(topic, number), folder, description.topic_id, config, counter)
            states[number] = one.run()._replace(log_dir=log_dir)
            imported.append(one.result(states[number]))
        store.admin.adopt(description, states, folders)
    except BaseException:
        for folder in folders.values():
            files.remove_folder(folder)
        raise
    return imported


def _fault(source: FolderStore, topic: str, number: int) -> str:
    """Why a log has lost data, by the other files in the folder; "" if none shows it."""
    reader = source.logs.reader(topic, number)
    assert isinstance(reader, BrokerLogReader)
    return reader.lost_end() or reader.refuted_index()


class _PartitionImport:
    def __init__(
        self,
        source: FolderStore,
        at: TopicPartition,
        folder: str,
        topic_id: str,
        config: TopicConfig,
        counter: ProgressCounter,
    ) -> None:
        self._at, self._counter = at, counter
        self._reader = source.logs.reader(at.topic, at.partition)
        self._log = LogCopy(self._reader.place.folder, folder, topic_id, config, source.logs.clock)
        self._walker = SegmentScanner(config.max_batch_bytes, dense=False)
        self._epochs = Epochs(None)
        self._stable = 0

    def run(self) -> PartitionState:
        # First, so that it is not above the end.
        self._stable = self._reader.last_stable_offset()
        state = self._reader.state()
        self._log.offset = state.log_start
        for segment, size in self._reader.opened(state):
            if not self._log.is_begun:
                self._log.offset = segment.base_offset  # the log may start inside of this segment
            # Else the cleaner has made one segment of this one and of others, which were copied before.
            if segment.base_offset >= self._log.offset:
                self._log.fill(segment.base_offset)
                self._log.begin(segment.base_offset, segment.log.modified())
            for piece in self._walker.walk(segment.log, size, segment.base_offset, None):
                if isinstance(piece, Damaged):
                    raise CorruptRecordError(
                        piece.reason,
                        piece.position,
                        piece.first_offset,
                        segment.log.path,
                        self._at.topic,
                        self._at.partition,
                    )
                self._keep(piece, segment.log.path)
                self._counter.add(len(piece.data))
        self._log.fill(state.next_offset)
        return self._log.finish(PartitionState(log_start=state.log_start))

    def result(self, state: PartitionState) -> ImportedPartition:
        stable = max(self._stable, state.log_start)
        return ImportedPartition(
            self._at, state.log_start, state.next_offset, stable, self._log.batches, self._log.bytes
        )

    def _keep(self, piece: Intact, path: str) -> None:
        start, run = piece.headers[0].position, list[BatchHeader]()
        zero, end = start, self._log.offset
        for header, first in zip(piece.headers, _first_offsets(piece), strict=True):
            if first != end:
                self._log.write(piece.data[start - zero : header.position - zero], run)
                start, run = header.position, []
                if header.next_offset <= end:
                    start = header.end
                    continue
                self._log.fill(first)
            fault = self._epochs.fault(header) if first >= end else f"the batch before it ends at offset {end}"
            if fault:
                raise CorruptRecordError(fault, header.position, first, path, self._at.topic, self._at.partition)
            run.append(header)
            end = header.next_offset
        self._log.write(piece.data[start - zero :], run)


def _first_offsets(piece: Intact) -> Sequence[int]:
    """Where each batch begins; a compressed set of messages of format 0 or 1 says it only by its records."""
    if all(header.magic == MAGIC for header in piece.headers):
        return [header.base_offset for header in piece.headers]
    column: pa.Array = piece.columns["offset"]
    view = memoryview(column.buffers()[1])[8 * column.offset : 8 * (column.offset + len(column))].cast("q")
    found, before = [], -1
    for header in piece.headers:
        found.append(header.base_offset if header.magic == MAGIC else view[bisect_right(view, before)])
        before = header.last_offset
    return found
