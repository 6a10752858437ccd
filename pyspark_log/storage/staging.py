"""Output of tasks that is not published yet: written aside, in whole record batches, under names that nobody guesses.

A task's output stays in memory while it is small and travels in its commit message; so a micro-batch of a
few rows makes no file. What is larger goes to a file in the store's staging folder, synced before the task
reports it. Nothing staged is visible to anybody, and a task that dies leaves only a file of no meaning.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from pyspark_log.storage import files
from pyspark_log.storage.batch import CRC_AT
from pyspark_log.storage.config import CODEC_NAMES, INT_MAX, TopicConfig
from pyspark_log.storage.encoder import TopicEncoder
from pyspark_log.storage.errors import InvalidConfigError, UnknownTopicError
from pyspark_log.storage.store import STAGING_FOLDER, Store
from pyspark_log.storage.topics import check_open_to_all

log = logging.getLogger(__name__)

#: A task whose whole output is smaller than this (bytes) sends it along instead of making a file.
INLINE_LIMIT = 256 * 1024
# What a task keeps in memory before it writes it to its file, in bytes, beside the batches that it is filling.
_MEMORY = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StagedPart:
    """Record batches for one partition, back to back, with offsets from 0.

    Attributes:
        topic, topic_id, partition: where they are to go.
        count: how many records.
        size: bytes.
        crcs: the CRC fields of the batches, 4 bytes each, in order.
        file: the staged file's name, or "" if `data` holds the bytes.
        position: where in the file, in bytes.
        data: the bytes, if there is no file.
    """

    topic: str
    topic_id: str
    partition: int
    count: int
    size: int
    crcs: bytes
    file: str = ""
    position: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """What all tasks must agree on about a topic, whatever changes while they run."""

    topic_id: str
    partitions: int
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class StagingPlan:
    """Topics as they were when the job was planned; made once, and sent to every task.

    Tasks that looked for themselves could hash keys over different counts while partitions are added.

    Attributes:
        cluster_id: which store it is for.
        topics: by name.
    """

    cluster_id: str
    topics: Mapping[str, PlannedTopic]

    @classmethod
    def make(cls, store: Store, topics: Iterable[str], compression_type: str | None = None) -> StagingPlan:
        """Looks the topics up.

        Args:
            store: whose topics.
            topics: their names.
            compression_type: the codec of the writer's choice, for topics that leave it to the writer.

        Raises:
            UnknownTopicError: one of them does not exist.
            InvalidTopicError: it is one of the engine's own.
            InvalidConfigError: there is no such codec.
        """
        if compression_type not in (None, "none", *CODEC_NAMES[:-1]):
            raise InvalidConfigError(
                f"compression.type = {compression_type!r}: must be none, gzip, snappy, lz4 or zstd"
            )
        planned = {}
        for name in topics:
            check_open_to_all(name)
            description = store.describe_topic(name)
            configs = description.configs
            if compression_type and configs.get("compression.type", "producer") == "producer":
                codec = "uncompressed" if compression_type == "none" else compression_type
                configs = {**configs, "compression.type": codec}
            config = TopicConfig.resolve(configs, store.settings)
            planned[name] = PlannedTopic(description.topic_id, description.partitions, config)
        return cls(store.cluster_id, planned)


@dataclass(slots=True)
class _Run:
    """Batches of one partition that follow each other, in memory."""

    count: int = 0
    size: int = 0
    batches: list[bytes] = field(default_factory=list)

    def part(self, place: tuple[str, int], topic_id: str, file: str = "", position: int = 0) -> StagedPart:
        """The run as a part; its bytes go with it unless they are in a file."""
        topic, partition = place
        return StagedPart(
            topic, topic_id, partition, self.count, self.size,
            b"".join(batch[CRC_AT : CRC_AT + 4] for batch in self.batches),
            file, position, b"" if file else b"".join(self.batches),
        )  # fmt: skip


class StagedWriter:
    """Collects one task's output, in bounded memory. Not for several threads."""

    def __init__(self, store: Store, plan: StagingPlan) -> None:
        """`plan` comes from the planner and is for this very store."""
        self._folder = f"{store.path}/{STAGING_FOLDER}"
        self._plan = plan
        self._encoders: dict[str, TopicEncoder] = {}
        self._runs: dict[tuple[str, int], _Run] = {}
        self._size = 0  # bytes of all runs
        self._file: files.File | None = None
        self._written = 0  # bytes of the file
        self._parts: list[StagedPart] = []

    def append(self, topic: str, data: pa.RecordBatch) -> None:
        """Adds records, with the columns of Store.append.

        Raises:
            UnknownTopicError: the plan does not have the topic.
            InvalidRecordError: a column or record is refused.
            OSError: e.g. a full disk.
        """
        encoder = self._encoders.get(topic)
        if encoder is None:
            planned = self._plan.topics.get(topic)
            if planned is None:
                raise UnknownTopicError(f"there was no topic {topic!r} when this write was planned; create it first")
            encoder = TopicEncoder(
                topic, planned.partitions, planned.config,
                lambda partition, batch, count: self._take((topic, partition), batch, count),
            )  # fmt: skip
            self._encoders[topic] = encoder
        encoder.add(data, time.time_ns() // 1_000_000)

    def _take(self, place: tuple[str, int], batch: bytes, count: int) -> None:
        run = self._runs.get(place)
        # A part goes into one segment, so it must not be larger than one.
        limit = self._plan.topics[place[0]].config.segment_bytes
        if run is not None and (run.size + len(batch) > limit or run.count + count > INT_MAX):
            self._spill()
            run = None
        if run is None:
            run = self._runs[place] = _Run()
        run.count += count
        run.size += len(batch)
        run.batches.append(batch)
        self._size += len(batch)
        if self._size > _MEMORY:
            self._spill()

    def _spill(self) -> None:
        """Moves what is in memory to the task's file."""
        if self._file is None:
            files.make_folder(self._folder)
            self._file = files.create(f"{self._folder}/{secrets.token_hex(16)}.staged")
        name = os.path.basename(self._file.path)
        for place, run in self._runs.items():
            self._file.pwrite(b"".join(run.batches), self._written)
            self._parts.append(run.part(place, self._topic_id(place), name, self._written))
            self._written += run.size
        self._runs.clear()
        self._size = 0

    def _topic_id(self, place: tuple[str, int]) -> str:
        return self._plan.topics[place[0]].topic_id

    def finish(self) -> list[StagedPart]:
        """Ends the task's output. What is in the file is on the disk when this returns.

        Returns:
            The parts, with those of each partition in the order of its records.
        """
        for encoder in self._encoders.values():
            encoder.flush()
        if self._file is None and self._size < INLINE_LIMIT:
            return [run.part(place, self._topic_id(place)) for place, run in self._runs.items()]
        self._spill()
        assert self._file is not None
        self._file.sync()
        self._file.close()
        files.sync_folder(self._folder)
        return self._parts

    def discard(self) -> None:
        """Removes what was staged, as far as it can; for output that will not be published."""
        if self._file is not None:
            self._file.close()
            try:
                files.unlink(self._file.path)
            except OSError as error:
                log.warning("staged output %s could not be removed: %s", self._file.path, error)
