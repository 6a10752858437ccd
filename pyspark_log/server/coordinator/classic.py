"""The classic group protocol: what a member's request does to its group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import JoinGroupRequest, SyncGroupRequest, SyncGroupResponse
from pyspark_log.server.coordinator.effects import Client, Token, WaitingJoin
from pyspark_log.server.coordinator.group import ClassicGroup, Member, State
from pyspark_log.server.coordinator.rebalances import NO_MEMBER, Rebalances

# From these versions of JoinGroup on, a new member comes back with the id that it is given before it is taken in
# (KIP-394), and a static leader that restarted is asked not to assign (KIP-814).
_ID_FIRST, _SKIPS_ASSIGNMENT = 4, 9


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request, where it comes from, and when. `protocols`: see Member."""

    waiting: WaitingJoin
    request: JoinGroupRequest
    client: Client
    protocols: dict[str, bytes]
    now: int


class ClassicProtocol:
    """Requests of members.

    Args:
        text: gives random text for a member id, never the same twice.
    """

    def __init__(self, rebalances: Rebalances, max_size: int, text: Callable[[], str]) -> None:
        self._rebalances, self._max_size, self._text = rebalances, max_size, text

    # ---- joining

    def join(self, group: ClassicGroup, join: Join) -> None:
        """A member joins, or joins again."""
        request, known = join.request, join.request.member_id
        if not group.has_room(known, self._max_size):
            self._turn_away(group, known, join.now)
            self._rebalances.refuse_join(join.waiting, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
        elif not group.supports(request.protocol_type, join.protocols):
            self._rebalances.refuse_join(join.waiting, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, known)
        elif known == NO_MEMBER:
            self._join_new(group, join)
        elif known in group.pending and request.group_instance_id is None:
            self._add(group, join, known)
        elif error := group.check(known, request.group_instance_id):
            self._rebalances.refuse_join(join.waiting, error, known)
        else:
            self._rejoin(group, join, group.members[known])

    def _join_new(self, group: ClassicGroup, join: Join) -> None:
        instance = join.request.group_instance_id
        member_id = f"{join.client.id if instance is None else instance}-{self._text()}"
        if instance in group.static:
            self._replace(group, join, group.members[group.static[instance]], member_id)
        elif instance is None and join.waiting.version >= _ID_FIRST:
            self._rebalances.await_id(group, member_id, join.request.session_timeout_ms, join.now)
            self._rebalances.refuse_join(join.waiting, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(group, join, member_id)

    def _add(self, group: ClassicGroup, join: Join, member_id: str) -> None:
        request = join.request
        if not group.members:
            group.protocol_type = request.protocol_type
        member = Member(
            member_id, request.group_instance_id, join.client, request.rebalance_timeout_ms,
            request.session_timeout_ms, join.protocols, is_new=True,
        )  # fmt: skip
        self._rebalances.add(group, member, join.waiting, join.now)

    def _rejoin(self, group: ClassicGroup, join: Join, member: Member) -> None:
        is_same = list(join.protocols.items()) == list(member.protocols.items())
        is_leader = member.member_id == group.leader
        if is_same and (group.state is State.COMPLETING or (group.state is State.STABLE and not is_leader)):
            # It may not have received the answer to its last join. A leader of a stable group asks for a rebalance: it
            # alone sees the changes of topics.
            self._rebalances.answer(join.waiting.token, self._rebalances.joined(group, member))
            return
        _update(group, join, member)
        self._rebalances.await_join(group, member, join.waiting)
        self._rebalances.rebalance(group, join.now)

    def _replace(self, group: ClassicGroup, join: Join, member: Member, member_id: str) -> None:
        """A static member comes back as a new process, which gets the assignment of the old one."""
        old_id, old_leader = member.member_id, group.leader
        before = member.protocols, member.rebalance_timeout, member.session_timeout
        self._rebalances.end_join(group, member, ErrorCode.FENCED_INSTANCE_ID, old_id)
        self._rebalances.end_sync(member, ErrorCode.FENCED_INSTANCE_ID)
        group.rename(member, member_id)
        _update(group, join, member)
        member.is_new = False
        self._rebalances.await_join(group, member, join.waiting)
        self._rebalances.rearm(group, member, join.now)
        if group.state is not State.STABLE or group.choose_protocol() != group.protocol:
            # Once the members have joined, the leader may have seen the old id, and assign to that.
            self._rebalances.rebalance(group, join.now)
            return

        def stored(error: ErrorCode, now: int) -> None:
            if member.join is not join.waiting or group.state is not State.STABLE:
                return  # a rebalance has answered, or will
            self._rebalances.rearm(group, member, now)
            if error:
                self._rebalances.end_join(group, member, error, NO_MEMBER)
                group.rename(member, old_id)
                group.update(member, *before)
                return
            skips = join.waiting.version >= _SKIPS_ASSIGNMENT
            response = self._rebalances.joined(group, member, group.leader if skips else old_leader)
            is_leader = member.member_id == group.leader
            self._rebalances.answer_join(group, member, response._replace(skip_assignment=skips and is_leader))

        assignments = {one.member_id: one.assignment for one in group.members.values()}
        self._rebalances.store(group, group.record(assignments), stored)

    def _turn_away(self, group: ClassicGroup, member_id: str, now: int) -> None:
        """Removes a member or an id for which there is no room."""
        if member_id in group.pending:
            self._rebalances.forget_id(group, member_id)
        elif member_id in group.members:
            self._rebalances.remove(group, group.members[member_id])
        if group.state is State.PREPARING:
            self._rebalances.rebalance(group, now)

    # ---- syncing

    def sync(self, token: Token, group: ClassicGroup, request: SyncGroupRequest) -> None:
        """A member asks for its assignment, or the leader brings all of them."""
        if error := _check_sync(group, request):
            self._rebalances.answer(token, SyncGroupResponse(error_code=error))
            return
        member = group.members[request.member_id]
        self._rebalances.note_sync(group, member)
        if group.state is State.STABLE:
            self._rebalances.answer(token, self._rebalances.synced(group, member))
            return
        # A client has one request at a time: it has given the last one up.
        self._rebalances.end_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync = token
        # While an assignment is being written, the leader cannot change it.
        if member.member_id == group.leader and group.storing is None:
            assignments = {one.member_id: one.assignment for one in request.assignments}
            self._rebalances.store_assignments(group, assignments)

    # ---- staying and leaving

    def heartbeat(
        self, group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, now: int
    ) -> ErrorCode:
        """A member is there. REBALANCE_IN_PROGRESS: it must join."""
        if error := _check(group, member_id, instance_id, generation):
            return error
        self._rebalances.rearm(group, group.members[member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else ErrorCode.NONE

    def leave(self, group: ClassicGroup, members: Sequence[tuple[str, str | None]], now: int) -> list[ErrorCode]:
        """Members leave, by member id and instance id; an administrator names the instance id alone."""
        errors = [self._leave(group, member_id, instance_id) for member_id, instance_id in members]
        if ErrorCode.NONE in errors and group.state is not State.EMPTY:
            self._rebalances.rebalance(group, now)
        return errors

    def _leave(self, group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
        if member_id in group.pending:
            self._rebalances.forget_id(group, member_id)
            return ErrorCode.NONE
        if member_id == NO_MEMBER and instance_id is not None:
            member_id = group.static.get(instance_id, NO_MEMBER)
        error = group.check(member_id, instance_id)
        if not error:
            self._rebalances.remove(group, group.members[member_id])
        return error

    def check_commit(
        self, group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, now: int,
        *, transactional: bool,
    ) -> ErrorCode:  # fmt: skip
        """Whether offsets may be committed. A commit of a member keeps its session, if no transaction makes it."""
        if generation < 0 and group.state is State.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and member_id == NO_MEMBER and instance_id is None:
            return ErrorCode.NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
        if (error := _check(group, member_id, instance_id, generation)) or transactional:
            return error
        if group.state is State.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._rebalances.rearm(group, group.members[member_id], now)
        return ErrorCode.NONE


def _update(group: ClassicGroup, join: Join, member: Member) -> None:
    """Takes over what a member says of itself."""
    group.update(member, join.protocols, join.request.rebalance_timeout_ms, join.request.session_timeout_ms)


def _check(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Whether a request comes from a member of the last generation."""
    error = group.check(member_id, instance_id)
    return error if error or generation == group.generation else ErrorCode.ILLEGAL_GENERATION


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if error := _check(group, request.member_id, request.group_instance_id, request.generation_id):
        return error
    is_other_type = request.protocol_type not in (None, group.protocol_type)
    if is_other_type or request.protocol_name not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else ErrorCode.NONE
