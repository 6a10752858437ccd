"""The groups of a server: its coordinator, with the clock, the log and the clients that wait.

The log is written in the order of the coordinator's decisions, and many at once.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from pyspark_log.errors import GroupNotEmptyError
from pyspark_log.group_records import RecordKey, Value
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import ListGroupsRequest
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.coordinator import (
    Coordinator,
    Effects,
    GroupRecord,
    MemberRecord,
    ModernStore,
    Settings,
    Store,
    Topic,
    Topics,
)
from pyspark_log.server.groups.topics import GroupTopics
from pyspark_log.server.network import Loop, Timer, Wait, Workers
from pyspark_log.server.served import ServedLogs
from pyspark_log.server.served.logs import GroupsLog
from pyspark_log.storage.groups import GroupMember
from pyspark_log.storage.groups.changes import GroupChange
from pyspark_log.storage.groups.log.metadata import GroupMetadataValue

#: Why a change was not written; None: it was.
Failure = Exception | None

_log = logging.getLogger(__name__)
_EMPTY = "Empty"
_MEMBER_ID_BYTES = 12


class GroupLog:
    """Runs one thing after the other: changes that wait are written together, and reads see what was asked before them.

    All calls come from the loop's thread.
    """

    def __init__(
        self, workers: Workers, groups: GroupsLog, confirm: Callable[[Collection[str]], Wait[Failure]]
    ) -> None:
        """Writes to `groups` in a thread of `workers`.

        `confirm`: waits until all replicas in sync have what was written of groups; the wait gives why not.
        """
        self._workers, self._groups, self.confirm = workers, groups, confirm
        self._queue = deque[tuple[GroupChange | Callable[[], Any], Wait[Any]]]()
        self._is_busy = False
        self._changing: Counter[str] = Counter()

    def write(self, change: GroupChange) -> Wait[Failure]:
        """Writes a change."""
        self._changing[change.group] += 1
        return self._add(change)

    def read(self, function: Callable[[], Any]) -> Wait[Any]:
        """Calls a function that reads the log."""
        return self._add(function)

    def is_changing(self, group: str) -> bool:
        """Whether a change of a group is not written yet."""
        return self._changing[group] > 0

    def _add(self, change: GroupChange | Callable[[], Any]) -> Wait[Any]:
        wait: Wait[Any] = Wait()
        self._queue.append((change, wait))
        self._begin()
        return wait

    def _begin(self) -> None:
        if self._is_busy or not self._queue:
            return
        self._is_busy = True
        first, wait = self._queue[0]
        if not isinstance(first, GroupChange):
            self._queue.popleft()
            result = self._workers.run(first)
            result.then(lambda: self._read(result, wait))
            return
        changes, waits = list[GroupChange](), list[Wait[Failure]]()
        while self._queue and isinstance(self._queue[0][0], GroupChange):
            change, wait = self._queue.popleft()
            assert isinstance(change, GroupChange)
            changes.append(change)
            waits.append(wait)
        written = self._workers.run(self._groups.write, changes)
        written.then(lambda: self._appended(changes, waits, written))

    def _read(self, result: Wait[Any], wait: Wait[Any]) -> None:
        self._is_busy = False
        result.pass_on(wait)
        self._begin()

    def _appended(self, changes: list[GroupChange], waits: list[Wait[Failure]], written: Wait[Any]) -> None:
        if written.error is not None:
            self._written(changes, waits, written)
            return
        confirmed = self.confirm({change.group for change in changes})

        def take() -> None:
            failure = confirmed.value if confirmed.error is None else confirmed.error
            if failure is not None:
                written.value = [outcome or failure for outcome in written.value]
            self._written(changes, waits, written)

        confirmed.then(take)

    def _written(self, changes: list[GroupChange], waits: list[Wait[Failure]], written: Wait[Any]) -> None:
        self._is_busy = False
        for change in changes:
            self._changing[change.group] -= 1
            if not self._changing[change.group]:
                del self._changing[change.group]
        outcomes = [written.error] * len(waits) if written.error is not None else written.value
        for wait, outcome in zip(waits, outcomes, strict=True):
            wait.finish(outcome)
        self._begin()


class GroupCluster(Protocol):
    """The cluster of a coordinator of groups."""

    def has_group(self, group: str) -> bool:
        """Whether a group is coordinated here."""

    def topics(self, fresh: bool, /) -> dict[str, Topic]:
        """The topics by name, as they are if they are to be `fresh`; called in a thread. PylogError, OSError."""

    def groups_written(self, groups: Collection[str]) -> Wait[Exception | None]:
        """Waits until all replicas in sync have what was written of groups; the wait gives why not."""


class Groups:
    """Runs the coordinator. All calls come from the loop's thread.

    Attributes:
        coordinator: the groups. What its calls return goes to `take`.
        log: for changes of committed offsets.
    """

    def __init__(
        self, loop: Loop, workers: Workers, logs: ServedLogs, settings: Settings, cluster: GroupCluster
    ) -> None:
        """Knows no groups yet; `load` finds them."""
        self._loop, self._logs, self._cluster = loop, logs, cluster
        self.coordinator = Coordinator(settings, lambda: secrets.token_urlsafe(_MEMBER_ID_BYTES))
        self.log = GroupLog(workers, logs.groups, cluster.groups_written)
        self._topics = GroupTopics(workers, cluster.topics, loop.time)
        self._timer: Timer | None = None
        self._timer_at = 0
        # The time of the store at the beginning, and since then that of a clock that nothing sets.
        self._begin = logs.clock() - self._monotonic()

    def _monotonic(self) -> int:
        return int(self._loop.time() * 1000)

    def now(self) -> int:
        """The time in ms; it never goes back."""
        return self._begin + self._monotonic()

    def has(self, group: str) -> bool:
        """Whether a group is coordinated here now, if there is one."""
        return self._cluster.has_group(group)

    async def topics(self, *, at_once: bool) -> Topics:
        """The topics that there are, or were a second ago at most. PylogError, OSError."""
        return await self._topics.current(at_once=at_once)

    # ---- the coordinator's effects

    async def ask(self, call: Callable[[Any], Effects]) -> Any:  # noqa: ANN401  (the response that belongs to the call)
        """Calls the coordinator with a token, and waits for the answer to it."""
        token: Wait[Any] = Wait()
        self.take(call(token))
        return await token

    def take(self, effects: Effects) -> None:
        """Does what follows from a call of the coordinator."""
        for token, response in effects.answers:
            assert isinstance(token, Wait)
            token.finish(response)
        for store in effects.stores:
            self._write(store)
        self._set_timer()

    def _write(self, store: Store | ModernStore) -> None:
        written = self.log.write(_change(store))

        def go_on() -> None:
            if written.value is not None:
                _log.error("group %s: cannot store its members: %s", store.group_id, written.value)
            self.take(self.coordinator.stored(store.ticket, _code(written.value), self.now()))

        written.then(go_on)

    def _set_timer(self) -> None:
        deadline = self.coordinator.next_deadline()
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0, deadline - self.now()) / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self.take(self.coordinator.expire(self.now()))

    def close(self) -> None:
        """Stops; sessions do not end any more."""
        if self._timer is not None:
            self._timer.cancel()

    # ---- the log

    async def refresh(self) -> None:
        """Takes in groups that others have made or deleted: commits of Spark, `pylog groups`."""
        wait: Wait[None] = Wait()
        read = self.log.read(self._logs.groups.members)

        def take_in() -> None:
            # At once, before any later change is written.
            if read.error is None:
                self._take_in(*read.value)
                wait.finish(None)
            else:
                wait.fail(read.error)

        read.then(take_in)
        await wait

    def load(self) -> None:
        """Takes in all groups of the log, before any request."""
        self._take_in(*self._logs.groups.members())

    def names(self) -> list[str]:
        """The groups that there are."""
        return [group.group_id for group in self.coordinator.list_groups(ListGroupsRequest())]

    def take_over(
        self, classic: dict[str, GroupMetadataValue | None], modern: dict[str, dict[RecordKey, Value]]
    ) -> None:
        """Takes in groups that are coordinated here from now on, as the log has them."""
        for name, value in classic.items():
            self.take(self.coordinator.unload(name))
            self.take(self.coordinator.load(name, None if value is None else _record(value), self.now()))
        for name, records in modern.items():
            self.take(self.coordinator.unload(name))
            self.take(self.coordinator.load_modern(name, records, self.now()))

    def give_up(self, names: Iterable[str]) -> None:
        """Gives up groups that another server coordinates now."""
        for name in names:
            self.take(self.coordinator.unload(name))

    def _take_in(
        self, classic: dict[str, GroupMetadataValue | None], modern: dict[str, dict[RecordKey, Value]]
    ) -> None:
        states = {group.group_id: group.group_state for group in self.coordinator.list_groups(ListGroupsRequest())}
        for name, value in classic.items():
            if name not in states and self._cluster.has_group(name):
                record = None if value is None else _record(value)
                self.take(self.coordinator.load(name, record, self.now()))
        for name, records in modern.items():
            if name not in states and self._cluster.has_group(name):
                self.take(self.coordinator.load_modern(name, records, self.now()))
        for name, state in states.items():
            if name not in classic and name not in modern and state == _EMPTY and not self.log.is_changing(name):
                self.take(self.coordinator.unload(name))


def _code(failure: Exception | None) -> ErrorCode:
    """The error for the members of a group whose record was not written."""
    if isinstance(failure, GroupNotEmptyError):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if isinstance(failure, RefusedError):
        return failure.code
    return ErrorCode.NONE if failure is None else ErrorCode.KAFKA_STORAGE_ERROR


def _change(store: Store | ModernStore) -> GroupChange:
    if isinstance(store, ModernStore):
        return GroupChange(store.group_id, modern=store.records, ends_classic=store.ends_classic, deletes=store.deletes)
    members = None if store.record is None else _value(store.record)
    return GroupChange(store.group_id, members=members, deletes=members is None)


def _value(record: GroupRecord) -> GroupMetadataValue:
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.subscription,
            member.assignment,
            rebalance_timeout=member.rebalance_timeout,
            session_timeout=member.session_timeout,
        )
        for member in record.members
    )
    return GroupMetadataValue(
        record.protocol_type, record.generation, record.protocol, record.leader, record.state_timestamp, members
    )


def _record(value: GroupMetadataValue) -> GroupRecord:
    members = tuple(
        MemberRecord(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout,
            member.session_timeout,
            member.subscription,
            member.assignment,
        )
        for member in value.members
    )
    return GroupRecord(
        value.protocol_type, value.generation, value.protocol, value.leader, value.state_timestamp, members
    )
