"""Stages the unpublished output of tasks: complete record batches, under names that cannot be guessed.

A task's output stays in memory while it is small and travels in its commit message; so a micro-batch of a
few rows creates no file. Larger output goes to files in the store's staging folder, synced before the task
reports it: a partition with much output has files of its own, which can become segments of its log. Staged
output is visible to no reader, and a task that dies leaves only files without meaning.

The tasks of a job know its topics beforehand, from the job's plan, and give back parts. `EncodingWriter` is the half
that is the same wherever output is staged: rows become record batches of their partitions.
"""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pyspark_log.config import INT_MAX, TopicConfig, check_compression_type
from pyspark_log.errors import UnknownTopicError
from pyspark_log.storage.catalog import check_not_internal
from pyspark_log.storage.catalog.store_json import STAGING_FOLDER
from pyspark_log.storage.fs import Process, files
from pyspark_log.storage.ingest.encoder import FILLING_BYTES, RecordAccumulator
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.storage.publish.staging.agreed_topics import AgreedTopic, agree
from pyspark_log.storage.publish.staging.staged_file import Job, install_size, most_batches
from pyspark_log.storage.record.layout import CRC_AT
from pyspark_log.storage.seam import StagingWriter
from pyspark_log.types import NO_TIMESTAMP

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

#: A topic and the number of one of its partitions.
Place: TypeAlias = "tuple[str, int]"
#: A task whose whole output is smaller than this (bytes) sends it in its commit message instead of creating a file.
INLINE_LIMIT = 256 * 1024
# How many bytes a task keeps in memory before it writes them to files, besides the batches that it is filling.
_MEMORY = 32 * 1024 * 1024
# From then on the task's output is large. A partition with this much of the kept bytes gets a file of its own,
# so that a file's cost is small against its content; up to _OWN_FILES are open at a time.
_OWN_FILE_SIZE = _MEMORY // 64
_OWN_FILES = 64
# A partition with this much gets one before that, so that the disk has its part of the work early.
_BEGIN = 2 * 1024 * 1024
# Output is appended to an existing file in pieces of this many bytes, while they are in the processor's cache.
_PIECE = _OWN_FILE_SIZE // 2
# After how many more bytes the disk begins to write such a file, so that its sync has little left to wait for.
_WRITE_BACK = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StagedPart:
    """Record batches for one partition, back to back, with offsets from 0.

    Attributes:
        topic, partition, topic_id: the partition that they are for.
        count: how many records.
        size: bytes.
        crcs: the CRC fields of the batches, 4 bytes each, in order.
        file: the staged file's name, or "" if `data` holds the bytes.
        position: where in the file, in bytes.
        data: the bytes, if there is no file.
        max_timestamp: the largest time of a record (ms), in an object of staged output; else it is not known.
    """

    topic: str
    partition: int
    topic_id: str
    count: int
    size: int
    crcs: bytes
    file: str = ""
    position: int = 0
    data: bytes = b""
    max_timestamp: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """The facts about a topic on which all tasks must agree, even if the topic changes while they run."""

    topic_id: str
    partitions: int
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class StagingPlan:
    """The topics as they were when the job was planned; created once, and sent to every task.

    Tasks that looked them up themselves could hash keys over different counts while partitions are added.

    Attributes:
        cluster_id: which store it is for.
        topics: by name.
        job: the job, after which all tasks name their files.
        compression_type: the codec of the writer's choice, for topics that leave it to the writer, or None.
        others: whether tasks may write to topics that are not among these; then they create missing ones.
    """

    cluster_id: str
    topics: Mapping[str, PlannedTopic]
    job: Job = field(default_factory=Job.new)
    compression_type: str | None = None
    others: bool = False

    @classmethod
    def make(
        cls,
        logs: LogManager,
        topics: Iterable[str],
        compression_type: str | None = None,
        owner: Process | None = None,
        *,
        others: bool = False,
    ) -> StagingPlan:
        """Looks the topics up.

        Args:
            logs: the store's logs.
            topics: their names.
            compression_type, others: as the attributes.
            owner: the process without which the staged output is never published; None: this one. Once it is dead,
                its undecided staged output is deleted soon.

        Raises:
            UnknownTopicError: one of them does not exist.
            InvalidTopicError: it is one of the engine's own.
            InvalidConfigError: there is no such codec.
        """
        logs.check_writable()
        check_compression_type(compression_type)
        planned = {}
        for name in topics:
            check_not_internal(name)
            description = logs.describe_topic(name)
            config = TopicConfig.resolve(description.configs, logs.configs, compression_type)
            planned[name] = PlannedTopic(description.topic_id, description.partitions, config)
        return cls(logs.cluster_id, planned, Job.new(owner), compression_type=compression_type, others=others)


@dataclass(slots=True)
class Run:
    """Batches of one partition that follow each other, in memory."""

    count: int = 0
    size: int = 0
    batches: list[bytes] = field(default_factory=list)

    def add(self, batch: bytes, count: int) -> None:
        """Adds a batch with `count` records."""
        self.count += count
        self.size += len(batch)
        self.batches.append(batch)

    def crcs(self) -> bytes:
        """The CRC fields of the batches, in order."""
        return b"".join(batch[CRC_AT : CRC_AT + 4] for batch in self.batches)

    def part(self, place: Place, topic_id: str) -> StagedPart:
        """The batches as a part without a file."""
        return StagedPart(*place, topic_id, self.count, self.size, self.crcs(), data=b"".join(self.batches))


class EncodingWriter(StagingWriter):
    """Encodes rows; where the batches go is the matter of the kinds."""

    def __init__(self, plan: StagingPlan, clock: Callable[[], int]) -> None:
        """`plan` comes from the planner and is for this store; `clock` gives the time in ms."""
        self.agreed: list[AgreedTopic] = []
        self._plan, self._clock = plan, clock
        self._planned: dict[str, PlannedTopic] = {}  # the topics that it has written to
        self._encoders: dict[str, RecordAccumulator] = {}
        self._runs: dict[Place, Run] = {}
        self._size = 0  # bytes of all runs

    def append(self, topic: str, data: pa.RecordBatch) -> None:
        encoder = self._encoders.get(topic)
        if encoder is None:
            planned = self._planned[topic] = self._plan.topics.get(topic) or self._other(topic)
            encoder = self._encoders[topic] = RecordAccumulator(
                topic,
                planned.partitions,
                planned.config,
                lambda partition, batch, count: self._take((topic, partition), batch, count),
            )
        encoder.add(data, self._clock())
        encoders = self._encoders.values()
        if len(encoders) > 1 and sum(encoder.held for encoder in encoders) > FILLING_BYTES:
            for encoder in encoders:
                encoder.flush()

    def _other(self, topic: str) -> PlannedTopic:
        """A topic that the plan lacks, as all tasks see it."""
        if not self._plan.others:
            raise UnknownTopicError(f"there was no topic {topic!r} when this write was planned; create it first")
        return self._agree(topic)

    @abstractmethod
    def _agree(self, topic: str) -> PlannedTopic:
        """Finds or creates a topic that the plan lacks, and adds it to `agreed`."""

    @abstractmethod
    def _take(self, place: Place, batch: bytes, count: int) -> None:
        """Takes a batch with `count` records of a partition."""

    def _flush(self) -> None:
        """Encodes what was not yet; no more is appended."""
        for encoder in self._encoders.values():
            encoder.flush()

    def _inline(self) -> list[StagedPart]:
        """The runs as parts without a file."""
        return [run.part(place, self._planned[place[0]].topic_id) for place, run in self._runs.items()]


class PartFile:
    """A file being written that holds batches of one partition only, so it can become a segment of its log.

    Attributes:
        file: where.
        count: how many records it has.
        size: bytes.
    """

    def __init__(self, folder: str, job: Job) -> None:
        """Creates it in the staging folder, which is created if it is missing."""
        files.make_folder(folder)
        self.file = files.create(f"{folder}/{job.new_name()}")
        self.count = self.size = 0
        self._crcs = bytearray()
        self._begun = 0  # how many of the bytes the disk was asked to write

    @property
    def batches(self) -> int:
        """The number of its batches."""
        return len(self._crcs) // 4

    def add(self, data: bytes | bytearray | memoryview, count: int, crcs: bytes) -> None:
        """Adds whole batches with `count` records."""
        self.file.pwrite(data, self.size)
        self.count += count
        self.size += len(data)
        self._crcs += crcs
        if self.size - self._begun >= _WRITE_BACK:
            self.file.begin_sync(self._begun, self.size - self._begun)
            self._begun = self.size

    def part(self, topic: str, partition: int, topic_id: str) -> StagedPart:
        """Its content, as a part for that partition."""
        name = os.path.basename(self.file.path)
        return StagedPart(topic, partition, topic_id, self.count, self.size, bytes(self._crcs), name)


class StagedWriter(EncodingWriter):
    """Stages in memory, and in files of the staging folder."""

    def __init__(self, logs: LogManager, plan: StagingPlan, create: Callable[[str], bool] | None = None) -> None:
        """`plan` comes from the planner and is for this store; `create`: as of agree. ReadOnlyError."""
        logs.check_writable()
        super().__init__(plan, logs.clock)
        self._logs, self._create = logs, create
        self._folder = f"{logs.path}/{STAGING_FOLDER}"
        self._files: list[files.File] = []
        self._shared: files.File | None = None  # for partitions with little output
        self._written = 0  # bytes of the shared file
        self._own: dict[Place, PartFile] = {}
        self._parts: list[StagedPart] = []

    def _agree(self, topic: str) -> PlannedTopic:
        agreed = agree(self._logs, self._plan.job, topic, self._create)
        self.agreed.append(agreed)
        description = self._logs.describe_topic(topic)
        if description.topic_id != agreed.topic_id:
            raise UnknownTopicError(f"topic {topic!r} was deleted and recreated during this write")
        config = TopicConfig.resolve(description.configs, self._logs.configs, self._plan.compression_type)
        return PlannedTopic(agreed.topic_id, agreed.partitions, config)

    def _take(self, place: Place, batch: bytes, count: int) -> None:
        if self._is_full(place, batch, count):
            self._write(place, _OWN_FILE_SIZE)
            self._end_part(place)
        run = self._runs.setdefault(place, Run())
        run.add(batch, count)
        self._size += len(batch)
        if run.size >= (_PIECE if place in self._own else _BEGIN):
            self._write(place, _OWN_FILE_SIZE)
        elif self._size > _MEMORY:
            self._spill()

    def _is_full(self, place: Place, batch: bytes, count: int) -> bool:
        """Whether the partition's part cannot take one more batch: a part goes into one segment, or is one."""
        run, own = self._runs.get(place, Run()), self._own.get(place)
        size, records, batches = run.size, run.count, len(run.batches)
        if own is not None:
            size, records, batches = size + own.size, records + own.count, batches + own.batches
        config = self._planned[place[0]].config
        return batches > 0 and (
            size + len(batch) > config.segment_bytes or records + count > INT_MAX or batches >= most_batches(config)
        )

    def _spill(self) -> None:
        """Moves what is in memory to files."""
        for place in list(self._runs):
            self._write(place, _OWN_FILE_SIZE)

    def _write(self, place: Place, own_size: int) -> None:
        """Moves a partition's kept bytes to its own file if it has one or they are at least `own_size`, else to the
        shared one.
        """
        run = self._runs.pop(place, None)
        if run is None:
            return
        self._size -= run.size
        own = self._own.get(place)
        if own is None and run.size >= own_size and len(self._own) < _OWN_FILES:
            own = self._own[place] = PartFile(self._folder, self._plan.job)
            self._files.append(own.file)
        data = b"".join(run.batches)
        if own is not None:
            own.add(data, run.count, run.crcs())
            return
        if self._shared is None:
            files.make_folder(self._folder)
            self._shared = files.create(f"{self._folder}/{self._plan.job.new_name()}")
            self._files.append(self._shared)
        self._shared.pwrite(data, self._written)
        name = os.path.basename(self._shared.path)
        self._parts.append(
            StagedPart(*place, self._topic_id(place), run.count, run.size, run.crcs(), name, self._written)
        )
        self._written += run.size

    def _end_part(self, place: Place) -> None:
        """Ends the partition's own file as a part; the next part gets another file."""
        own = self._own.pop(place, None)
        if own is not None:
            self._parts.append(own.part(*place, self._topic_id(place)))

    def _topic_id(self, place: Place) -> str:
        return self._planned[place[0]].topic_id

    def finish(self) -> list[StagedPart]:
        self._flush()
        if not self._files and self._size < INLINE_LIMIT:
            return self._inline()
        for place in list(self._runs):
            # No more output follows, so a file pays off only if it can become a segment.
            self._write(place, install_size(self._planned[place[0]].config))
        for place in list(self._own):
            self._end_part(place)
        for file in self._files:
            file.sync()
            file.close()
        files.sync_folder(self._folder)
        return self._parts

    def discard(self) -> None:
        for file in self._files:
            file.close()
            try:
                files.unlink(file.path)
            except OSError as error:
                log.warning("staged output %s could not be removed: %s", file.path, error)
