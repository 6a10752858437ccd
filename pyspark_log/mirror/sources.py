"""What a mirror copies: topics of a Kafka cluster, of the folders of a broker, or of another store."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyspark_log.config import TOPIC_CONFIGS
from pyspark_log.errors import (
    InvalidConfigError,
    OffsetOutOfRangeError,
    PylogError,
    StoreNotFoundError,
    UnknownTopicError,
)
from pyspark_log.kafka.cluster import Cluster, ClusterTopic, Leader
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.fetcher import MAX_BYTES, PARTITION_BYTES, Fetched, Fetcher, FilePlace, PartitionError, Position
from pyspark_log.replication.broker_thread import Fetches
from pyspark_log.storage.broker import BrokerLogReader
from pyspark_log.storage.catalog.topics import MAX_PARTITIONS, id_bytes
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import leader_epochs
from pyspark_log.storage.log.read import LogReader
from pyspark_log.storage.objects import by_kind
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

# A reader of files pauses as long, in seconds, after it has found nothing; and as many times as long as that took.
_PAUSE: Final = 0.1
_PAUSE_BY_LOOK: Final = 20
# Of the base offset in the name of a segment.
_DIGITS: Final = 20
# All partitions of files have the one leader.
_LEADER: Final = Leader(0, -1)


class HasGroups(ABC):
    """What has groups; for the errors see Source."""

    @abstractmethod
    def groups(self) -> list[str]:
        """The names of the groups, sorted."""

    @abstractmethod
    def committed(self, group: str) -> dict[TopicPartition, int]:
        """A group's committed offsets."""


class Source(HasGroups):
    """What a mirror asks of what it copies. But for `fetcher`, one thread asks at a time.

    Each method raises OSError if nothing answers, ClusterError if a broker refuses, LoginError, and PylogError if files
    cannot be read.
    """

    @abstractmethod
    def topics(self) -> list[ClusterTopic]:
        """The topics, but for Kafka's own."""

    @abstractmethod
    def configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """The configs of each topic that differ from Kafka's defaults; topics are missing of which they are unknown."""

    @abstractmethod
    def ends(self, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The ends of partitions, of which the leaders are given by id; those are missing that cannot be found now."""

    @abstractmethod
    def fetcher(self, node: int) -> Fetches:
        """What fetches from a leader, for one thread; any thread may call this."""

    @abstractmethod
    def close(self) -> None:
        """Ends the use of it."""


class ClusterSource(Cluster, Source):
    """A cluster, as its client."""

    def fetcher(self, node: int) -> Fetches:
        """What fetches from a broker."""
        return Fetcher(self.connect(node))


class StoreGroups(HasGroups):
    """The groups of a store of any kind."""

    _store: Store

    def groups(self) -> list[str]:
        """Those with committed offsets."""
        return sorted(self._store.groups)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Those of a group."""
        return {at: commit.offset for at, commit in self._store.groups[group].committed().items()}


class FolderSource(StoreGroups, Source):
    """Another store, in a folder."""

    _store: FolderStore

    def __init__(self, store: FolderStore) -> None:
        """`store`: it; this closes it."""
        self._store = store

    def topics(self) -> list[ClusterTopic]:
        """The topics, after what was decided to be published there is visible."""
        store = self._store
        if problem := store.publishes.apply_pending():
            log.warning("%s: published output could not be made visible: %s", store.path, problem)
        topics = list[ClusterTopic]()
        for name in store.topics():
            with contextlib.suppress(UnknownTopicError):  # deleted meanwhile
                description = store.describe_topic(name)
                # One more than a store may have: the mirror refuses that, and no memory is spent on it.
                partitions = min(description.partitions, MAX_PARTITIONS + 1)
                topics.append(ClusterTopic(name, id_bytes(description.topic_id), [_LEADER] * partitions))
        return topics

    def configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Those of each topic, and those that the store sets for all."""
        store = self._store
        common = {
            name: store.configs[key.store_name]
            for name, key in TOPIC_CONFIGS.items()
            if key.store_name in store.configs
        }
        configs = dict[str, dict[str, str]]()
        for name in topics:
            with contextlib.suppress(UnknownTopicError):
                configs[name] = {**common, **store.describe_topic(name).configs}
        return configs

    def ends(self, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The ends of what readers see; 0 where a fetch will find the error."""
        ends = dict.fromkeys(leaders, 0)
        for at in leaders:
            with contextlib.suppress(PylogError, OSError):
                ends[at] = self._store.logs.recovered(at.topic, at.partition).state().high_watermark
        return ends

    def fetcher(self, node: int) -> Fetches:
        """What reads the segments of all partitions."""
        return _SegmentFetcher(self)

    def close(self) -> None:
        """Closes the store."""
        self._store.close()

    def reader(self, at: TopicPartition, topic_id: bytes) -> LogReader:
        """The reader of a partition. UnknownTopicError: its topic was deleted, even if another has its name."""
        opened = self._store.logs.topic(at.topic)
        if id_bytes(opened.description.topic_id) != topic_id:
            raise UnknownTopicError(f"topic {at.topic!r} was deleted and created again")
        return self._store.logs.recovered(at.topic, at.partition)

    def lost_end(self, reader: LogReader) -> str:
        """What a log has lost at its end, by other files; "": nothing that they show."""
        return ""


class BrokerSource(FolderSource):
    """The log dirs of a Kafka broker, which may be running."""

    def configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """None: no file there has them."""
        return {}

    def lost_end(self, reader: LogReader) -> str:
        """What the checkpoints show."""
        assert isinstance(reader, BrokerLogReader)
        return reader.lost_end()


def open_folder(path: str, target: FolderStore) -> FolderSource:
    """Opens a store, or the log dirs of a broker, which are one folder or several with commas in between.

    Args:
        path: of the folder.
        target: the store that the mirror writes to.

    Raises:
        InvalidConfigError: it is the URL of an object store, or the target.
        StoreNotFoundError: there is no store, and no log dir of a broker.
        PylogError, OSError: as FolderStore.open.
    """
    if by_kind(path, folder=False, objects=True):
        raise InvalidConfigError(
            f"{path}: a store in an object store has no segment files to copy byte for byte; use the job mirror, which "
            "copies the records of any store, or `pylog backup` for a copy of the whole store"
        )
    try:
        store = FolderStore.open(path)
    except StoreNotFoundError as error:
        if files.exists(path) or "," in path:
            raise
        why = f"there is no folder {path}: give a folder of a Kafka broker's log.dirs, or of a store, or a copy of one"
        raise StoreNotFoundError(why) from error
    if files.real_path(store.path) == files.real_path(target.path):
        raise InvalidConfigError(f"{store.path} is also the target: name another store")
    return BrokerSource(store) if store.is_brokers else FolderSource(store)


class _SegmentFetcher:
    """Reads the segments of a folder; see Fetches."""

    def __init__(self, source: FolderSource) -> None:
        self._source, self._positions = source, dict[TopicPartition, Position]()
        self._interrupted = threading.Event()

    def send(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Takes what is to be read."""
        self._positions = dict(positions)

    def receive(self) -> Iterator[Fetched]:
        """What there is, up to a limit; a pause follows if that is nothing."""
        began, size = time.monotonic(), 0
        for at, position in self._positions.items():
            answer = self._read(at, position)
            size += len(answer.records)
            yield answer
            if size >= MAX_BYTES:
                break
        if not size:
            self._interrupted.wait(max(_PAUSE, _PAUSE_BY_LOOK * (time.monotonic() - began)))

    def _read(self, at: TopicPartition, position: Position) -> Fetched:
        answer = Fetched(at, position, 0, 0, 0, None, memoryview(b""))
        try:
            return self._read_from(self._source.reader(at, position.topic_id), answer)
        except UnknownTopicError:
            return answer._replace(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except OffsetOutOfRangeError:
            return answer._replace(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        except (PylogError, OSError) as error:
            return answer._replace(error=error)

    def _read_from(self, reader: LogReader, answer: Fetched) -> Fetched:
        state, position = reader.state(), answer.position
        end = state.high_watermark
        answer = answer._replace(high_watermark=end, log_start=state.log_start)
        epoch = leader_epochs.read(reader.place_in(state).folder).end_of(position.last_epoch, state.next_offset)
        if epoch.epoch == position.last_epoch >= 0 and epoch.end_offset < position.offset:
            return answer._replace(diverging=epoch)
        batches = reader.stored_batches(position.offset, end, PARTITION_BYTES, state)
        if batches is None or batches.next_offset >= end:
            answer = answer._replace(lost=self._source.lost_end(reader))
        if batches is None:
            return answer
        with batches.file as file:
            data = file.pread(batches.length, batches.position)
            place = FilePlace(file.path, int(os.path.basename(file.path)[:_DIGITS]), batches.position)
        return answer._replace(records=memoryview(data), place=place)

    def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """The log start and the log end of partitions."""
        ends = dict[TopicPartition, tuple[int, int]]()
        for at in partitions:
            with contextlib.suppress(PylogError, OSError):  # which the next `receive` finds, too
                state = self._source.reader(at, self._positions[at].topic_id).state()
                ends[at] = state.log_start, state.high_watermark
        return ends

    def end_of_epoch(self, at: TopicPartition, leader_epoch: int, epoch: int) -> tuple[int, int]:
        """An epoch at or before `epoch`, and where it ends."""
        try:
            reader = self._source.reader(at, self._positions[at].topic_id)
            state = reader.state()
        except PylogError as error:
            raise PartitionError(at, ErrorCode.KAFKA_STORAGE_ERROR) from error
        return leader_epochs.read(reader.place_in(state).folder).end_of(epoch, state.next_offset)

    def interrupt(self) -> None:
        """Ends a pause."""
        self._interrupted.set()

    def close(self) -> None:
        """Keeps nothing open."""
