"""The processes of each situation, and what they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..checker.machine import Model, Program, Thing
from ..protocol.setup import PLAIN, Setup
from . import clients, keeping, publishing, reading
from .entries import Entry
from .objects import Clock, Held, Objects, arrivals
from .process import LAST, Process
from .truth import Facts, Truth, state_after, watch


def empty(failing: int = 0) -> dict[str, tuple[type[Thing], Any]]:
    """A store with nothing in it."""
    kinds = ("data", "checkpoint", "floor", "unused", "end")
    found: dict[str, tuple[type[Thing], Any]] = {kind: (Objects, Held()) for kind in kinds}
    return found | {"log": (Objects, Held(failing=failing)), "clock": (Clock, 0), "truth": (Truth, Facts())}


def model(
    lives: Mapping[str, Program], setup: Setup, days: int = 0, failing: int = 0, kills: int = 0, **how: Any
) -> Model:
    """A model of processes, each of which is killed for good, if at all."""

    def tomorrow(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        return [{"clock": values["clock"] + 1}] if values["clock"] < days else []

    return Model(
        things=empty(failing) | how.pop("things", {}),
        lives={name: [program, None] for name, program in lives.items()},
        kills=kills,
        watches=[watch()],
        alone=lambda: reading.last(Process("last", setup)),
        settled=reading.settled,
        steps=[("a day passes", tomorrow), ("a late request is served", arrivals)],
        **how,
    )


def publishers(
    runs: str = "aab", numbers: Sequence[int] = (0,), appends: int = 0, staged: bool = False, moves: bool = False,
    revokes: bool = False, failing: int = 0, kills: int = 0, setup: Setup = PLAIN,
) -> Model:  # fmt: skip
    """Runs of publishers (a letter for each), and processes that append, all at the same time; see publishing."""
    lives: dict[str, Program] = {}

    def add(name: str, program: Any, *args: Any) -> None:
        lives[name] = lambda: program(Process(name, setup), *args)

    for run in range(len(runs)):
        add(f"{runs[run]} run {run}", publishing.publisher, runs[run], run, numbers, staged, moves, revokes)
    for number in range(appends):
        add(f"append {number}", publishing.appender, f"x{number}", staged)
    return model(lives, setup, failing=failing, kills=kills)


def served(
    producers: int = 0, batches: int = 1, servers: str = "", renews: int = 0, commits: int = 1, instances: str = "",
    failing: int = 0, kills: int = 0, setup: Setup = PLAIN,
) -> Model:  # fmt: skip
    """What servers do for Kafka's clients, all at the same time; see clients.

    Args:
        producers: how many servers have the batches of a producer, as they were sent to each.
        batches: how many those are.
        servers: a letter for each that coordinates, in place of the one before: "c", or "l" for one that leaves then.
        renews: how many times the first of them says that it is there.
        commits: how many a consumer makes at each.
        instances: of one transactional producer, a letter for each.
        failing, kills, setup: as in Model.
    """
    lives: dict[str, Program] = {}

    def add(name: str, program: Any, *args: Any) -> None:
        lives[name] = lambda: program(Process(name, setup), *args)

    for number in range(producers):
        add(f"server {number} of a producer", clients.producer, "p", batches)
    for number in range(len(servers)):
        add(f"coordinator {number}", clients.coordinator, number + 1, number, commits, servers[number] == "l")
    for number in range(renews):
        add(f"renewer {number}", clients.renewer, 1)
    for name in instances:
        add(f"instance {name}", clients.transaction, "t", name)
    return model(lives, setup, failing=failing, kills=kills)


#: A cleaner that lists what nothing needs, and deletes it on another day.
CLEANER = (("floor", "list"), ("delete",))


def kept(
    begun: Sequence[str] = ("staged",), appends: int = 0, staged: bool = False, readers: int = 0, tasks: int = 0,
    runs: int = 0, mergers: int = 0, delete: int = 0, cleaners: Sequence[Sequence[Sequence[str]]] = (CLEANER,),
    asleep: bool = True, days: int = 1, failing: int = 0, kills: int = 0, setup: Setup = PLAIN,
) -> Model:  # fmt: skip
    """Processes at work beside those that keep the store small.

    Args:
        begun: what was decided before: publishes of one record each, "staged" or "inline"; that all records were
            "deleted"; a "floor", whose cleaner was killed right after; something else, "empty".
        appends: processes that append a record; `staged`: in an object.
        readers: processes that follow and read.
        tasks: processes that read the first record, which they know.
        runs: of a publisher, which publish its first number.
        mergers: processes that merge two pieces.
        delete: up to which offset a process deletes records; 0: there is none.
        cleaners: their passes, see keeping.
        asleep: those that publish and read know the empty store of the first day, and nothing newer.
        days: how many may pass.
        failing, kills, setup: as in Model.
    """
    things = _begun(begun, failing)
    lives: dict[str, Program] = {}
    know: dict[str, Any] = {"newest": 0} if asleep else {}

    def add(name: str, program: Any, *args: Any, **known: Any) -> None:
        lives[name] = lambda: program(Process(name, setup, **known), *args)

    for number in range(appends):
        add(f"append {number}", publishing.appender, f"x{number}", staged, **know)
    for number in range(readers):
        add(f"reader {number}", reading.reader, **know)
    first = state_after(things["truth"][1].entries[:1])
    for number in range(tasks):
        add(f"task {number}", reading.reader, False, state=first, newest=0)
    for run in range(runs):
        add(f"run {run}", publishing.publisher, "a", run, (0,), staged, **know)
    for number in range(mergers):
        add(f"merger {number}", keeping.merger)
    if delete:
        add("deleter", keeping.deleter, delete)
    for number in range(len(cleaners)):
        add(f"cleaner {number}", keeping.cleaner, cleaners[number])
    return model(lives, setup, days=days, kills=kills, things=things)


def _begun(kinds: Sequence[str], failing: int) -> dict[str, tuple[type[Thing], Any]]:
    """The things of a store in which this was decided."""
    entries: list[Entry] = []
    records: list[str] = []
    data, checkpoints = Held(), Held()
    for number in range(len(kinds)):
        kind, record, entry = kinds[number], f"s{number}", Entry(number, number)
        if kind == "staged":
            data = data.having((0, record), (record,))
            entry = entry._replace(adds=(("data", (0, record)), 1), base=len(records))
            records.append(record)
        elif kind == "inline":
            entry = entry._replace(adds=(("log", number), 1), base=len(records), records=(record,))
            records.append(record)
        elif kind == "deleted":
            entry = entry._replace(start=len(records))
        elif kind == "floor":
            entry = entry._replace(floor=number - 1)
            checkpoints = checkpoints.having(number - 1, state_after(tuple(entries))).having(LAST, number - 1)
        entries.append(entry)
    return {
        "log": (Objects, Held(tuple((entry.number, entry) for entry in entries), failing=failing)),
        "data": (Objects, data),
        "checkpoint": (Objects, checkpoints),
        "truth": (Truth, Facts(tuple(entries), tuple(records))),
    }
