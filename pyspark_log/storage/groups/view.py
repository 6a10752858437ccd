"""What one partition of `__consumer_offsets` says, held in memory: a view that follows the log.

Of all records of a key only the newest counts, so only that one is taken apart: of a million commits of a hundred
groups that is some thousand. The others are passed over as columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.catalog import OFFSETS_TOPIC
from pyspark_log.storage.groups import records
from pyspark_log.storage.groups.modern_group import kept_value, modern_group_of
from pyspark_log.storage.log import READ_BYTES, Followed, LogReader
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.types import TopicPartition

# Of fewer records the newest of each key are not worth looking for.
_FEW = 16


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed position.

    Attributes:
        offset: the offset of the next record to read.
        leader_epoch: leader epoch of the last record that was read, or -1 if the committer did not say.
        metadata: a text of the committer's own, "" if none.
        commit_timestamp: when it was committed, in ms since 1970.
        expire_timestamp: when it ends, in ms since 1970; -1: when its group was idle for offsets.retention.minutes;
            coordinator_records.NEVER: it does not.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1


@dataclass(slots=True)
class GroupRecords:
    """What the log says of a group.

    Attributes:
        positions: what it has committed.
        metadata: the value of the record that has its members, as bytes; None if there is none.
        modern: the records of a group of a later protocol, by their keys, for modern_group.described.
    """

    positions: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    metadata: bytes | None = None
    modern: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def is_nothing(self) -> bool:
        """Whether there is no record of it."""
        return not self.positions and self.metadata is None and not self.modern


class PartitionView:
    """What one partition of the log says, up to a position.

    Attributes:
        partition: which one.
        groups: those that have a record.
    """

    def __init__(self, partition: int) -> None:
        """Knows nothing yet."""
        self.partition = partition
        self.groups: dict[str, GroupRecords] = {}
        self._followed = Followed()

    def follow(self, logs: LogManager) -> int:
        """Reads on to the log's end; gives the last decision that is applied up to there.

        Raises:
            CorruptRecordError: a record cannot be understood, or is damaged.
        """
        reader = logs.recovered(OFFSETS_TOPIC, self.partition)
        now = logs.clock()  # before the end: this process may stand still in between
        state = reader.state()
        end = state.high_watermark
        if logs.is_brokers:
            # Kafka's clients commit in transactions, which are appended like others.
            end = reader.last_stable_offset()
        stay = logs.topic_config(OFFSETS_TOPIC).delete_retention_ms
        # CommittedOffsets makes new views for another store, or a topic that was made again.
        if self._followed.begins_again(state, end, now, stay, None):
            self.groups = {}
        if self._followed.position < end:
            self._read(reader, end)
        self._followed.reached(end, now)
        return state.applied

    def _read(self, reader: LogReader, end: int) -> None:
        for chunk in reader.read(self._followed.position, end, max_bytes=READ_BYTES, committed=True):
            for key, value, offset in _newest(chunk.columns):
                try:
                    self._apply(key, value)
                except ValueError as error:
                    raise CorruptRecordError(
                        f"the record at offset {offset} is no group record of Kafka's: {error}",
                        base_offset=offset, topic=OFFSETS_TOPIC, partition=self.partition,
                    ) from error

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        what = records.decode_key(key or b"")
        if what is None:
            self._apply_modern(key or b"", value)
            return
        is_position = isinstance(what, records.OffsetCommitKey)
        kept = records.decode_offset_value(value) if is_position and value is not None else None
        group = self.groups.get(what.group)
        if group is None:
            if value is None:
                return
            group = self.groups[what.group] = GroupRecords()
        if isinstance(what, records.GroupMetadataKey):
            group.metadata = value
        elif kept is None:
            group.positions.pop(TopicPartition(what.topic, what.partition), None)
        else:
            group.positions[TopicPartition(what.topic, what.partition)] = OffsetAndMetadata(
                kept.offset, kept.leader_epoch, kept.metadata, kept.commit_timestamp, kept.expire_timestamp
            )
        if group.is_nothing:
            del self.groups[what.group]

    def _apply_modern(self, key: bytes, value: bytes | None) -> None:
        """Takes in a record of a group of a later protocol; any other is not kept here."""
        name = modern_group_of(key)
        if name is None:
            return
        if value is not None:
            self.groups.setdefault(name, GroupRecords()).modern[key] = kept_value(key, value)
        elif (group := self.groups.get(name)) is not None:
            group.modern.pop(key, None)
            if group.is_nothing:
                del self.groups[name]


def _newest(columns: Mapping[str, pa.Array]) -> Iterator[tuple[bytes | None, bytes | None, int]]:
    """The newest record of each key: key, value, offset; in the order of offsets."""
    found = [columns[name] for name in ("key", "value", "offset")]
    keys = found[0]
    if len(keys) > _FEW and not keys.null_count:
        # Keys as numbers, and of each number the last row; all of it in compiled code.
        numbers = memoryview(keys.dictionary_encode().indices.buffers()[1]).cast("i")[: len(keys)]
        rows = array("q", sorted(dict(zip(numbers, range(len(keys)), strict=True)).values()))
        # By its buffer: pa.array imports pandas where there is one, which takes longer than all of this.
        kept = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
        found = [column.take(kept) for column in found]
    yield from zip(*(column.to_pylist() for column in found), strict=True)
