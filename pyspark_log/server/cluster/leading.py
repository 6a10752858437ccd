"""A partition that a node leads: what its followers have, the high watermark, and which are in sync (KIP-497, KIP-966).

It decides as Kafka's Partition does. Times are in ms and never go back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.cluster.image import Partition

#: An offset, or an epoch of a broker, that is not known.
UNKNOWN: Final = -1

# The controllers know more than this node: the image brings it.
_OVERTAKEN: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST,
})  # fmt: skip

#: Whether a broker may be in sync whose requests have an epoch: it is not fenced, not leaving, and has no newer epoch.
IsEligible = Callable[[int, int], bool]


class Fetched(NamedTuple):
    """What a follower's fetch says.

    Attributes:
        replica: the follower.
        broker_epoch: of its registration; UNKNOWN: its version does not say.
        end: its log end, as the log agrees with the leader's up to there.
        log_start: its log start.
    """

    replica: int
    broker_epoch: int
    end: int
    log_start: int


@dataclass(slots=True)
class _Follower:
    """A follower.

    Attributes:
        end, log_start, broker_epoch: what its last fetch has said.
        caught_up_at: when it had last all that the leader had; None: not in this epoch.
        asked_at, leader_end: when it has fetched last, and the leader's end then.
    """

    end: int = UNKNOWN
    log_start: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    caught_up_at: int | None = None
    asked_at: int | None = None
    leader_end: int = UNKNOWN

    def is_caught_up(self, end: int, now: int, lag_max: int) -> bool:
        """Whether it has all of the leader's log, or had so a moment ago."""
        return self.end == end or (self.caught_up_at is not None and now - self.caught_up_at <= lag_max)


class LedPartition:
    """A partition in one leader epoch of this node. Not thread-safe.

    Attributes:
        leader_epoch: that epoch.
        begun_at: the log end when it began.
        isr: the replicas in sync, as the controllers have them.
        partition_epoch: of that.
        replicas: all of them.
    """

    def __init__(self, node_id: int, partition: Partition, begun_at: int, lag_max: int, now: int) -> None:
        """
        Args:
            node_id: this node.
            partition: as the image has it, with this node as the leader.
            begun_at: the log end.
            lag_max: after how long without all records a follower is out of sync.
            now: the time.
        """
        self._node_id, self._lag_max = node_id, lag_max
        self.leader_epoch, self.begun_at = partition.leader_epoch, begun_at
        self.isr, self.partition_epoch, self.replicas = partition.isr, partition.partition_epoch, partition.replicas
        self._is_recovering = partition.is_recovering
        self._proposed: tuple[int, ...] | None = None
        self._is_sent = False
        self._followers = {
            one: _Follower(caught_up_at=now if one in partition.isr else None)
            for one in partition.replicas
            if one != node_id
        }

    def update(self, partition: Partition) -> None:
        """Takes what the image has of the same leader epoch; what is older than is known changes nothing."""
        if partition.partition_epoch < self.partition_epoch:
            return
        self.replicas = partition.replicas
        for one in self._followers.keys() - set(partition.replicas):
            del self._followers[one]
        for one in set(partition.replicas) - self._followers.keys() - {self._node_id}:
            self._followers[one] = _Follower()
        if partition.partition_epoch > self.partition_epoch:
            self._commit(partition.isr, partition.partition_epoch, is_recovering=partition.is_recovering)

    def _commit(self, isr: tuple[int, ...], partition_epoch: int, *, is_recovering: bool) -> None:
        self.isr, self.partition_epoch, self._is_recovering = isr, partition_epoch, is_recovering
        self._proposed, self._is_sent = None, False

    # ---- followers

    def fetched(self, what: Fetched, end: int, now: int) -> bool:
        """Takes a follower's fetch, whose log does not differ from this one.

        Args:
            what: it.
            end: the log end of this node.
            now: the time.

        Returns:
            False: it is no follower of this partition, or its request is of an earlier registration than one before.
        """
        one = self._followers.get(what.replica)
        if one is None or UNKNOWN < what.broker_epoch < one.broker_epoch:
            return False
        if what.end >= end:
            one.caught_up_at = now
        elif one.asked_at is not None and what.end >= one.leader_end:
            one.caught_up_at = one.asked_at
        one.end, one.log_start, one.broker_epoch = what.end, what.log_start, what.broker_epoch
        one.leader_end, one.asked_at = end, now
        return True

    def has_replica(self, replica: int) -> bool:
        """Whether a broker is a follower."""
        return replica in self._followers

    def high_watermark(self, end: int, now: int, min_isr: int, is_eligible: IsEligible) -> int:
        """Up to where all replicas in sync have the log; UNKNOWN: it cannot be said, or may not be raised now.

        It also waits for a follower that has just caught up and is about to be in sync. With too few replicas in sync
        it is not raised: an eligible leader that was in sync (ELR) has what is below it (KIP-966).

        Args:
            end: the log end of this node.
            now: the time.
            min_isr: min.insync.replicas.
            is_eligible: see IsEligible.
        """
        if self.is_under(min_isr):
            return UNKNOWN
        maximal = self._maximal_isr()
        ends = [end]
        for replica, one in self._followers.items():
            joins = one.is_caught_up(end, now, self._lag_max) and is_eligible(replica, one.broker_epoch)
            if replica in maximal or joins:
                ends.append(one.end)
        return min(ends)

    def is_under(self, min_isr: int) -> bool:
        """Whether fewer replicas are in sync than must be for acks=all."""
        return len(self.isr) < min(min_isr, len(self._followers) + 1)

    def _maximal_isr(self) -> Collection[int]:
        """The replicas that are in sync by what was proposed, or would be if that is refused."""
        return self.isr if self._proposed is None else {*self.isr, *self._proposed}

    def low_watermark(self, log_start: int, alive: Collection[int]) -> int:
        """Up to where all replicas have deleted, of those that are alive."""
        starts = [one.log_start for replica, one in self._followers.items() if replica in alive]
        return min([log_start, *starts])

    def has(self, replica: int, offset: int) -> bool:
        """Whether a follower in sync has the record at an offset."""
        one = self._followers.get(replica)
        return replica in self.isr and one is not None and one.log_start <= offset < one.end

    # ---- which are in sync

    def propose(
        self, end: int, high_watermark: int, now: int, is_eligible: IsEligible, *, drops: bool
    ) -> tuple[int, ...] | None:
        """The replicas that should be in sync, if it differs from what the controllers have, and no proposal is open.

        Report what became of it: `answered`, `failed`. Arguments that are missing here are those of `high_watermark`.

        Args:
            high_watermark: what it is.
            drops: whether followers that are late are dropped. Not each time: one that has just joined may be late.
        """
        if self._is_sent:
            return None
        if self._proposed is None:
            late = {
                replica
                for replica, one in self._followers.items()
                if drops and replica in self.isr and not one.is_caught_up(end, now, self._lag_max)
            }
            joining = {
                replica
                for replica, one in self._followers.items()
                if replica not in self.isr
                and one.end >= max(high_watermark, self.begun_at)
                and is_eligible(replica, one.broker_epoch)
            }
            if joining:
                self._proposed = (*self.isr, *sorted(joining))
            elif late:
                self._proposed = tuple(one for one in self.isr if one not in late)
            elif self._is_recovering:
                self._proposed = self.isr
        if self._proposed is not None:
            self._is_sent = True
        return self._proposed

    def broker_epoch(self, replica: int) -> int:
        """The epoch of a follower's registration by its fetches."""
        one = self._followers.get(replica)
        return UNKNOWN if one is None else one.broker_epoch

    def answered(self, error: int, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Takes what the controllers answer to a proposal: an error, or how it is now."""
        if not self._is_sent:
            return
        if error in _OVERTAKEN:
            return  # `update` brings what is true now; until then nothing is proposed.
        if error in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
            self._proposed, self._is_sent = None, False
        elif error:
            self.failed()
        elif leader_epoch == self.leader_epoch and partition_epoch >= self.partition_epoch:
            self._commit(isr, partition_epoch, is_recovering=False)

    def failed(self) -> None:
        """Takes that it is not known what became of a proposal: it is repeated."""
        self._is_sent = False
