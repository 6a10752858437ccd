"""A cache of a partition's inactive segments: where each begins and ends, and how late its records are.

One small file beside the state file, to which a roll adds an entry. Without it, a first lookup has to list the
folder, and one by time has to open the time index of each segment: the longer the log, the longer it takes.

The cache is never synced. Each entry has a CRC and is a fact about a range of offsets by itself; since an offset
that was shown never gets another record, it stays true, whatever becomes of the segments' files, and whichever other
entries are missing, old or out of order. Two rules keep false entries out. An entry for a segment that is not
inactive (yet, or any more, after a truncation) does not count; and before offsets are given to other records,
entries that reach beyond the log's active segment are removed, durably.

Layout: docs/internals/format.md.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state.partition_state import PartitionState
from pyspark_log.storage.record import crc32c
from pyspark_log.storage.segment import SegmentReader
from pyspark_log.types import NO_TIMESTAMP

VERSION = 1
_BODY = struct.Struct(">qqqqqI")
_ENTRY = struct.Struct(_BODY.format + "I")
WIDTH = _ENTRY.size
# A search reads the last N entries at once: fewer calls for slightly more bytes.
_AT_ONCE = 32
# How many entries are read at a time when all are read.
_BLOCK = 1024


class CachedSegment(NamedTuple):
    """One inactive segment, and the log up to its end.

    Attributes:
        first_offset: the offset from which on `largest_so_far` holds, the base of an earlier segment.
        base_offset: its own.
        next_offset: that of the segment after it.
        largest: no record of [base_offset, next_offset) has a later time (ms); NO_TIMESTAMP: none has one.
        largest_so_far: no record of [first_offset, next_offset) has a later time.
    """

    first_offset: int
    base_offset: int
    next_offset: int
    largest: int
    largest_so_far: int


def _seed(place: PartitionPath) -> int:
    """The seed of the CRCs, so that no entry is valid in another partition's file."""
    return crc32c(os.path.basename(place.state_path).encode())


def _encode(entry: CachedSegment, seed: int) -> bytes:
    return _ENTRY.pack(*entry, VERSION, crc32c(_BODY.pack(*entry, VERSION), seed))


def _decode(data: bytes, at: int, seed: int) -> CachedSegment | None:
    *fields, version, crc = _ENTRY.unpack_from(data, at)
    if version != VERSION or crc != crc32c(data[at : at + _BODY.size], seed):
        return None
    return CachedSegment(*fields)


def _entries(file: files.File, seed: int, start: int, end: int) -> list[CachedSegment | None]:
    """The entries with the numbers [start, end), as far as they exist; None for each that is torn."""
    data = file.pread((end - start) * WIDTH, start * WIDTH)
    return [_decode(data, at, seed) for at in range(0, len(data) - WIDTH + 1, WIDTH)]


def _all_entries(file: files.File, seed: int) -> Iterator[CachedSegment | None]:
    for start in range(0, file.size() // WIDTH, _BLOCK):
        yield from _entries(file, seed, start, start + _BLOCK)


def read_all(place: PartitionPath) -> Iterator[CachedSegment | None]:
    """All entries of a partition; None for each that is torn. OSError."""
    try:
        file = files.open_read(place.segments_path)
    except FileNotFoundError:
        return
    yield from _all_entries(file, _seed(place))


class SegmentCache:
    """Looks up the cached entries for readers. What is not cached, they find in the segments.

    Safe to use from several threads.
    """

    def __init__(self, place: PartitionPath) -> None:
        self._path = place.segments_path
        self._seed = _seed(place)
        # The last entries that were read, and the generation of the segments then.
        self._last: tuple[int, Sequence[CachedSegment]] = (-1, ())

    def holding(self, offset: int, state: PartitionState) -> CachedSegment | None:
        """The inactive segment that holds `offset`; None: not known."""
        generation, entries = self._last
        if generation != state.generation or (segment := _holding(entries, offset)) is None:
            entries = self._search(lambda entry: entry.next_offset > offset, state)
            segment = _holding(entries, offset)
        return segment

    def start_by_time(self, timestamp: int, state: PartitionState) -> int:
        """Where to start the search for `timestamp` (ms): no readable record before it is of then or later."""

        def reaches(entry: CachedSegment) -> bool:
            return entry.largest_so_far >= timestamp or entry.next_offset > state.active_base

        start = state.log_start
        for entry in self._search(reaches, state):
            if entry.first_offset <= state.log_start and not reaches(entry):
                start = max(start, entry.next_offset)
        return start

    def largest_timestamp(self, state: PartitionState) -> tuple[int, int]:
        """A time (ms) that no record before an offset exceeds, and that offset, as far as is known."""
        entries = self._search(lambda entry: entry.next_offset >= state.active_base, state)
        for entry in reversed(entries):
            if entry.first_offset <= state.log_start < entry.next_offset <= state.active_base:
                return entry.largest_so_far, entry.next_offset
        return NO_TIMESTAMP, state.log_start

    def _search(self, reached: Callable[[CachedSegment], bool], state: PartitionState) -> Sequence[CachedSegment]:
        """Some entries around the first for which `reached` holds, as it does for all after that one."""
        if state.log_start >= state.active_base:
            return ()
        try:
            with files.open_read(self._path) as file:
                around = self._around(file, reached)
        except OSError:
            # It does not exist, or another machine deleted it, or the disk cannot read it.
            return ()
        entries = [entry for entry in around if entry is not None]
        self._last = (state.generation, entries)
        return entries

    def _around(self, file: files.File, reached: Callable[[CachedSegment], bool]) -> list[CachedSegment | None]:
        low, high = 0, file.size() // WIDTH
        while high - low > _AT_ONCE:
            middle = (low + high) // 2
            entry = next(iter(_entries(file, self._seed, middle, middle + 1)), None)
            if entry is None:
                return []
            if reached(entry):
                high = middle
            else:
                low = middle
        # Including the entry that was reached, if the search has found it.
        return _entries(file, self._seed, low, high + 1)


def _holding(entries: Sequence[CachedSegment], offset: int) -> CachedSegment | None:
    number = bisect_right(entries, offset, key=lambda entry: entry.base_offset) - 1
    return entries[number] if number >= 0 and offset < entries[number].next_offset else None


def update(place: PartitionPath, bases: Sequence[int]) -> None:
    """Updates the file to describe exactly the inactive segments. The partition's lock is held.

    Args:
        place: which partition.
        bases: the base offsets of its segments, ascending; all are inactive but the last. That must be durable.

    Raises:
        OSError: the entries written so far are valid.
    """
    if len(bases) < 2 and not files.exists(place.segments_path):
        return
    seed, spans = _seed(place), list(pairwise(bases))
    with files.open_or_create(place.segments_path) as file:
        if len(spans) > 1 and file.size() == (len(spans) - 1) * WIDTH:
            (last,) = _entries(file, seed, len(spans) - 2, len(spans) - 1)
            if last is not None and (last.first_offset, last.next_offset) == (bases[0], bases[-2]):
                # The usual case after a roll. The others, of which a long log has many, are not read.
                _write(file, seed, len(spans) - 1, chain(place, bases[0], spans[-1:], {}, last.largest_so_far))
                return
        counted = set(spans)
        largest = {
            (entry.base_offset, entry.next_offset): entry.largest
            for entry in _all_entries(file, seed)
            if entry is not None and (entry.base_offset, entry.next_offset) in counted
        }
        entries = list(chain(place, bases[0], spans, largest))
        same = 0
        for stored, entry in zip(_all_entries(file, seed), entries, strict=False):
            if stored != entry:
                break
            same += 1
        if file.size() > same * WIDTH:
            file.truncate(same * WIDTH)
        _write(file, seed, same, entries[same:])


def _write(file: files.File, seed: int, number: int, entries: Iterable[CachedSegment]) -> None:
    data = b"".join(_encode(entry, seed) for entry in entries)
    if data:
        file.pwrite(data, number * WIDTH)


def chain(
    place: PartitionPath,
    first_offset: int,
    spans: Sequence[tuple[int, int]],
    largest_of: Mapping[tuple[int, int], int],
    so_far: int = NO_TIMESTAMP,
) -> Iterator[CachedSegment]:
    """The entries of inactive segments, as far as the segments can be read.

    Args:
        place: which partition.
        first_offset: from which on the largest times so far hold.
        spans: the segments: where each begins, and the one after it.
        largest_of: the largest times of some of them; the others are read.
        so_far: the largest time before them.
    """
    for span in spans:
        largest = largest_of.get(span)
        if largest is None:
            try:
                with SegmentReader(place.folder, span[0], until=span[1]) as reader:
                    largest = reader.largest_timestamp(reader.log.size())
            except CorruptRecordError:
                return  # Readers will report the damage.
        so_far = max(so_far, largest)
        yield CachedSegment(first_offset, *span, largest, so_far)


def drop_from(place: PartitionPath, active_base: int) -> None:
    """Removes entries for segments that are not inactive, durably. The partition's lock is held.

    There are some if the log ends earlier than it once did. Its offsets get other records now, and an entry that
    stayed would count as soon as the log is as long again.

    Raises:
        OSError: such entries may still be there.
    """
    try:
        file = files.open_write(place.segments_path)
    except FileNotFoundError:
        return
    with file:
        try:
            kept = _sound(file, active_base) * WIDTH
        except OSError:
            # The disk cannot read it, and it can be rebuilt.
            files.unlink(place.segments_path)
            files.sync_folder(os.path.dirname(place.segments_path))
            return
        if kept != file.size():
            file.truncate(kept)
            file.sync()


def _sound(file: files.File, active_base: int) -> int:
    """How many leading entries are of inactive segments in order.

    CRCs are not checked, which takes long: an entry that a power loss has torn is recognized without them.
    """
    count, end = 0, -1
    for start in range(0, file.size() // WIDTH, _BLOCK):
        data = file.pread(_BLOCK * WIDTH, start * WIDTH)
        for _, _, following, _, _, version, crc in _ENTRY.iter_unpack(data[: len(data) // WIDTH * WIDTH]):
            if not (end < following <= active_base and version == VERSION and crc):
                return count
            count, end = count + 1, following
    return count
