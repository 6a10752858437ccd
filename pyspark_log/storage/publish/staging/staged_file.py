"""Staged files: their names, the record batches in them, and which of them become segments of a log.

log/appending/new_segment.py makes a segment of one.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pyspark_log.config import TopicConfig
from pyspark_log.errors import CorruptRecordError, PylogError, StagedOutputError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import Process, files
from pyspark_log.storage.fs.links import on_one_device
from pyspark_log.storage.record import BatchHeader, scan
from pyspark_log.storage.record.layout import LOG_APPEND_TIME, crcs_of
from pyspark_log.storage.segment import BatchStream, read_headers
from pyspark_log.storage.segment.indexes import TimeIndex

SUFFIX = ".staged"
# How many staged bytes are read at a time: calls cost little then, and the bytes stay in the processor's cache.
_READ_SIZE = 512 * 1024
# What a decision adds to a partition is copied if it is at most segment.bytes / 8, within these bounds (bytes): the
# copy is quick, and the segment would be a small one. More is copied only if nothing else is possible.
_COPY_LEAST, _COPY_MOST = 4 * 1024 * 1024, 32 * 1024 * 1024
# Beyond that, a file becomes a segment if it has segment.bytes / 8, or this much.
_INSTALL_MOST = 8 * 1024 * 1024
# No name leads out of the folder. Files of unknown jobs are 32 hex digits.
_NAME = re.compile(
    r"(?:(?P<host>[A-Za-z0-9._-]+)\.(?P<process>\d+)\.(?:(?P<birth>[0-9a-f]{16}-[0-9a-f]{1,16})\.)?(?P<job>[0-9a-f]{8})\.)?"
    r"[0-9a-f]{24,32}\.staged"
)


class Job(NamedTuple):
    """A job that stages output: one Spark write, or one transaction.

    Attributes:
        host: where its owner runs.
        owner: the process without which its output is never published.
        mark: distinguishes it from other jobs of the same process.
    """

    host: str
    owner: Process
    mark: str

    @classmethod
    def new(cls, owner: Process | None = None) -> Job:
        """A job of this process, or of another one on this host."""
        host = re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname())[:64] or "unknown"
        return cls(host, owner or Process.here(), secrets.token_hex(4))

    def new_name(self) -> str:
        """A name for a file of the job."""
        return self._name(secrets.token_hex(12))

    def name_for(self, topic: str) -> str:
        """The name of the job's file about a topic; the same in all its tasks."""
        return self._name(hashlib.blake2b(topic.encode(), digest_size=12).hexdigest())

    def _name(self, digits: str) -> str:
        birth = f".{self.owner.birth}" if self.owner.birth else ""
        return f"{self.host}.{self.owner.number}{birth}.{self.mark}.{digits}{SUFFIX}"


def is_staged_name(name: str) -> bool:
    """Whether `name` is a valid name of a staged file."""
    return _NAME.fullmatch(name) is not None


def job_of(name: str) -> Job | None:
    """The job of a staged file; None if its name does not contain it."""
    match = _NAME.fullmatch(name)
    if match is None or match["host"] is None:
        return None
    return Job(match["host"], Process(int(match["process"]), match["birth"] or ""), match["job"])


@dataclass(frozen=True, slots=True)
class StagedRegion:
    """Staged record batches of one partition, back to back.

    Attributes:
        path: the file that holds them.
        position, size: where in it, in bytes.
        count: how many records, which is how many offsets they take.
        crcs: the batches' CRC fields, 4 bytes each; they identify these batches.
        data: the batches, if this process has them in memory, so that it need not read them; else empty.
    """

    path: str
    position: int
    size: int
    count: int
    crcs: bytes
    data: bytes = b""

    def read(self) -> Iterator[memoryview]:
        """As `read_region`."""
        return read_region(self)


def read_region(region: StagedRegion) -> Iterator[memoryview]:
    """Reads the batches of a region, some complete batches at a time, with every CRC checked; a large one comes alone.

    Only the end of the iteration proves that they are the staged ones, so use the result only then. What is yielded may
    be written to, and is valid until the next is asked for.

    Raises:
        FileNotFoundError: the file is gone.
        CorruptRecordError, StagedOutputError: it holds something else than what was staged.
    """
    crcs, count = bytearray(), 0
    for data, headers in _in_memory(region) if region.data else _in_file(region):
        crcs += crcs_of(headers)
        count += sum(header.last_offset_delta + 1 for header in headers)
        if headers:
            yield data
    if crcs != region.crcs or count != region.count:
        raise StagedOutputError(f"{region.path}: the bytes at {region.position} are not those that were staged")


def _in_memory(region: StagedRegion) -> Iterator[tuple[memoryview, list[BatchHeader]]]:
    data = memoryview(bytearray(region.data))
    yield data, scan(data, 0, len(data), check_crcs=True)


def _in_file(region: StagedRegion) -> Iterator[tuple[memoryview, list[BatchHeader]]]:
    end = region.position + region.size

    def take(buffer: memoryview, at: int, filled: int) -> tuple[int, tuple[memoryview, list[BatchHeader]]]:
        headers = scan(buffer, at, filled, check_crcs=True)
        taken = headers[-1].end if headers else at
        return taken, (buffer[at:taken], headers)

    with files.open_read(region.path) as source:
        if source.size() < end:
            raise StagedOutputError(f"{region.path} has {source.size()} bytes, expected {end}")
        yield from BatchStream(region.size, window=_READ_SIZE).read(source, region.position, end, take)


def headers_of(region: StagedRegion) -> Iterator[BatchHeader]:
    """The headers of a region's batches, unchecked. FileNotFoundError, CorruptRecordError."""
    if region.data:
        yield from scan(region.data, 0, region.size)
        return
    with files.open_read(region.path) as source:
        yield from read_headers(source, region.position, region.position + region.size)


def region_fault(region: StagedRegion) -> str:
    """The problem with staged batches; "" if they are the decided ones."""
    try:
        for _ in read_region(region):
            pass
    except (OSError, PylogError) as error:
        if isinstance(error, FileNotFoundError):
            return "the file is missing"
        return error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return ""


class Ways(Enum):
    """The ways in which staged batches may get into the log."""

    BY_SIZE = 1
    COPIED = 2  # because nothing else is possible
    INSTALLED = 3  # because there is no room for copies


def copy_limit(config: TopicConfig) -> int:
    """The most bytes of a decision that are copied into a partition of a topic while its lock is held."""
    return max(_COPY_LEAST, min(_COPY_MOST, config.segment_bytes // 8))


def is_copied_anywhere(size: int) -> bool:
    """Whether this many bytes of a decision are within the copy limit of every topic."""
    return size <= _COPY_LEAST


def install_size(config: TopicConfig) -> int:
    """The least size, in bytes, at which a file may become a segment of its own."""
    return min(_INSTALL_MOST, config.segment_bytes // 8)


def most_batches(config: TopicConfig) -> int:
    """The most batches that a staged file may have, so that the indexes have room for each of them."""
    # One entry of the time index is the closing entry. An offset index of that size has room for more.
    return max(1, config.segment_index_bytes // TimeIndex.WIDTH - 1)


def choose(
    regions: Sequence[StagedRegion], place: PartitionPath, config: TopicConfig, append_time: int | None, ways: Ways
) -> list[bool]:
    """Chooses the regions that are to become segments.

    Args:
        regions: all that a decision adds to a partition.
        place, config: the partition, and its topic's configs.
        append_time: the time of all records if the topic has LogAppendTime, in ms; else None.
        ways: the ways that are allowed.
    """
    chosen = [False] * len(regions)
    left = sum(region.size for region in regions)
    if ways is Ways.COPIED or (ways is Ways.BY_SIZE and left <= copy_limit(config)):
        return chosen
    # The largest first; a region too small for a segment only if too much would be copied otherwise.
    for number in sorted(range(len(regions)), key=lambda number: -regions[number].size):
        region = regions[number]
        if ways is Ways.BY_SIZE and region.size < install_size(config) and left <= copy_limit(config):
            break
        # Where there is no room for copies, one made beforehand finds none either.
        is_fit = can_be_linked(region, place) if ways is Ways.INSTALLED else _is_whole_file(region)
        if is_fit and (append_time is None or _has_time(region, append_time)):
            chosen[number] = True
            left -= region.size
    return chosen


def _is_whole_file(region: StagedRegion) -> bool:
    """Whether a region is a file of its own."""
    try:
        return region.position == 0 and files.size_of(region.path) == region.size
    except FileNotFoundError:
        return False  # Reading it reports the error.


def can_be_linked(region: StagedRegion, place: PartitionPath) -> bool:
    """Whether a region is a file of its own, on the device of its log, with access for every process that has access to
    the partition's files.
    """
    try:
        found, wanted = files.status_of(region.path), files.status_of(place.state_path)
        if not on_one_device(os.path.dirname(region.path), os.path.dirname(place.folder)):
            return False
    except FileNotFoundError:
        return False
    same_rights = (found.st_mode, found.st_gid) == (wanted.st_mode, wanted.st_gid)
    same_owner = found.st_uid == wanted.st_uid or bool(found.st_mode & stat.S_IWGRP)
    return _is_whole_file(region) and same_rights and same_owner


def _has_time(region: StagedRegion, append_time: int) -> bool:
    """Whether all records of a region have the time of the append already; it is under the CRC."""
    try:
        with files.open_read(region.path) as file:
            return all(
                header.attributes & LOG_APPEND_TIME and header.max_timestamp == append_time
                for header in read_headers(file, 0, region.size)
            )
    except (FileNotFoundError, CorruptRecordError):
        return False
