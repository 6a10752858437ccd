"""The protocol of a publish across partitions: deciding, applying, helping, and tidying up, as publish.py does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from .disk import Batch, Folder, Slots
from .engine import Thing, Violation, Watch
from .partition import Appender, Piece, Setup, Steps, SyncFailed
from .witness import current, visible, watch

#: The decision log, as a partition.
D = "decisions"


class Record(NamedTuple):
    """A record of the decision log: the last that is known of a publisher.

    Attributes:
        pub, number, run: who decided what. `run` "" does not count.
        decision: the offset of the record that decided; -1: this one did; -2: nothing is decided yet.
        done: it is applied everywhere.
        forget: the publisher is no longer known.
        places: the partitions that get something.
        replaced: earlier runs, which may decide nothing.
        location: the publisher's checkpoint.
        content: what it publishes, (publisher, number, which records, attempt); also the name of its manifest.
    """

    pub: str
    number: int
    run: str = ""
    decision: int = -1
    done: bool = False
    forget: bool = False
    places: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    location: str = ""
    content: Any = None

    def __repr__(self) -> str:
        said = [str(value) for value in (self.run, self.content, ",".join(self.places)) if value]
        kind = "forgotten" if self.forget else f"{self.decision} done" if self.done else f"{self.decision}"
        return f"{self.pub}#{self.number}({' '.join(said)}: {kind})"


class Known(NamedTuple):
    """What the decision log says up to some end: the last decision of each publisher, and those not done."""

    last: tuple[tuple[str, Record], ...] = ()
    undone: tuple[tuple[int, Record], ...] = ()

    def of(self, pub: str) -> Record | None:
        return dict(self.last).get(pub)


def known(batches: Iterable[Batch]) -> Known:
    """What records say, the later ones over the earlier."""
    last: dict[str, Record] = {}
    undone: dict[int, Record] = {}
    for batch in batches:
        for number, record in enumerate(batch.what or ()):
            if record is None:  # compacted away
                continue
            before = last.pop(record.pub, None)
            if before is not None:
                undone.pop(before.decision, None)
            if record.forget:
                continue
            if record.decision == -1:
                record = record._replace(decision=batch.base + number)  # noqa: PLW2901
            last[record.pub] = record
            if not record.done and record.decision >= 0:
                undone[record.decision] = record
    return Known(tuple(sorted(last.items())), tuple(sorted(undone.items())))


class Staging(Thing):
    """The staging folder: names that are durable, and changes since; a file is whole once it has its name."""

    reads = frozenset({"has", "names"})
    syncs = frozenset({"sync"})

    @classmethod
    def do_has(cls, value: tuple[Any, Any], name: Any) -> Any:
        return value, name in staged(value)

    @classmethod
    def do_names(cls, value: tuple[Any, Any]) -> Any:
        return value, tuple(sorted(staged(value), key=str))

    @classmethod
    def do_make(cls, value: tuple[Any, Any], name: Any) -> Any:
        """Writes a file and syncs it; its name is not durable yet."""
        return (value[0], (*value[1], (name, True))), None

    @classmethod
    def do_unlink(cls, value: tuple[Any, Any], name: Any) -> Any:
        if name not in staged(value):
            return value, None
        return (value[0], (*value[1], (name, False))), None

    @classmethod
    def do_sync(cls, value: tuple[Any, Any]) -> Any:
        return (staged(value), ()), None

    @classmethod
    def calm(cls, value: tuple[Any, Any]) -> Any:
        return staged(value), ()

    @classmethod
    def crash(cls, value: tuple[Any, Any]) -> Any:
        durable, changes = value
        left = {durable}
        for name, there in changes:
            left |= {names | {name} if there else names - {name} for names in left}
        return [(names, ()) for names in sorted(left, key=lambda names: sorted(map(str, names)))]


def staged(value: tuple[Any, Any]) -> frozenset[Any]:
    """The names in the staging folder."""
    names, changes = value
    for name, there in changes:
        names = names | {name} if there else names - {name}
    return frozenset(names)


class Refused(Exception):
    """A publish is refused."""


class GivenUp(Exception):
    """A step was given up and can be tried again: a file is missing, or a lock is not to be had."""


class Publisher:
    """One process's access to a store: it decides, applies and helps.

    It keeps what it knows of the decision log, and which decisions it found to be applied.
    """

    def __init__(self, who: int, places: Sequence[str], setup: Setup, *, patient: bool = True) -> None:
        self.who, self.setup, self.patient = who, setup, patient
        self.appenders = {
            name: Appender(name, lock, who, setup) for lock, name in enumerate((D, *places))
        }
        self.known = Known()
        self.applied: frozenset[int] = frozenset()

    def frozen(self) -> Any:
        at = tuple(appender.frozen() for appender in self.appenders.values() if appender.loaded or appender.file)
        return self.who, self.known, self.applied, at

    def keeps(self, rule: str) -> bool:
        return rule not in self.setup.without

    # ---- reading decisions

    def follow(self) -> Steps:
        """Reads what was decided, up to the end; no lock is needed, but once after a power loss."""
        state = yield D + " state", "look"
        if not state.booted and self.keeps("who looks for decisions after a restart puts their log right first"):
            yield from self.appenders[D].enter()
            yield from self.appenders[D].leave()
            state = yield D + " state", "look"
        batches = yield D + " log", "readable", state
        if not self.keeps("nobody acts on a decision beyond the end"):
            batches = yield D + " log", "written"
        self.known = known(batches)
        undone = dict(self.known.undone)
        self.applied = frozenset(number for number in self.applied if number in undone)

    def is_applied_in(self, record: Record, place: str) -> Steps:
        """Whether a partition has what a decision gives it; looked up without a lock."""
        state = yield place + " state", "look"
        return state.dead or state.applied >= record.decision

    def is_applied(self, record: Record) -> Steps:
        """Whether all of its partitions have it."""
        if record.decision in self.applied:
            return True
        for number in range(len(record.places)):
            if not (yield from self.is_applied_in(record, record.places[number])):
                return False
        self.applied |= {record.decision}
        return True

    # ---- publishing

    def claim(self, pub: str, run: str, number: int) -> Steps:
        """Makes `run` the one that publishes; those before it are fenced. Refused, SyncFailed, GivenUp."""
        log = self.appenders[D]
        yield from log.enter()
        try:
            yield from self.follow()
            last = self.known.of(pub)
            if last is not None and run in last.replaced and self.keeps("a run that was replaced decides nothing"):
                raise Refused(f"run {run} was replaced by {last.run}")
            if last is not None and last.number >= 0 and number not in (last.number, last.number + 1):
                if self.keeps("only the last number or the next one is taken"):
                    raise Refused(f"number {number} after {last.number}")
            if last is None:
                last = Record(pub, -1, decision=-2, done=True)
            if last.run != run:
                yield from self._append((_taken_over(last, run),))
            last = self.known.of(pub)
        except (Refused, SyncFailed):
            yield from log.leave()
            raise
        yield from log.leave()
        yield from self.apply(last)

    def publish(self, wanted: Record, *, one_off: bool = False, claimed: bool = False) -> Steps:
        """Publishes, and promises that it is done. Refused, SyncFailed, GivenUp."""
        names = self.names_of(wanted)
        for number in range(len(names)):
            yield "staging", "make", names[number]
            if self.keeps("the staging folder is synced before the decision"):
                yield "staging", "sync"
        try:
            decision, replayed = yield from self.decide(wanted, claimed)
        except Refused:
            last = self.known.of(wanted.pub)
            # A call that is made again hands in the very files that the first may have decided.
            decided = last is not None and not last.done and last.content == wanted.content
            if not decided or not self.keeps("a refused publish leaves what is decided"):
                yield from self._remove((wanted,))
            raise
        if replayed and decision.content != wanted.content:
            yield from self._remove((wanted,))
        yield from self.apply(decision)
        yield "promises", "make", decision, wanted
        if one_off:
            yield from self.tidy(wanted.pub)

    def decide(self, wanted: Record, claimed: bool) -> Steps:
        """Makes the decision, or finds the one that was made before."""
        log = self.appenders[D]
        while True:
            yield from log.enter()
            try:
                yield from self.follow()
                last = self.known.of(wanted.pub)
                found = yield from self._judge(wanted, last, claimed)
            except (Refused, SyncFailed):
                yield from log.leave()
                raise
            yield from log.leave()
            if found == "unfinished":
                yield from self.apply(last)
                continue
            return found

    def _judge(self, wanted: Record, last: Record | None, claimed: bool) -> Steps:
        """Under the lock: what is to be done, or was."""
        if last is not None:
            fenced = wanted.run and (wanted.run in last.replaced or (claimed and wanted.run != last.run))
            if fenced and self.keeps("a run that was replaced decides nothing"):
                raise Refused(f"run {wanted.run} was replaced by {last.run}")
            if last.location and wanted.location != last.location and self.keeps("another checkpoint decides nothing"):
                raise Refused(f"{wanted.pub} belongs to {last.location}")
            if last.number >= 0 and wanted.number not in (last.number, last.number + 1):
                if self.keeps("only the last number or the next one is taken"):
                    raise Refused(f"number {wanted.number} after {last.number}")
                if wanted.number < last.number:
                    return last, True
            if wanted.number == last.number and wanted.content[2] != last.content[2]:
                if self.keeps("a replay with another plan is refused"):
                    raise Refused(f"number {wanted.number} was published with other input")
            if wanted.number == last.number and self.keeps("the last number again is a replay"):
                if wanted.run != last.run:
                    yield from self._append((_taken_over(last, wanted.run),))
                return last, True
            finished = last.done
            if not finished:
                finished = yield from self.is_applied(last)
            if not finished and self.keeps("the last decision is finished before the next is made"):
                return "unfinished"
            inherited = last if wanted.run == last.run else _taken_over(last, wanted.run)
            wanted = wanted._replace(replaced=inherited.replaced)
        names = self.names_of(wanted)
        for number in range(len(names)):
            there = yield "staging", "has", names[number]
            if not there and self.keeps(f"who decides looks for its {names[number][0]}"):
                raise Refused("what was staged is gone")
        undone = dict(self.known.undone)
        done = tuple(
            record for number, record in sorted(undone.items()) if number in self.applied and record.pub != wanted.pub
        )
        try:
            yield from self.before_deciding(wanted)
            base = yield from self._append((*[record._replace(done=True) for record in done], wanted))
        except (Refused, SyncFailed):
            yield from self.after_deciding()
            raise
        yield from self.after_deciding()
        yield from self._remove(done)
        return wanted._replace(decision=base + len(done)), False

    def before_deciding(self, wanted: Record) -> Steps:
        """What else must hold for a decision. Refused."""
        yield from ()

    def after_deciding(self) -> Steps:
        """Undoes what that has taken."""
        yield from ()

    def _append(self, records: Sequence[Record]) -> Steps:
        """Adds records in one batch, durably, and reads them."""
        log = self.appenders[D]
        sync = self.keeps("a decision is synced before the end moves")
        base = yield from log.append((tuple(records),), sync=sync, counts=(len(records),))
        yield from self.follow()
        return base

    # ---- applying

    def apply(self, record: Record) -> Steps:
        """Applies a decision where it is not yet; in each partition after those before it. GivenUp, SyncFailed."""
        undone = dict(self.known.undone)
        if record.decision not in undone:
            return
        steps: tuple[Record, ...] = ()
        for number in sorted(undone):
            earlier = undone[number]
            ordered = self.keeps("earlier decisions are applied first") or earlier.pub == record.pub
            if number > record.decision or not set(earlier.places) & set(record.places) or not ordered:
                continue
            if not (yield from self.is_applied(earlier)):
                if (yield from self._has_manifest(earlier)):
                    steps = (*steps, earlier)
        order = yield "chance", "order", record.places
        for number in range(len(order)):
            yield from self._bring_up(order[number], steps)
        self.applied |= {record.decision}

    def _has_manifest(self, record: Record) -> Steps:
        """Whether a decision's files are there; they may be gone if it was finished meanwhile. GivenUp."""
        if (yield "staging", "has", ("manifest", record.content)):
            return True
        log = self.appenders[D]
        yield from log.enter()
        yield from self.follow()
        yield from log.leave()
        if record.decision in dict(self.known.undone):
            raise GivenUp(f"the manifest of {record} is missing")
        return False

    def _bring_up(self, place: str, steps: Sequence[Record]) -> Steps:
        for number in range(len(steps)):
            record = steps[number]
            if place not in record.places or (yield from self.is_applied_in(record, place)):
                continue
            appender = self.appenders[place]
            if self.patient:
                alive = yield from appender.enter()
            else:
                if not (yield "locks", "try", appender.lock, self.who):
                    raise GivenUp(f"{place} is locked")
                alive = yield from appender.entered()
            if not alive:
                continue
            try:
                yield from self._apply_in(appender, record)
            except (SyncFailed, GivenUp):
                yield from appender.leave()
                raise
            yield from appender.leave()

    def _apply_in(self, appender: Appender, record: Record) -> Steps:
        if appender.state.applied < record.decision:
            there = yield "staging", "has", self.names_of(record)[0]
            if not there:
                raise GivenUp(f"what {record} staged is missing")
        yield from appender.apply(record.decision, pieces(record))

    # ---- afterwards

    def help(self) -> Steps:
        """Applies what is decided and not visible yet; waits for nobody. SyncFailed."""
        yield from self.follow()
        undone = dict(self.known.undone)
        for number in sorted(undone):
            if (yield from self.is_applied(undone[number])):
                continue
            try:
                yield from self.apply(undone[number])
            except GivenUp:
                return

    def tidy(self, forget: str = "") -> Steps:
        """Records which decisions are done, removes what was staged for them, and forgets a publisher."""
        yield from self.follow()
        undone = dict(self.known.undone)
        done: tuple[Record, ...] = ()
        for number in sorted(undone):
            if (yield from self.is_applied(undone[number])):
                done = (*done, undone[number])
        log = self.appenders[D]
        yield from log.enter()
        try:
            yield from self.follow()
            undone = dict(self.known.undone)
            # Another run may have taken its publisher over meanwhile.
            fresh = self.keeps("what is done is recorded as it is known under the lock")
            done = tuple(
                undone[record.decision] if fresh else record for record in done if record.decision in undone
            )
            records = tuple(
                record._replace(forget=True) if record.pub == forget else record._replace(done=True) for record in done
            )
            if records:
                yield from self._append(records)
        except SyncFailed:
            yield from log.leave()
            raise
        yield from log.leave()
        yield from self._remove(done)

    def _remove(self, done: Sequence[Record]) -> Steps:
        for number in range(len(done)):
            names = self.names_of(done[number])
            for name in range(len(names)):
                yield "staging", "unlink", names[name]

    def names_of(self, record: Record) -> tuple[Any, ...]:
        """What is staged for a decision."""
        return names_of(record, self.setup.files)

    def sweep(self) -> Steps:
        """The janitor: removes what seems to be old and is not named by a decision. SyncFailed, GivenUp."""
        yield from self.follow()
        if self.known.undone:
            yield from self.tidy()
        log = self.appenders[D]
        if self.keeps("the janitor holds the lock of decisions"):
            yield from log.enter()
        yield from self.follow()
        named = frozenset(name for _, record in self.known.undone for name in self.names_of(record))
        names = yield "staging", "names"
        spare = self.keeps("the janitor spares what a decision names")
        names = tuple(name for name in names if not spare or name not in named)
        for number in range(len(names)):
            old = yield "chance", "choose", (True, False)
            if old:
                yield "staging", "unlink", names[number]
        if self.keeps("the janitor holds the lock of decisions"):
            yield from log.leave()


def _taken_over(last: Record, run: str) -> Record:
    return last._replace(run=run, replaced=(*last.replaced, last.run) if last.run else last.replaced)


def names_of(record: Record, files: bool) -> tuple[Any, ...]:
    """What is staged for a decision: tasks' output first, the manifest last."""
    manifest = ("manifest", record.content)
    return (("file", record.content), manifest) if files else (manifest,)


def pieces(record: Record) -> tuple[Piece, ...]:
    """What a decision gives to each of its partitions: one batch from each of two tasks."""
    return tuple(Piece((("d", record.decision, number, 2, record.content),)) for number in range(2))


class Promises(Thing):
    """What publishers were told is there: (publisher, number, decision, places)."""

    @classmethod
    def do_make(cls, value: frozenset[Any], record: Record, wanted: Record) -> Any:
        if record.content[2] != wanted.content[2]:
            raise Violation("I8", f"{wanted} was dropped for a replay of {record}, which has other records")
        return value | {(record.pub, record.number, record.decision, record.places)}, None


class Chance(Thing):
    """What is left open."""

    reads = frozenset({"order", "choose"})

    @classmethod
    def do_order(cls, value: None, places: tuple[str, ...]) -> Any:
        """The order in which threads come to partitions."""
        return [(value, places), (value, places[::-1])] if len(places) > 1 else (value, places)

    @classmethod
    def do_choose(cls, value: None, among: tuple[Any, ...]) -> Any:
        return [(value, one) for one in among]


# ---- what must never be seen


def watches(places: Sequence[str], files: bool = False, compacted: bool = False) -> list[Watch]:
    """The observers of a store's publishes; `files`: as in Setup; `compacted`: decisions may go."""
    names = [f"{name} {what}" for name in places for what in ("state", "log")]
    look = Watch("nothing", ("staging", "promises", D + " state", D + " log", *names), Look(tuple(places), files))
    log = [] if compacted else [watch(D, unique=False)]
    return [look, *log, *[watch(name) for name in places]]


class Look:
    """Checks I3, I4, I5, I7, I8 and I9 over all partitions."""

    def __init__(self, places: tuple[str, ...], files: bool) -> None:
        self.places, self.files = places, files

    def __call__(self, nothing: None, *seen: Any) -> None:
        self.check(frozenset(), *seen)

    def check(
        self, void: frozenset[str], staging: Any, promises: Any, file: Slots, folder: Folder, *partitions: Any
    ) -> None:
        """Checks it; partitions that are `void` need not have anything."""
        state = current(file)
        batches = [batch for batch in visible(state, folder) if batch.what is not None]
        decided = {}
        for batch in batches:
            for number, record in enumerate(batch.what):
                if record is not None and record.decision == -1:
                    decided[batch.base + number] = record._replace(decision=batch.base + number)
        states = {
            place: current(partitions[2 * number]) for number, place in enumerate(self.places) if place not in void
        }
        applied = {place: state.applied for place, state in states.items()}
        for pub, number, decision, places in promises:
            for place in places:
                if place in states and states[place].booted and applied[place] < decision:
                    raise Violation("I7", f"{pub} was told that {number} is in {place}, which is at {applied[place]}")
        self._check_numbers(decided)
        self._check_runs(batches)
        if state.booted:
            # What a power loss hides in a partition comes back as soon as somebody takes its lock.
            recovered = {place: number for place, number in applied.items() if states[place].booted}
            self._check_finished(decided, recovered)
        # A power loss can hide that a decision is done, until somebody takes the lock.
        undone = [record for _, record in known(batches).undone] if state.booted else []
        names = staged(staging)
        for record in undone:
            needed = any(applied.get(place, record.decision) < record.decision for place in record.places)
            gone = [name for name in names_of(record, self.files) if name not in names]
            if needed and gone:
                raise Violation("I9", f"{record} is not applied, and what it staged is gone")
        durable = _durable(folder)
        for number, place in enumerate(self.places):
            for decision, content in _traces(partitions[2 * number], partitions[2 * number + 1]):
                record = durable.get(decision)
                other = record is not None and content not in (None, record.content)
                if decision not in durable or other:
                    raise Violation("I4", f"{place} has a trace of decision {decision}, which is not on the disk")

    def _check_numbers(self, decided: dict[int, Record]) -> None:
        numbers: dict[str, int] = {}
        for record in decided.values():
            before = numbers.get(record.pub)
            if before is not None and record.number != before + 1:
                raise Violation("I5", f"{record.pub} decided {record.number} after {before}")
            numbers[record.pub] = record.number

    def _check_runs(self, batches: Sequence[Batch]) -> None:
        runs: dict[str, list[str]] = {}
        locations: dict[str, str] = {}
        for batch in batches:
            for record in filter(None, batch.what):
                had = runs.setdefault(record.pub, [])
                location = locations.setdefault(record.pub, record.location) or record.location
                locations[record.pub] = location
                if record.location not in ("", location):
                    raise Violation("I8", f"{record.location} wrote, and {record.pub} is of {location}")
                if record.run in had[:-1]:
                    raise Violation("I8", f"run {record.run} of {record.pub} wrote after it was replaced: {had}")
                if record.run and record.run not in had:
                    had.append(record.run)

    def _check_finished(self, decided: dict[int, Record], applied: dict[str, int]) -> None:
        for record in decided.values():
            later = [other for other in decided.values() if other.pub == record.pub and other.number > record.number]
            missing = [place for place in record.places if applied.get(place, record.decision) < record.decision]
            if later and missing:
                raise Violation("I5", f"{later[0]} was decided before {record} was applied in {missing}")


def _durable(folder: Folder) -> dict[int, Record | None]:
    """The records of decisions that are on the disk; None for one that is compacted away."""
    found: dict[int, Record | None] = {}
    for _, file in folder.files:
        for batch in file.synced:
            if batch is not None and batch.what is not None:
                for number, record in enumerate(batch.what):
                    found[batch.base + number] = record
    return found


def _traces(file: Slots, folder: Folder) -> Iterable[tuple[int, Any]]:
    """Decisions that a partition bears a trace of, with their content where it is known."""
    for slot in file.slots:
        for state in (slot.synced, *slot.pending):
            if state is not None and state.intent is not None:
                yield state.intent.decision, None
    for batch in visible(current(file), folder):
        if batch.what is not None and batch.what[0] == "d":
            yield batch.what[1], batch.what[4]


Task = Callable[[], Steps]
