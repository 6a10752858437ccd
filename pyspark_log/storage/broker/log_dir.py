"""A log dir of a Kafka broker (`log.dirs`), or a copy of one: its partitions, and their offsets by its checkpoints.
Nothing in it is ever changed.

Recognized are a folder with `meta.properties`, one with partitions' folders `topic-0` that hold segments, and a
single such folder. Folders of partitions that are being deleted or moved have other names, and are skipped.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Mapping

from pyspark_log.config import INT_MAX
from pyspark_log.errors import InvalidTopicError, SideFileError, StoreNotFoundError
from pyspark_log.storage.catalog import check_name
from pyspark_log.storage.catalog.kafka_files import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK,
    LOG_START,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
)
from pyspark_log.storage.catalog.store_json import STORE_FILE
from pyspark_log.storage.catalog.topics import id_text
from pyspark_log.storage.fs import Mutex, files
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

_PARTITION_FOLDER = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")
#: The log of a segment; one of a swap is complete, and replaces a log that is deleted by then.
LOG_NAME = re.compile(r"[0-9]{20}\.log(\.swap)?")
_Stamp = tuple[int, int]
_NOTHING: _Stamp = (-1, -1)
# A system's clock for files moves every 10 ms or less: two changes that come closer together can have the same time.
_TICK_MS = 100


def partition_of(folder: str) -> TopicPartition | None:
    """The partition that a folder belongs to by its name, if there is one."""
    match = _PARTITION_FOLDER.fullmatch(os.path.basename(folder))
    if match is None or int(match[2]) > INT_MAX:
        return None
    try:
        check_name(match[1])
    except InvalidTopicError:
        return None
    return TopicPartition(match[1], int(match[2]))


def _has_segments(folder: str) -> bool:
    try:
        return any(LOG_NAME.fullmatch(name) for name in files.list_folder(folder))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _stamp(path: str) -> _Stamp:
    try:
        status = files.status_of(path)
    except FileNotFoundError:
        return _NOTHING
    return status.st_ino, status.st_ctime_ns


def _made_up_id(text: str) -> str:
    """An id in Kafka's form for an object without one; the same for the same text."""
    return id_text(hashlib.sha256(text.encode()).digest()[:16])


def made_up_topic_id(topic: str) -> str:
    """The id of a topic for which the folder has none; the same for any topic of that name, anywhere."""
    return _made_up_id(topic)


class BrokerLogDir:
    """One log dir. Safe to use from several threads.

    Attributes:
        path: its absolute path.
        only: the partition whose folder alone was asked for.
        recorded_cluster_id: of its broker's cluster; None if the log dir has none.
        cluster_id: the same; made from the path if the log dir has none.
    """

    def __init__(self, path: str, only: TopicPartition | None = None) -> None:
        """Called by `find`, which documents the errors."""
        above = os.path.dirname(path)
        if files.exists(f"{above}/{STORE_FILE}"):
            raise StoreNotFoundError(f"{path} holds the logs of a store: open {above}")
        self.path = path
        self.only = only
        properties = read_meta_properties(f"{path}/{META_PROPERTIES}")
        self.recorded_cluster_id = (properties and properties.cluster_id) or None
        self.cluster_id = self.recorded_cluster_id or _made_up_id(path)
        self._topics: tuple[_Stamp | None, dict[str, list[int]]] = (_NOTHING, {})
        self._offsets: dict[str, tuple[_Stamp, Mapping[TopicPartition, int]]] = {}
        self._mutex = Mutex()

    @classmethod
    def find(cls, path: str) -> BrokerLogDir | None:
        """Returns the log dir at an absolute path, if there is one.

        Raises:
            SideFileError: its `meta.properties` is damaged.
            StoreNotFoundError: it belongs to a store, whose state files say where its logs end.
        """
        only = partition_of(path)
        if only is not None and _has_segments(path):
            return cls(os.path.dirname(path), only)
        try:
            names = files.list_folder(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if META_PROPERTIES in names or any(partition_of(name) and _has_segments(f"{path}/{name}") for name in names):
            return cls(path)
        return None

    # ---- topics

    def topics(self) -> Mapping[str, list[int]]:
        """The topics, each with its partitions that are here, ascending."""
        if self.only is not None:
            return {self.only.topic: [self.only.partition]}
        stamp = _stamp(self.path)
        with self._mutex.lock:
            if stamp != self._topics[0]:
                # A folder that has just changed may change again, and have the same time.
                is_settled = now_ms() - stamp[1] // 1_000_000 > _TICK_MS
                self._topics = stamp if is_settled else None, self._listed()
            return self._topics[1]

    def _listed(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for name in files.list_folder(self.path):
            at = partition_of(name)
            if at is not None and files.is_folder(f"{self.path}/{name}"):
                found.setdefault(at.topic, []).append(at.partition)
        return {topic: sorted(partitions) for topic, partitions in found.items()}

    def topic_id(self, at: TopicPartition) -> str:
        """The id of a partition's topic; made from its name if the folder has none."""
        try:
            found = read_partition_metadata(f"{self.folder(at)}/{PARTITION_METADATA}")
        except SideFileError as error:
            log.warning("%s", error)
            found = None
        return found or made_up_topic_id(at.topic)

    def topic_id_stamp(self, at: TopicPartition) -> tuple[int, int]:
        """A value that changes when the file with the id is replaced."""
        return _stamp(f"{self.folder(at)}/{PARTITION_METADATA}")

    def has(self, at: TopicPartition) -> bool:
        """Whether a partition is here."""
        return at.partition in self.topics().get(at.topic, ())

    def folder(self, at: TopicPartition) -> str:
        """The path of a partition's folder."""
        return f"{self.path}/{at}"

    # ---- checkpoints

    def is_closed(self) -> bool:
        """Whether its broker was shut down cleanly, and has not started again: then no write is unfinished."""
        return files.exists(f"{self.path}/{CLEAN_SHUTDOWN}")

    def high_watermark(self, at: TopicPartition) -> int | None:
        """The offset below which all replicas have a partition's records; None if no checkpoint has it.

        Kafka writes it every five seconds (replica.high.watermark.checkpoint.interval.ms).
        """
        return self._read(HIGH_WATERMARK).get(at)

    def known_end(self, at: TopicPartition) -> tuple[int, str]:
        """An offset that a partition's log has reached, by a checkpoint, and that file; 0 and "" if none has it.

        The high watermark, or else the recovery point: up to there the log is on the disk.
        """
        for name in (HIGH_WATERMARK, RECOVERY_POINT):
            offset = self._read(name).get(at)
            if offset is not None:
                return offset, f"{self.path}/{name}"
        return 0, ""

    def log_start(self, at: TopicPartition) -> int:
        """The first offset that may be read, by the checkpoint; 0 if it has none."""
        return self._read(LOG_START).get(at, 0)

    def _read(self, name: str) -> Mapping[TopicPartition, int]:
        path = f"{self.path}/{name}"
        stamp = _stamp(path)
        known = self._offsets.get(name)
        if known is None or known[0] != stamp:
            known = self._offsets[name] = stamp, read_offsets(path)
        return known[1]
