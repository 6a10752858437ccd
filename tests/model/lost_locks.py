"""A shared file system: a holder is cut off, its lock is given to another, and it goes on, not knowing.

Every write is with the server at once, and a holder's writes to the state file, which is the locked one, are refused
once it has lost the lock; all its other changes go through, however late. (A client that sends what it has in memory
only later is a holder whose writes come late.) Who changes a log says so in the state first, by a claim; who finds one
that was not taken back goes on in another segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from .disk import Folder, Loaded, Log, Slots, State, StateFile
from .engine import Model, Program, Thing, Violation, Watch
from .one_partition import Script, Tasks, pieces
from .partition import Appender, Piece, Setup, Steps, SyncFailed
from .witness import Seen, Witness, current, look, visible

P = "p"


class Served(NamedTuple):
    """A partition on a server, and who the server thinks holds its lock."""

    file: Slots
    folder: Folder
    holder: int = -1


class Server(Thing):
    """What a server does; it is always there. The log's operations are those of Log."""

    reads = frozenset({"acquire", "release", "load", "bases", "has", "open", "cells"})

    @classmethod
    def do_acquire(cls, value: Served, who: int) -> Any:
        return [(value._replace(holder=who), None)] if value.holder < 0 else []

    @classmethod
    def do_release(cls, value: Served, who: int) -> Any:
        return value._replace(holder=-1 if value.holder == who else value.holder), None

    @classmethod
    def released(cls, value: Served, who: int) -> Any:
        return cls.do_release(value, who)[0]

    @classmethod
    def do_load(cls, value: Served) -> Any:
        return value, StateFile.do_load(value.file)[1]

    @classmethod
    def do_save(cls, value: Served, who: int, state: State, guarded: bool) -> Any:
        """Writes a state; False if the writer has lost its lock (and the server is `guarded`: it minds)."""
        if guarded and value.holder != who:
            return value, False
        return value._replace(file=StateFile.calm(StateFile.do_write(value.file, (0, 1, 2, 3), state)[0])), True

    @classmethod
    def do_by_name(cls, value: Served, who: int, claimed: bool, name: str, *args: Any) -> Any:
        """Makes, removes or renames a file, right behind a claim; False if that was refused."""
        if claimed and value.holder != who:
            return value, False
        if name == "create" and args[0] in value.folder.names:
            return value, False
        folder, result = getattr(Log, "do_" + name)(value.folder, *args)
        return value._replace(folder=Log.calm(folder)), (result,)


def _add(name: str) -> None:
    do = getattr(Log, "do_" + name)

    def done(value: Served, *args: Any) -> Any:
        folder, result = do(value.folder, *args)
        return value._replace(folder=folder if folder is value.folder else Log.calm(folder)), result

    setattr(Server, "do_" + name, staticmethod(done))


for _name in ("bases", "has", "open", "cells", "write", "truncate", "sync_folder"):
    _add(_name)


class Cut(SyncFailed):
    """The lock is lost: a write was refused."""


class Client(Appender):
    """An appender on a shared file system."""

    def __init__(self, who: int, setup: Setup) -> None:
        super().__init__(P, 0, who, setup)
        self.slots = self.log = P
        self.cut_off = False

    def frozen(self) -> Any:
        return super().frozen(), self.cut_off

    # ---- the lock and the state

    def enter(self) -> Steps:
        """Takes the lock; if it finds a claim, it puts right what is there, and goes on in another segment."""
        yield self.slots, "acquire", self.who
        self.loaded = yield self.slots, "load"
        unfinished = self.state.owner or self.state.cutting or self.state.intent
        self.cut_off = bool(unfinished) and self.keeps("who finds a claim goes on in another segment")
        if self.cut_off:
            yield from self.claim()
        if self.state.intent:
            yield from self.resolve()
        yield from self.cut_leftovers()
        if self.cut_off:
            yield from self.roll()
        return True

    def leave(self) -> Steps:
        """Takes the claim back, and lets the lock go."""
        if self.loaded is not None and self.state.owner:
            try:
                yield from self.save(self.state._replace(owner=0), durable=False)
            except Cut:
                pass
        self.loaded, self.cut_off = None, False
        self.forget()
        yield self.slots, "release", self.who

    def give_up(self) -> Steps:
        """After an error: the claim stays."""
        self.loaded, self.cut_off = None, False
        self.forget()
        yield self.slots, "release", self.who

    def save(self, state: State, *, durable: bool) -> Steps:
        """Writes a state. Cut."""
        if self.cut_off:
            state = self.claiming(state)
        guarded = self.keeps("a state written without the lock is refused")
        done = yield self.slots, "save", self.who, state, guarded
        if not done:
            raise Cut
        self.loaded = Loaded(state, durable)
        self.seen = state

    def claiming(self, state: State) -> State:
        """A state that says that the log is about to be changed."""
        return state._replace(owner=1) if self.keeps("a claim comes before the log is changed") else state

    def claim(self) -> Steps:
        """Says so. Cut."""
        yield from self.save(self.claiming(self.state), durable=True)

    def sync_log(self, file: int) -> Steps:
        """The server has it."""
        yield from ()

    # ---- what is done by names

    @property
    def may_cut(self) -> bool:
        """Whether files may be cut or removed: not by who may have lost its lock to one that goes on with them."""
        return self.cut_off

    def cut_leftovers(self) -> Steps:
        """What stands behind the end is of one that was cut off."""
        file = yield from self.segment()
        cells = yield self.log, "cells", file
        if len(cells) < self.state.position:
            raise Violation("I1", f"the active segment has {len(cells)} batches of {self.state.position}")
        if len(cells) > self.state.position or self.state.cutting:
            self.cut_off = True
            yield from self.cut()

    def cut(self) -> Steps:
        """As it is done where nobody else is at work."""
        if self.may_cut:
            yield from super().cut()
        else:
            self.forget()

    def by_name(self, name: str, *args: Any) -> Steps:
        """Makes, removes or renames a file. Cut."""
        claimed = self.keeps("a claim comes right before a change by name")
        done = yield self.log, "by_name", self.who, claimed, name, *args
        if not done:
            raise Cut
        return done[0]

    def drop_newer_segments(self) -> Steps:
        """The same."""
        bases = yield self.log, "bases"
        for number in range(len(bases)):
            if bases[number] > self.state.base and self.may_cut:
                yield from self.by_name("unlink", bases[number])

    def drop(self) -> Steps:
        """What is left of an intent is for who comes next, if the lock may be lost."""
        self.forget()
        if self.may_cut:
            yield from super().drop()

    def renew_empty(self) -> Steps:
        """Nothing is installed here."""
        yield from ()

    def new_segment(self, base: int) -> Steps:
        """Makes an empty segment. Cut, if there is one already that is not to be replaced."""
        if not self.may_cut:
            return (yield from self.by_name("create", base))
        new = ("new", self.who)
        yield from self.by_name("unlink", new)
        file = yield from self.by_name("create", new)
        yield from self.by_name("rename", new, base)
        return file

    # ---- changing the log

    def roll(self) -> Steps:
        """Begins a new segment, in which nobody else can write."""
        yield from self.claim()
        yield from self.drop_newer_segments()
        file = yield from self.new_segment(self.state.next)
        self.cut_off = False
        state = self.state
        yield from self.save(
            state._replace(base=state.next, position=0, synced=0, epoch=state.epoch + 1, suspect=False), durable=True
        )
        self.file, self.file_base = file, self.state.base

    def append(self, whats: Sequence[Any], *, sync: bool, counts: Sequence[int] = ()) -> Steps:
        """Appends; `sync` or not, it is with the server."""
        if self.state.position and self.state.position + len(whats) > self.setup.limit:
            yield from self.roll()
        yield from self.segment()
        yield from self.claim()
        base = yield from super().append(whats, sync=True, counts=counts)
        return base


def client(who: int, setup: Setup, kinds: tuple[str, ...]) -> Steps:
    """Does tasks until none is left, or it finds that it was cut off."""
    access = Client(who, setup)
    while True:
        task = yield "script", "next", kinds
        if task is None:
            return
        kind, number = task
        try:
            if kind == "publish":
                decided = yield "script", "decide", kind
                yield from apply_all(access, len(decided))
            else:
                yield from access.enter()
                whats = (("a", number, who),)
                base = yield from access.append(whats, sync=True)
                yield P + " seen", "acknowledge", base, whats, True
                yield from access.leave()
        except Cut:
            yield from access.give_up()
            return


def apply_all(access: Client, decided: int) -> Steps:
    """Applies what is decided."""
    for decision in range(decided):
        yield from access.enter()
        parts: tuple[Piece, ...] = pieces(decision, "publish")
        if access.state.applied < decision:
            yield from access.apply(decision, parts)
        yield from access.leave()


def last(setup: Setup) -> Steps:
    """One that comes when all others are dead."""
    access = Client(99, setup)
    decided = yield "script", "decided"
    yield from apply_all(access, len(decided))
    for number in range(2):
        yield from access.enter()
        whats = (("a", "last", number),)
        base = yield from access.append(whats, sync=True)
        yield P + " seen", "acknowledge", base, whats, True
        yield from access.leave()


def settled(values: Mapping[str, Any]) -> None:
    """Each decision is there, once."""
    batches = visible(current(values[P].file), values[P].folder)
    there = [batch.what[:3] for batch in batches if batch.what and batch.what[0] == "d"]
    wanted = [("d", decision, number) for decision in range(len(values["script"].decided)) for number in range(2)]
    if there != wanted:
        raise Violation("I3", f"decided were {wanted}, applied are {there}")


def cut_off(values: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """The holder's lock is given to another, as often as may be."""
    if values["losses"] and values[P].holder >= 0:
        yield {P: values[P]._replace(holder=-1), "losses": values["losses"] - 1}


def look_at(seen: Seen, value: Served) -> Seen:
    """The observer of a partition."""
    return look(seen, value.file, value.folder)


def model(
    clients: int = 2, tasks: int = 3, kinds: tuple[str, ...] = ("append", "publish"), losses: int = 1, kills: int = 0,
    setup: Setup = Setup(limit=2), reduce: bool = True, by_history: bool = False,  # noqa: B008
) -> Model:  # fmt: skip
    """Clients that do tasks, of which some are cut off."""
    lives: dict[str, Sequence[Program | None]] = {
        f"client {who}": [partial(client, who, setup, kinds)] for who in range(clients)
    }
    return Model(
        things={
            P: (Server, Served(StateFile.new(), Log.new())),
            P + " seen": (Witness, Seen()),
            "script": (Script, Tasks(tasks)),
            "losses": (Thing, losses),
        },
        lives=lives, kills=kills, watches=[Watch(P + " seen", (P,), look_at)],
        steps=[("a host is cut off", cut_off)], alone=partial(last, setup), settled=settled,
        reduce=reduce, by_history=by_history,
    )  # fmt: skip
