"""All groups of a server, by id."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from pyspark_log.group_records import RecordKey, Value
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
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
from pyspark_log.server.coordinator.effects import Client, Effects, GroupRecord, ModernStore, Token, WaitingJoin
from pyspark_log.server.coordinator.group import CONSUMER, ClassicGroup, State
from pyspark_log.server.coordinator.modern import JOIN, LEAVE, Heartbeat, ModernProtocol, check_member, check_request
from pyspark_log.server.coordinator.modern_changes import ModernLog
from pyspark_log.server.coordinator.modern_group import STATIC_LEAVE, ModernGroup, Topics
from pyspark_log.server.coordinator.modern_view import check_modern_commit, check_modern_fetch, described
from pyspark_log.server.coordinator.outbox import Outbox
from pyspark_log.server.coordinator.rebalances import NO_MEMBER, Rebalances, Settings
from pyspark_log.server.coordinator.timers import Timers

# From these versions on, SyncGroup names the protocol (KIP-559), LeaveGroup many members (KIP-345), OffsetCommit and
# DescribeGroups have an error of their own for groups that do not exist (KIP-848, KIP-1043).
_SYNC_NAMES_PROTOCOL, _LEAVE_OF_MANY, _COMMIT_SAYS_NO_GROUP, _DESCRIBE_SAYS_NO_GROUP = 5, 3, 9, 6
_CLASSIC, _MODERN = "classic", "consumer"


class GroupSummary(NamedTuple):
    """A group in brief.

    Attributes:
        state: by Kafka's name.
        members: how many it has.
        generation: of a modern group, its epoch.
    """

    state: str
    members: int
    generation: int


class Coordinator:
    """Groups, as Kafka's group coordinator keeps them: classic ones, and modern ones, which are those of KIP-848.

    A group that has no members becomes one of the other kind when such a member joins. While it has members, one of the
    other kind is refused; Kafka lets members of both kinds be in one group.

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
        self._outbox = Outbox()
        self._rebalances = Rebalances(settings, self._timers, self._outbox)
        self._protocol = ClassicProtocol(self._rebalances, settings.max_size, text)
        self._modern_log = ModernLog(self._outbox)
        self._modern_protocol = ModernProtocol(settings, self._timers, self._modern_log, text)
        self._groups: dict[str, ClassicGroup] = {}
        self._modern: dict[str, ModernGroup] = {}

    # ---- requests of members

    def join(self, token: Token, request: JoinGroupRequest, version: int, client: Client, now: int) -> Effects:
        """JoinGroup. It waits until the members of the group have joined."""
        group = self._groups.get(request.group_id)
        error = self._check_join(request, group)
        modern = self._modern.get(request.group_id)
        if not error and modern is not None and modern.members:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error:
            self._rebalances.refuse_join(WaitingJoin(token, version), error, request.member_id)
            return self._effects(group)
        if version == 0:
            request = request._replace(rebalance_timeout_ms=request.session_timeout_ms)
        if group is None:
            group = self._groups[request.group_id] = ClassicGroup(request.group_id, now)
            if modern is not None:
                self._replace_modern(modern, group)
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
            errors = [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
            modern, removed = self._modern.get(request.group_id), list[str]()
            if group is not None:
                errors = self._protocol.leave(group, members, now)
            elif modern is not None:
                # An administrator does that; members leave with a heartbeat.
                named_ids = [member_id or modern.static.get(instance or "", "") for member_id, instance in members]
                errors = [check_member(modern, one, members[at][1]) for at, one in enumerate(named_ids)]
                removed = [one for one, error in zip(named_ids, errors, strict=True) if not error]
            named = [
                LeaveGroupResponse.MemberResponse(*member, error) for member, error in zip(members, errors, strict=True)
            ]
            response = LeaveGroupResponse(members=named) if many else LeaveGroupResponse(error_code=errors[0])
            if modern is not None and removed:
                self._modern_protocol.remove(modern, removed, [(token, response)])
                return self._effects(None)
        self._rebalances.answer(token, response)
        return self._effects(group)

    # ---- modern groups

    def modern_heartbeat(
        self,
        token: Token,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        client: Client,
        topics: Topics,
        now: int,
    ) -> Effects:
        """ConsumerGroupHeartbeat. It is answered when what it changes is stored.

        Args:
            topics: those that there are.
        """
        error, why = check_request(request, version)
        if not error:
            try:
                error = self._modern_heartbeat(Heartbeat(token, request, client, topics, now))
            except ValueError as not_a_regex:
                error, why = ErrorCode.INVALID_REGULAR_EXPRESSION, str(not_a_regex)
        if error:
            self._outbox.answer(token, ConsumerGroupHeartbeatResponse(error_code=error, error_message=why))
        return self._effects(None)

    def _modern_heartbeat(self, beat: Heartbeat) -> ErrorCode:
        request = beat.request
        group, classic = self._modern.get(request.group_id), self._groups.get(request.group_id)
        if group is None:
            if request.member_epoch != JOIN or (classic is not None and classic.state is not State.EMPTY):
                return ErrorCode.GROUP_ID_NOT_FOUND
            group = ModernGroup(request.group_id)
            group.ends_classic = classic is not None and classic.is_durable
        if request.member_epoch in (LEAVE, STATIC_LEAVE):
            return self._modern_protocol.leave(group, beat.token, request)
        error = self._modern_protocol.heartbeat(group, beat)
        if not error and group.group_id not in self._modern:
            self._modern[group.group_id] = group
            self._forget_classic(classic)
        return error

    def _forget_classic(self, group: ClassicGroup | None) -> None:
        """Another group takes the place of one that has no members."""
        if group is not None:
            self._groups.pop(group.group_id, None)
            for member_id in list(group.pending):
                self._rebalances.forget_id(group, member_id)

    def _replace_modern(self, group: ModernGroup, classic: ClassicGroup) -> None:
        """A classic group takes the place of a modern one that has no members."""
        del self._modern[group.group_id]
        classic.is_durable = True  # it has the committed offsets
        tombstones = group.tombstones()
        self._outbox.store(lambda ticket: ModernStore(ticket, group.group_id, tombstones))

    def describe_modern(self, group_id: str, topics: Topics) -> ConsumerGroupDescribeResponse.DescribedGroup:
        """ConsumerGroupDescribe: one group. Operations that the client is authorized for are the caller's to add."""
        group = self._modern.get(group_id)
        if group is None:
            return ConsumerGroupDescribeResponse.DescribedGroup(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", group_id
            )
        return described(group, topics)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether a member may fetch committed offsets (OffsetFetch 9 and later). A classic one always may."""
        group = self._modern.get(group_id)
        return ErrorCode.NONE if group is None else check_modern_fetch(group, member_id, epoch)

    # ---- offsets

    def check_commit(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, version: int, now: int,
        *, transactional: bool = False, partitions: Collection[tuple[str, int]] = (),
    ) -> ErrorCode:  # fmt: skip
        """Whether offsets may be committed: OffsetCommit, or TxnOffsetCommit if `transactional`.

        A group that does not exist is made by a commit without a generation. Such a commit is refused while the group
        has members, but in a transaction: clients before KIP-447 do not say which member they are.

        Args:
            generation: in a modern group, the member's epoch.
            partitions: their topics and numbers. Of those that a member of a modern group has had
                since, it may commit offsets with an epoch that it had before (KIP-1251).
        """
        if (modern := self._modern.get(group_id)) is not None:
            return check_modern_commit(
                modern, member_id, instance_id, generation, version, partitions, transactional=transactional
            )
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
        if group_id in self._modern:
            return ErrorCode.NONE
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.state is State.EMPTY or group.is_consumers else ErrorCode.NON_EMPTY_GROUP

    def subscribes(self, group_id: str, topic: str) -> bool:
        """Whether members of a group read a topic: GROUP_SUBSCRIBED_TO_TOPIC."""
        if (modern := self._modern.get(group_id)) is not None:
            return modern.reads(topic)
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
        found = [
            ListGroupsResponse.ListedGroup(group.group_id, group.protocol_type or "", group.state.value, _CLASSIC)
            for group in self._groups.values()
        ] + [
            ListGroupsResponse.ListedGroup(group.group_id, CONSUMER, group.state.value, _MODERN)
            for group in self._modern.values()
        ]
        return [
            one
            for one in found
            if (not states or one.group_state.lower() in states) and (not types or one.group_type in types)
        ]

    def summaries(self) -> dict[str, GroupSummary]:
        """All groups in brief, by their ids."""
        classic = {
            name: GroupSummary(group.state.value, len(group.members), group.generation)
            for name, group in self._groups.items()
        }
        modern = {
            name: GroupSummary(group.state.value, len(group.members), group.epoch)
            for name, group in self._modern.items()
        }
        return {**classic, **modern}

    def delete(self, token: Token, group_id: str) -> Effects:
        """DeleteGroups: one group. The answer is an ErrorCode, after the group's tombstone is stored.

        The caller writes the tombstones of its offsets with it.
        """
        group = self._groups.get(group_id)
        if (modern := self._modern.get(group_id)) is not None:
            self._delete_modern(token, modern)
        elif group is None:
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
        return self._outbox.take_effects()

    def _delete_modern(self, token: Token, group: ModernGroup) -> None:
        if group.members:
            self._outbox.answer(token, ErrorCode.NON_EMPTY_GROUP)
            return
        del self._modern[group.group_id]

        def stored(error: ErrorCode, _: int) -> None:
            if error and group.group_id not in self._groups:
                self._modern.setdefault(group.group_id, group)
            self._outbox.answer(token, error)

        tombstones = group.tombstones()
        self._outbox.store(lambda ticket: ModernStore(ticket, group.group_id, tombstones, deletes=True), stored)

    def load_modern(self, group_id: str, records: Mapping[RecordKey, Value], now: int) -> Effects:
        """Takes in a modern group from the log. ValueError: the group is here already."""
        if group_id in self._modern or group_id in self._groups:
            raise ValueError(f"group {group_id} is loaded already")
        group = self._modern[group_id] = ModernGroup.of(group_id, records)
        self._modern_protocol.watch_all(group, now)
        return self._outbox.take_effects()

    def load(self, group_id: str, record: GroupRecord | None, now: int) -> Effects:
        """Takes in a group from the log; without a record it has committed offsets alone.

        ValueError: the group is here already.
        """
        if group_id in self._groups or group_id in self._modern:
            raise ValueError(f"group {group_id} is loaded already")
        group = ClassicGroup(group_id, now) if record is None else ClassicGroup.of(group_id, record)
        group.is_durable = True
        self._groups[group_id] = group
        self._rebalances.load(group, now)
        return self._outbox.take_effects()

    def unload(self, group_id: str) -> Effects:
        """Gives up a group that another server has now. Its waiting requests are answered NOT_COORDINATOR."""
        if group := self._groups.pop(group_id, None):
            self._rebalances.unload(group)
        if modern := self._modern.pop(group_id, None):
            self._modern_log.give_up(modern, ErrorCode.NOT_COORDINATOR)
        return self._outbox.take_effects()

    # ---- time, and the log

    def stored(self, ticket: int, error: ErrorCode, now: int) -> Effects:
        """What was to be stored is stored; or not, for the reason that is given."""
        self._outbox.stored(ticket, error, now)
        return self._outbox.take_effects()

    def next_deadline(self) -> int | None:
        """When `expire` has something to do next; None: nothing waits for a time."""
        return self._timers.next_deadline()

    def expire(self, now: int) -> Effects:
        """Does what is due up to now: ends sessions, and rebalances that have lasted too long."""
        for (group, _), action in self._timers.due(now):
            if isinstance(group, ClassicGroup) and self._groups.get(group.group_id) is group:
                action(now)
                self._forget_unused(group)
            elif isinstance(group, ModernGroup) and self._modern.get(group.group_id) is group:
                action(now)
        return self._outbox.take_effects()

    def _effects(self, group: ClassicGroup | None) -> Effects:
        if group is not None:
            self._forget_unused(group)
        return self._outbox.take_effects()

    def _forget_unused(self, group: ClassicGroup) -> None:
        """Forgets a group of which nothing is left: a client has asked for an id, and has not come back."""
        if group.state is State.EMPTY and not group.pending and not group.is_durable:
            self._groups.pop(group.group_id, None)
