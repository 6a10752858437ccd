"""A classic group: its members, and the rules that concern it alone. What is answered is in classic.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.errors import MessageError
from pyspark_log.kafka.schemas import message
from pyspark_log.kafka.wire import decode
from pyspark_log.server.coordinator.effects import Client, GroupRecord, MemberRecord, Token, WaitingJoin

#: The protocol type of groups whose members are Kafka's consumers.
CONSUMER = "consumer"

_VERSION_BYTES = 2  # before a subscription


class State(Enum):
    """Kafka's states of a classic group, by the names that DescribeGroups gives."""

    EMPTY = "Empty"  # it has no members, maybe some that have yet to come back with their new id
    PREPARING = "PreparingRebalance"  # it waits for its members to join
    COMPLETING = "CompletingRebalance"  # it waits for the leader's assignment, or for that to be stored
    STABLE = "Stable"
    DEAD = "Dead"  # it is deleted, or another server's


@dataclass(eq=False, slots=True)
class Member:
    """A member of a group. Times are in ms.

    Attributes:
        protocols: metadata by the protocol's name, in the order that the member prefers.
        join, sync: its requests that wait; None: it has none.
        is_new: it waits for its first generation.
    """

    member_id: str
    instance_id: str | None
    client: Client
    rebalance_timeout: int
    session_timeout: int
    protocols: dict[str, bytes]
    assignment: bytes = b""
    join: WaitingJoin | None = None
    sync: Token | None = None
    is_new: bool = False


class ClassicGroup:
    """The state of one group.

    Attributes:
        generation: the number of the last completed rebalance; it never goes back.
        state_timestamp: when it entered its state, in ms; -1: unknown.
        members: by member id.
        static: member ids by `group.instance.id`.
        pending: member ids that were given out (KIP-394) and that have yet to join.
        unsynced: members of the generation that have yet to sync.
        joined: how many members have a waiting join.
        is_first_rebalance: it prepares a rebalance, and had no members before.
        has_grown: a member came during the delay of its first rebalance.
        storing: the ticket of the generation's assignment while that is written.
        is_durable: there is something of it in the log, so it exists until it is deleted.
    """

    def __init__(self, group_id: str, now: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.state_timestamp = now
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        self.pending: set[str] = set()
        self.unsynced: set[Member] = set()
        self.joined = 0
        self.is_first_rebalance = False
        self.has_grown = False
        self.storing: int | None = None
        self.is_durable = False
        self._supporters = Counter[str]()
        self._subscriptions: Sequence[bytes] | None = None
        self._topics: frozenset[str] | None = None

    @staticmethod
    def of(group_id: str, record: GroupRecord) -> ClassicGroup:
        """The group that a record describes: stable, or empty."""
        group = ClassicGroup(group_id, record.state_timestamp)
        group.is_durable = True
        group.generation = record.generation
        group.protocol_type, group.protocol = record.protocol_type or None, record.protocol
        for one in record.members:
            rebalance_timeout = one.session_timeout if one.rebalance_timeout == -1 else one.rebalance_timeout
            protocols = {record.protocol or "": one.subscription}
            client = Client(one.client_id, one.client_host)
            group.add(
                Member(
                    one.member_id, one.instance_id, client, rebalance_timeout, one.session_timeout, protocols,
                    one.assignment,
                )
            )  # fmt: skip
        if record.leader in group.members:
            group.leader = record.leader
        if group.members:
            group.state = State.STABLE
        group._note_subscriptions()
        return group

    def record(self, assignments: dict[str, bytes]) -> GroupRecord:
        """What is stored of it, with these assignments by member id."""
        members = tuple(
            MemberRecord(
                one.member_id, one.instance_id, one.client.id, one.client.host, one.rebalance_timeout,
                one.session_timeout, one.protocols[self.protocol or ""], assignments.get(one.member_id, b""),
            )
            for one in self.members.values()
        )  # fmt: skip
        return GroupRecord(
            self.protocol_type or "", self.generation, self.protocol, self.leader, self.state_timestamp, members
        )

    def enter(self, state: State, now: int) -> None:
        """Changes its state."""
        self.state, self.state_timestamp = state, now

    # ---- members

    def add(self, member: Member) -> None:
        """Takes a member in. The first leads."""
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        self._supporters.update(member.protocols.keys())
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """Takes a member out, which has no waiting requests. If it led, another leads."""
        del self.members[member.member_id]
        self.unsynced.discard(member)
        self._supporters.subtract(member.protocols.keys())
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def update(self, member: Member, protocols: dict[str, bytes], rebalance_timeout: int, session_timeout: int) -> None:
        """Takes over what a member says of itself when it joins again."""
        self._supporters.subtract(member.protocols.keys())
        self._supporters.update(protocols.keys())
        member.protocols, member.rebalance_timeout, member.session_timeout = (
            protocols, rebalance_timeout, session_timeout,
        )  # fmt: skip

    def rename(self, member: Member, member_id: str) -> None:
        """Gives a static member another member id, for its new process."""
        assert member.instance_id is not None
        if self.leader == member.member_id:
            self.leader = member_id
        del self.members[member.member_id]
        member.member_id = member_id
        self.members[member_id] = member
        self.static[member.instance_id] = member_id

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether a request comes from a member. FENCED_INSTANCE_ID: its instance has a newer process."""
        if instance_id is not None and self.static.get(instance_id, member_id) != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members or (instance_id is not None and instance_id not in self.static):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def rebalance_timeout(self) -> int:
        """How long members have to join, or to sync, in ms: what the slowest asks for."""
        return max((one.rebalance_timeout for one in self.members.values()), default=0)

    # ---- the next generation

    def has_room(self, member_id: str, max_size: int) -> bool:
        """Whether a joining member is taken in. Of a group that is too large, those that rejoin last are not."""
        member = self.members.get(member_id)
        if self.state is State.EMPTY:
            return True
        if self.state is State.PREPARING:
            return (member is not None and member.join is not None) or self.joined < max_size
        return member is not None or len(self.members) < max_size

    def supports(self, protocol_type: str, protocols: dict[str, bytes]) -> bool:
        """Whether a member with these protocols can be in the group: all members must have one in common."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self._supporters[name] == len(self.members) for name in protocols
        )

    def choose_protocol(self) -> str:
        """The protocol of the next generation: each member votes for the first on its list that all support."""
        votes = Counter(
            next(name for name in one.protocols if self._supporters[name] == len(self.members))
            for one in self.members.values()
        )
        return votes.most_common(1)[0][0]

    @property
    def all_joined(self) -> bool:
        """Whether nothing is left to wait for before a generation begins."""
        return self.joined == len(self.members) and not self.pending

    def elect_joined_leader(self) -> bool:
        """Sees to it that the leader is a member that has joined. False: none has."""
        if self.leader is not None and self.members[self.leader].join is not None:
            return True
        joined = next((one.member_id for one in self.members.values() if one.join is not None), None)
        if joined is not None:
            self.leader = joined
        return joined is not None

    def next_generation(self, now: int) -> None:
        """Begins a generation of the members that it has. Without any, the group is empty."""
        self.generation += 1
        self.unsynced.clear()
        self.protocol = self.choose_protocol() if self.members else None
        self._note_subscriptions()
        self.enter(State.COMPLETING if self.members else State.EMPTY, now)

    # ---- topics

    @property
    def is_consumers(self) -> bool:
        """Whether its members are Kafka's consumers."""
        return self.protocol_type == CONSUMER

    def subscribes_to(self, topic: str) -> bool:
        """Whether members of the last generation read a topic. If theirs is unknown, consumers may read any."""
        topics = self.topics()
        return topic in topics if topics is not None else self.is_consumers

    def topics(self) -> frozenset[str] | None:
        """The topics that the last generation subscribes to. None: the members are no consumers, it is not known."""
        if self._topics is None and self._subscriptions is not None and self.is_consumers:
            try:
                self._topics = frozenset(topic for one in self._subscriptions for topic in _topics_of(one))
            except MessageError:
                self._subscriptions = None
        return self._topics

    def _note_subscriptions(self) -> None:
        # They are read when they are asked for: rarely, and never during a rebalance.
        self._topics = None
        self._subscriptions = [one.protocols[self.protocol or ""] for one in self.members.values()]


def _topics_of(subscription: bytes) -> Sequence[str]:
    """The topics of a consumer's subscription. Each version begins as version 0 does."""
    if len(subscription) < _VERSION_BYTES:
        raise MessageError("a subscription without a version")
    read, _ = decode(message("ConsumerProtocolSubscription").plan(0), subscription, _VERSION_BYTES)
    topics: Sequence[str] = read.topics
    return topics
