"""Staged record batches of a decision, as whoever applies it finds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark_log.errors import PylogError, StagedOutputError
from pyspark_log.storage.fs import files
from pyspark_log.storage.record import crcs_of, scan
from pyspark_log.storage.segment import first_size

# Staged bytes are read this many at a time: enough that calls cost nothing, little enough for memory.
_READ_SIZE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Region:
    """Staged record batches of one partition, back to back.

    Attributes:
        path: the file that holds them.
        position, size: where in it, in bytes.
        count: how many records, which is how many offsets they take.
        crcs: the batches' CRC fields, 4 bytes each; it tells these batches from all others.
    """

    path: str
    position: int
    size: int
    count: int
    crcs: bytes


def read_region(region: Region) -> Iterator[bytearray]:
    """The batches of a region, whole ones, some at a time, with every CRC checked; a large one comes alone.

    At the end it is known that they are the right ones, so what was done with them counts only then.

    Raises:
        FileNotFoundError: the file is gone.
        CorruptRecordError, StagedOutputError: it holds something else than what was staged.
    """
    crcs, count = bytearray(), 0
    with files.open_read(region.path) as source:
        position, end = region.position, region.position + region.size
        while position < end:
            data = bytearray(source.pread(min(_READ_SIZE, end - position), position))
            headers = scan(data, 0, len(data))
            if not headers and len(data) < first_size(data) <= end - position:
                data = bytearray(source.pread(first_size(data), position))
                headers = scan(data, 0, len(data))
            if not headers:
                raise StagedOutputError(f"{region.path}: no whole record batch at byte {position}")
            del data[headers[-1].end :]
            crcs += crcs_of(scan(data, 0, len(data), check_crcs=True))
            count += sum(header.last_offset_delta + 1 for header in headers)
            position += len(data)
            yield data
    if crcs != region.crcs or count != region.count:
        raise StagedOutputError(f"{region.path}: the bytes at {region.position} are not those that were staged")


def region_fault(region: Region) -> str:
    """What is wrong with staged batches; "" if they are those that were decided."""
    try:
        for _ in read_region(region):
            pass
    except (OSError, PylogError) as error:
        if isinstance(error, FileNotFoundError):
            return "the file is missing"
        return error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return ""
