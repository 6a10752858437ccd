"""A writer on a shared file system stops before each of its changes to files and loses its locks; other writers
continue.

It plays a host that is cut off until NFS gives its locks to others. There are no two hosts here: the writer is a
process whose locks are none, and whose writes to state files are refused once it was stopped, as an NFS 4 client
refuses writes to a file whose lock it has lost. All its other changes go through. Whatever it does then, what the
others wrote stays, once and in order.
"""

import errno
import itertools
import os
import shutil
import signal
import tempfile
import traceback
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_log.errors import PylogError
from pyspark_log.storage.catalog import log_dirs
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.locking import locks
from pyspark_log.storage.log import lease
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.publish import applier
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.segment.file_names import SEGMENT_SUFFIXES, segment_path
from pyspark_log.storage.store import Store
from tests.stops import StopBefore, count_changes, run_until
from tests.store_tools import in_partitions, publish, stage

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

TOPIC = "t"
# A segment takes five of the appends that follow.
APPENDED = 3
# How many appends come last; they overwrite whatever the writer that was cut off may have left above the end.
AFTER = 6
ACKNOWLEDGED, FAILED = 0, 3


@pytest.fixture(autouse=True)
def shared_file_system(monkeypatch):
    monkeypatch.setattr(lease, "is_shared", lambda folder: True)
    # Each writer writes Kafka's checkpoints, at whatever time.
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)
    # Each writer writes Kafka's checkpoints, at whatever time.
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)


def rows(name):
    return pa.record_batch({"value": [f"{name} {number}" for number in range(APPENDED)]})


def append(path, name):
    Store.open(path).append(TOPIC, rows(name), partition=0)


def publish_rows(path, name, partitions=(0, 1)):
    store = Store.open(path)
    publish(store.decisions, name, 0, stage(store, in_partitions(rows(name), partitions), TOPIC))


def make_store(path, appends):
    store = Store.create(path)
    store.create_topic(TOPIC, 2, {"segment.bytes": "500"})
    for number in range(appends):
        append(path, f"before {number}")
    return path


SITUATIONS = {
    "append to an empty partition": (0, append),
    "append": (2, append),
    "append that rolls": (4, append),
    "publish": (2, publish_rows),
    "publish that rolls": (4, publish_rows),
}


def values(path, partition):
    store = Store.open(path)
    found = []
    for batch in store.read(TOPIC, partition, 0):
        assert batch["offset"].to_pylist() == list(range(len(found), len(found) + len(batch)))
        found += [value.decode() for value in batch["value"].to_pylist()]
    assert len(found) == store.latest_offset(TOPIC, partition)
    return found


class StandStill:
    """Stops the process before a change to files; from then on the locks are lost."""

    def __init__(self, changes, kind=""):
        self.moment = changes
        self.kind = kind  # which changes count; all if it is empty
        self.changes = itertools.count()  # also with several threads
        self.lost = False

    def __call__(self, change):
        if self.kind in ("", change.kind) and next(self.changes) == self.moment:
            self.lost = True
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.lost and os.path.dirname(change.path).endswith("/state") and change.kind in ("write", "sync"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), change.path)


def start(program, path, still, at=files.set_observer):
    """The writer, in a process that stops before a change, or at something else that `at` observes; its id."""
    pid = os.fork()
    if pid == 0:
        code = FAILED
        try:
            locks.fcntl.flock = lambda fd, operation: None
            # Another thread could be between its check and its write to a state file, which a server would refuse.
            applier._APPLY_THREADS = 1
            files.set_observer(still)
            at(still)
            program(path, "cut off")
            code = ACKNOWLEDGED
        except (PylogError, OSError):
            pass
        except BaseException:  # noqa: BLE001  (whatever it is, this process must end here)
            traceback.print_exc()
            code = 1
        finally:
            os._exit(code)
    return pid


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("other", [append, publish_rows], ids=["append", "publish"])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_writer_that_lost_its_locks_harms_no_other(situation, other, tmp_path):
    appends, program = SITUATIONS[situation]
    template = make_store(tmp_path / "template", appends)
    trial = shutil.copytree(template, tmp_path / "trial")
    changes = count_changes(lambda: program(trial, "cut off"))
    shutil.rmtree(trial)
    outcomes = set()
    for stop in range(changes):
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            path = shutil.copytree(template, Path(folder) / "store")
            pid = start(program, path, StandStill(stop))
            assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
            other(path, "other")
            os.kill(pid, signal.SIGCONT)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert code in (ACKNOWLEDGED, FAILED)
            for number in range(AFTER):
                append(path, f"after {number}")
            help_apply(Store.open(path).decisions)
            outcomes.add(code)
            check(path, appends, program, other, code, stop)
    assert FAILED in outcomes


@pytest.mark.parametrize("above", [1, 4, APPENDED * 2])
def test_a_segment_made_without_the_lock_is_deleted(above, tmp_path):
    """Its writer was stopped after its claim and before it made the segment, until others had appended below it."""
    path = make_store(tmp_path / "store", 2)
    base = Store.open(path).latest_offset(TOPIC, 0) + above
    for suffix in SEGMENT_SUFFIXES[:3]:
        Path(segment_path(f"{path}/data/{TOPIC}-0", base, suffix)).touch()
    for number in range(AFTER):
        append(path, f"after {number}")
    wanted = ["before 0", "before 1", *(f"after {number}" for number in range(AFTER))]
    assert [value.rpartition(" ")[0] for value in values(path, 0)][::APPENDED] == wanted
    assert not verify(path).damaged


def tell_openings(still):
    """Stops the writer before it opens a log."""
    opens = files.open_write

    def open_write(path):
        if path.endswith(".log"):
            still(files.Change("open", path))
        return opens(path)

    files.open_write = open_write


def store_with_intent(folder):
    """A store in which a publish was killed when it had written its intent."""
    template = make_store(folder / "template", 0)
    for changes in itertools.count():
        path = shutil.copytree(template, folder / f"killed {changes}")
        assert run_until(lambda path=path: publish_rows(path, "killed", [0]), StopBefore(changes))
        loaded = state_file.read(Store.open(path).logs.reader(TOPIC, 0).place.state_path)
        if loaded is not None and loaded.state.intent:
            return path


@pytest.mark.parametrize("opening", range(2))
def test_a_recovery_of_a_killed_publish_that_loses_its_locks_harms_no_other(opening, tmp_path):
    """It is stopped before it opens the log, and others continue in a file of the same name meanwhile."""
    path = store_with_intent(tmp_path)
    pid = start(append, path, StandStill(opening, "open"), tell_openings)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    append(path, "other")
    os.kill(pid, signal.SIGCONT)
    os.waitpid(pid, 0)
    append(path, "after")
    help_apply(Store.open(path).decisions)
    names = [value.rpartition(" ")[0] for value in values(path, 0)]
    assert names[::APPENDED] == ["other", "after", "killed"]
    assert not verify(path).damaged


def check(path, appends, program, other, code, stop):
    for partition in (0, 1):
        found = values(path, partition)
        names = [value.rpartition(" ")[0] for value in found]
        groups = names[::APPENDED]
        assert names == [name for name in groups for _ in range(APPENDED)], (stop, "not whole", found)
        wanted = [f"before {number}" for number in range(appends)] if partition == 0 else []
        wanted += ["other"] if partition == 0 or other is publish_rows else []
        wanted += [f"after {number}" for number in range(AFTER)] if partition == 0 else []
        cut_off = [name for name in groups if name == "cut off"]
        assert [name for name in groups if name != "cut off"] == wanted, (stop, groups)
        if code == ACKNOWLEDGED:
            assert len(cut_off) == (1 if partition == 0 or program is publish_rows else 0), (stop, groups)
        assert len(cut_off) <= 1, (stop, groups)
    assert not verify(path).damaged, (stop, [str(finding) for finding in verify(path).findings])
