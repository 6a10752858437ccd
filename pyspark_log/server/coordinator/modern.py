"""The protocol of KIP-848 (`group.protocol=consumer`): what a member's heartbeat does to its group.

Source of the rules: `GroupMetadataManager.consumerGroupHeartbeat` of Kafka 4.3. Here a regular expression is matched at
once, where Kafka does that beside, so that a member gets its topics with a later heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from pyspark_log.group_records import (
    Current,
    GroupEpoch,
    Kind,
    MatchedTopics,
    MemberMetadata,
    MemberState,
    Owned,
    RecordKey,
    Target,
    TargetEpoch,
)
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.coordinator.assignors import ASSIGNORS
from pyspark_log.server.coordinator.effects import Client, Token
from pyspark_log.server.coordinator.modern_changes import Changes, ModernLog
from pyspark_log.server.coordinator.modern_group import STATIC_LEAVE, ModernGroup, Topics
from pyspark_log.server.coordinator.rebalances import Settings
from pyspark_log.server.coordinator.reconciliation import reconciled
from pyspark_log.server.coordinator.timers import Timers

#: What a member sends in place of its epoch to join, and to leave; see also STATIC_LEAVE.
JOIN, LEAVE = 0, -1

# Clients choose their member ids from this version on.
_CLIENT_CHOOSES_ID = 1
_GROUP, _TARGET_EPOCH = RecordKey(Kind.GROUP), RecordKey(Kind.TARGET_EPOCH)
_NEW = Current(0, -1, MemberState.STABLE, {}, {})
_Request = ConsumerGroupHeartbeatRequest
_Response = ConsumerGroupHeartbeatResponse
_Assignment = ConsumerGroupHeartbeatResponse.Assignment
_Topic = ConsumerGroupHeartbeatResponse.TopicPartitions


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat request, where it comes from, and when. `topics`: those that there are."""

    token: Token
    request: ConsumerGroupHeartbeatRequest
    client: Client
    topics: Topics
    now: int


class ModernProtocol:
    """Requests of members.

    Args:
        log: takes what is changed, with the answers that wait for it.
        text: gives random text for a member id, never the same twice.
    """

    def __init__(self, settings: Settings, timers: Timers, log: ModernLog, text: Callable[[], str]) -> None:
        self._settings, self._timers, self._log, self._text = settings, timers, log, text

    # ---- heartbeats

    def heartbeat(self, group: ModernGroup, beat: Heartbeat) -> ErrorCode:
        """A member joins, or says that it is there and what it has. It is answered unless an error is returned.

        ValueError: its regular expression is none; nothing has changed.
        """
        request = beat.request
        if error := self._check(group, request):
            return error
        if request.subscribed_topic_regex and request.subscribed_topic_regex not in group.regexes:
            beat.topics.matching(request.subscribed_topic_regex)
        member_id = request.member_id or self._text()
        changes = Changes(group)
        self._take_over(group, changes, member_id, request.instance_id)
        old, had = group.members.get(member_id), group.current.get(member_id, _NEW)
        member = _updated(old, beat)
        changes.set(RecordKey(Kind.MEMBER, member_id), member)
        is_changed = _subscription(old) != _subscription(member)
        if is_changed or group.topics is None or group.topics.version != beat.topics.version:
            self._renew_epoch(group, changes, beat.topics, beat.now, is_changed=is_changed)
        self._renew_targets(group, changes, beat)
        has = self._reconcile(group, changes, member_id, beat, is_changed=is_changed)
        self.rearm(group, member_id, beat.now)
        is_full = request.member_epoch == JOIN or (
            request.rebalance_timeout_ms != -1
            and None not in (request.subscribed_topic_names, request.topic_partitions)
        )
        assigned = has.assigned if is_full or has.assigned != had.assigned else None
        interval = self._settings.modern_heartbeat_interval
        response = _Response(0, 0, None, member_id, has.epoch, interval, _assignment(assigned))
        self._log.commit(group, changes, [(beat.token, response)])
        return ErrorCode.NONE

    def _check(self, group: ModernGroup, request: _Request) -> ErrorCode:
        """Whether a heartbeat comes from a member, with an epoch that it may have."""
        member_id, instance_id, is_new = request.member_id, request.instance_id, request.member_epoch == JOIN
        if len(group.members) >= self._settings.modern_max_size and member_id not in group.members:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if is_new and instance_id is not None:
            holder = group.current.get(group.static.get(instance_id, ""))
            is_held = holder is not None and holder.epoch != STATIC_LEAVE
            return ErrorCode.UNRELEASED_INSTANCE_ID if is_held else ErrorCode.NONE
        if error := ErrorCode.NONE if is_new else check_member(group, member_id, instance_id):
            return error
        return _check_epoch(group.current.get(member_id, _NEW), request)

    def _take_over(self, group: ModernGroup, changes: Changes, member_id: str, instance_id: str | None) -> None:
        """A static member that has left comes back, maybe with another member id: it gets what it had."""
        old_id = group.static.get(instance_id or "")
        if old_id is None or group.current.get(old_id, _NEW).epoch != STATIC_LEAVE:
            return
        member, current, target = group.members[old_id], group.current[old_id], group.target.get(old_id, {})
        self._remove(group, changes, old_id)
        changes.set(RecordKey(Kind.MEMBER, member_id), member)
        changes.set(RecordKey(Kind.TARGET, member_id), Target(target))
        changes.set(RecordKey(Kind.CURRENT, member_id), replace(current, epoch=0, previous_epoch=0))

    # ---- epochs and targets

    def _renew_epoch(self, group: ModernGroup, changes: Changes, topics: Topics, now: int, *, is_changed: bool) -> None:
        """Begins another epoch if the group reads something else, or its topics have changed."""
        is_other = group.topics is None or group.topics.version != topics.version
        wanted = {member.regex for member in group.members.values() if member.regex}
        for regex in wanted | set(group.regexes):
            if regex not in wanted:
                changes.set(RecordKey(Kind.REGEX, regex), None)
            elif is_other or regex not in group.regexes:
                found = _matched(topics, regex)
                if regex not in group.regexes or group.regexes[regex].topics != found:
                    changes.set(RecordKey(Kind.REGEX, regex), MatchedTopics(found, topics.version, now))
        read = group.hash_of(topics)
        if is_changed or read != group.metadata_hash:
            changes.set(_GROUP, GroupEpoch(group.epoch + 1, read))
        group.topics = topics

    def _renew_targets(self, group: ModernGroup, changes: Changes, beat: Heartbeat) -> None:
        """Assigns for the group's epoch, unless that was done, or an assignment has just been made."""
        last = group.target_epoch
        is_due = not last.timestamp or beat.now - last.timestamp >= self._settings.assignment_interval
        if group.epoch > last.epoch and is_due:
            for member_id, partitions in group.new_targets(beat.topics).items():
                changes.set(RecordKey(Kind.TARGET, member_id), Target(partitions))
            changes.set(_TARGET_EPOCH, TargetEpoch(group.epoch, beat.now))

    def _reconcile(
        self, group: ModernGroup, changes: Changes, member_id: str, beat: Heartbeat, *, is_changed: bool
    ) -> Current:
        """Brings a member nearer to its target. Returns what it has."""
        current = group.current.get(member_id, _NEW)
        target_epoch = group.target_epoch.epoch
        if not is_changed and (current.epoch, current.state) == (target_epoch, MemberState.STABLE):
            return current
        known = beat.topics.topics
        read = {known[name].topic_id for name in group.topics_of(group.members[member_id]) if name in known}
        new = reconciled(
            current,
            group.target.get(member_id, {}),
            target_epoch,
            subscribed=read,
            changed=is_changed,
            is_free=lambda at: group.owners.get(at, member_id) == member_id,
            owned=_owned(beat.request),
        )
        if new != current:
            changes.set(RecordKey(Kind.CURRENT, member_id), new)
            self._watch(group, member_id, beat.now)
        return new

    # ---- leaving

    def leave(self, group: ModernGroup, token: Token, request: _Request) -> ErrorCode:
        """A member leaves, for ever or to come back. It is answered unless an error is returned."""
        member_id, instance_id = request.member_id, request.instance_id
        if error := check_member(group, member_id, instance_id):
            return error
        response = _Response(member_id=member_id, member_epoch=request.member_epoch)
        if request.member_epoch != STATIC_LEAVE:
            self.remove(group, [member_id], [(token, response)])
            return ErrorCode.NONE
        changes = Changes(group)
        current = group.current.get(member_id, _NEW)
        # The process that comes back begins at a lower epoch than this one had, and may commit.
        assigned = {topic_id: dict.fromkeys(numbers, 0) for topic_id, numbers in current.assigned.items()}
        gone = replace(current, epoch=STATIC_LEAVE, assigned=assigned, revoking={})
        changes.set(RecordKey(Kind.CURRENT, member_id), gone)
        self._log.commit(group, changes, [(token, response)])
        return ErrorCode.NONE

    def remove(self, group: ModernGroup, member_ids: Iterable[str], answers: list[tuple[Token, Struct]]) -> None:
        """Takes members out: they have left, or their time is over. The others get theirs with their heartbeats."""
        changes = Changes(group)
        for member_id in member_ids:
            self._remove(group, changes, member_id)
        if changes.keys:
            wanted = {member.regex for member in group.members.values()}
            for regex in set(group.regexes) - wanted:
                changes.set(RecordKey(Kind.REGEX, regex), None)
            read = group.metadata_hash if group.topics is None else group.hash_of(group.topics)
            changes.set(_GROUP, GroupEpoch(group.epoch + 1, read))
        self._log.commit(group, changes, answers)

    def _remove(self, group: ModernGroup, changes: Changes, member_id: str) -> None:
        changes.remove_member(member_id)
        self._timers.cancel((group, member_id))
        self._timers.cancel((group, ("revocation", member_id)))

    # ---- time

    def rearm(self, group: ModernGroup, member_id: str, now: int) -> None:
        """Begins a member's session again."""
        deadline = now + self._settings.modern_session_timeout
        self._timers.set((group, member_id), deadline, partial(self._is_over, group, member_id))

    def _is_over(self, group: ModernGroup, member_id: str, _now: int) -> None:
        if member_id in group.members:
            self.remove(group, [member_id], [])

    def _watch(self, group: ModernGroup, member_id: str, now: int) -> None:
        """A member has its rebalance time-out to give partitions up, as long as it has to."""
        key = group, ("revocation", member_id)
        current = group.current.get(member_id, _NEW)
        if current.state is MemberState.UNREVOKED:
            deadline = now + group.members[member_id].rebalance_timeout
            self._timers.set(key, deadline, partial(self._revocation_over, group, member_id, current.epoch))
        else:
            self._timers.cancel(key)

    def _revocation_over(self, group: ModernGroup, member_id: str, epoch: int, now: int) -> None:
        if group.current.get(member_id, _NEW).epoch == epoch:
            self._is_over(group, member_id, now)

    def watch_all(self, group: ModernGroup, now: int) -> None:
        """Begins the deadlines of all members, after the group was loaded."""
        for member_id in group.members:
            self.rearm(group, member_id, now)
            self._watch(group, member_id, now)


# ---- checks


def check_request(request: _Request, version: int) -> tuple[ErrorCode, str | None]:
    """What is wrong with a heartbeat, whatever the group is, and why."""
    epoch, partitions = request.member_epoch, request.topic_partitions
    needs_id = version >= _CLIENT_CHOOSES_ID or epoch > 0 or epoch == LEAVE
    names = (request.group_id, request.instance_id, request.rack_id)
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    is_partial = request.rebalance_timeout_ms == -1 or not subscribes or partitions is None
    faults = {
        "a member id is missing": needs_id and not request.member_id,
        "the group, the instance id or the rack is an empty text": "" in names,
        "the first heartbeat is not complete": epoch == JOIN and is_partial,
        "a member that joins has no partitions": epoch == JOIN and bool(len(partitions or ())),
        "only a static member leaves to come back": epoch == STATIC_LEAVE and request.instance_id is None,
        f"{epoch} is no epoch": epoch < STATIC_LEAVE,
    }
    if why := next((text for text, is_so in faults.items() if is_so), None):
        return ErrorCode.INVALID_REQUEST, why
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        return ErrorCode.UNSUPPORTED_ASSIGNOR, f"the assignors are {', '.join(ASSIGNORS)}"
    return ErrorCode.NONE, None


def check_member(group: ModernGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """Whether there is such a member. FENCED_INSTANCE_ID: another one has the instance id."""
    holder = member_id if instance_id is None else group.static.get(instance_id)
    if holder is None or holder not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if holder == member_id else ErrorCode.FENCED_INSTANCE_ID


def _check_epoch(current: Current, request: _Request) -> ErrorCode:
    """A member has its epoch; or the one before, if the answer with the new one may be lost."""
    epoch = request.member_epoch
    if epoch in (JOIN, current.epoch):
        return ErrorCode.NONE
    owned = _owned(request)
    has = {(topic_id, number) for topic_id, numbers in current.assigned.items() for number in numbers}
    is_lost = epoch < current.epoch and epoch == current.previous_epoch and owned is not None and owned <= has
    return ErrorCode.NONE if is_lost else ErrorCode.FENCED_MEMBER_EPOCH


# ---- what requests say


def _updated(old: MemberMetadata | None, beat: Heartbeat) -> MemberMetadata:
    """What a member says of itself, with what it said before and does not repeat."""
    request = beat.request
    before = old or MemberMetadata(None, None, "", "", (), "", -1, None)
    names, timeout = request.subscribed_topic_names, request.rebalance_timeout_ms

    def newer(value: str | None, last: str | None) -> str | None:
        return last if value is None else value

    return MemberMetadata(
        newer(request.instance_id, before.instance_id),
        newer(request.rack_id, before.rack_id),
        beat.client.id,
        beat.client.host,
        before.topics if names is None else tuple(sorted(set(names))),
        newer(request.subscribed_topic_regex, before.regex),
        before.rebalance_timeout if timeout == -1 else timeout,
        newer(request.server_assignor, before.assignor),
    )


def _matched(topics: Topics, regex: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(topics.matching(regex)))
    except ValueError:
        return ()  # another member's, which an earlier server has taken


def _subscription(member: MemberMetadata | None) -> tuple[tuple[str, ...], str]:
    return ((), "") if member is None else (member.topics, member.regex or "")


def _owned(request: _Request) -> set[tuple[bytes, int]] | None:
    """The partitions that a client says it has; None: it does not say."""
    topics = request.topic_partitions
    if topics is None:
        return None
    return {(one.topic_id, number) for one in topics for number in one.partitions}


def _assignment(assigned: Owned | None) -> _Assignment | None:
    if assigned is None:
        return None
    return _Assignment([_Topic(topic_id, sorted(numbers)) for topic_id, numbers in sorted(assigned.items())])
