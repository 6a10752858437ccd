"""Makes the log of a store that begins with a state: records at their offsets, committed offsets, publishers.

The state is written as a checkpoint, which is the first floor of the new log. So the store is as one whose entries up
to that number were deleted: a process needs none of them, and the next decision gets the number after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark_log.config import INT_MAX, TopicConfig
from pyspark_log.errors import StoreExistsError
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.publish_log import checkpoint, floors, naming
from pyspark_log.storage.publish_log.parts.staging import OBJECT_BYTES
from pyspark_log.storage.publish_log.state import Piece, State
from pyspark_log.storage.record import BatchHeader, crc32c
from pyspark_log.storage.record.layout import crcs_of
from pyspark_log.types import NO_TIMESTAMP, TopicPartition

# A piece of this size or more is in an object of its own.
_OWN_BYTES = OBJECT_BYTES // 2


def write(objects: Objects, state: State) -> None:
    """Makes a state that of a new log, whose pieces are there.

    Args:
        objects: where the new store is to be; it has no store.json yet.
        state: with the number that counts as the last decision's. Its floors are not looked at.

    Raises:
        StoreExistsError: another process is making a store there.
        ObjectStoreError: the object store does not answer.
    """
    number = max(state.number, 0)
    state = replace(state, number=number, floor=number, floors=1)
    if not objects.create(checkpoint.name_of(number), checkpoint.encode(state)):
        raise StoreExistsError(f"{objects.address}: another process is making a store there")
    floors.write(objects, state.floors, number)
    checkpoint.name_last(objects, number)


class PieceWriter:
    """Writes record batches of partitions to new objects, one partition after the other. Not thread-safe.

    Attributes:
        bytes: how many are written.
    """

    def __init__(self, objects: Objects, now: int) -> None:
        """Writes nothing yet; `now`: the time in ms, for names."""
        self.bytes = 0
        self._objects, self._now = objects, now
        self._at, self._config = TopicPartition("", 0), TopicConfig.resolve({}, {})
        self._pieces = list[Piece]()
        self._run, self._size, self._newest, self._oldest = list[bytes](), 0, NO_TIMESTAMP, NO_TIMESTAMP
        self._headers = list[BatchHeader]()  # of the batches of the run
        self._base = self._next = 0
        # Small runs of several partitions come into one object.
        self._shared, self._shared_size, self._shared_name = list[bytes](), 0, ""

    def begin(self, at: TopicPartition, config: TopicConfig) -> None:
        """Begins a partition, with the configs of its topic."""
        self._at, self._config, self._pieces = at, config, []

    def add(self, batch: bytes, header: BatchHeader) -> None:
        """Adds a record batch of format 2, which begins where the one before it ends. ObjectStoreError."""
        newest, oldest = header.max_timestamp, header.max_timestamp
        if self._run:
            newest, oldest = max(self._newest, newest), min(self._oldest, oldest)
            if (
                self._size + len(batch) > min(OBJECT_BYTES, self._config.segment_bytes)
                or newest - oldest > self._config.segment_ms
                or header.next_offset - self._base > INT_MAX
            ):
                self._end_run()
                newest = oldest = header.max_timestamp
        if not self._run:
            self._base = header.base_offset
        self._run.append(batch)
        self._headers.append(header)
        self._size, self._newest, self._oldest, self._next = self._size + len(batch), newest, oldest, header.next_offset

    def end(self) -> list[Piece]:
        """Ends the partition; where its records are, in order. ObjectStoreError."""
        self._end_run()
        return self._pieces

    def finish(self) -> None:
        """Writes what is left. ObjectStoreError."""
        if self._shared:
            self._put(self._shared_name, self._shared)
            self._shared, self._shared_size = [], 0

    def _end_run(self) -> None:
        if not self._run:
            return
        if self._size >= _OWN_BYTES:
            name, position = naming.segment(self._at, self._base, self._now), 0
            self._put(name, self._run)
        else:
            if not self._shared:
                self._shared_name = naming.new(naming.MERGED, self._now)
            name, position = self._shared_name, self._shared_size
            self._shared += self._run
            self._shared_size += self._size
        crc = crc32c(crcs_of(self._headers))
        self._pieces.append(Piece(self._base, self._next, name, position, self._size, self._newest, crc))
        self._run, self._headers, self._size = [], [], 0
        if self._shared_size >= _OWN_BYTES:
            self.finish()

    def _put(self, name: str, data: Sequence[bytes]) -> None:
        self._objects.put(name, b"".join(data))
        self.bytes += sum(map(len, data))
