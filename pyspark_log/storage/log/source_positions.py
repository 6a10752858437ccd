"""How far each source was written to a partition, for topics with `source.position.header`.

A query in Spark's real-time mode writes the records of an unfinished batch again after a restart. Each record says in a
header from where in a source it comes, so what a partition has of a source is known by its highest position, and what
is not above it is left out. The batch keeps its offsets and sequence numbers, as a compacted one does.

What is known follows from the log. Reading all of it would take long, so there is a file at the begin of each segment,
`BASE.positions`: the positions of all that is before it. Everything here happens while the partition's lock is held.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import TypeAlias

from pyspark_log.errors import InvalidRecordError, SideFileError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state.live_segments import live_segments
from pyspark_log.storage.log.state.partition_state import PartitionState
from pyspark_log.storage.record import crc32c
from pyspark_log.storage.record.source_positions import read_positions
from pyspark_log.storage.segment import SegmentReader, read_headers
from pyspark_log.storage.segment.file_names import POSITIONS, segment_path

#: How many sources a partition can have, and how long their names can be, in bytes.
MAX_SOURCES, MAX_NAME = 10_000, 1_000
_MAX_BYTES = 64 * 1024 * 1024
# As `PositionsRead.highest` has it.
_NO_WRITER = -2

#: As in `PositionsRead.highest`.
Position: TypeAlias = tuple[int, int, int]

log = logging.getLogger(__name__)


class SourcePositions:
    """The highest position of each source in a partition, for the process that appends to it."""

    def __init__(self, place: PartitionPath, header: str, max_batch_bytes: int) -> None:
        """Reads nothing yet.

        Args:
            place: which partition.
            header: source.position.header.
            max_batch_bytes: the most that a batch may take in memory.
        """
        self._place, self._header, self._max_batch_bytes = place, header.encode(), max_batch_bytes
        self._highest: dict[bytes, Position] = {}
        self._end: tuple[int, int] | None = None  # offset up to which that is known, of which incarnation of the log
        self._sifted: dict[bytes, Position] = {}  # the positions of the last batch

    def invalidate(self) -> None:
        """Drops what is known; the next use reads the log again."""
        self._end = None

    # ---- around an append

    def sift(self, state: PartitionState, batch: bytes | bytearray) -> bytes | bytearray:
        """A batch that is about to be appended, without the records that the log has.

        Raises:
            InvalidRecordError: see `read_positions`; or there are too many sources.
            CorruptRecordError: damage in the log.
        """
        self._follow(state)
        highest, place = self._highest, self._place
        try:
            positions = read_positions(batch, self._header, highest, self._max_batch_bytes)
        except InvalidRecordError as error:
            # So that the same records are not refused for ever where they are a repetition after all.
            self._highest = {source: (*position[:2], _NO_WRITER) for source, position in highest.items()}
            refused = InvalidRecordError(f"{place}: {error}")
            refused.records = error.records
            raise refused from None
        added = positions.highest.keys() - highest.keys()
        if len(highest) + len(added) > MAX_SOURCES or any(len(source) > MAX_NAME for source in added):
            raise InvalidRecordError(
                f"{place}: a partition knows the positions of {MAX_SOURCES} sources with names of {MAX_NAME} bytes at "
                f"most: the names in {self._header.decode()!r} should be those of queries and topic-partitions"
            )
        if positions.left_out:
            log.info("%s: left out %d records that it has of %s", place, positions.left_out, _names(positions.highest))
        self._sifted = positions.highest
        return batch if positions.batch is None else positions.batch

    def enter(self, state: PartitionState) -> None:
        """Takes in the batch that was sifted last, which is in the log by now, up to its end."""
        self._highest.update(self._sifted)
        self._end = state.next_offset, state.incarnation

    def take_snapshot(self, state: PartitionState) -> None:
        """Writes the file at the begin of the active segment. Without it only time is lost, until older ones go."""
        self._follow(state)
        _write(self._place.folder, state.active_base, self._highest)

    # ---- what is known

    def _follow(self, state: PartitionState) -> None:
        end = self._end
        # Only inactive segments are deleted and compacted.
        if end is None or end[1] != state.incarnation or not state.active_base <= end[0] <= state.next_offset:
            self._highest, first = self._restored(state)
        else:
            first = end[0]
        if first < state.next_offset:
            for batch in self._batches(first, state):
                self._highest.update(
                    read_positions(batch, self._header, self._highest, self._max_batch_bytes, stored=True).highest
                )
        self._end = state.next_offset, state.incarnation

    def _restored(self, state: PartitionState) -> tuple[dict[bytes, Position], int]:
        """What the newest file says, and the offset at which what it does not say begins."""
        segments = live_segments(self._place.folder, state)
        for base, _ in reversed(segments):
            try:
                return _read(segment_path(self._place.folder, base, POSITIONS)), base
            except FileNotFoundError:
                continue
            except SideFileError as error:
                log.warning("a damaged file of source positions is not used, but an older one: %s", error)
        return {}, segments[0][0] if segments else state.next_offset

    def _batches(self, start: int, state: PartitionState) -> Iterator[bytes]:
        """The batches of the log from the one with offset `start` on."""
        for base, until in live_segments(self._place.folder, state, start):
            with SegmentReader(self._place.folder, base, until=until) as segment:
                size = state.position if base == state.active_base else segment.log.size()
                for header in read_headers(segment.log, segment.position_of(max(start, base), size), size, until):
                    if header.last_offset >= start and header.size:
                        yield segment.log.pread(header.size, header.position)


def _names(highest: dict[bytes, Position]) -> str:
    return ", ".join(source.decode(errors="replace") for source in highest)


def _write(folder: str, base: int, highest: dict[bytes, Position]) -> None:
    """Writes a file of positions, durably and atomically: its CRC-32C in hex, and JSON of [source, *position] each."""
    rows = [[source.decode("latin-1"), *position] for source, position in highest.items()]
    body = json.dumps(rows).encode()
    files.replace_whole(segment_path(folder, base, POSITIONS), f"{crc32c(body):08x} ".encode() + body)


def _read(path: str) -> dict[bytes, Position]:
    """Reads a file of positions. SideFileError, which names it; FileNotFoundError."""
    try:
        crc, _, body = files.read_whole(path, _MAX_BYTES).partition(b" ")
        rows = json.loads(body) if crc == f"{crc32c(body):08x}".encode() else None
    except ValueError as error:
        raise SideFileError(f"{path}: {error}") from None
    if rows is None:
        raise SideFileError(f"{path}: its CRC is wrong")
    return {source.encode("latin-1"): (offset, ordinal, writer) for source, offset, ordinal, writer in rows}
