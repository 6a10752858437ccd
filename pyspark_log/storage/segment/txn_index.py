"""The aborted transactions of a segment: its `.txnindex` file (Kafka's TransactionIndex, KIP-98).

Entries of 34 bytes, big-endian: version int16 (0), producer id, first offset, last offset (of the marker)
and last stable offset, int64 each. An entry is in the segment that holds the marker; last offsets
increase. There is no file before the first entry.

Unlike the sparse indexes this one must be complete: a reader of committed records that misses an entry
shows what was aborted. So an entry is written before the marker becomes visible, and a malformed file
is an error, upon which it is rebuilt from the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyspark_log.errors import SideFileError
from pyspark_log.storage.fs import files

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
# Enough for some 8 million aborted transactions, each of which has a marker of 78 bytes in the segment.
_MAX_BYTES = 256 * 1024 * 1024


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted.

    Attributes:
        producer_id: its producer's.
        first_offset: of its first record.
        last_offset: of the marker that aborted it.
        last_stable_offset: once this marker counts, every transaction that begins below it is decided.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Found(NamedTuple):
    """The entries of a segment's index in a range; `complete`: later segments have nothing to add."""

    entries: list[AbortedTransaction]
    complete: bool


def decode_entries(data: bytes, base_offset: int, path: str) -> list[AbortedTransaction]:
    """Decodes an index file. An incomplete last entry is one being written, and is left out.

    Args:
        data: the file's bytes.
        base_offset: of its segment.
        path: named in errors.

    Raises:
        SideFileError: an unknown later version, a marker outside the segment, or last offsets that do not increase.
    """
    entries: list[AbortedTransaction] = []
    before = base_offset - 1
    whole = len(data) - len(data) % _ENTRY.size
    for version, *fields in _ENTRY.iter_unpack(data[:whole]):
        entry = AbortedTransaction(*fields)
        if version > _VERSION or entry.last_offset <= before:
            raise SideFileError(
                f"{path}, entry {len(entries)}: version {version}, marker at offset {entry.last_offset} after "
                f"offset {before}: the index must be rebuilt from the log"
            )
        entries.append(entry)
        before = entry.last_offset
    return entries


def read_entries(path: str, base_offset: int) -> list[AbortedTransaction]:
    """The entries of an index file; none if there is no file. SideFileError as in `decode_entries`."""
    try:
        return decode_entries(files.read_whole(path, _MAX_BYTES), base_offset, path)
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise SideFileError(f"{path}: {error}") from None


def write_entries(path: str, entries: Iterable[AbortedTransaction]) -> None:
    """Rewrites an index file durably and atomically; readers see the old entries or the new ones. OSError."""
    files.replace_whole(path, b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries))


def collect(entries: Sequence[AbortedTransaction], fetch_offset: int, upper: int) -> Found:
    """The aborted transactions of one segment that reach into the offsets [fetch_offset, upper)."""
    found = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper:
            found.append(entry)
        if entry.last_stable_offset >= upper:
            return Found(found, complete=True)
    return Found(found, complete=False)


def collect_all(
    segments: Iterable[Sequence[AbortedTransaction]], fetch_offset: int, upper: int
) -> list[AbortedTransaction]:
    """The aborted transactions that reach into [fetch_offset, upper).

    Args:
        segments: the entries of each segment, from the segment that holds `fetch_offset` on; read one by
            one, and no further than needed, so they can be read from their files on the way.
    """
    found: list[AbortedTransaction] = []
    for entries in segments:
        part = collect(entries, fetch_offset, upper)
        found += part.entries
        if part.complete:
            break
    return found


class TxnIndex:
    """The index of the active segment, for appending. The caller holds the partition's lock."""

    def __init__(self, path: str, base_offset: int) -> None:
        """Opens the index; a missing file is created with the first entry. SideFileError as in `decode_entries`."""
        self._path = path
        self._file: files.File | None = None
        self._last_offsets = [entry.last_offset for entry in read_entries(path, base_offset)]
        if files.exists(path):
            self._file = files.open_write(path)

    def append(self, entry: AbortedTransaction) -> None:
        """Appends an entry. ValueError if its marker is not after the last one's."""
        if self._last_offsets and entry.last_offset <= self._last_offsets[-1]:
            raise ValueError(f"marker at offset {entry.last_offset} is not after {self._last_offsets[-1]}")
        if self._file is None:
            self._file = files.open_or_create(self._path)
        self._file.pwrite(_ENTRY.pack(_VERSION, *entry), len(self._last_offsets) * _ENTRY.size)
        self._last_offsets.append(entry.last_offset)

    def cut(self, offset: int) -> None:
        """Keeps the entries of markers below `offset`, and removes an incomplete entry."""
        while self._last_offsets and self._last_offsets[-1] >= offset:
            self._last_offsets.pop()
        size = len(self._last_offsets) * _ENTRY.size
        if self._file is not None and self._file.size() != size:
            self._file.truncate(size)

    def sync(self) -> None:
        """Makes the entries durable."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
