"""Stages the output of tasks in objects: complete record batches with offsets from 0, which no reader sees.

Output that is small stays in memory and travels in the task's commit message, and then in the decision itself. Larger
output goes to objects of up to 16 MiB, in which all partitions of the task follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark_log.storage.objects import Objects
from pyspark_log.storage.publish import AgreedTopic, PlannedTopic, StagedPart, StagingPlan
from pyspark_log.storage.publish.staging.staged_writer import INLINE_LIMIT, EncodingWriter, Place, Run
from pyspark_log.storage.publish_log import naming
from pyspark_log.storage.publish_log.entries.changes import Region
from pyspark_log.storage.publish_log.proposals import Output
from pyspark_log.storage.record import crc32c, scan
from pyspark_log.storage.record.headers import set_log_append_time
from pyspark_log.types import TopicDescription

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


#: The most bytes of records that an entry of the log has in itself.
MOST_INLINE = 1024 * 1024
#: About how large an object of records is: a piece of it is read as a whole.
OBJECT_BYTES = 16 * 1024 * 1024
# How many objects a task writes at the same time.
_WRITES = 2


class ObjectStagedWriter(EncodingWriter):
    """Stages in memory, and in objects."""

    def __init__(
        self,
        objects: Objects,
        plan: StagingPlan,
        find_topic: Callable[[str], tuple[PlannedTopic, bool]],
        clock: Callable[[], int],
    ) -> None:
        """`find_topic`: a topic that the plan lacks, and whether it was created for that; `clock`: the time in ms."""
        super().__init__(plan, clock)
        self._objects, self._find_topic = objects, find_topic
        # Objects are written while the next records are encoded, by threads that begin with the first one.
        self._pool: ThreadPoolExecutor | None = None
        self._written: list[Future[list[StagedPart]]] = []

    def _agree(self, topic: str) -> PlannedTopic:
        planned, is_new = self._find_topic(topic)
        # There is no file on which tasks agree, so its name is the topic's.
        self.agreed.append(AgreedTopic(topic, planned.topic_id, planned.partitions, is_new, topic))
        return planned

    def _take(self, place: Place, batch: bytes, count: int) -> None:
        if self._planned[place[0]].config.log_append_time:
            stamped = bytearray(batch)
            set_log_append_time(stamped, 0, len(stamped), self._clock())
            batch = bytes(stamped)
        self._runs.setdefault(place, Run()).add(batch, count)
        self._size += len(batch)
        if self._size >= OBJECT_BYTES:
            self._write()

    def _write(self) -> None:
        """Moves what is in memory to an object."""
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  (small output needs none)

        if self._pool is None:
            self._pool = ThreadPoolExecutor(_WRITES)
        if len(self._written) >= _WRITES:
            self._written[-_WRITES].result()  # Else what waits would fill the memory.
        parts = self._inline()
        self._runs, self._size = {}, 0
        self._written.append(self._pool.submit(put, self._objects, parts, self._clock()))

    def finish(self) -> list[StagedPart]:
        self._flush()
        if self._written or self._size >= INLINE_LIMIT:
            if self._runs:
                self._write()
            return self._end()
        return self._inline()

    def _end(self) -> list[StagedPart]:
        """Waits for all objects; what is in them. Raises: the first error."""
        if self._pool is not None:
            self._pool.shutdown()
        return [part for written in self._written for part in written.result()]

    def discard(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        parts = [part for written in self._written if written.exception() is None for part in written.result()]
        self._objects.delete(sorted({part.file for part in parts}))


def in_parts(topic: TopicDescription, partition: int, batches: Iterable[bytes]) -> Iterator[StagedPart]:
    """Record batches of a partition as parts in memory, each of a size that can be read as a whole."""
    run = Run()
    for batch in batches:
        [header] = scan(batch, 0, len(batch))
        run.add(batch, header.count)
        if run.size >= OBJECT_BYTES:
            yield run.part((topic.name, partition), topic.topic_id)
            run = Run()
    if run.batches:
        yield run.part((topic.name, partition), topic.topic_id)


def put(objects: Objects, parts: Iterable[StagedPart], now: int) -> list[StagedPart]:
    """Moves the bytes of parts that have none in an object to new ones. ObjectStoreError."""
    moved, data, position, name = list[StagedPart](), list[bytes](), 0, naming.new(naming.STAGED, now)
    for part in parts:
        if position >= OBJECT_BYTES:
            objects.put(name, b"".join(data))
            data, position, name = [], 0, naming.new(naming.STAGED, now)
        moved.append(
            StagedPart(
                part.topic, part.partition, part.topic_id, part.count, part.size, part.crcs, name, position,
                max_timestamp=_max_timestamp(part.data),
            )
        )  # fmt: skip
        data.append(part.data)
        position += part.size
    objects.put(name, b"".join(data))
    return moved


def outputs(objects: Objects, parts: Iterable[StagedPart], now: int) -> tuple[list[Output], list[bytes]]:
    """What a job's parts add to partitions, and the bytes that go into the decision itself. ObjectStoreError."""
    parts = list(parts)
    inline = [part for part in parts if not part.file]
    if sum(part.size for part in inline) > MOST_INLINE:
        moved = iter(put(objects, inline, now))
        parts = [part if part.file else next(moved) for part in parts]
    added, data, position = list[Output](), list[bytes](), 0
    for part in parts:
        if part.file:
            region = Region(part.file, part.position, part.size, part.count, part.max_timestamp, crc32c(part.crcs))
        else:
            region = Region("", position, part.size, part.count, _max_timestamp(part.data), crc32c(part.crcs))
            data.append(part.data)
            position += part.size
        added.append(Output(part.topic, part.topic_id, part.partition, (region,)))
    return added, data


def _max_timestamp(data: bytes) -> int:
    return max(header.max_timestamp for header in scan(data, 0, len(data)))
