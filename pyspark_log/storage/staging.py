"""Output of tasks that is not published yet: written aside, in whole record batches, under names that nobody guesses.

A task's output stays in memory while it is small and travels in its commit message; so a micro-batch of a
few rows makes no file. What is larger goes to files in the store's staging folder, synced before the task
reports them. Nothing staged is visible to anybody, and a task that dies leaves only a file of no meaning.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from pyspark_log.storage import files
from pyspark_log.storage.batch import CRC_AT
from pyspark_log.storage.config import CODEC_NAMES, TopicConfig
from pyspark_log.storage.encoder import TopicEncoder
from pyspark_log.storage.errors import InvalidConfigError, UnknownTopicError
from pyspark_log.storage.store import STAGING_FOLDER, Store

log = logging.getLogger(__name__)

#: A task whose whole output is smaller than this (bytes) sends it along instead of making a file.
INLINE_LIMIT = 256 * 1024
# A partition's output that grows beyond this gets a file of its own; the rest of a task shares one.
_OWN_FILE_SIZE = 1024 * 1024


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
            InvalidConfigError: there is no such codec.
        """
        if compression_type not in (None, "none", *CODEC_NAMES[:-1]):
            raise InvalidConfigError(
                f"compression.type = {compression_type!r}: must be none, gzip, snappy, lz4 or zstd"
            )
        planned = {}
        for name in topics:
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
    """Batches of one partition that follow each other, before they are a StagedPart."""

    count: int = 0
    size: int = 0
    crcs: bytearray = field(default_factory=bytearray)
    batches: list[bytes] = field(default_factory=list)
    file: str = ""
    position: int = 0


class StagedWriter:
    """Collects one task's output. Not for several threads."""

    def __init__(self, store: Store, plan: StagingPlan) -> None:
        """`plan` comes from the planner and is for this very store."""
        self._folder = f"{store.path}/{STAGING_FOLDER}"
        self._plan = plan
        self._encoders: dict[str, TopicEncoder] = {}
        self._runs: dict[tuple[str, int], list[_Run]] = {}
        self._own_files: dict[tuple[str, int], files.File] = {}
        self._made: list[str] = []

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
                lambda partition, batch, count: self._take(topic, partition, batch, count),
            )  # fmt: skip
            self._encoders[topic] = encoder
        encoder.add(data, time.time_ns() // 1_000_000)

    def _take(self, topic: str, partition: int, batch: bytes, count: int) -> None:
        place = (topic, partition)
        runs = self._runs.setdefault(place, [_Run()])
        # A part goes into one segment, so it must not be larger than one.
        if runs[-1].size + len(batch) > self._plan.topics[topic].config.segment_bytes and runs[-1].size:
            runs.append(_Run())
        run = runs[-1]
        run.count += count
        run.size += len(batch)
        run.crcs += batch[CRC_AT : CRC_AT + 4]
        run.batches.append(batch)
        if run.file or run.size > _OWN_FILE_SIZE:
            file = self._own_files.get(place) or self._new_file(place)
            for waiting in runs:
                self._write(waiting, file)

    def _new_file(self, place: tuple[str, int]) -> files.File:
        files.make_folder(self._folder)
        file = files.create(f"{self._folder}/{secrets.token_hex(16)}.staged")
        self._made.append(file.path)
        self._own_files[place] = file
        return file

    @staticmethod
    def _write(run: _Run, file: files.File) -> None:
        """Moves a run's bytes from memory behind what the file holds."""
        if run.batches:
            end = file.size()
            if not run.file:
                run.file, run.position = file.path.rpartition("/")[2], end
            file.pwrite(b"".join(run.batches), end)
            run.batches.clear()

    def finish(self) -> list[StagedPart]:
        """Ends the task's output. What is in files is on the disk when this returns.

        Returns:
            The parts, in the order of each partition's records.
        """
        for encoder in self._encoders.values():
            encoder.flush()
        in_memory = [run for runs in self._runs.values() for run in runs if run.batches]
        if self._own_files or sum(run.size for run in in_memory) >= INLINE_LIMIT:
            self._share_file(in_memory)
        for file in self._own_files.values():
            file.sync()
            file.close()
        if self._own_files:
            files.sync_folder(self._folder)
        return [
            StagedPart(
                topic, self._plan.topics[topic].topic_id, partition, run.count, run.size,
                bytes(run.crcs), run.file, run.position, b"".join(run.batches),
            )
            for (topic, partition), runs in sorted(self._runs.items())
            for run in runs
        ]  # fmt: skip

    def _share_file(self, runs: list[_Run]) -> None:
        shared: files.File | None = None
        for run in runs:
            shared = shared or self._new_file(("", -1))
            self._write(run, shared)

    def discard(self) -> None:
        """Removes what was staged, as far as it can; for output that will not be published."""
        for file in self._own_files.values():
            file.close()
        for path in self._made:
            try:
                files.unlink(path)
            except OSError as error:
                log.warning("staged output %s could not be removed: %s", path, error)
