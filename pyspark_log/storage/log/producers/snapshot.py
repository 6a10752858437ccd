"""The `.snapshot` files: a partition's producers up to (not including) the offset in the file's name.

Layout (Kafka's ProducerStateManager, version 1), big-endian: version int16, CRC-32C uint32 of all that
follows it, count int32; then for each producer 46 bytes: producer id int64, epoch int16, last sequence
int32, last offset int64, offset delta int32, timestamp int64, coordinator epoch int32, first offset of
the open transaction int64 (-1: none). Of a producer's batches only the newest is kept (-1, -1, 0 if it
has none); the order of entries has no meaning.

A snapshot only saves reading the log from its start: a damaged one is deleted, and an older one or the log itself
is used instead.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from pyspark_log.errors import SideFileError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.producers.state import NO_SEQUENCE, ProducerEntry, WrittenBatch
from pyspark_log.storage.record import crc32c
from pyspark_log.storage.segment.file_names import SNAPSHOT, segment_path

# Enough for some 5 million producers.
_MAX_BYTES = 256 * 1024 * 1024
_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_NO_BATCH = WrittenBatch(NO_SEQUENCE, -1, 0, -1)
_NO_OFFSET = -1
_NAME = re.compile(r"([0-9]{20})\.snapshot")

log = logging.getLogger(__name__)


class Snapshot(NamedTuple):
    """The producers of a partition up to (not including) `offset`."""

    offset: int
    entries: list[ProducerEntry]


def encode(entries: Collection[ProducerEntry]) -> bytes:
    """Encodes a snapshot."""
    body = bytearray(_COUNT.pack(len(entries)))
    for entry in entries:
        last = entry.batches[-1] if entry.batches else _NO_BATCH
        first = _NO_OFFSET if entry.txn_first_offset is None else entry.txn_first_offset
        body += _ENTRY.pack(
            entry.producer_id, entry.epoch, last.last_sequence, last.last_offset, last.offset_delta,
            entry.last_timestamp, entry.coordinator_epoch, first,
        )  # fmt: skip
    return _HEAD.pack(_VERSION, crc32c(body)) + bytes(body)


def decode(data: bytes, path: str) -> list[ProducerEntry]:
    """Decodes a snapshot. SideFileError, which names `path`: version, CRC or length is wrong."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise SideFileError(f"{path}: {len(data)} bytes are no producer snapshot")
    version, crc = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise SideFileError(f"{path}: version {version} of the snapshot format; this program reads version {_VERSION}")
    body = memoryview(data)[_HEAD.size :]
    found = crc32c(body)
    if found != crc:
        raise SideFileError(f"{path}: its CRC should be {crc:08x} and is {found:08x}")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise SideFileError(f"{path}: {len(data)} bytes cannot be {count} producers of {_ENTRY.size} bytes each")
    return [_entry(*fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]


def _entry(
    producer_id: int, epoch: int, last_sequence: int, last_offset: int, offset_delta: int,
    timestamp: int, coordinator_epoch: int, first: int,
) -> ProducerEntry:  # fmt: skip
    return ProducerEntry(
        producer_id,
        epoch,
        coordinator_epoch,
        timestamp,
        first if first >= 0 else None,
        (WrittenBatch(last_sequence, last_offset, offset_delta, timestamp),) if last_offset >= 0 else (),
    )


def read(path: str) -> list[ProducerEntry]:
    """Reads a snapshot. SideFileError, which names `path`; FileNotFoundError."""
    try:
        return decode(files.read_whole(path, _MAX_BYTES), path)
    except ValueError as error:
        raise SideFileError(f"{path}: {error}") from None


def list_snapshots(folder: str) -> list[int]:
    """The offsets of the snapshots in a partition's folder, ascending."""
    return sorted(int(match.group(1)) for name in files.list_folder(folder) if (match := _NAME.fullmatch(name)))


def write(folder: str, offset: int, entries: Collection[ProducerEntry]) -> None:
    """Writes the snapshot at `offset`, durably and atomically."""
    files.replace_whole(segment_path(folder, offset, SNAPSHOT), encode(entries))


def load_newest(folder: str, log_start: int, log_end: int) -> Snapshot | None:
    """The newest intact snapshot above the log start and not above the log end; None if there is none.

    Damaged ones on the way are deleted.
    """
    for offset in reversed(list_snapshots(folder)):
        if not log_start < offset <= log_end:
            continue
        path = segment_path(folder, offset, SNAPSHOT)
        try:
            return Snapshot(offset, read(path))
        except SideFileError as error:
            log.warning("deleting a damaged snapshot, and trying an older one: %s", error)
            files.unlink(path)
    return None


def delete(folder: str, offsets: Iterable[int]) -> None:
    """Deletes the snapshots at those offsets."""
    for offset in offsets:
        files.unlink(segment_path(folder, offset, SNAPSHOT))


def strays(offsets: Sequence[int], segment_bases: Collection[int]) -> list[int]:
    """Returns which of the snapshots at `offsets` belong neither to a segment nor to the log end.

    A clean stop leaves a snapshot at the log end, above every segment's base; only the newest such one is kept.
    """
    homeless = [offset for offset in sorted(offsets) if offset not in segment_bases]
    if homeless and homeless[-1] > max(segment_bases, default=-1):
        homeless.pop()
    return homeless
