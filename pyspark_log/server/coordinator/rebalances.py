"""Rebalances of a classic group: its deadlines, its waiting requests, and what is stored of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import JoinGroupResponse, SyncGroupResponse
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.coordinator.effects import GroupRecord, Store, Token, WaitingJoin
from pyspark_log.server.coordinator.group import ClassicGroup, Member, State
from pyspark_log.server.coordinator.outbox import Outbox, Stored
from pyspark_log.server.coordinator.timers import Timers

#: The member id of a client that has none.
NO_MEMBER = ""

# From this version on, a response to JoinGroup has null where there is no protocol (KIP-559).
_NULL_PROTOCOL = 7


@dataclass(frozen=True, slots=True)
class Settings:
    """Kafka's settings of groups; times in ms.

    Attributes:
        min_session_timeout, max_session_timeout: `group.min.session.timeout.ms`, `group.max.session.timeout.ms`.
        initial_rebalance_delay: `group.initial.rebalance.delay.ms`.
        max_size: `group.max.size`.
        new_member_timeout: how long a join of a new member may wait; it is no setting of Kafka's.
        modern_session_timeout: `group.consumer.session.timeout.ms`. This one and the next are for groups of KIP-848.
        modern_heartbeat_interval: `group.consumer.heartbeat.interval.ms`.
        modern_max_size: `group.consumer.max.size`.
        assignment_interval: `group.consumer.assignment.interval.ms`: the least time between two assignments.
    """

    min_session_timeout: int = 6_000
    max_session_timeout: int = 1_800_000
    initial_rebalance_delay: int = 3_000
    max_size: int = 2**31 - 1
    new_member_timeout: int = 300_000
    modern_session_timeout: int = 45_000
    modern_heartbeat_interval: int = 5_000
    modern_max_size: int = 2**31 - 1
    assignment_interval: int = 1_000


class Rebalances:
    """Changes groups, and says to the outbox what follows."""

    def __init__(self, settings: Settings, timers: Timers, outbox: Outbox) -> None:
        self._settings, self._timers, self._outbox = settings, timers, outbox

    def answer(self, token: Token, response: Struct) -> None:
        """Answers a request."""
        self._outbox.answer(token, response)

    def store(self, group: ClassicGroup, record: GroupRecord | None, then: Stored | None = None) -> int:
        """Has a group's record written, or its tombstone; `then` is called afterwards. Returns the ticket."""
        group.is_durable = True
        return self._outbox.store(lambda ticket: Store(ticket, group.group_id, record), then)

    # ---- the two halves

    def rebalance(self, group: ClassicGroup, now: int) -> None:
        """Begins a rebalance, or ends its first half if nothing is left to wait for."""
        if group.state is not State.PREPARING:
            self.prepare(group, now)
        elif group.all_joined and not group.is_first_rebalance:
            self._complete_join(group, now)

    def prepare(self, group: ClassicGroup, now: int) -> None:
        """Begins a rebalance: all members must join. The first of a group waits for more of them."""
        if group.state is State.COMPLETING:
            self.end_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.unsynced.clear()
        group.storing = None
        self._timers.cancel((group, "sync"))
        group.is_first_rebalance = group.state is State.EMPTY
        group.enter(State.PREPARING, now)
        timeout = group.rebalance_timeout()
        if group.is_first_rebalance:
            delay = self._settings.initial_rebalance_delay
            self._delay_first(group, delay, max(timeout - delay, 0), now)
        elif group.all_joined:
            self._complete_join(group, now)
        else:
            self._timers.set((group, "join"), now + timeout, partial(self._complete_join, group))

    def _delay_first(self, group: ClassicGroup, delay: int, left: int, now: int) -> None:
        """Waits for members. As long as they come it waits again, up to the time for a rebalance."""
        group.has_grown = False
        self._timers.set((group, "join"), now + delay, partial(self._end_of_delay, group, delay, left))

    def _end_of_delay(self, group: ClassicGroup, delay: int, left: int, now: int) -> None:
        if group.has_grown and left:
            next_delay = min(self._settings.initial_rebalance_delay, left)
            self._delay_first(group, next_delay, max(left - delay, 0), now)
        else:
            self._complete_join(group, now)

    def _complete_join(self, group: ClassicGroup, now: int) -> None:
        """Begins the next generation without the dynamic members that have not joined.

        A static member stays until its session ends, or until the time to sync is over, as it may be starting again.
        """
        self._timers.cancel((group, "join"))
        for member in list(group.members.values()):
            if member.join is None and member.instance_id is None:
                self.remove(group, member)
        if group.members and not group.elect_joined_leader():
            again = now + max(group.rebalance_timeout(), 1)
            self._timers.set((group, "join"), again, partial(self._complete_join, group))
            return
        group.next_generation(now)
        if group.state is State.EMPTY:
            # If that cannot be stored, members of an older generation are loaded again, whose sessions end.
            self.store(group, group.record({}))
            return
        for member in group.members.values():
            if member.join is not None:
                self.answer_join(group, member, self.joined(group, member))
            member.is_new = False
            self.rearm(group, member, now)
        group.unsynced.update(group.members.values())
        self._timers.set((group, "sync"), now + group.rebalance_timeout(), partial(self._sync_over, group))

    def note_sync(self, group: ClassicGroup, member: Member) -> None:
        """Does not wait for a member's sync any longer."""
        group.unsynced.discard(member)
        if not group.unsynced:
            self._timers.cancel((group, "sync"))

    def store_assignments(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """Has the leader's assignment of the generation written; then the group is stable."""

        def stored(error: ErrorCode, now: int) -> None:
            if group.storing != ticket:
                return  # the next rebalance has begun
            group.storing = None
            if error:
                self.end_syncs(group, error, now)
                self.prepare(group, now)
                return
            group.enter(State.STABLE, now)
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
                if member.sync is not None:
                    self.answer(member.sync, self.synced(group, member))
                    member.sync = None
                    self.rearm(group, member, now)

        ticket = group.storing = self.store(group, group.record(assignments), stored)

    def _sync_over(self, group: ClassicGroup, now: int) -> None:
        """The time to sync is over: removes the members that have not."""
        for member in [one for one in group.members.values() if one in group.unsynced]:
            self.remove(group, member)
        self.prepare(group, now)

    # ---- whole groups

    def load(self, group: ClassicGroup, now: int) -> None:
        """Takes in a group that was read from the log. Its members have the time of a session to be heard of."""
        for member in group.members.values():
            self.rearm(group, member, now)
        if len(group.members) > self._settings.max_size:
            self.prepare(group, now)

    def unload(self, group: ClassicGroup) -> None:
        """Gives a group up: another server has it, or this one ends. Its clients look for it again."""
        for member in group.members.values():
            self.end_join(group, member, ErrorCode.NOT_COORDINATOR, member.member_id)
            self.end_sync(member, ErrorCode.NOT_COORDINATOR)
        group.storing = None
        group.state = State.DEAD

    # ---- members

    def add(self, group: ClassicGroup, member: Member, join: WaitingJoin, now: int) -> None:
        """Takes a new member in, and rebalances."""
        group.has_grown = True
        self._timers.cancel((group, member.member_id))
        group.add(member)
        self.await_join(group, member, join)
        # It cannot send heartbeats without knowing its id. If its client went away it must not stay for ever, and one
        # that is still there joins again.
        self.rearm(group, member, now, self._settings.new_member_timeout)
        self.rebalance(group, now)

    def await_id(self, group: ClassicGroup, member_id: str, timeout: int, now: int) -> None:
        """Waits for a client to join with the member id that it is given."""
        group.pending.add(member_id)
        self._timers.set((group, member_id), now + timeout, partial(self._id_over, group, member_id))

    def forget_id(self, group: ClassicGroup, member_id: str) -> None:
        """Does not wait for a client any longer."""
        group.pending.discard(member_id)
        self._timers.cancel((group, member_id))

    def _id_over(self, group: ClassicGroup, member_id: str, now: int) -> None:
        self.forget_id(group, member_id)
        if group.state is State.PREPARING:
            self.rebalance(group, now)

    def remove(self, group: ClassicGroup, member: Member) -> None:
        """Takes a member out. If its requests wait, they end: a client that is still there joins as a new member."""
        self.end_join(group, member, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER)
        self.end_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._timers.cancel((group, member))
        group.remove(member)

    def rearm(self, group: ClassicGroup, member: Member, now: int, timeout: int | None = None) -> None:
        """Begins a member's session again, or gives it another time in ms."""
        deadline = now + (member.session_timeout if timeout is None else timeout)
        self._timers.set((group, member), deadline, partial(self._session_over, group, member))

    def _session_over(self, group: ClassicGroup, member: Member, now: int) -> None:
        # A member whose request waits is there, as far as can be known. Its session begins with the answer.
        if member.is_new or (member.join is None and member.sync is None):
            self.remove(group, member)
            self.rebalance(group, now)

    # ---- waiting requests

    def await_join(self, group: ClassicGroup, member: Member, join: WaitingJoin) -> None:
        """A member waits for the next generation."""
        # A client has one request at a time: it has given the last one up.
        self.end_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        member.join = join
        group.joined += 1

    def answer_join(self, group: ClassicGroup, member: Member, response: JoinGroupResponse) -> None:
        """Answers the join of a member that waits for it."""
        assert member.join is not None
        self.answer(member.join.token, response)
        member.join = None
        group.joined -= 1

    def end_join(self, group: ClassicGroup, member: Member, error: ErrorCode, member_id: str) -> None:
        """Answers the join of a member with an error, if it waits."""
        if member.join is not None:
            self.refuse_join(member.join, error, member_id)
            member.join = None
            group.joined -= 1

    def end_sync(self, member: Member, error: ErrorCode) -> None:
        """Answers the sync of a member with an error, if it waits."""
        if member.sync is not None:
            self.answer(member.sync, SyncGroupResponse(error_code=error))
            member.sync = None

    def end_syncs(self, group: ClassicGroup, error: ErrorCode, now: int) -> None:
        """There will be no assignment in this generation."""
        for member in group.members.values():
            member.assignment = b""
            if member.sync is not None:
                self.end_sync(member, error)
                self.rearm(group, member, now)

    def refuse_join(self, join: WaitingJoin, error: ErrorCode, member_id: str) -> None:
        """Answers a join with an error."""
        # librdkafka takes "" for the name of a protocol.
        name = None if join.version >= _NULL_PROTOCOL else ""
        self.answer(join.token, JoinGroupResponse(error_code=error, protocol_name=name, member_id=member_id))

    @staticmethod
    def joined(group: ClassicGroup, member: Member, leader: str | None = None) -> JoinGroupResponse:
        """The answer to a join that makes a member part of the generation; its leader is another if one is named."""
        leader = leader or group.leader or NO_MEMBER
        members = group.members.values() if leader == member.member_id else ()
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=leader,
            member_id=member.member_id,
            members=[
                JoinGroupResponse.JoinGroupResponseMember(
                    one.member_id, one.instance_id, one.protocols[group.protocol or ""]
                )
                for one in members
            ],
        )

    @staticmethod
    def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
        """The answer to a sync with the member's assignment."""
        return SyncGroupResponse(
            protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
        )
