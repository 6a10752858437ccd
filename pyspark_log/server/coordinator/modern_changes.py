"""Changes of groups of KIP-848: they count at once, and are stored before they are answered."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_log.group_records import Kind, RecordKey, Value
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.coordinator.effects import ModernStore, Token
from pyspark_log.server.coordinator.modern_group import ModernGroup
from pyspark_log.server.coordinator.outbox import Outbox


class Changes:
    """Changes of a group that are made, and are to be stored at once.

    Attributes:
        keys: what was changed.
    """

    def __init__(self, group: ModernGroup) -> None:
        self._group = group
        self.keys: set[RecordKey] = set()

    def set(self, key: RecordKey, value: Value | None) -> None:
        """Replaces a record, unless it is the same already."""
        if self._group.records.get(key) != value:
            self._group.apply(key, value)
            self.keys.add(key)

    def remove_member(self, member_id: str) -> None:
        """Removes the records of a member."""
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            self.set(RecordKey(kind, member_id), None)


@dataclass(eq=False, slots=True)
class _Unstored:
    """What is answered when a write has ended. `repeats`: it writes again what was in doubt."""

    answers: list[tuple[Token, Struct]]
    repeats: bool


class ModernLog:
    """Has changes stored.

    A change whose write fails is not undone: to its client it is as if the answer were lost, which the protocol bears.
    But what is in the log then is in doubt. So it is written again, before anything else of the group is answered.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._unstored: dict[ModernGroup, list[_Unstored]] = {}

    def commit(self, group: ModernGroup, changes: Changes, answers: list[tuple[Token, Struct]]) -> None:
        """Has changes stored, and then gives the answers. Without changes, they come after the last that are not."""
        waiting = self._unstored.get(group, [])
        if changes.keys or group.doubtful:
            self._store(group, changes.keys, answers)
        elif waiting:
            waiting[-1].answers += answers
        else:
            self._answer(answers)

    def _store(self, group: ModernGroup, changed: set[RecordKey], answers: list[tuple[Token, Struct]]) -> None:
        unstored = _Unstored(answers, repeats=bool(group.doubtful))
        keys, group.doubtful = changed | group.doubtful, set()
        self._unstored.setdefault(group, []).append(unstored)
        records = {key: group.records.get(key) for key in sorted(keys)}
        ends_classic = group.ends_classic

        def stored(error: ErrorCode, _: int) -> None:
            if group not in self._unstored:
                return  # it was given up
            waiting = self._unstored[group]
            waiting.remove(unstored)
            if not waiting:
                del self._unstored[group]
            if error:
                group.doubtful |= keys
                self._refuse(unstored, error)
                return
            group.ends_classic = group.ends_classic and not ends_classic
            # A write before it may have failed.
            if group.doubtful:
                self._store(group, set(), unstored.answers)
            elif repeated := next((one for one in waiting if one.repeats), None):
                repeated.answers += unstored.answers
            else:
                self._answer(unstored.answers)

        self._outbox.store(
            lambda ticket: ModernStore(ticket, group.group_id, records, ends_classic=ends_classic), stored
        )  # fmt: skip

    def give_up(self, group: ModernGroup, error: ErrorCode) -> None:
        """Answers what waits with an error, for another server has the group."""
        for unstored in self._unstored.pop(group, []):
            self._refuse(unstored, error)

    def _refuse(self, unstored: _Unstored, error: ErrorCode) -> None:
        self._answer([(token, type(response)(error_code=error)) for token, response in unstored.answers])

    def _answer(self, answers: list[tuple[Token, Struct]]) -> None:
        for token, response in answers:
            self._outbox.answer(token, response)
