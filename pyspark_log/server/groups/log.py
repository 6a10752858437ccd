"""The log of groups, written in the order of the coordinator's decisions, and many at once."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import Any

from pyspark_log.server.network import Wait, Workers
from pyspark_log.server.served.logs import GroupsLog
from pyspark_log.storage.groups.changes import GroupChange

#: Why a change was not written; None: it was.
Failure = Exception | None


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
