"""Consumer groups as a Python user holds them: `store.groups["g"]`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pyspark_log.storage.groups.metadata import GroupDescription
from pyspark_log.storage.groups.offsets import HasOffsets, OffsetsLog
from pyspark_log.storage.groups.view import OffsetAndMetadata
from pyspark_log.types import TopicPartition


class Groups:
    """All consumer groups of a store, by their names. It iterates over those that have a record."""

    def __init__(self, store: HasOffsets) -> None:
        """For Store.groups."""
        self._log = OffsetsLog(store)

    def __getitem__(self, name: str) -> Group:
        """A group, be there one or not: it begins with its first commit."""
        return Group(self._log, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._log.groups())

    def __len__(self) -> int:
        return len(self._log.groups())

    def __contains__(self, name: object) -> bool:
        return name in self._log.groups()

    def __repr__(self) -> str:
        return f"Groups({self._log.groups()!r})"


class Group:
    """One consumer group.

    Attributes:
        name: the group's.
    """

    def __init__(self, log: OffsetsLog, name: str) -> None:
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
    ) -> None:
        """Commits the offsets of the next records to read, all of them or none; as OffsetsLog.commit."""
        self._log.commit(self.name, offsets, metadata, expected=expected)

    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets; empty for a group that does not exist. Errors as OffsetsLog.fetch."""
        return self._log.fetch(self.name)

    def describe(self) -> GroupDescription:
        """Its state and members, as far as the log tells. Errors as OffsetsLog.fetch."""
        return self._log.describe(self.name)

    def delete(self) -> None:
        """Deletes all that it has committed; as OffsetsLog.delete_group."""
        self._log.delete_group(self.name)

    def delete_offsets(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Deletes what it has committed for some partitions; as OffsetsLog.delete_offsets."""
        return self._log.delete_offsets(self.name, list(partitions))
