"""Staged files: their names, and reading the record batches in them."""

from __future__ import annotations

import hashlib
import re
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_log.errors import PylogError, StagedOutputError
from pyspark_log.storage.fs import Process, files
from pyspark_log.storage.record import BatchHeader, scan
from pyspark_log.storage.record.layout import crcs_of
from pyspark_log.storage.segment import BatchStream, read_headers

SUFFIX = ".staged"

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


# How many staged bytes are read at a time: calls cost little then, and the bytes stay in the processor's cache.
_READ_SIZE = 512 * 1024


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
