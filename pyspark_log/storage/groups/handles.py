"""Handles to consumer groups for Python users: `store.groups["g"]`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from pyspark_log.storage.fs import FileLock
from pyspark_log.storage.groups.log.metadata import GroupDescription
from pyspark_log.storage.groups.log.view import OffsetAndMetadata
from pyspark_log.storage.seam import Offsets
from pyspark_log.types import TopicPartition

_Log_co = TypeVar("_Log_co", bound=Offsets, covariant=True)


class Groups(Generic[_Log_co]):
    """The consumer groups of a store, by name. Iterates over those that have a record.

    Attributes:
        log: the same groups, for questions about many of them.
    """

    def __init__(self, log: _Log_co) -> None:
        """For Store.groups."""
        self.log = log

    def __getitem__(self, name: str) -> Group:
        """A handle to a group, which need not exist: its first commit creates it."""
        return Group(self.log, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.log.groups())

    def __len__(self) -> int:
        return len(self.log.groups())

    def __contains__(self, name: object) -> bool:
        return name in self.log.groups()

    def __repr__(self) -> str:
        return f"Groups({self.log.groups()!r})"


class Group:
    """One consumer group.

    Attributes:
        name: the group's.
    """

    def __init__(self, log: Offsets, name: str) -> None:
        """For Groups."""
        self._log = log
        self.name = name

    def __repr__(self) -> str:
        return f"Group({self.name!r}, {len(self.committed())} committed offsets)"

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        metadata: str = "",
        *,
        expected: Mapping[TopicPartition, int | None] | None = None,
        expire_timestamp: int = -1,
    ) -> None:
        """Commits the offsets of the next records to read, atomically; as Offsets.commit."""
        self._log.commit(self.name, offsets, metadata, expected=expected, expire_timestamp=expire_timestamp)

    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets; empty for a group that does not exist. Raises: as Offsets.fetch."""
        return self._log.fetch(self.name)

    def describe(self) -> GroupDescription:
        """Its state and members, as far as the log records them. Raises: as Offsets.fetch."""
        return self._log.describe(self.name)

    def delete(self) -> None:
        """Deletes the group and its committed offsets; as Offsets.delete_group."""
        self._log.delete_group(self.name)

    def delete_offsets(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Deletes its committed offsets for some partitions; as Offsets.delete_offsets."""
        return self._log.delete_offsets(self.name, list(partitions))

    def lock(self, purpose: str) -> FileLock:
        """A lock that one process at a time can have for a purpose, such as an export; it is not acquired yet."""
        return self._log.lock(self.name, purpose)
