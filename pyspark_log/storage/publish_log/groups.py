"""The consumer groups of a store in an object store: their committed offsets are in its publish log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NoReturn

from pyspark_log.arguments import check_whole
from pyspark_log.config import int_config
from pyspark_log.errors import InvalidConfigError, OffsetConflictError, UnknownGroupError, UnsupportedByStoreError
from pyspark_log.storage.fs.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.groups import NEVER, GroupDescription, GroupState, OffsetAndMetadata
from pyspark_log.storage.groups.committed_offsets import check
from pyspark_log.storage.groups.member_files import MemberFiles
from pyspark_log.storage.publish_log import proposals
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.proposals import Proposal
from pyspark_log.storage.publish_log.state import State
from pyspark_log.types import TopicPartition

_NO_MEMBERS = (
    "a group in an object store has no members, as nothing there shows at once that one has died: give each consumer "
    "its own partitions (Consumer.assign)"
)


class ObjectGroups:
    """The consumer groups, by name. Iterates over those that have committed offsets. As Groups.

    Attributes:
        log: the same groups, for a program that commits for many.
    """

    def __init__(self, log: PublishLog, configs: Mapping[str, str], clock: Callable[[], int]) -> None:
        """Of one store; `clock` gives the time in ms."""
        self._log = log
        self.log = ObjectOffsetsLog(log, configs, clock)

    @property
    def committed_offsets(self) -> NoReturn:
        """There is no topic of offsets in an object store. UnsupportedByStoreError."""
        raise UnsupportedByStoreError(
            "OffsetsLog is of a store in a folder: take `store.groups.log`, which has its calls for each kind of store"
        )

    def __getitem__(self, name: str) -> ObjectGroup:
        return ObjectGroup(self._log, name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._log.follow().groups))

    def __len__(self) -> int:
        return len(self._log.follow().groups)

    def __contains__(self, name: object) -> bool:
        return name in self._log.follow().groups

    def __repr__(self) -> str:
        return f"Groups({list(self)!r})"


class ObjectGroup:
    """One consumer group; as Group, whose methods have the contracts.

    Attributes:
        name: the group's.
    """

    def __init__(self, log: PublishLog, name: str) -> None:
        """For ObjectGroups."""
        self._log, self.name = log, name

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
        """Commits the offsets of the next records to read, atomically.

        Raises:
            InvalidConfigError: as OffsetsLog.commit; or they are to expire at a time of their own.
            OffsetConflictError: a committed offset is not the expected one; nothing was changed.
        """
        check(self.name, offsets, metadata)
        check_whole(f"group {self.name}: expiry", expire_timestamp, low=-1)
        if expire_timestamp not in (-1, NEVER):
            raise InvalidConfigError("offsets in an object store have no time of their own at which they expire")

        def propose(state: State) -> Proposal | None:
            known = state.groups.get(self.name, {})
            for at, before in (expected or {}).items():
                found = known[at].offset if at in known else None
                if found != before:
                    raise OffsetConflictError(self.name, at.topic, at.partition, before, found)
            return proposals.commit(state, self.name, offsets, metadata) if offsets else None

        self._log.decide(propose)

    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets; empty for a group that does not exist."""
        return {
            at: OffsetAndMetadata(one.offset, -1, one.metadata, one.time)
            for at, one in self._log.follow().groups.get(self.name, {}).items()
        }

    def describe(self) -> GroupDescription:
        """Its state: groups in an object store have no members."""
        is_known = self.name in self._log.follow().groups
        return GroupDescription(self.name, GroupState.EMPTY if is_known else GroupState.DEAD)

    def delete(self) -> None:
        """Deletes the group and its committed offsets. UnknownGroupError."""
        self._log.decide(lambda state: self._deletion(state, self._offsets(state)))

    def delete_offsets(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Deletes its committed offsets for some partitions; those for which it had one. UnknownGroupError."""
        entry = self._log.decide(
            lambda state: self._deletion(state, [at for at in self._offsets(state) if at in partitions])
        )
        return [] if entry is None else sorted(move.at for move in entry.moves)

    def lock(self, purpose: str) -> NoReturn:
        """No lock of an object store ends with the process that has it. UnsupportedByStoreError."""
        raise UnsupportedByStoreError(
            f"group {self.name}: there are no locks in an object store, such as one for {purpose}: commit with "
            "`expected`, which one of several processes can do"
        )

    def _offsets(self, state: State) -> list[TopicPartition]:
        try:
            return list(state.groups[self.name])
        except KeyError:
            raise UnknownGroupError(f"there is no group {self.name!r} in {self._log.objects.address}") from None

    def _deletion(self, state: State, partitions: Collection[TopicPartition]) -> Proposal | None:
        return proposals.commit(state, self.name, dict.fromkeys(partitions)) if partitions else None


class ObjectOffsetsLog:
    """Commits and fetches offsets of groups; as OffsetsLog, whose methods have the contracts.

    Attributes:
        writable: whether this process may commit: the object store decides that.
        retention_ms: how long the offsets of an idle group stay.
        interval_ms: how often a query that only reports its progress should commit: each time is a decision.
    """

    writable = True
    interval_ms = 60_000

    def __init__(self, log: PublishLog, configs: Mapping[str, str], clock: Callable[[], int]) -> None:
        """For ObjectGroups."""
        self._log, self.now = log, clock
        self.retention_ms = int_config(configs, "offsets.retention.minutes") * 60_000

    def check_writable(self) -> None:
        """It may always be tried."""

    @property
    def member_files(self) -> MemberFiles:
        """There are none: no lock of an object store ends with the process that has it. UnsupportedByStoreError."""
        raise UnsupportedByStoreError(_NO_MEMBERS)

    def lock(self, group: str, purpose: str) -> NoReturn:
        """As of ObjectGroup. UnsupportedByStoreError."""
        ObjectGroup(self._log, group).lock(purpose)

    def expire(self, timeout: float = DEFAULT_TIMEOUT) -> int:
        """None expires in an object store."""
        return 0

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
        """Commits the offsets of the next records to read, atomically. UnsupportedByStoreError: for a member."""
        if member is not None:
            raise UnsupportedByStoreError(_NO_MEMBERS)
        ObjectGroup(self._log, group).commit(offsets, metadata, expected=expected, expire_timestamp=expire_timestamp)

    def fetch(self, group: str, *, with_resets: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group, none of which is below 0 here; empty for an unknown group."""
        return ObjectGroup(self._log, group).committed()

    def groups(self) -> list[str]:
        """The names of all groups, sorted."""
        return sorted(self._log.follow().groups)

    def describe(self, group: str) -> GroupDescription:
        """A group's state."""
        return ObjectGroup(self._log, group).describe()

    def delete_group(self, group: str) -> None:
        """Deletes a group and all its committed offsets. UnknownGroupError."""
        ObjectGroup(self._log, group).delete()

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Deletes a group's committed offsets for some partitions; those for which it had one. UnknownGroupError."""
        return ObjectGroup(self._log, group).delete_offsets(partitions)
