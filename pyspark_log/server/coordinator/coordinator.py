"""All groups of a server, by id."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pyspark_log.server.coordinator.classic import ClassicProtocol, Join
from pyspark_log.server.coordinator.effects import Client, Effects, GroupRecord, Token, WaitingJoin
from pyspark_log.server.coordinator.group import ClassicGroup, State
from pyspark_log.server.coordinator.rebalances import NO_MEMBER, Rebalances, Settings
from pyspark_log.server.coordinator.timers import Timers

# From these versions on, SyncGroup names the protocol (KIP-559), LeaveGroup many members (KIP-345), OffsetCommit and
# DescribeGroups have an error of their own for groups that do not exist (KIP-848, KIP-1043).
_SYNC_NAMES_PROTOCOL, _LEAVE_OF_MANY, _COMMIT_SAYS_NO_GROUP, _DESCRIBE_SAYS_NO_GROUP = 5, 3, 9, 6
_TYPE = "classic"


class Coordinator:
    """Classic groups, as Kafka's group coordinator keeps them.

    It is used by one thread. Calls with a token take a request that may wait: the token is any object but None, and
    comes back with the response in some call's effects. Times are in ms and never go back. The caller

    - gives out `Effects.answers`, writes `Effects.stores` in order, and calls `stored` for each of them,
    - calls `expire` when `next_deadline` is reached,
    - asks `check_commit` before it writes offsets, and writes them in the order of its calls and of the stores.

    Args:
        text: gives random text for a member id, never the same twice.
    """

    def __init__(self, settings: Settings, text: Callable[[], str]) -> None:
        self._settings = settings
        self._timers = Timers()
        self._rebalances = Rebalances(settings, self._timers)
        self._protocol = ClassicProtocol(self._rebalances, settings.max_size, text)
        self._groups: dict[str, ClassicGroup] = {}

    # ---- requests of members

    def join(self, token: Token, request: JoinGroupRequest, version: int, client: Client, now: int) -> Effects:
        """JoinGroup. It waits until the members of the group have joined."""
        group = self._groups.get(request.group_id)
        if error := self._check_join(request, group):
            self._rebalances.refuse_join(WaitingJoin(token, version), error, request.member_id)
            return self._effects(group)
        if version == 0:
            request = request._replace(rebalance_timeout_ms=request.session_timeout_ms)
        if group is None:
            group = self._groups[request.group_id] = ClassicGroup(request.group_id, now)
        protocols = dict[str, bytes]()
        for one in request.protocols:
            protocols.setdefault(one.name, one.metadata)
        self._protocol.join(group, Join(WaitingJoin(token, version), request, client, protocols, now))
        return self._effects(group)

    def _check_join(self, request: JoinGroupRequest, group: ClassicGroup | None) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        least, most = self._settings.min_session_timeout, self._settings.max_session_timeout
        if not least <= request.session_timeout_ms <= most:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if group is None and request.member_id != NO_MEMBER:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def sync(self, token: Token, request: SyncGroupRequest, version: int) -> Effects:
        """SyncGroup. It waits until the leader's assignment is stored."""
        group = self._groups.get(request.group_id)
        error = ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID
        if not error and version >= _SYNC_NAMES_PROTOCOL and None in (request.protocol_type, request.protocol_name):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not error and group is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error or group is None:
            self._rebalances.answer(token, SyncGroupResponse(error_code=error))
        else:
            self._protocol.sync(token, group, request)
        return self._effects(group)

    def heartbeat(self, request: HeartbeatRequest, now: int) -> HeartbeatResponse:
        """Heartbeat. It has no effects but its response."""
        group = self._groups.get(request.group_id)
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif group is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            error = self._protocol.heartbeat(
                group, request.member_id, request.group_instance_id, request.generation_id, now
            )
        return HeartbeatResponse(error_code=error)

    def leave(self, token: Token, request: LeaveGroupRequest, version: int, now: int) -> Effects:
        """LeaveGroup. It is answered at once."""
        group = self._groups.get(request.group_id)
        many = version >= _LEAVE_OF_MANY
        members = [(one.member_id, one.group_instance_id) for one in request.members]
        if not many:
            members = [(request.member_id, None)]
        if not request.group_id:
            response = LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        else:
            if group is None:
                errors = [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
            else:
                errors = self._protocol.leave(group, members, now)
            named = [
                LeaveGroupResponse.MemberResponse(*member, error) for member, error in zip(members, errors, strict=True)
            ]
            response = LeaveGroupResponse(members=named) if many else LeaveGroupResponse(error_code=errors[0])
        self._rebalances.answer(token, response)
        return self._effects(group)

    # ---- offsets

    def check_commit(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, version: int, now: int,
        *, transactional: bool = False,
    ) -> ErrorCode:  # fmt: skip
        """Whether offsets may be committed: OffsetCommit, or TxnOffsetCommit if `transactional`.

        A group that does not exist is made by a commit without a generation. Such a commit is refused while the group
        has members, but in a transaction: clients before KIP-447 do not say which member they are.
        """
        group = self._groups.get(group_id)
        if group is None:
            if generation >= 0:
                has_error = version >= _COMMIT_SAYS_NO_GROUP and not transactional
                return ErrorCode.GROUP_ID_NOT_FOUND if has_error else ErrorCode.ILLEGAL_GENERATION
            group = self._groups[group_id] = ClassicGroup(group_id, now)
        error = self._protocol.check_commit(
            group, member_id, instance_id, generation, now, transactional=transactional
        )  # fmt: skip
        group.is_durable = group.is_durable or not error
        return error

    def check_offset_delete(self, group_id: str) -> ErrorCode:
        """Whether OffsetDelete may delete offsets of topics that the group does not subscribe to, see `subscribes`."""
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.state is State.EMPTY or group.is_consumers else ErrorCode.NON_EMPTY_GROUP

    def subscribes(self, group_id: str, topic: str) -> bool:
        """Whether members of a group read a topic: GROUP_SUBSCRIBED_TO_TOPIC."""
        group = self._groups.get(group_id)
        return group is not None and group.subscribes_to(topic)

    # ---- administration

    def describe(self, group_id: str, version: int) -> DescribeGroupsResponse.DescribedGroup:
        """DescribeGroups: one group. Operations that the client is authorized for are the caller's to add."""
        group = self._groups.get(group_id)
        if group is None:
            dead = DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
            if version < _DESCRIBE_SAYS_NO_GROUP:
                return dead
            return dead._replace(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"Group {group_id} not found."
            )  # fmt: skip
        is_stable = group.state is State.STABLE
        return DescribeGroupsResponse.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if is_stable else "",
            members=[
                DescribeGroupsResponse.DescribedGroupMember(
                    one.member_id, one.instance_id, one.client.id, one.client.host,
                    one.protocols[group.protocol or ""] if is_stable else b"", one.assignment,
                )
                for one in group.members.values()
            ],
        )  # fmt: skip

    def list_groups(self, request: ListGroupsRequest) -> list[ListGroupsResponse.ListedGroup]:
        """ListGroups: the groups in the states and of the types that it names, if it names any."""
        states = {state.lower() for state in request.states_filter}
        types = {name.lower() for name in request.types_filter}
        return [
            ListGroupsResponse.ListedGroup(group.group_id, group.protocol_type or "", group.state.value, _TYPE)
            for group in self._groups.values()
            if (not states or group.state.value.lower() in states) and (not types or _TYPE in types)
        ]

    def delete(self, token: Token, group_id: str) -> Effects:
        """DeleteGroups: one group. The answer is an ErrorCode, after the group's tombstone is stored.

        The caller writes the tombstones of its offsets with it.
        """
        group = self._groups.get(group_id)
        if group is None:
            self._rebalances.answer(token, ErrorCode.GROUP_ID_NOT_FOUND)
        elif group.state is not State.EMPTY:
            self._rebalances.answer(token, ErrorCode.NON_EMPTY_GROUP)
        else:

            def stored(error: ErrorCode, now: int) -> None:
                if error:
                    self._groups.setdefault(group_id, group)
                self._rebalances.answer(token, error)

            # From now on it is another group that a member may join.
            del self._groups[group_id]
            for member_id in list(group.pending):
                self._rebalances.forget_id(group, member_id)
            self._rebalances.store(group, None, stored)
        return self._rebalances.take_effects()

    def load(self, group_id: str, record: GroupRecord | None, now: int) -> Effects:
        """Takes in a group from the log; without a record it has committed offsets alone.

        ValueError: the group is here already.
        """
        if group_id in self._groups:
            raise ValueError(f"group {group_id} is loaded already")
        group = ClassicGroup(group_id, now) if record is None else ClassicGroup.of(group_id, record)
        group.is_durable = True
        self._groups[group_id] = group
        self._rebalances.load(group, now)
        return self._rebalances.take_effects()

    def unload(self, group_id: str) -> Effects:
        """Gives up a group that another server has now. Its waiting requests are answered NOT_COORDINATOR."""
        if group := self._groups.pop(group_id, None):
            self._rebalances.unload(group)
        return self._rebalances.take_effects()

    # ---- time, and the log

    def stored(self, ticket: int, error: ErrorCode, now: int) -> Effects:
        """What was to be stored is stored; or not, for the reason that is given."""
        self._rebalances.stored(ticket, error, now)
        return self._rebalances.take_effects()

    def next_deadline(self) -> int | None:
        """When `expire` has something to do next; None: nothing waits for a time."""
        return self._timers.next_deadline()

    def expire(self, now: int) -> Effects:
        """Does what is due up to now: ends sessions, and rebalances that have lasted too long."""
        for (group, _), action in self._timers.due(now):
            if isinstance(group, ClassicGroup) and self._groups.get(group.group_id) is group:
                action(now)
                self._forget_unused(group)
        return self._rebalances.take_effects()

    def _effects(self, group: ClassicGroup | None) -> Effects:
        if group is not None:
            self._forget_unused(group)
        return self._rebalances.take_effects()

    def _forget_unused(self, group: ClassicGroup) -> None:
        """Forgets a group of which nothing is left: a client has asked for an id, and has not come back."""
        if group.state is State.EMPTY and not group.pending and not group.is_durable:
            self._groups.pop(group.group_id, None)
