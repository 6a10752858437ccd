"""The groups of a store in an object store, for the server that coordinates them; see `logs`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyspark_log.errors import InvalidTxnStateError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.served.logs import GroupMembers, SharedGroups
from pyspark_log.server.served.objects.collector import Collector
from pyspark_log.server.served.objects.follower import Follower
from pyspark_log.storage.catalog import OFFSETS_TOPIC
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.groups import OffsetAndMetadata
from pyspark_log.storage.groups.changes import GroupChange
from pyspark_log.storage.publish_log.entries.changes import StagedOffset
from pyspark_log.storage.publish_log.parts.groups import committed_in, coordinated, expired, members_in
from pyspark_log.storage.publish_log.proposals import Proposal
from pyspark_log.storage.publish_log.state import NO_COORDINATOR, State
from pyspark_log.types import TopicPartition


class ObjectGroups(SharedGroups):
    """They are in the publish log: what a server writes counts only if it coordinates at that moment, and has done so
    since it has taken them over.
    """

    writable = True

    def __init__(self, follower: Follower, collector: Collector, run: str, retention_ms: int) -> None:
        """`run`: which start of a server this is; `retention_ms`: how long offsets are kept."""
        self._retention_ms = retention_ms
        self._follower, self._collector, self._run = follower, collector, run
        self._taken_over = NO_COORDINATOR

    def take_over(self) -> tuple[int, GroupMembers]:
        state = self._follower.state
        self._taken_over = state.coordinator
        return state.coordinator.since, members_in(state)

    def write(self, changes: Sequence[GroupChange]) -> Sequence[Exception | None]:
        may_write = self._fence()
        outcomes, written = list[Exception | None](), list[GroupChange]()
        for group_change in changes:
            try:
                group_change.member_records()
            except ValueError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
                written.append(group_change)

        def change(state: State) -> tuple[Proposal | None, list[Any]]:
            if not may_write(state):
                return None, [RefusedError(ErrorCode.NOT_COORDINATOR, "another server coordinates")] * len(changes)
            return coordinated(state, written) if written else None, outcomes

        return self._collector.decide(change)

    def commit_in_transaction(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], producer_id: int, producer_epoch: int
    ) -> None:
        may_write = self._fence()

        def change(state: State) -> tuple[Proposal | None, list[Any]]:
            transaction = state.open.get(producer_id)
            if not may_write(state):
                return None, [RefusedError(ErrorCode.NOT_COORDINATOR, "another server coordinates")]
            if transaction is None or transaction.epoch != producer_epoch:
                why = f"producer {producer_id} has no transaction in epoch {producer_epoch}"
                return None, [InvalidTxnStateError(why)]
            # One below 0, with which a group starts over, is as none.
            staged = [
                StagedOffset(producer_id, group, at, max(kept.offset, -1), kept.metadata)
                for at, kept in offsets.items()
            ]
            return Proposal(staged_offsets=tuple(staged)), [None]

        [failure] = self._collector.decide(change)
        if failure is not None:
            raise failure

    def _fence(self) -> Callable[[State], bool]:
        """Whether what is known now may be written in a state."""
        term = self._taken_over
        return lambda state: state.coordinator == term and term.run == self._run

    def members(self, partitions: Iterable[int] | None = None) -> GroupMembers:
        return members_in(self._follower.state)

    def partition_of(self, group: str) -> TopicPartition:
        return TopicPartition(OFFSETS_TOPIC, 0)

    def fetch(self, group: str, *, with_resets: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        return committed_in(self._follower.state, group)

    def pending(self, group: str) -> Iterable[TopicPartition]:
        transactions = self._follower.state.open.values()
        return {offset.at for transaction in transactions for offset in transaction.offsets if offset.group == group}

    def expire(self) -> int:
        may_write = self._fence()
        # With a commit in one decision, it would delete an offset of which it has not seen that it is new.
        entry = self._collector.decide_alone(
            lambda state: expired(state, now_ms(), self._retention_ms) if may_write(state) else None
        )
        return 0 if entry is None else len(entry.moves)
