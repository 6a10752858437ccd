"""Reads records of a partition from the objects that hold them.

An object has its batches with offsets from 0; which ones they have, the publish log says. They are put in after the
bytes were read: no checksum covers them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark_log.errors import (
    BatchTooLargeError,
    CorruptRecordError,
    LogDamagedError,
    OffsetOutOfRangeError,
    OutdatedReadError,
)
from pyspark_log.storage.log.read import Damage
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.publish_log.state import PartitionLog, Piece
from pyspark_log.storage.record import assign_offsets, crc32c, scan
from pyspark_log.storage.record.layout import crcs_of
from pyspark_log.storage.record.walk import record_times
from pyspark_log.types import NO_TIMESTAMP, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from pyspark_log.storage.record.decoding.decoder import Chunk

# The log of an object store has one leader, whose epoch never changes.
_LEADER_EPOCH = 0
# How many pieces are read while one is decoded.
_AHEAD = 2


def read(
    objects: Objects,
    at: TopicPartition,
    log: PartitionLog,
    start: int,
    end: int,
    *,
    newest: Callable[[], PartitionLog],
    max_bytes: int,
    max_batch_bytes: int,
    columns: Sequence[str] = ("key", "value"),
    check_crcs: bool = True,
    on_damage: Callable[[Damage], None] | None = None,
) -> Iterator[Chunk]:
    """Reads the records of [start, end) in order, in chunks of some `max_bytes` before compression.

    With `on_damage`, damaged records are left out: it is called with each damage before the records after it are read.

    Args:
        newest: returns `log` as it is by then; UnknownTopicError.

    Raises:
        OffsetOutOfRangeError: `start` or `end` is not within the log; or records were deleted since.
        OutdatedReadError: `log` is so old that an object of it was replaced and deleted.
        UnknownTopicError: the topic was deleted since, with its objects.
        CorruptRecordError: a damaged batch, with its object. The records before it were yielded.
        LogDamagedError: an object is missing, or ends too early.
    """
    for offset in (start, end):
        if not log.log_start <= offset <= log.log_end:
            raise OffsetOutOfRangeError(at.topic, at.partition, offset, log.log_start, log.log_end)
    reading = _Reading(objects, at, newest, on_damage, max_bytes, max_batch_bytes, columns, check_crcs)
    return reading.chunks(log.between(start, end), start, end)


class _Reading:
    """One call of `read`."""

    def __init__(
        self, objects: Objects, at: TopicPartition, newest: Callable[[], PartitionLog],
        on_damage: Callable[[Damage], None] | None, max_bytes: int, max_batch_bytes: int, columns: Sequence[str],
        check_crcs: bool,
    ) -> None:  # fmt: skip
        from pyspark_log.storage.record.decoding.decoder import decode  # noqa: PLC0415  (Arrow, which a server does not load)

        self._objects, self._at, self._newest, self._on_damage = objects, at, newest, on_damage
        self._buffer = bytearray()
        self._decode = partial(
            decode, max_bytes=max_bytes, check_crcs=check_crcs, dense=True, max_batch_bytes=max_batch_bytes,
            keys="key" in columns, values="value" in columns, headers="headers" in columns,
        )  # fmt: skip

    def chunks(self, pieces: Sequence[Piece], start: int, end: int) -> Iterator[Chunk]:
        for piece, fetch in self._fetched(pieces):
            try:
                data = self._with_offsets(piece, fetch())
            except (CorruptRecordError, LogDamagedError) as error:
                if isinstance(error, _MissingObjectError):
                    self._check_plan(piece, max(start, piece.base_offset))
                self._pass_over(error, piece, 0, piece.size, (piece.base_offset, piece.next_offset))
            else:
                yield from self._piece(piece, data, max(start, piece.base_offset), min(end, piece.next_offset))

    def _with_offsets(self, piece: Piece, found: memoryview) -> memoryview:
        """The bytes of a piece with their offsets, until the next call: new memory would take longer than the copy."""
        if len(self._buffer) < piece.size:
            self._buffer = bytearray(piece.size)
        data = memoryview(self._buffer)[: piece.size]
        data[:] = found
        return with_offsets(self._objects, self._at, piece, data)

    def _fetched(self, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Callable[[], memoryview]]]:
        """Each piece with what gives its bytes; the next ones are read meanwhile."""
        if len(pieces) == 1:
            yield pieces[0], partial(_get, self._objects, self._at, pieces[0])
            return
        from concurrent.futures import Future, ThreadPoolExecutor  # noqa: PLC0415  (not for the first piece)

        ahead = deque[tuple[Piece, Future[memoryview]]]()
        with ThreadPoolExecutor(_AHEAD) as pool:
            for piece in pieces:
                ahead.append((piece, pool.submit(_get, self._objects, self._at, piece)))
                if len(ahead) > _AHEAD:
                    first, found = ahead.popleft()
                    yield first, found.result
            while ahead:
                first, found = ahead.popleft()
                yield first, found.result

    def _piece(self, piece: Piece, data: memoryview, offset: int, until: int) -> Iterator[Chunk]:
        position, follows = 0, piece.base_offset
        while position < len(data) and offset < until:
            try:
                chunk = self._decode(data, position, len(data), from_offset=offset, until_offset=until, follows=follows)
            except CorruptRecordError as error:
                # That the batches follow each other was checked before: what is wrong is within one of them.
                bad = next(one for one in scan(data, position, len(data)) if one.position == error.position)
                position, follows = bad.end, bad.next_offset
                offset = max(offset, follows)
                where = f"{self._objects.address}/{piece.object}"
                located = error.located(piece.position, where, self._at.topic, self._at.partition)
                self._pass_over(located, piece, bad.position, bad.end, (bad.base_offset, bad.next_offset))
                continue
            position, follows, offset = chunk.position, chunk.follows, max(offset, chunk.next_offset)
            if chunk.num_rows:
                yield chunk

    def _check_plan(self, piece: Piece, offset: int) -> None:
        """Raises what a missing object is if the log does not need it any more: no damage."""
        log, at = self._newest(), self._at
        if offset < log.log_start:
            raise OffsetOutOfRangeError(at.topic, at.partition, offset, log.log_start, log.log_end)
        if all(one.object != piece.object for one in log.pieces):
            raise OutdatedReadError(
                f"{at}: {self._objects.address}/{piece.object} was replaced since this read was planned, and deleted "
                f"at least a day later: read again from offset {offset}"
            )

    def _pass_over(
        self, error: CorruptRecordError | LogDamagedError, piece: Piece, start: int, end: int, offsets: tuple[int, int]
    ) -> None:
        """Reports bytes of a piece, and the offsets that they should have; or raises the error."""
        if self._on_damage is None or isinstance(error, BatchTooLargeError):
            raise error from None
        where, reason = f"{self._objects.address}/{piece.object}", getattr(error, "reason", str(error))
        self._on_damage(Damage(where, piece.position + start, piece.position + end, *offsets, reason))


class _MissingObjectError(LogDamagedError):
    """An object of a piece is missing."""


def _get(objects: Objects, at: TopicPartition, piece: Piece) -> memoryview:
    return _get_all(objects, piece.object, [(at, piece)])[0]


def bytes_of(objects: Objects, name: str, pieces: Sequence[tuple[TopicPartition, Piece]]) -> list[memoryview]:
    """The batches of pieces in one object, with their offsets, which are those that the publish log has given them.

    Raises:
        ObjectStoreError: the object store does not answer.
        CorruptRecordError: what is there are no whole batches.
        LogDamagedError: the object is missing, or ends too early, or has other batches than it should.
    """
    found = _get_all(objects, name, pieces)
    return [
        with_offsets(objects, at, piece, memoryview(bytearray(data)))
        for (at, piece), data in zip(pieces, found, strict=True)
    ]


def _get_all(objects: Objects, name: str, pieces: Sequence[tuple[TopicPartition, Piece]]) -> list[memoryview]:
    at = pieces[0][0]
    try:
        return objects.get_ranges(name, [(piece.position, piece.size) for _, piece in pieces])
    except FileNotFoundError as error:
        raise _MissingObjectError(f"{at}: an object of it is missing: {error}") from None
    except EOFError as error:
        raise LogDamagedError(f"{at}: an object of it was cut: {error}") from None


def with_offsets(objects: Objects, at: TopicPartition, piece: Piece, data: memoryview) -> memoryview:
    """Puts the offsets of a piece into its bytes, and checks that they are what the piece should be.

    CorruptRecordError, LogDamagedError: as `bytes_of`.
    """
    where = f"{objects.address}/{piece.object}"
    try:
        end = assign_offsets(data, 0, len(data), piece.base_offset, _LEADER_EPOCH)
    except CorruptRecordError as error:
        raise error.located(piece.position, where, at.topic, at.partition) from None
    if end != piece.next_offset:
        raise LogDamagedError(f"{at}: {where} has the offsets up to {end}, but it must reach {piece.next_offset}")
    if crc32c(crcs_of(scan(data, 0, len(data)))) != piece.crc:
        # A process that had slept may have created it again, after it was deleted.
        raise LogDamagedError(f"{at}: {where} has other records at byte {piece.position} than it should")
    return data


def find_max_timestamp(
    objects: Objects, at: TopicPartition, log: PartitionLog, max_batch_bytes: int
) -> OffsetAndTimestamp | None:
    """The record with the largest time (ms), of several the first; None: no record has a time. Raises as `read`."""
    found: OffsetAndTimestamp | None = None
    # The largest time of a piece may be that of a record that is deleted, so one may not be enough.
    for piece in sorted(log.between(log.log_start, log.log_end), key=lambda piece: -piece.max_timestamp):
        if piece.max_timestamp == NO_TIMESTAMP or (found is not None and piece.max_timestamp < found.timestamp):
            break
        [data] = bytes_of(objects, piece.object, [(at, piece)])
        for header in scan(data, 0, len(data)):
            is_earlier = found is not None and header.max_timestamp < found.timestamp
            if is_earlier or header.next_offset <= log.log_start:
                continue
            offsets, times = record_times(bytes(data[header.position : header.end]), max_batch_bytes)
            candidates = [
                OffsetAndTimestamp(offset, time)
                for offset, time in zip(offsets, times, strict=True)
                if offset >= log.log_start and time > NO_TIMESTAMP
            ]
            candidates += [] if found is None else [found]
            found = max(candidates, key=lambda one: (one.timestamp, -one.offset), default=None)
    return found


def find_timestamp(
    objects: Objects, at: TopicPartition, log: PartitionLog, timestamp: int, max_batch_bytes: int
) -> OffsetAndTimestamp | None:
    """The first record, by offset, whose time is `timestamp` (ms) or later; None: there is none. Raises as `read`."""
    for piece in log.between(log.log_start, log.log_end):
        if piece.max_timestamp < timestamp:
            continue
        [data] = bytes_of(objects, piece.object, [(at, piece)])
        for header in scan(data, 0, len(data)):
            if header.next_offset <= log.log_start or header.max_timestamp < timestamp:
                continue
            offsets, times = record_times(bytes(data[header.position : header.end]), max_batch_bytes)
            for offset, time in zip(offsets, times, strict=True):
                if time >= timestamp and offset >= log.log_start:
                    return OffsetAndTimestamp(offset, time)
    return None
