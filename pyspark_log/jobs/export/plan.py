"""The plan of an export, as it is kept in the target until its offsets are committed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark_log.errors import OffsetOutOfRangeError
from pyspark_log.jobs.support import JobError
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

_VERSION = 1


@dataclass(frozen=True)
class PlannedRange:
    """The offsets [start, until) of a partition.

    Attributes:
        topic, partition: which partition.
        topic_id: of the topic that was planned for; None: a broker's folder does not record it.
        committed: the offset that the group had committed before; None: it had none.
    """

    topic: str
    partition: int
    start: int
    until: int
    topic_id: str | None
    committed: int | None

    @property
    def at(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class WrittenFile:
    """A complete, synced file that a task has written.

    Attributes:
        temporary: its name in the folder for unfinished work.
        name: the path in the target that it gets.
        rows, bytes: what is in it.
    """

    temporary: str
    name: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class Plan:
    """What one round of an export does.

    Attributes:
        cluster_id: of the source.
        ranges: what is read; no partition appears twice.
        files: what the tasks have written, all of it; None: they have not ended yet.
    """

    cluster_id: str
    ranges: tuple[PlannedRange, ...]
    files: tuple[WrittenFile, ...] | None = None

    def to_json(self) -> bytes:
        """As it is kept."""
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=1).encode()

    @classmethod
    def of_json(cls, data: bytes, path: str) -> Plan:
        """The plan in a file. JobError: it is damaged, or a newer version wrote it."""
        try:
            content: dict[str, Any] = json.loads(data)
            if content["version"] != _VERSION:
                raise JobError(f"{path}: its version is {content['version']}, but this program knows only {_VERSION}")
            files = content["files"]
            return cls(
                content["cluster_id"],
                tuple(PlannedRange(**one) for one in content["ranges"]),
                None if files is None else tuple(WrittenFile(**one) for one in files),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise JobError(f"{path}: the plan is damaged: {error!r}") from error


def make_plan(
    store: Store,
    topics: Collection[str],
    committed: Mapping[TopicPartition, int],
    isolation_level: str,
    *,
    skip_lost: bool,
) -> Plan:
    """Plans to read topics from a group's offsets to their present ends.

    Args:
        store: the source.
        topics: by name.
        committed: the offsets of the group; a partition without one is read from its earliest offset.
        isolation_level: says where the end is.
        skip_lost: whether a range begins at the earliest offset if records before it were deleted.

    Raises:
        UnknownTopicError: a topic is missing.
        JobError: PYLOG_DATA_LOSS, records that the group has not read yet were deleted, or the log ends before them.
    """
    ranges = []
    for topic in topics:
        topic_id = _recorded_id(store, topic)
        written = [TopicPartition(topic, partition) for partition in store.partitions.written(topic)]
        firsts = {at: store.earliest_offset(topic, at.partition) for at in written}
        for at, until in store.partitions.latest_offsets(written, isolation_level=isolation_level).items():
            first, before = firsts[at], committed.get(at)
            start = first if before is None else before
            if start > until:
                raise lost(
                    f"{at} ends at offset {until}, and the group has committed {start}: the store was restored from a "
                    "copy, or the topic was recreated. Use another group"
                )
            if start < first:
                if not skip_lost:
                    raise lost(
                        f"{at}: the records in offset [{start}, {first}) were deleted before they were read. "
                        "--skip-lost continues after them"
                    )
                start = first
            if start < until:
                ranges.append(PlannedRange(topic, at.partition, start, until, topic_id, before))
    return Plan(store.cluster_id, tuple(ranges))


def check_topic(store: Store, planned: PlannedRange) -> None:
    """Refuses a topic that is another one than the plan was made for. JobError: PYLOG_DATA_LOSS."""
    found = _recorded_id(store, planned.topic)
    if planned.topic_id is not None and found not in (None, planned.topic_id):
        raise lost(
            f"{planned.at}: the topic was deleted and recreated (topic id {found}) since the export was planned "
            f"({planned.topic_id})"
        )


def _recorded_id(store: Store, topic: str) -> str | None:
    return store.partitions.recorded_ids([topic])[1].get(topic)


def start_of(store: Store, planned: PlannedRange, *, skip_lost: bool) -> int:
    """Where a task begins to read a range; its end if all of it is gone. JobError: PYLOG_DATA_LOSS."""
    first = store.earliest_offset(planned.topic, planned.partition)
    if first > planned.start and not skip_lost:
        error = OffsetOutOfRangeError(
            planned.topic,
            planned.partition,
            planned.start,
            first,
            store.latest_offset(planned.topic, planned.partition),
        )
        raise lost(f"{error}. --skip-lost continues after the deleted records")
    return min(max(first, planned.start), planned.until)


def lost(message: str) -> JobError:
    """The error for records that were to be read and are gone."""
    return JobError(message, "PYLOG_DATA_LOSS")
