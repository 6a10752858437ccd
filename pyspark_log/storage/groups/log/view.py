"""An in-memory view of one partition of `__consumer_offsets` that follows the log.

Only the newest record of each key counts, so only that one is decoded: some thousand of a million commits of a hundred
groups.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.catalog import OFFSETS_TOPIC
from pyspark_log.storage.groups.log import records
from pyspark_log.storage.groups.log.modern_group import kept_value, modern_group_of
from pyspark_log.storage.groups.log.open_transactions import Newest, OpenTransactions
from pyspark_log.storage.log.read import LogReader
from pyspark_log.storage.log.state import ViewPosition
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.types import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset.

    Attributes:
        offset: the offset of the next record to read. Below 0, as some clients commit it to start over, the group has
            none: its reading begins as that of a new group.
        leader_epoch: leader epoch of the last record that was read, or -1 if the committer gave none.
        metadata: a text of the committer's choice, "" if none.
        commit_timestamp: when it was committed, in ms since 1970.
        expire_timestamp: when it expires, in ms since 1970; -1: when its group was idle for offsets.retention.minutes;
            records.NEVER: it does not.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1


@dataclass(slots=True)
class GroupRecords:
    """A group's records in the log.

    Attributes:
        offsets: its committed offsets.
        metadata: the value of its metadata record, as bytes; None if there is none.
        modern: the records of a group of a later protocol, by key, for modern_group.described.
    """

    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    metadata: bytes | None = None
    modern: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def is_nothing(self) -> bool:
        """Whether the group has no record."""
        return not self.offsets and self.metadata is None and not self.modern


class PartitionView:
    """The groups of one partition of the log, up to an offset.

    Attributes:
        partition: the partition.
        groups: the groups that have a record.
    """

    def __init__(self, partition: int) -> None:
        """Creates an empty view."""
        self.partition = partition
        self.groups: dict[str, GroupRecords] = {}
        self._open = OpenTransactions()
        self._view = ViewPosition()

    def pending(self, group: str) -> set[TopicPartition]:
        """The partitions for which an open transaction may commit an offset of a group."""
        found = (records.decode_key(key or b"") for key in self._open.keys)
        return {
            TopicPartition(key.topic, key.partition)
            for key in found
            if isinstance(key, records.OffsetCommitKey) and key.group == group
        }

    def follow(self, logs: LogManager) -> int:
        """Reads on to the log's end; returns the last decision that is applied up to there.

        Raises:
            CorruptRecordError: a record cannot be decoded, or is damaged.
        """
        reader = logs.recovered(OFFSETS_TOPIC, self.partition)
        now = logs.clock()  # before reading the end: this process may be paused in between
        state = reader.state()
        end = state.high_watermark
        stay = logs.topic_config(OFFSETS_TOPIC).delete_retention_ms
        # CommittedOffsets creates new views for another store, or a recreated topic.
        if self._view.must_rebuild(state, end, now, stay, None):
            self.groups, self._open = {}, OpenTransactions()
        if self._view.position < end:
            try:
                self._read(reader, end, may_have_transactions=state.may_have_transactions)
            except BaseException:
                self._view = ViewPosition()  # A part of it may have been taken in.
                raise
        self._view.advance(end, now)
        return state.applied

    def _read(self, reader: LogReader, end: int, *, may_have_transactions: bool) -> None:
        start, newest = self._view.position, Newest()
        batches = reader.producer_batches(start, end) if may_have_transactions else ()
        if batches:
            pairs = [one for batch in reader.read_pairs(start, end) for one in batch.pairs]
            newest = self._open.take_in(pairs, batches)
        else:
            for batch in reader.read_pairs(start, end):
                newest |= {key: (offset, value) for key, value, offset in batch.pairs}
        for key, (offset, value) in newest.items():
            try:
                self._apply(key, value)
            except ValueError as error:
                raise CorruptRecordError(
                    f"the record at offset {offset} is not a group record in Kafka's format: {error}",
                    base_offset=offset,
                    topic=OFFSETS_TOPIC,
                    partition=self.partition,
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
            group.offsets.pop(TopicPartition(what.topic, what.partition), None)
        else:
            group.offsets[TopicPartition(what.topic, what.partition)] = OffsetAndMetadata(
                kept.offset, kept.leader_epoch, kept.metadata, kept.commit_timestamp, kept.expire_timestamp
            )
        if group.is_nothing:
            del self.groups[what.group]

    def _apply_modern(self, key: bytes, value: bytes | None) -> None:
        """Applies a record of a group of a later protocol; ignores any other."""
        name = modern_group_of(key)
        if name is None:
            return
        if value is not None:
            self.groups.setdefault(name, GroupRecords()).modern[key] = kept_value(key, value)
        elif (group := self.groups.get(name)) is not None:
            group.modern.pop(key, None)
            if group.is_nothing:
                del self.groups[name]
