"""The model makes the changes to files that the code makes, in the same order, also after a kill at any of them.

Each task is done by the engine and by the model's program. What both change in one partition is compared: writes and
syncs of the log and the state file, and names of segments. What the model does not have is not compared: the indexes,
the file of inactive segments, and the bytes.
"""

import ast
import itertools
import os
import re
from pathlib import Path

import pytest

from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.store import Store
from tests.paths import ROOT
from tests.scratch import memory_folder
from tests.store_tools import Stopped, publish, rows, stage

from .protocol.apply import Piece
from .protocol.setup import Setup
from .protocol.writer import LogWriter
from .situations.one_partition import held
from .world.locks import Locks
from .world.log import Log
from .world.state_file import StateFile

# Two of these fill a segment.
VALUE = b"x" * 60
CONFIGS = {"segment.bytes": "300"}
SETUP = Setup(segment_size=2, ahead=1000, handles=True)


class Code:
    """The engine: one process after the other does tasks with a topic of one partition."""

    def __init__(self, folder):
        self._path = folder
        Store.create(self._path).create_topic("t", 1, CONFIGS)
        self._published = 0
        self.begin()

    def begin(self):
        """Another process continues."""
        self._store = Store.open(self._path)

    def do(self, task, stop=None):
        """The changes that a task makes; before the change of number `stop` the process is killed."""
        made, made_last = [], []

        def before(change):
            # A small file that is replaced has its own sync of the folder.
            aside = made_last and made_last[-1].kind == "rename" and not made_last[-1].target.endswith(".log")
            label = "" if aside and change.kind == "sync_folder" else self._label(change)
            made_last.append(change)
            if label and len(made) == stop:
                raise Stopped
            made.extend([label] if label else [])

        files.set_observer(before)
        try:
            getattr(self, "_" + task.replace(" ", "_"))()
        except Stopped:
            pass
        finally:
            files.set_observer(None)
        return made

    def _label(self, change):
        folder, name = os.path.split(change.path)
        if change.path == self._state:
            pair = "state" if change.position < 2 * state_file.SLOT_DISTANCE else "synced pair"
            return f"write {pair}" if change.kind == "write" else f"{change.kind} state"
        if not folder.endswith("/t-0") and not change.path.endswith("/t-0"):
            return ""
        if change.kind == "sync_folder":
            return "sync folder" if name == "t-0" else ""
        if name.endswith(".log"):
            return f"{change.kind} log"
        if change.target.endswith(".log"):
            return "replace log"
        return ""

    @property
    def _state(self):
        return self._store.logs.topic("t").state_path(0)

    def _append(self):
        self._store.append("t", rows(VALUE))

    def _append_synced(self):
        self._store.append("t", rows(VALUE), sync=True)

    def _flush(self):
        with self._store.logs.writer("t", 0).hold() as writer:
            writer.log.flush()

    def _publish(self):
        parts = [*stage(self._store, rows(VALUE)), *stage(self._store, rows(VALUE))]
        publish(self._store.decisions, "q", self._published, parts)
        self._published += 1

    def _delete_records(self):
        self._store.delete_records("t", 0, self._store.latest_offset("t", 0))


class Twin:
    """The model's program for the same."""

    def __init__(self):
        self._kinds = {"p state": StateFile, "p log": Log, "locks": Locks}
        self._values = {"p state": StateFile.new(), "p log": Log.new()._replace(synced=(), files=()), "locks": (-1,)}
        self._tasks = self._published = 0
        self.begin()

    def begin(self):
        self._writer = LogWriter("p", 0, 0, SETUP)
        self._values["locks"] = (-1,)

    def restart(self):
        slots = StateFile.calm(self._values["p state"])
        booted = [one._replace(synced=one.synced and one.synced._replace(booted=False)) for one in slots.slots]
        self._values["p state"] = slots._replace(slots=tuple(booted))
        self._values["p log"] = Log.calm(self._values["p log"])
        self.begin()

    def do(self, task, stop=None):
        made, result = [], None
        program = held(self._writer, getattr(self, "_" + task.replace(" ", "_")))
        try:
            while True:
                thing, name, *args = program.send(result)
                label = _label_of(thing, name, args)
                if label and len(made) == stop:
                    break
                made.extend([label] if label else [])
                found = getattr(self._kinds[thing], "do_" + name)(self._values[thing], *args)
                self._values[thing], result = found[0] if isinstance(found, list) else found
        except StopIteration:
            pass
        return made

    def _append(self, *, sync=False):
        self._tasks += 1
        yield from self._writer.append((("a", self._tasks, 0),), sync=sync)

    def _append_synced(self):
        yield from self._append(sync=True)

    def _flush(self):
        yield from self._writer.flush()

    def _publish(self):
        number, self._published = self._published, self._published + 1
        yield from self._writer.apply(number, tuple(Piece((("d", number, part, 2),)) for part in range(2)))

    def _delete_records(self):
        yield from self._writer.delete_before(self._writer.state.next)


def _label_of(thing, name, args):
    """What of the model's operations changes files; the names of that of the engine."""
    if thing == "p state":
        if name == "write":
            return "write synced pair" if args[0] == (2, 3) else "write state"
        return {"rewrite": "write synced pair", "sync": "sync state"}.get(name, "")
    if thing != "p log" or name in Log.reads or name == "sync_folder":
        return "sync folder" if name == "sync_folder" else ""
    if name == "rename" and isinstance(args[0], tuple):
        return "replace log"
    return "" if isinstance(args[0], tuple) else f"{name} log"


TASKS = ("append", "append synced", "flush", "publish", "delete records")


@pytest.fixture
def new():
    """Makes both, after some appends."""
    with memory_folder() as folder:
        numbers = itertools.count()

        def make(appends):
            code, twin = Code(folder / f"{next(numbers)}"), Twin()
            for _ in range(appends):
                assert code.do("append") == twin.do("append")
            return code, twin

        yield make


@pytest.mark.parametrize("appends", range(4))
@pytest.mark.parametrize("task", TASKS)
def test_a_task_changes_the_same(new, task, appends):
    code, twin = new(appends)
    assert code.do(task) == twin.do(task)
    code.begin()
    twin.begin()
    assert code.do(task) == twin.do(task), "by another process"


# Of "delete records" the code finishes in the next roll what a killed process has begun, as retention does; the model
# has no retention.
@pytest.mark.parametrize("restarts", [False, True], ids=["kill", "restart"])
@pytest.mark.parametrize("appends", range(4))
@pytest.mark.parametrize("task", ["append", "append synced", "flush", "publish"])
def test_after_a_kill_before_any_change_the_next_process_changes_the_same(new, monkeypatch, task, appends, restarts):
    for stop in range(len(new(appends)[0].do(task)) + 1):
        code, twin = new(appends)
        made = code.do(task, stop)
        assert twin.do(task, stop) == made
        if restarts:
            monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
            twin.restart()
        code.begin()
        twin.begin()
        found = code.do("append")
        if restarts and not appends and "create log" not in made and found[2] == "sync folder":
            del found[2]  # The code syncs the folder once more, in which there is no segment yet.
        assert joined(found) == joined(twin.do("append")), f"after {made}"
        monkeypatch.undo()


def joined(made):
    """What is written again is one write in the code, and one for each batch in the model."""
    return [one for number, one in enumerate(made) if made[max(0, number - 1) : number + 1] != ["write log"] * 2]


MODULES = [path for path in Path(__file__).parent.rglob("*.py") if "\nModels " in path.read_text()]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_module_of_the_model_names_modules_and_functions_of_the_code(module):
    doc = ast.get_docstring(ast.parse(module.read_text()))
    said = " ".join(doc[doc.index("Models ") :].partition(". ")[0].partition("docs/")[0].split())
    folder, named = None, {}
    for path in re.findall(r"[\w/]+\.py", said):
        folder = (ROOT / path).parent if "/" in path else folder
        named[path] = (ROOT / path if "/" in path else folder / path).read_text()
    assert named
    for function, path in re.findall(r"(\w+) of ([\w/]+\.py)", said):
        assert re.search(rf"^(def|class) {function}\b", named[path], re.MULTILINE), (function, path)
