"""Stages the unpublished output of tasks: complete record batches, under names that cannot be guessed.

A task's output stays in memory while it is small and travels in its commit message; so a micro-batch of a
few rows creates no file. Larger output goes to files in the store's staging folder, synced before the task
reports it: a partition with much output has files of its own, which can become segments of its log. Staged
output is visible to no reader, and a task that dies leaves only files without meaning.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from pyspark_log.config import INT_MAX, TopicConfig
from pyspark_log.errors import UnknownTopicError
from pyspark_log.storage.catalog.store_json import STAGING_FOLDER
from pyspark_log.storage.fs import files
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.storage.publish.staging.agreed_topics import agree
from pyspark_log.storage.publish.staging.encoding import EncodingWriter, Place, Run
from pyspark_log.storage.publish.staging.install import install_size, most_batches
from pyspark_log.storage.publish.staging.plan import PlannedTopic, StagedPart, StagingPlan
from pyspark_log.storage.publish.staging.staged_file import Job

log = logging.getLogger(__name__)

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
