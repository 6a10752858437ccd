"""Copies a topic into a folder that a Kafka broker can take over; docs/guides/kafka.md says how.

Every record is checked as it is copied, so a broker gets no damaged ones. Indexes and all other files beside the
segments are rebuilt. All batches get leader epoch 0: a cluster counts its own epochs from there, and a broker drops the
start offsets of epochs larger than its own.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from pyspark_log.errors import (
    CorruptRecordError,
    InvalidConfigError,
    InvalidTopicError,
    LogDamagedError,
    ReadOnlyError,
    StoreExistsError,
    StoreNotFoundError,
)
from pyspark_log.storage.catalog import kafka_files, local_path, topics
from pyspark_log.storage.catalog.kafka_files import HIGH_WATERMARK, LOG_START, RECOVERY_POINT
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state import PartitionState
from pyspark_log.storage.maintenance.progress import Progress, ProgressCounter
from pyspark_log.storage.maintenance.transfer.log_copy import LogCopy
from pyspark_log.storage.record.layout import LEADER_EPOCH_AT, MAGIC, MAGIC_AT
from pyspark_log.storage.segment.file_names import list_segments
from pyspark_log.storage.segment.scanner import Damaged, Intact, SegmentScanner
from pyspark_log.types import TopicPartition

_EPOCH: Final = 0


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """An exported partition.

    Attributes:
        partition: its number.
        log_start: the first offset that can be read.
        log_end: the offset after the last record.
        segments, bytes: how many, and the size of their `.log` files.
    """

    partition: int
    log_start: int
    log_end: int
    segments: int
    bytes: int


def export_kafka(
    store: FolderStore, topic: str, folder: str | os.PathLike[str], topic_id: str, *, progress: Progress | None = None
) -> list[ExportedPartition]:
    """Copies a topic in Kafka's layout, durably. Needs no right to write to the store, and others may write meanwhile.

    Each partition is copied up to the end that it has when its turn comes. The folder appears when it is whole.

    Args:
        store: where the topic is.
        topic: which one.
        folder: a new folder, outside of the store; the folder above it exists.
        topic_id: the id that the topic has in the cluster, 22 characters, as `kafka-topics.sh --describe` prints it.
        progress: called with the number of segment bytes copied, and the total.

    Returns:
        The partitions, in order.

    Raises:
        UnknownTopicError: there is no such topic, or it was deleted meanwhile.
        InvalidTopicError: one of the engine's own topics.
        InvalidConfigError: `topic_id` is no id.
        ReadOnlyError: it is a folder of a broker already.
        StoreExistsError: there is something at `folder`, or it would lie in the store.
        StoreNotFoundError: the folder above it does not exist.
        CorruptRecordError, LogDamagedError: the topic is damaged; with the place.
        OSError: e.g. a full disk. After any of these errors nothing of the export is left.
    """
    if store.is_brokers:
        raise ReadOnlyError(f"{store.path} is a folder of a Kafka broker: its files can be copied as they are")
    if topic in (topics.OFFSETS_TOPIC, topics.PUBLISH_TOPIC):
        raise InvalidTopicError(f"topic {topic} holds the store's own records: a broker has its own")
    try:
        topics.check_id(topic_id)
    except ValueError as error:
        raise InvalidConfigError(f"topic id: {error}") from None
    numbers = range(store.describe_topic(topic).partitions)
    target = _new_folder(store, folder)
    counter = ProgressCounter(progress, sum(store.size(topic, number) for number in numbers))
    unfinished = f"{target}.{secrets.token_hex(8)}.tmp"
    files.make_folder(unfinished)
    try:
        found = [
            _PartitionExport(store, TopicPartition(topic, number), topic_id, unfinished, counter).run()
            for number in numbers
        ]
        _write_checkpoints(unfinished, topic, found)
        files.rename(unfinished, target)
    except BaseException:
        for name in files.list_folder(unfinished):
            path = f"{unfinished}/{name}"
            (files.remove_folder if files.is_folder(path) else files.unlink)(path)
        files.remove_folder(unfinished)
        raise
    files.sync_folder(os.path.dirname(target))
    return found


def _new_folder(store: FolderStore, folder: str | os.PathLike[str]) -> str:
    target = local_path(folder)
    above, inside = os.path.dirname(target), files.real_path(store.path)
    if files.exists_as_link(target):
        raise StoreExistsError(f"{target} exists: a topic is exported to a new folder only")
    if not files.is_folder(above):
        raise StoreNotFoundError(f"{target}: the folder above it does not exist")
    if os.path.commonpath([files.real_path(above), inside]) == inside:
        raise StoreExistsError(f"{target}: the new folder must be outside of the store {store.path}")
    return target


def _write_checkpoints(folder: str, topic: str, exported: Collection[ExportedPartition]) -> None:
    """What Kafka keeps beside the logs: log starts only of those that start inside of a segment."""
    ends = {TopicPartition(topic, one.partition): one.log_end for one in exported}
    starts = {
        at: one.log_start
        for at, one in zip(ends, exported, strict=True)
        if one.log_start > list_segments(f"{folder}/{at}")[0]
    }
    for name, offsets in ((RECOVERY_POINT, ends), (HIGH_WATERMARK, ends), (LOG_START, starts)):
        kafka_files.write_offsets(f"{folder}/{name}", offsets)


class _PartitionExport:
    """Copies one partition; `run` does it."""

    def __init__(
        self, store: FolderStore, at: TopicPartition, topic_id: str, into: str, counter: ProgressCounter
    ) -> None:
        self._reader = store.logs.recovered(at.topic, at.partition)
        self._place = self._reader.place
        self._config, self._clock = store.topic_config(at.topic), store.logs.clock
        self._topic_id = topic_id
        self._folder = f"{into}/{at}"
        self._counter = counter

    def run(self) -> ExportedPartition:
        problem = ""
        while True:
            state = self._reader.state()
            try:
                found = self._copy(state)
            except (CorruptRecordError, LogDamagedError) as error:
                # Retention or a cleaner may have taken segments that were about to be copied.
                if _version(self._reader.state()) == _version(state) or str(error) == problem:
                    raise
                problem = str(error)
            else:
                # Otherwise the log was truncated, and other processes may have written there.
                if self._reader.state().incarnation == state.incarnation:
                    return found
            files.remove_folder(self._folder)

    def _copy(self, state: PartitionState) -> ExportedPartition:
        place = self._place = self._reader.place_in(state)
        log = LogCopy(place.folder, self._folder, self._topic_id, self._config, self._clock)
        walker = SegmentScanner(self._config.max_batch_bytes)
        log.offset = state.log_start
        for segment, size in self._reader.opened(state):
            if not log.is_begun:
                log.offset = min(log.offset, segment.base_offset)  # the log may start inside of this segment
            self._check_next(log, segment.base_offset)
            log.begin(segment.base_offset, segment.log.modified())
            for piece in walker.walk(segment.log, size, segment.base_offset, None):
                if isinstance(piece, Damaged):
                    raise CorruptRecordError(
                        f"{piece.reason}: nothing was exported. `pylog verify` says what to do about it",
                        piece.position,
                        piece.first_offset,
                        segment.log.path,
                        place.topic,
                        place.partition,
                    )
                log.write(_with_epoch(piece), piece.headers)
                self._counter.add(len(piece.data))
        self._check_next(log, state.next_offset)
        if not log.is_begun:
            log.begin(log.offset)
        log.finish(state._replace(leader_epoch=_EPOCH))
        segments = len(list_segments(self._folder))
        return ExportedPartition(place.partition, state.log_start, state.next_offset, segments, log.bytes)

    def _check_next(self, log: LogCopy, offset: int) -> None:
        if log.offset != offset:
            raise LogDamagedError(
                f"{self._place}: {self._place.folder} has no records at offsets {log.offset} to {offset - 1}: "
                "files were cut, removed or moved. Nothing was exported. `pylog verify` says what to do about it"
            )


def _version(state: PartitionState) -> tuple[int, int, int]:
    """The state fields that change with a log's content, appends aside."""
    return state.generation, state.log_start, state.incarnation


def _with_epoch(piece: Intact) -> bytearray:
    """The bytes of batches, with the leader epoch that they get. Messages of the older formats have none."""
    data, first = bytearray(piece.data), piece.headers[0].position
    for header in piece.headers:
        if header.magic == MAGIC and header.leader_epoch != _EPOCH:
            at = header.position - first
            data[at + LEADER_EPOCH_AT : at + MAGIC_AT] = _EPOCH.to_bytes(MAGIC_AT - LEADER_EPOCH_AT, "big")
    return data
