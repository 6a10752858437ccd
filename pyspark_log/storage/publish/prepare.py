"""Prepares staged output for a decision: merges small pieces, writes the manifest, removes leftovers.

Large files that tasks stage for one partition become segments of its log unchanged. Small pieces are copied while the
partition's lock is held, and many of them, from many tasks, would block other writers for long. The publisher merges
them first, while no other process waits. The same holds for topics with LogAppendTime: the time is covered by the CRCs
of their batches.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pyspark_log.config import INT_MAX, TopicConfig
from pyspark_log.errors import CorruptRecordError, PylogError, StagedOutputError, UnknownTopicError
from pyspark_log.storage.catalog.store_json import STAGING_FOLDER, STATE_FOLDER
from pyspark_log.storage.fs import files, side_by_side
from pyspark_log.storage.fs.mounts import is_shared
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.storage.publish.applier import Entries, entries_of, staging_folder, unlink_all
from pyspark_log.storage.publish.decision import TopicIdPartition
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.staging import manifest
from pyspark_log.storage.publish.staging.staged_file import (
    Job,
    StagedRegion,
    copy_limit,
    install_size,
    is_copied_anywhere,
    job_of,
    most_batches,
    read_region,
)
from pyspark_log.storage.publish.staging.staged_writer import PartFile, StagedPart
from pyspark_log.storage.record import scan
from pyspark_log.storage.record.headers import set_log_append_time
from pyspark_log.storage.record.layout import crcs_of
from pyspark_log.types import OffsetStep

log = logging.getLogger(__name__)

# How many partitions are merged in parallel.
_THREADS = 4


@dataclass(frozen=True, slots=True)
class Gathered:
    """Staged output that is ready to be published.

    Attributes:
        parts: all of it, each partition's in order.
        time: the time (ms) that records of topics with LogAppendTime must get, as some already have it; 0: any.
    """

    parts: Sequence[StagedPart]
    time: int


def gather(logs: LogManager, parts: Sequence[StagedPart]) -> Gathered:
    """Merges staged output where its pieces are many and small, durably. The pieces stay.

    Args:
        logs: the store's logs.
        parts: the output.

    Raises:
        StagedOutputError: staged output is gone, or is not what was staged.
        OSError: e.g. a full disk. New files were removed.
    """
    # Where other hosts may have a file open, none becomes a segment; see applier.py.
    if is_copied_anywhere(sum(part.size for part in parts)) or is_shared(f"{logs.path}/{STATE_FOLDER}"):
        return Gathered(list(parts), 0)
    shared_files = {name for name, count in Counter(part.file for part in parts).items() if count > 1 or not name}
    places: dict[tuple[str, int, str], list[StagedPart]] = {}
    for part in parts:
        places.setdefault((part.topic, part.partition, part.topic_id), []).append(part)
    time = logs.clock()
    job = Job.new()
    work = [_Place(logs, list(of_place), shared_files, time, job) for of_place in places.values()]
    wanting = [place for place in work if place.wants_gathering]
    if not wanting:
        return Gathered(list(parts), 0)
    try:
        side_by_side(lambda place: place.gather(), wanting, _THREADS)
        files.sync_folder(f"{logs.path}/{STAGING_FOLDER}")
    except BaseException as error:
        for path in [path for place in wanting for path in place.made]:
            files.unlink(path)
        if isinstance(error, FileNotFoundError | CorruptRecordError):
            raise StagedOutputError(f"staged output that was about to be published: {error}") from error
        raise
    restamped = any(place.restamps for place in wanting)
    return Gathered([part for place in work for part in place.parts], time if restamped else 0)


class _Place:
    """The output for one partition.

    Attributes:
        parts: the staged output.
        made: the files that were created for it.
        restamps: whether its records get the time of the append.
        wants_gathering: whether some of it is to be merged.
    """

    def __init__(
        self, logs: LogManager, parts: list[StagedPart], shared_files: Iterable[str], time: int, job: Job
    ) -> None:
        self.parts = parts
        self.made: list[str] = []
        self._folder = f"{logs.path}/{STAGING_FOLDER}"
        self._time = time
        self._job = job
        try:
            self._config: TopicConfig = logs.topic_config(parts[0].topic)
        except UnknownTopicError:
            self.restamps = self.wants_gathering = False  # The publish will be refused.
            return
        self.restamps = self._config.log_append_time
        self._little = [
            self.restamps or part.file in shared_files or part.size < install_size(self._config) for part in parts
        ]
        limit = copy_limit(self._config)
        sizes = (part.size for part, little in zip(parts, self._little, strict=True) if little)
        self.wants_gathering = sum(sizes) > limit

    def gather(self) -> None:
        """Copies small pieces into new files, durably; each is no larger than a segment."""
        parts, file = list[StagedPart](), None
        for part, little in zip(self.parts, self._little, strict=True):
            if file is not None and not (little and self._fits(file, part)):
                parts.append(self._end(file, part))
                file = None
            if not little:
                parts.append(part)
                continue
            if file is None:
                file = PartFile(self._folder, self._job)
                self.made.append(file.file.path)
            self._copy(part, file)
        if file is not None:
            parts.append(self._end(file, self.parts[-1]))
        self.parts = parts

    def _fits(self, file: PartFile, part: StagedPart) -> bool:
        return (
            file.size + part.size <= self._config.segment_bytes
            and file.count + part.count <= INT_MAX
            and file.batches + len(part.crcs) // 4 <= most_batches(self._config)
        )

    def _copy(self, part: StagedPart, file: PartFile) -> None:
        path = f"{self._folder}/{part.file}"
        for data in read_region(StagedRegion(path, part.position, part.size, part.count, part.crcs, part.data)):
            if self.restamps:
                set_log_append_time(data, 0, len(data), self._time)
            headers = scan(data, 0, len(data))
            file.add(data, sum(header.last_offset_delta + 1 for header in headers), crcs_of(headers))

    def _end(self, file: PartFile, part: StagedPart) -> StagedPart:
        file.file.sync()
        file.file.close()
        return file.part(part.topic, part.partition, part.topic_id)


@dataclass(frozen=True, slots=True)
class Output:
    """Staged output as a decision can name it.

    Attributes:
        pieces: as it was handed in.
        parts: as it is published, which is the same where nothing was merged.
        time: the time (ms) that records of topics with LogAppendTime must get; 0: any.
        manifest: the manifest's name; "": there is nothing to publish.
        manifest_crc: the CRC-32C of its description.
        inline_start: where in the manifest the output begins that is in no other file, in bytes.
    """

    pieces: Sequence[StagedPart]
    parts: Sequence[StagedPart]
    time: int
    manifest: str = ""
    manifest_crc: int = 0
    inline_start: int = 0

    @classmethod
    def make(
        cls, logs: LogManager, pieces: Sequence[StagedPart], offsets: Sequence[OffsetStep], *, gathers: bool
    ) -> Output:
        """Merges many small pieces, and writes the manifest. Raises: as `gather` and `manifest.write`."""
        gathered = gather(logs, pieces) if gathers else Gathered(pieces, 0)
        output = cls(pieces, gathered.parts, gathered.time)
        if not gathered.parts:
            return output
        try:
            name, crc, start = manifest.write(staging_folder(logs), gathered.parts, offsets)
        except BaseException:
            output.remove_made(logs)
            raise
        return replace(output, manifest=name, manifest_crc=crc, inline_start=start)

    def entries(self, logs: LogManager) -> Entries:
        """What the decision adds to each partition, as `manifest.read` would return it."""
        return manifest.entries(staging_folder(logs), self.manifest, self.inline_start, self.parts)

    def places(self) -> tuple[TopicIdPartition, ...]:
        """The partitions that get records, in the order of the parts."""
        return tuple(dict.fromkeys(TopicIdPartition(part.topic, part.topic_id, part.partition) for part in self.parts))

    def remove_made(self, logs: LogManager) -> None:
        """Removes the merged files and the manifest, which no decision names; the pieces stay."""
        _unlink_names(logs, self._files(self.parts) - self._files(self.pieces) | {self.manifest})

    def remove_gathered(self, logs: LogManager) -> None:
        """Removes the pieces that were merged; the decision names the merged files."""
        _unlink_names(logs, self._files(self.pieces) - self._files(self.parts))

    def drop(self, decisions: DecisionLog, publisher: str) -> None:
        """Removes output that will not be published.

        Files that the publisher's last decision names stay: a call that is repeated after an error hands in the
        same files that the first call may have decided.
        """
        names = self._files(self.pieces) | self._files(self.parts) | {self.manifest}
        last = decisions.last.get(publisher)
        if last is not None and not last.done:
            try:
                names -= {os.path.basename(path) for path in manifest.paths(entries_of(decisions, last))}
            except (PylogError, OSError) as error:
                log.warning("%s: staged output remains until it expires: %s", decisions.logs.path, error)
                return
        _unlink_names(decisions.logs, names)

    @staticmethod
    def _files(parts: Iterable[StagedPart]) -> set[str]:
        return {part.file for part in parts}


def discard(logs: LogManager, parts: Iterable[StagedPart]) -> None:
    """Removes staged output that was never handed to `publish`; best effort."""
    _unlink_names(logs, {part.file for part in parts})


def discard_job(logs: LogManager, job: Job) -> None:
    """Removes all that the tasks of a job have staged, of which nothing was handed to `publish`; best effort."""
    folder = staging_folder(logs)
    try:
        names = files.list_folder(folder)
    except FileNotFoundError:
        return
    unlink_all(logs, [f"{folder}/{name}" for name in names if job_of(name) == job])


def _unlink_names(logs: LogManager, names: Iterable[str]) -> None:
    """Removes files of the staging folder; "" is skipped."""
    unlink_all(logs, [f"{staging_folder(logs)}/{name}" for name in names if name])
