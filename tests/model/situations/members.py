"""Members of a group that share the files of a store: they own partitions, process records and commit, one by one.

Models pyspark_log/clients/consuming/membership.py. What a change makes of a group is the code itself, `FileGroup`: all
of it is changed with the partition of the log locked, which is one step here. A process that is stopped for so long
that others remove it is one whose steps come late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pyspark_log.errors import FencedMemberError
from pyspark_log.storage.groups.members.assignors import ASSIGNORS, Subscriber
from pyspark_log.storage.groups.members.file_group import FileGroup, FileMember
from pyspark_log.types import TopicPartition

from ..checker.machine import InvariantError, Model, Program, Steps, Thing, Watch
from ..protocol.setup import PLAIN, Setup


class Kept(NamedTuple):
    """The group's records. `members`: in the order in which they came; `committed`: by partition."""

    members: tuple[FileMember, ...]
    committed: tuple[int, ...]

    def group(self) -> FileGroup:
        """As the code has it. In the model generations do not count, so that states repeat."""
        return FileGroup(0, "", {one.member_id: one for one in self.members})

    def after(self, group: FileGroup) -> Kept:
        return self._replace(members=tuple(group.members.values()))


class Group(Thing):
    """The group. Each operation holds the lock of the group's partition, and first removes members that have died.

    An operation of a member that was removed gives None.
    """

    reads = frozenset({"look"})

    @classmethod
    def do_join(cls, kept: Kept, name: str, dead: Sequence[str]) -> tuple[Kept, None]:
        group = cls._without(kept, dead).join(FileMember(name, None, "", "", ("t",), 0, 0), partial(_assign, kept))
        return kept.after(group), None

    @classmethod
    def do_look(cls, kept: Kept, name: str) -> tuple[Kept, FileMember | None]:
        return kept, kept.group().members.get(name)

    @classmethod
    def do_remove(cls, kept: Kept, dead: Sequence[str]) -> tuple[Kept, None]:
        return kept.after(cls._without(kept, dead)), None

    @classmethod
    def do_settle(
        cls, kept: Kept, name: str, gives_up: frozenset[TopicPartition] | None, only_free: bool
    ) -> tuple[Kept, frozenset[TopicPartition] | None]:
        """`gives_up`: None: all that it is to have no more by now."""
        group = kept.group()
        try:
            before = group.member(name)
            given = before.owned - before.assigned if gives_up is None else gives_up
            group = group.settle(name, given)
        except FencedMemberError:
            return kept, None
        if not only_free:
            own = replace(before, owned=before.assigned)
            group = replace(group, members={**group.members, name: own})
        return kept.after(group), group.members[name].owned - (before.owned - given)

    @classmethod
    def do_position(cls, kept: Kept, at: TopicPartition) -> tuple[Kept, int]:
        return kept, kept.committed[at.partition]

    @classmethod
    def do_commit(cls, kept: Kept, name: str, at: TopicPartition, offset: int, checks: bool) -> tuple[Kept, bool]:
        if checks:
            try:
                kept.group().check_owned(name, [at])
            except FencedMemberError:
                return kept, False
        committed = list(kept.committed)
        committed[at.partition] = offset
        return kept._replace(committed=tuple(committed)), True

    @classmethod
    def do_leave(cls, kept: Kept, name: str) -> tuple[Kept, None]:
        return kept.after(cls._without(kept, [name])), None

    @classmethod
    def _without(cls, kept: Kept, names: Sequence[str]) -> FileGroup:
        return kept.group().leave(names, partial(_assign, kept))


def _assign(kept: Kept, members: Sequence[Subscriber]) -> Mapping[str, Sequence[TopicPartition]]:
    return ASSIGNORS["range"]({"t": len(kept.committed)}, members)


class Facts(NamedTuple):
    """What really happened.

    Attributes:
        last: the member, the partition and the offset of the record that was handed out last.
        handed: how often each record was, by partition and offset.
        ended: members that have ended, in order or not: they hold no lock any more.
        over: processes that have ended in order.
        disturbed: whether any was killed, or removed while it lived.
    """

    last: tuple[str, TopicPartition, int] | None
    handed: tuple[tuple[int, ...], ...]
    ended: frozenset[str] = frozenset()
    over: frozenset[int] = frozenset()
    disturbed: bool = False


class Truth(Thing):
    """What really happened, and the locks of the members' files."""

    reads = frozenset({"dead"})

    @classmethod
    def do_hand_out(cls, facts: Facts, name: str, at: TopicPartition, offset: int) -> tuple[Facts, None]:
        handed = [list(row) for row in facts.handed]
        handed[at.partition][offset] += 1
        return facts._replace(last=(name, at, offset), handed=tuple(map(tuple, handed))), None

    @classmethod
    def do_rest(cls, facts: Facts) -> tuple[Facts, None]:
        return facts._replace(last=None), None

    @classmethod
    def do_end(cls, facts: Facts, name: str, in_order: bool) -> tuple[Facts, None]:
        over = {int(name[1])} if in_order else set()
        return facts._replace(ended=facts.ended | {name}, over=facts.over | over), None

    @classmethod
    def do_dead(cls, facts: Facts) -> tuple[Facts, tuple[str, ...]]:
        return facts, tuple(sorted(facts.ended))

    @classmethod
    def released(cls, facts: Facts, process: int) -> Facts:
        """The system frees the lock of a process that is killed; each process has one member at a time."""
        if process in facts.over:
            return facts
        names = {f"m{process}", f"m{process}again"}
        return facts._replace(ended=facts.ended | names, disturbed=True)


def member(name: str, setup: Setup, records: int, most: int) -> Steps:
    """Joins, processes and commits up to `most` records, and leaves; after it was removed it joins once more."""
    for me in (name, name + "again"):
        dead = yield "truth", "dead"
        yield "group", "join", me, dead
        removed = yield from _work(me, setup, records, most)
        if not removed:
            if setup.keeps("a member that ends in order leaves after its last commit"):
                yield "group", "leave", me
            yield "truth", "end", me, True
            return
        yield "truth", "end", me, False


def _work(me: str, setup: Setup, records: int, most: int) -> Steps:
    """Whether the member was removed."""
    positions: dict[TopicPartition, int] = {}
    early: dict[TopicPartition, int] = {}
    done = 0
    uncommitted: TopicPartition | None = None
    while done < most:
        mine = yield "group", "look", me
        if mine is None:
            return True
        if not setup.keeps("an owner begins where the group is after it has taken a partition"):
            for at in sorted(mine.assigned):
                early[at] = yield "group", "position", at
        gives_up = mine.owned - mine.assigned
        for at in sorted(gives_up):
            if uncommitted == at and setup.keeps("what is given up is committed before"):
                yield "group", "commit", me, at, positions[at], setup.keeps("only the owner commits")
                uncommitted = None
            positions.pop(at, None)
        taken = yield (
            "group",
            "settle",
            me,
            gives_up if setup.keeps("a member gives up only what it has ended its work for") else None,
            setup.keeps("a member takes only what no other owns"),
        )
        if taken is None:
            return True
        for at in sorted(taken):
            positions[at] = yield "group", "position", at
            positions[at] = early.get(at, positions[at])
        # One record, which is committed at the next one, as a consumer does that commits by time.
        if uncommitted is not None and uncommitted in positions:
            ok = yield "group", "commit", me, uncommitted, positions[uncommitted], setup.keeps("only the owner commits")
            if not ok:
                return True
        uncommitted = None
        ready = [at for at in sorted(positions) if positions[at] < records]
        if not ready:
            return False
        at = ready[0]
        yield "truth", "hand_out", me, at, positions[at]
        positions[at] += 1
        uncommitted = at
        yield "truth", "rest"
        done += 1
    if uncommitted is not None and setup.keeps("a member that ends in order leaves after its last commit"):
        yield "group", "commit", me, uncommitted, positions[uncommitted], setup.keeps("only the owner commits")
    return False


def last(partitions: int, records: int) -> Steps:
    """A member that comes when all others have ended, and reads what is left."""
    for name in ("m0", "m1", "m2", "m0again", "m1again", "m2again"):
        yield "group", "remove", (name,)
    yield "group", "join", "last", ()
    yield "group", "settle", "last", frozenset(), True
    for number in range(partitions):
        at = TopicPartition("t", number)
        position = yield "group", "position", at
        for offset in range(position, records):
            yield "truth", "hand_out", "last", at, offset
            yield "truth", "rest"


def settled(values: Mapping[str, Any]) -> None:
    """I19: each record was handed out. I20: once, if no member was killed or removed while it lived."""
    facts = values["truth"]
    counts = [count for row in facts.handed for count in row]
    if not all(counts):
        raise InvariantError("I19", f"records were skipped: {facts.handed}")
    if not facts.disturbed and max(counts) > 1:
        raise InvariantError("I20", f"records were processed twice: {facts.handed}")


def look(before: tuple[int, ...], kept: Kept, facts: Facts) -> tuple[int, ...]:
    """I18: a record is handed out by the owner of its partition, or by a member that was removed. I19: offsets are
    committed in order, and only of what was handed out.
    """
    owners = [(at, one.member_id) for one in kept.members for at in one.owned]
    if len({at for at, _ in owners}) < len(owners):
        raise InvariantError("I18", f"a partition has two owners: {owners}")
    if facts.last is not None:
        name, at, _ = facts.last
        is_member = any(one.member_id == name for one in kept.members)
        if is_member and (at, name) not in owners:
            raise InvariantError("I18", f"{name} hands out a record of {at}, whose owner is another: {owners}")
    for number, (old, new) in enumerate(zip(before, kept.committed, strict=True)):
        if new < old:
            raise InvariantError("I19", f"partition {number}: {new} is committed after {old}")
        if not all(facts.handed[number][:new]):
            raise InvariantError("I19", f"partition {number}: {new} is committed, and not all before was handed out")
    return kept.committed


def model(
    members: int = 2, partitions: int = 2, records: int = 1, most: int = 2, removals: int = 0, kills: int = 0,
    setup: Setup = PLAIN,
) -> Model:  # fmt: skip
    """Members that process `most` records each; others remove `removals` that live, as they are silent for too long."""

    def remove(values: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        kept, facts = values["group"], values["truth"]
        if values["removals"] == 0:
            return
        for one in kept.members:
            if one.member_id not in facts.ended:
                left = Group.do_remove(kept, [one.member_id])[0]
                yield {"group": left, "truth": facts._replace(disturbed=True), "removals": values["removals"] - 1}

    def bury(values: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """Any member that looks removes those that have died."""
        kept, facts = values["group"], values["truth"]
        dead = [one.member_id for one in kept.members if one.member_id in facts.ended]
        if dead:
            yield {"group": Group.do_remove(kept, dead)[0]}

    lives: dict[str, Sequence[Program | None]] = {
        f"member {number}": [partial(member, f"m{number}", setup, records, most), None] for number in range(members)
    }
    return Model(
        things={
            "group": (Group, Kept((), (0,) * partitions)),
            "truth": (Truth, Facts(None, ((0,) * records,) * partitions)),
            "removals": (Thing, removals),
            "committed": (Thing, (0,) * partitions),
        },
        lives=lives,
        kills=kills,
        watches=[Watch("committed", ("group", "truth"), look)],
        alone=partial(last, partitions, records),
        settled=settled,
        steps=[("a silent member is removed", remove), ("a dead member is removed", bury)],
    )
