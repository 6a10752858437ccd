"""One partition: synced and unsynced appends, rolls, publishes, with kills and power losses at every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..checker.machine import InvariantError, Model, Program, Steps, Thing
from ..observers.partition import Seen, Witness, current, visible, watch
from ..protocol.apply import Piece
from ..protocol.held_log import SyncError
from ..protocol.setup import PLAIN, Setup
from ..protocol.writer import LogWriter
from ..world.locks import Locks
from ..world.log import Log
from ..world.state_file import StateFile, TornStateFile, is_damaged

P = "p"


class Tasks(NamedTuple):
    """What writers may still do.

    Attributes:
        left, begun: how many tasks.
        decided: the kinds of what is decided, whichever process applies it.
        staging: a publish is under way that is not decided; there is one at a time.
        failed: the power has gone.
    """

    left: int
    begun: int = 0
    decided: tuple[str, ...] = ()
    staging: bool = False
    failed: bool = False


class Script(Thing):
    """Gives any task of `kinds`, as often as is left."""

    reads = frozenset({"decided"})
    syncs = frozenset({"next", "decide"})

    @classmethod
    def do_next(cls, tasks: Tasks, kinds: tuple[str, ...]) -> Any:
        if not tasks.left:
            return tasks, None
        rest = tasks._replace(left=tasks.left - 1, begun=tasks.begun + 1)
        found = []
        for kind in kinds:
            if not kind.startswith("publish"):
                found.append((rest, (kind, tasks.begun)))
            elif not tasks.staging:
                found.append((rest._replace(staging=True), (kind, len(tasks.decided))))
        return found or (tasks._replace(left=0), None)

    @classmethod
    def do_decide(cls, tasks: Tasks, kind: str) -> Any:
        decided = (*tasks.decided, kind)
        return tasks._replace(decided=decided, staging=False), decided

    @classmethod
    def do_decided(cls, tasks: Tasks) -> Any:
        return tasks, tasks.decided

    @classmethod
    def crash(cls, tasks: Tasks) -> Any:
        return (tasks._replace(failed=True, staging=False),)


def pieces(decision: int, kind: str) -> tuple[Piece, ...]:
    """What a decision gives to the partition: the output of two tasks.

    Of two that are installed each has a file of two batches; one of these may be copied.
    """
    if kind in ("publish", "publish unsynced"):
        word = "d" if kind == "publish" else "u"
        return tuple(Piece(((word, decision, number, 2),)) for number in range(2))
    whats = tuple(("d", decision, number, 3) for number in range(3))
    first = Piece(whats[:2], ("staged", decision, 0))
    return (first, Piece(whats[2:], ("staged", decision, 1) if kind == "publish two files" else None))


def apply_all(writer: LogWriter, decided: tuple[str, ...]) -> Steps:
    """Applies what is decided, in order, each under a hold of its own."""
    for decision in range(len(decided)):
        parts = pieces(decision, decided[decision])
        if not (yield from held(writer, applied, writer, decision, parts, decided[decision])):
            return
        for number in range(2):
            if parts[number].file:
                yield P + " log", "unlink", parts[number].file


def applied(writer: LogWriter, decision: int, parts: tuple[Piece, ...], kind: str) -> Steps:
    """Applies one decision."""
    if writer.state.applied < decision:
        for number in range(2):
            if parts[number].file:
                there = yield P + " log", "has", parts[number].file
                if not there:
                    raise InvariantError("I9", f"{parts[number].file} is gone, and decision {decision} is not applied")
    yield from writer.apply(decision, parts, sync=kind != "publish unsynced")
    return True


def held(writer: LogWriter, task: Callable[..., Steps], *args: Any) -> Steps:
    """Does something under the partition's lock; gives None if it was given up for a sync that failed."""
    found = None
    try:
        yield from writer.enter()
        found = yield from task(*args)
    except SyncError:
        pass
    yield from writer.leave()
    return found


def worker(process: int, setup: Setup, kinds: tuple[str, ...], again: bool) -> Steps:
    """Does tasks until none is left; `again`: after a restart, with a read of the partition first."""
    writer = LogWriter(P, 0, process, setup)
    if again:
        yield from held(writer, nothing)
    while True:
        task = yield "script", "next", kinds
        if task is None:
            return
        yield from do(writer, *task)


def do(writer: LogWriter, kind: str, number: int) -> Steps:
    """One task."""
    if kind.startswith("publish"):
        parts = pieces(number, kind)
        for part in range(2):
            if parts[part].file:
                yield P + " log", "stage", parts[part].file, parts[part].whats
        decided = yield "script", "decide", kind
        yield from apply_all(writer, decided)
        return
    if kind == "flush":
        yield from held(writer, writer.flush)
        return
    if kind == "delete records":
        yield from held(writer, delete_all, writer)
        return
    if kind == "truncate":
        yield from held(writer, take_back, writer)
        return
    whats = tuple(("a", number, one) for one in range(2 if kind == "append two" else 1))
    yield from held(writer, append, writer, whats, kind == "append synced")


def append(writer: LogWriter, whats: tuple[Any, ...], sync: bool) -> Steps:
    """Appends, and acknowledges it."""
    base = yield from writer.append(whats, sync=sync)
    yield P + " seen", "acknowledge", base, whats, sync


def delete_all(writer: LogWriter) -> Steps:
    """Deletes all records."""
    end = writer.state.next
    yield from writer.delete_before(end)
    yield P + " seen", "deleted", end


def take_back(writer: LogWriter) -> Steps:
    """Takes back the last batch, as a replica does that has to follow another log."""
    batches = yield P + " log", "readable", writer.state
    if batches and batches[-1].base >= writer.state.start:
        whats = tuple(what for what in (batches[-1].what,) if what)
        yield P + " seen", "take_back", batches[-1].base, whats
        yield from writer.truncate(batches[-1].base)
        yield P + " seen", "taken_back", whats


def nothing() -> Steps:
    """Only what entering does."""
    yield from ()


def flip(process: int) -> Steps:
    """A bit of the slot that counts is damaged at any time between two holds: in one, a writer knows the state."""
    yield "locks", "acquire", 0, process
    yield P + " state", "flip"
    yield "locks", "release", 0, process


def last(setup: Setup) -> Steps:
    """A process that starts when all others are dead: it finishes what was decided, and appends."""
    writer = LogWriter(P, 0, 99, setup)
    decided = yield "script", "decided"
    yield from apply_all(writer, decided)
    yield from held(writer, append, writer, (("a", "last", 0),), False)


def settled(values: Mapping[str, Any]) -> None:
    """Each decision is there, once; or was, until its records were deleted or taken back."""
    state, seen = current(values[P + " state"]), values[P + " seen"]
    if is_damaged(values[P + " state"]):
        return
    batches = visible(state, values[P + " log"])
    shown = [what for offset, what in seen.used if offset < state.start]
    shown += [batch.what for batch in batches if batch.what and batch.base >= state.start]
    back = seen.taken.union(seen.taking or ())
    # What is published without syncs can be lost with the power.
    words = "d" if values["script"].failed else "du"
    there = [what[:3] for what in shown if what[0] in words and what not in back]
    wanted = [
        what[:3]
        for decision, kind in enumerate(values["script"].decided)
        for piece in pieces(decision, kind)
        for what in piece.whats
        if what not in back and what[0] in words
    ]
    if there != wanted:
        raise InvariantError("I3", f"decided were {wanted}, applied are {there}")


def model(
    tasks: int = 3, kinds: tuple[str, ...] = ("append", "append two", "append synced", "publish"), writers: int = 1,
    kills: int = 1, powers: int = 1, failing: tuple[int, int] = (0, 0), torn: bool = False, flips: bool = False,
    setup: Setup = PLAIN,
) -> Model:  # fmt: skip
    """Writers that do `tasks` of `kinds` in any order; `flips`: and a bit of the state file is damaged at some time."""
    lives: dict[str, Sequence[Program | None]] = {
        f"writer {process}": tuple(partial(worker, process, setup, kinds, again) for again in (False, True))
        for process in range(writers)
    }
    if flips:
        lives["damage"] = (partial(flip, writers), None)
    return Model(
        things={
            P + " state": (TornStateFile if torn else StateFile, StateFile.new(failing=failing[0])),
            P + " log": (Log, Log.new(failing=failing[1])),
            P + " seen": (Witness, Seen()),
            "locks": (Locks, (-1,)),
            "script": (Script, Tasks(tasks)),
        },
        lives=lives,
        kills=kills,
        powers=powers,
        watches=(watch(P, flips=flips),),
        private={P + " log": ("locks", 0), P + " state": ("locks", 0)},
        alone=partial(last, setup),
        settled=settled,
    )
