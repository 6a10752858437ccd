"""The removal of a log dir is stopped before each of its changes to files, or one of them fails, or the power fails.

The folder is on the list, or it is not; the partitions that are elsewhere are whole; and it can be done again, or the
folder can be given to the store again.
"""

import contextlib
import errno
import json
import os
from pathlib import Path

import pytest
from attacks import Attacked
from power import Trace
from sampling import SAMPLED, sample

from pyspark_log.errors import InvalidConfigError
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.store import Store
from tests.stops import StopBefore, copy_folder, count_changes, run_until
from tests.store_tools import Stopped, faults, observed, rows, values

pytestmark = [pytest.mark.usefixtures("little_sizes"), *SAMPLED]


def listed(path):
    content = json.loads(Path(path, "store.json").read_bytes())
    listed = {int(number): one["path"] for number, one in content["log_dirs"].items()}
    return [listed.get(number) for number in range(content["next_log_dir"])]


def make(path):
    """A folder from which both partitions have gone, with the checkpoints that Kafka is given."""
    Store.create(path, {"log.dirs": "data,second"})
    with Store.open(path) as store:
        store.create_topic("t", 2, {"file.delete.delay.ms": "0"})
        for partition in (0, 1):
            store.append("t", rows(b"first"), partition=partition, sync=True)
            store.move_partition("t", partition, "second")
    with Store.open(path) as store:
        store.append("t", rows(b"second"), sync=True, partition=0)
        for partition in (0, 1):
            store.move_partition("t", partition, "data")
        store.clean()


def remove(path):
    Store.open(path).remove_log_dir("second")


def check(path, removed):
    """All is there, whether it was removed or not; it is removed then, and added again."""
    assert listed(path) == ["data", None if removed else "second"]
    assert values(Store.open(path), 0) == [b"first", b"second"]
    assert faults(path) == []
    if not removed:
        remove(path)
    store = Store.open(path)
    store.create_topic("u", 3)
    for partition in range(3):
        store.append("u", rows(b"x"), partition=partition)
        assert os.path.dirname(store.logs.place("u", partition).folder) == f"{path}/data"
    with contextlib.suppress(FileNotFoundError):
        # What a removal that was stopped has left there.
        for name in [name for name in os.listdir(f"{path}/second") if name.endswith("-checkpoint")]:
            os.unlink(f"{path}/second/{name}")
    store.add_log_dir("second")
    assert listed(path) == ["data", None, "second"]
    store.move_partition("t", 0, "second")
    store.append("t", rows(b"third"), partition=0)
    store.clean()
    assert (values(Store.open(path), 0), values(Store.open(path), 1)) == ([b"first", b"second", b"third"], [b"first"])
    assert faults(path) == []


class TestRemoval(Attacked):
    most_losses, least = 10, 5
    parts = 0

    def make(self, path):
        make(path)

    def run(self, path):
        remove(path)

    def check_whole(self, path):
        assert not (path / "second").exists()

    def check(self, path):
        """Whether it was removed."""
        removed = listed(path)[1] is None
        check(path, removed)
        return removed

    def check_stops(self, found):
        assert {*found} == {False, True}


def test_a_change_of_a_removal_that_fails(memory_path):
    make(memory_path / "store")
    copy_folder(memory_path / "store", memory_path / "whole")
    for change in sample(range(count_changes(lambda: remove(memory_path / "whole"))), 10):
        path = memory_path / str(change)
        copy_folder(memory_path / "store", path)
        left = [change]

        def fail(_, left=left):
            left[0] -= 1
            if left[0] == -1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with observed(fail), contextlib.suppress(OSError):
            remove(path)
        check(path, listed(path)[1] is None)


def test_a_move_out_of_it_that_was_not_synced_is_before_the_removal(memory_path, monkeypatch):
    """The move was killed between the write of the state and its sync, and then the folder failed."""
    path = memory_path / "store"
    make(path)
    Store.open(path).move_partition("t", 1, "second")
    Store.open(path).clean()
    state = Store.open(path).logs.place("t", 1).state_path
    trace, killed = Trace(path), []

    def until_the_sync_of_the_move(change):
        trace.changes.append(change)
        if change.kind == "sync" and change.path == state and state_file.read(state).state.log_dir == 0:
            killed.append(trace.changes.pop())
        if killed:
            raise Stopped

    assert run_until(lambda: Store.open(path).move_partition("t", 1, "data"), until_the_sync_of_the_move)
    os.rename(path / "second", memory_path / "away")
    trace.record(lambda: remove(path))
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    ((_, disk),) = trace.disks([len(trace.changes)])
    disk.write(memory_path / "later", disk.nothing())
    assert listed(memory_path / "later") == ["data", None]
    assert values(Store.open(memory_path / "later"), 1) == [b"first"]


def test_a_folder_cannot_go_while_a_stopped_move_has_its_partition_in_it(memory_path):
    make(memory_path / "store")
    count = count_changes(lambda: Store.open(memory_path / "store").move_partition("t", 0, "second"))
    make(memory_path / "again")
    outcomes = set()
    for change in sample(range(count), 14, ends=1):
        path = memory_path / str(change)
        copy_folder(memory_path / "again", path)
        assert run_until(lambda path=path: Store.open(path).move_partition("t", 0, "second"), StopBefore(change))
        inside = state_file.read(Store.open(path).logs.place("t", 0).state_path).state.log_dir == 1
        outcomes.add(inside)
        if inside:
            with pytest.raises(InvalidConfigError, match="holds 1 partition: t-0"):
                remove(path)
            Store.open(path).move_partition("t", 0, "data")
        Store.open(path).clean()
        check(path, removed=False)
    assert outcomes == {False, True}
