"""Committed offsets of groups, as every kind of store has them: `store.groups.log`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from pyspark_log.types import TopicPartition

if TYPE_CHECKING:
    from pyspark_log.storage.fs import FileLock
    from pyspark_log.storage.groups import GroupDescription, OffsetAndMetadata
    from pyspark_log.storage.groups.members.file_group import FileGroup
    from pyspark_log.storage.groups.members.member_files import MemberFiles


class Membership(ABC):
    """The members of groups that share the files of the store, without a server."""

    @property
    @abstractmethod
    def member_files(self) -> MemberFiles:
        """By which members know which of them live."""

    @abstractmethod
    def file_group(self, group: str) -> FileGroup | None:
        """The members of a group that share the files of the store; None: there are none.

        Raises:
            CorruptRecordError: the group's record cannot be decoded.
        """

    @abstractmethod
    def change_members(self, group: str, change: Callable[[FileGroup], FileGroup]) -> FileGroup:
        """Changes the members of a group that share the files of the store; no other process changes them meanwhile.

        Args:
            group: its name.
            change: what the group is to be, from what it is.

        Returns:
            What it is now.

        Raises:
            InvalidConfigError: the group has no name, or the format cannot hold a text.
            GroupNotEmptyError: it has members of a server.
            RecordTooLargeError: they do not fit into one record.
            StagedOutputError, OSError, LockTimeoutError: as Offsets.commit; nothing was written.
        """

    @abstractmethod
    def partition_of(self, group: str) -> TopicPartition:
        """The partition of the log that has a group's records; makes the log if it is missing. PylogError, OSError."""


class Offsets(ABC):
    """Commits and fetches offsets of groups; safe to use from several threads and processes.

    Offsets that a publish moves (e.g. a transaction) count as soon as it is decided. So a fetch never returns an offset
    that a decided publish has replaced, and a commit is ordered after all earlier decisions.

    Attributes:
        retention_ms: how long the offsets of an idle group stay, if their commit does not say it.
        interval_ms: how often a query that only reports its progress should commit; 0: as often as it progresses.
    """

    retention_ms: int
    interval_ms: int

    @property
    @abstractmethod
    def writable(self) -> bool:
        """Whether this process may commit, as far as that is known without a try; a reader does not need that."""

    @property
    @abstractmethod
    def membership(self) -> Membership:
        """The members of groups without a server. UnsupportedByStoreError: groups of such a store have none."""

    @abstractmethod
    def lock(self, group: str, purpose: str) -> FileLock:
        """A lock that one process at a time can have for a purpose, such as an export; it is not acquired yet.

        UnsupportedByStoreError: nothing in the store ends with the process that has it.
        """

    @abstractmethod
    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        metadata: str = "",
        *,
        expire_timestamp: int = -1,
        expected: Mapping[TopicPartition, int | None] | None = None,
        member: str | None = None,
    ) -> None:
        """Commits the offsets of the next records to read, atomically.

        (In a folder, more than a segment holds, some 4,000, are split: each part that fills a segment is atomic.)
        Creates a missing topic of offsets (`offsets.topic.num.partitions` partitions, Kafka's 50). Every
        `offsets.retention.check.interval.ms` it also deletes expired offsets.

        Args:
            group: the group's name.
            offsets: for each partition.
            metadata: a text of the committer's choice, for all of them.
            expire_timestamp: when these offsets expire, in ms since 1970; NEVER: they do not. -1: when the group was
                idle for `offsets.retention.minutes`.
            expected: the commit is refused unless these are the committed offsets of those partitions (None: no
                offset). If omitted, nothing is compared.
            member: the commit is refused unless this member of the group owns all of these partitions. None: it is no
                member's.

        Raises:
            InvalidConfigError: the group has no name, an offset is negative, `metadata` is larger than 4096 bytes, or
                the format cannot hold a text or number; nothing was written.
            UnsupportedByStoreError: the store knows no members, or no time of its own for an offset.
            OffsetConflictError: a committed offset is not the expected one; nothing was written.
            FencedMemberError: the member does not own all of them; nothing was written.
            StagedOutputError, OSError, LockTimeoutError: also when pending decisions of the group's partition,
                which come first, cannot be applied; nothing was written.
        """

    @abstractmethod
    def fetch(self, group: str, *, with_resets: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group; empty for an unknown group.

        Reads only what was committed since the last call. Applies pending decisions of the group's partition if it may
        write to the store; the result does not depend on that.

        Args:
            group: its name.
            with_resets: whether offsets below 0 are among them, with which clients commit that they start over.

        Raises:
            CorruptRecordError: a record of the group's partition cannot be decoded.
            StagedOutputError: a pending decision's moves cannot be read.
        """

    @abstractmethod
    def groups(self) -> list[str]:
        """The names of all groups with a record, sorted."""

    @abstractmethod
    def describe(self, group: str) -> GroupDescription:
        """A group's state and members, as far as the store records them. Raises: as `fetch`."""

    @abstractmethod
    def delete_group(self, group: str) -> None:
        """Deletes a group and all its committed offsets.

        Raises:
            UnknownGroupError: no such group.
            GroupNotEmptyError: it has members, or may have some.
            CorruptRecordError, StagedOutputError, OSError, LockTimeoutError: as commit; nothing was written.
        """

    @abstractmethod
    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Deletes a group's committed offsets for some partitions.

        Returns:
            The partitions for which it had one.

        Raises:
            UnknownGroupError: no such group.
            GroupNotEmptyError: members of it read one of the topics.
            CorruptRecordError, StagedOutputError, OSError, LockTimeoutError: as commit; nothing was written.
        """

    @abstractmethod
    def expire(self) -> int:
        """Deletes expired offsets, by Kafka's rules, and groups of which nothing is left. None expire in objects.

        Only writers to the partition being checked wait for it.

        Returns:
            How many committed offsets were deleted.

        Raises:
            PylogError, OSError: the first that a partition raised; the others were checked.
        """
