"""Changes of groups of KIP-848: they count at once, are stored before they are answered, and undone if they are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.coordinator.effects import ModernStore, Token
from pyspark_log.server.coordinator.modern_group import Change, ModernGroup
from pyspark_log.server.coordinator.outbox import Outbox
from pyspark_log.storage.groups.modern_records import Kind, RecordKey, Value


class Changes:
    """Changes of a group that are made, and are to be stored at once."""

    def __init__(self, group: ModernGroup) -> None:
        self._group = group
        self.made: list[Change] = []

    def set(self, key: RecordKey, value: Value | None) -> None:
        """Replaces a record, unless it is the same already."""
        if self._group.records.get(key) != value:
            self.made.append(self._group.apply(key, value))

    def remove_member(self, member_id: str) -> None:
        """Removes the records of a member."""
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            self.set(RecordKey(kind, member_id), None)


@dataclass(eq=False, slots=True)
class _Unstored:
    """Changes that are being written, and what is answered afterwards."""

    made: list[Change]
    keys: set[RecordKey]
    answers: list[tuple[Token, Struct]] = field(default_factory=list)
    is_undone: bool = False


class ModernLog:
    """Has changes stored.

    When a write fails, its changes are undone, and those after it, which may depend on them. The log may have any of
    these. So the next write has all records that may differ, and comes before any other answer.

    Args:
        undone: called with the group and the time after changes were undone.
    """

    def __init__(self, outbox: Outbox, undone: Callable[[ModernGroup, int], None]) -> None:
        self._outbox, self._undone = outbox, undone
        self._unstored: dict[ModernGroup, list[_Unstored]] = {}

    def commit(
        self, group: ModernGroup, changes: Changes, answers: list[tuple[Token, Struct]], *, ends_classic: bool = False
    ) -> None:
        """Has changes stored, and then gives the answers. Without changes, they come after the last that are not.

        What is in doubt is stored again first: what is answered must be what a server would find.
        """
        waiting = self._unstored.get(group, [])
        if changes.made or group.doubtful or ends_classic:
            self._store(group, changes.made, answers, ends_classic=ends_classic)
        elif waiting:
            waiting[-1].answers += answers
        else:
            self._answer(answers)

    def _store(
        self, group: ModernGroup, made: list[Change], answers: list[tuple[Token, Struct]], *, ends_classic: bool
    ) -> None:
        keys = {one.key for one in made} | group.doubtful
        group.doubtful = set()
        unstored = _Unstored(made, keys, answers)
        self._unstored.setdefault(group, []).append(unstored)
        records = {key: group.records.get(key) for key in sorted(keys)}

        def stored(error: ErrorCode, now: int) -> None:
            if unstored.is_undone:
                return
            if error:
                self._undo(group, unstored, error)
                self._undone(group, now)
                return
            self._unstored[group].remove(unstored)
            if not self._unstored[group]:
                del self._unstored[group]
            self._answer(unstored.answers)

        self._outbox.store(
            lambda ticket: ModernStore(ticket, group.group_id, records, ends_classic=ends_classic), stored
        )  # fmt: skip

    def _undo(self, group: ModernGroup, first: _Unstored, error: ErrorCode) -> None:
        waiting = self._unstored.pop(group)
        at = waiting.index(first)
        assert at == 0, "writes end in their order"
        for one in reversed(waiting):
            for key, before, _ in reversed(one.made):
                group.apply(key, before)
            group.doubtful |= one.keys
            one.is_undone = True
        group.topics = None
        for one in waiting:
            self._answer([(token, type(response)(error_code=error)) for token, response in one.answers])

    def _answer(self, answers: list[tuple[Token, Struct]]) -> None:
        for token, response in answers:
            self._outbox.answer(token, response)

    def give_up(self, group: ModernGroup, error: ErrorCode) -> None:
        """Answers what waits with an error, for another server has the group."""
        for one in self._unstored.pop(group, []):
            one.is_undone = True
            self._answer([(token, type(response)(error_code=error)) for token, response in one.answers])
