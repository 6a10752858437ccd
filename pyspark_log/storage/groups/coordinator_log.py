"""What a coordinator of groups writes to `__consumer_offsets`, and reads of it, beyond committed offsets."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from pyspark_log.errors import GroupNotEmptyError, PylogError, RecordTooLargeError, UnknownTopicError
from pyspark_log.group_records import RecordKey, Value
from pyspark_log.storage.catalog import OFFSETS_TOPIC
from pyspark_log.storage.fs.locking import timeouts
from pyspark_log.storage.groups import committed_offsets
from pyspark_log.storage.groups.changes import GroupChange
from pyspark_log.storage.groups.log.metadata import GroupMetadataValue, decode_group_value
from pyspark_log.storage.groups.log.modern_group import decoded
from pyspark_log.storage.groups.log.view import GroupRecords, OffsetAndMetadata
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.publish import TopicIdPartition
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)


class CoordinatorLog(OffsetsLog):
    """The log of groups of a store in a folder, for a server."""

    def write(self, changes: Sequence[GroupChange]) -> list[PylogError | OSError | ValueError | None]:
        """Writes changes of a coordinator, in their order; those in the same partition of the log at once.

        The coordinator has decided, so nothing is checked but that a group has no members that coordinate themselves.
        Creates a missing topic as `commit` does.

        Returns:
            Why each was not written; None: it was.
        """
        outcomes: list[PylogError | OSError | ValueError | None] = [None] * len(changes)
        by_place: dict[TopicIdPartition, list[int]] = {}
        for number, change in enumerate(changes):
            try:
                change.records()
                by_place.setdefault(committed_offsets.place_of(self._logs, change.group), []).append(number)
            except (PylogError, OSError, ValueError) as error:
                outcomes[number] = error
        for place, numbers in by_place.items():

            def unrefused(numbers: Sequence[int] = numbers) -> list[bytes]:
                for number in numbers:
                    outcomes[number] = self._refusal(changes[number])
                return self._batches_of([changes[number] for number in numbers if outcomes[number] is None])

            try:
                self._offsets.append(place, unrefused)
            except (PylogError, OSError) as error:
                for number in numbers:
                    outcomes[number] = error
        return outcomes

    def _refusal(self, change: GroupChange) -> GroupNotEmptyError | None:
        """Why a coordinator may not change a group, whose partition is locked; None: it may."""
        group = change.group
        changes_members = change.members is not None or change.modern or change.ends_classic or change.deletes
        if not changes_members or self.membership.file_group(group) is None or self._offsets.has_died(group):
            return None
        return GroupNotEmptyError(f"group {group!r} has members that share the store's files, without a server")

    def _batches_of(self, changes: Sequence[GroupChange]) -> list[bytes]:
        """The record batches of changes in one partition, which is locked."""
        pairs = list[tuple[bytes, bytes | None]]()
        for change in changes:
            gone = self._offsets.committed(change.group) if change.deletes else ()
            pairs += [(key, None) for key in committed_offsets.offset_keys(change.group, gone)]
            pairs += change.records()
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        return committed_offsets.batches_of(self._logs, keys, values, self._now())

    def commit_in_transaction(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], producer_id: int, producer_epoch: int
    ) -> None:
        """Commits offsets as a part of a producer's transaction: they count when its marker says so.

        Nothing is checked: the coordinator has decided. They are one batch, so that no failure leaves a part of them.

        Raises:
            RecordTooLargeError: they do not fit into one batch.
            ValueError: a text is too long for the format.
            ProducerError: a later epoch of the producer has written; others as `commit`.
        """
        change = GroupChange(group, offsets).records()
        place = committed_offsets.place_of(self._logs, group)
        keys, values = [key for key, _ in change], [value for _, value in change]
        config, now = self._logs.topic_config(place.topic), self._now()
        builder = BatchBuilder(config.max_message_bytes, config.max_message_bytes)
        if builder.append(RecordColumns.of_pairs(keys, values, now), None, 0, len(keys)) < len(keys):
            raise RecordTooLargeError(f"group {group}: {len(keys)} offsets do not fit into one batch: commit fewer")
        batch = builder.seal(producer_id=producer_id, producer_epoch=producer_epoch, transactional=True)
        self._offsets.append(place, lambda: [batch])

    def partition_of(self, group: str) -> TopicPartition:
        """The partition of the log that has a group's records; a missing topic is created. PylogError, OSError."""
        return self.membership.partition_of(group)

    def pending(self, group: str) -> set[TopicPartition]:
        """The partitions whose offsets an open transaction may change. PylogError, OSError."""
        return self._offsets.pending(group)

    def members(
        self, partitions: Iterable[int] | None = None
    ) -> tuple[dict[str, GroupMetadataValue | None], dict[str, dict[RecordKey, Value]]]:
        """The members of each group as the log has them; of those in some of its partitions, if they are named.

        Returns:
            Those of classic groups, None: it has committed offsets alone; and the records of groups of the new protocol
            (KIP-848). Groups of later protocols are left out, and those with a record in no known format.

        Raises:
            CorruptRecordError: a record of the log is damaged.
        """
        classic, modern = dict[str, GroupMetadataValue | None](), dict[str, dict[RecordKey, Value]]()
        try:
            partitions = self._logs.written_partitions(OFFSETS_TOPIC) if partitions is None else partitions
        except UnknownTopicError:
            return classic, modern
        for partition in partitions:
            for name, group in self._offsets.in_partition(partition)[1].items():
                try:
                    if group.modern:
                        modern[name] = decoded(group.modern)
                    else:
                        value = None if group.metadata is None else decode_group_value(group.metadata)
                        # Those that share the store's files are no members of a server.
                        classic[name] = None if value is None or value.is_of_files else value
                except ValueError as error:
                    log.warning("%s: the members of group %r are unknown: %s", self._logs.path, name, error)
        return classic, modern

    def forget_topic(self, topic: str) -> bool:
        """Deletes what all groups have committed for a topic that was deleted, and groups of which nothing is left.

        These offsets mean nothing in a topic of that name that is created later. What cannot be deleted is logged.

        Returns:
            Whether all of it is deleted.
        """

        def of_topic(group: GroupRecords) -> list[TopicPartition]:
            return [at for at in group.offsets if at.topic == topic]

        try:
            self._in_each_partition(lambda partition: self._delete_in(partition, of_topic, timeouts.CLEANING))
        except (PylogError, OSError) as error:
            log.warning(
                "%s: topic %s is deleted, but not all that groups have committed for it: delete that by "
                "`pylog groups delete-offsets` before another topic gets this name: %s",
                self._logs.path, topic, error,
            )  # fmt: skip
            return False
        return True
