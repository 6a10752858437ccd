"""A partition's move is stopped before each of its changes to files, or the power fails there, or one of them fails.

Whatever happens the partition is whole, in one of the two log dirs; it can be written to, moved, and deleted; and
what the move has left is deleted.
"""

import contextlib
import os

import pytest
from attacks import Attacked
from counted import numbers, rows
from faults import FAULTS, again_until_done, try_faults
from numbered import batch
from sampling import SAMPLED

from pyspark_log.errors import LogDirOfflineError, StoreExistsError, TopicExistsError
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.store import Store
from tests.store_tools import damages, observed

pytestmark = [pytest.mark.usefixtures("little_sizes"), *SAMPLED]
CONFIGS = {"segment.bytes": "400", "index.interval.bytes": "1", "retention.ms": "-1", "file.delete.delay.ms": "0"}
RECORDS = 12


def create(path):
    with contextlib.suppress(StoreExistsError):
        Store.create(path, {"log.dirs": "data,second"})
    with contextlib.suppress(TopicExistsError):
        Store.open(path).create_topic("t", 1, CONFIGS)


def make(path):
    """Four segments, with what a numbered producer leaves beside them."""
    create(path)
    with Store.open(path) as store:
        for first in range(0, RECORDS - 3, 3):
            store.append("t", rows(first, padding=60))
        store.append_batch("t", 0, batch(0, [b"%d" % number + b"." * 60 for number in range(9, 12)], 7))


def shift(path, folder="second"):
    Store.open(path).move_partition("t", 0, folder)


def places(path):
    return [name for name in ("data", "second") if any(one.startswith("t-0") for one in os.listdir(f"{path}/{name}"))]


def check(path):
    """All records are there, other processes can append, and leftovers are deleted."""
    assert numbers(path) == list(range(RECORDS))
    # Before anything is recovered, too.
    assert damages(path) == []
    store = Store.open(path)
    # The producer's last batch is known for that.
    assert store.append_batch("t", 0, batch(0, [b"%d" % n + b"." * 60 for n in range(9, 12)], 7)).base_offset == 9
    store.append("t", rows(RECORDS, padding=60))
    assert numbers(path) == list(range(RECORDS + 3))
    for folder in ("second", "data"):
        store.move_partition("t", 0, folder)
        assert numbers(path) == list(range(RECORDS + 3))
    store.clean()
    assert places(path) == ["data"]
    assert verify(path).findings == []


class TestMove(Attacked):
    most_stops, most_losses, least = 40, 20, 40
    comers = "check", "check_after_cleaning"

    def make(self, path):
        make(path)

    def run(self, path):
        shift(path)

    def check(self, path):
        check(path)

    def check_after_cleaning(self, path):
        """The same, where the next process is a cleaner."""
        Store.open(path).clean()
        Store.open(path).clean()
        assert len(places(path)) == 1
        check(path)


class Work:
    """A move there and back, and appends in between, each tried until it succeeds."""

    def __init__(self, path):
        self.path, self.store, self.written = path, None, 0

    def run(self, calm):
        again_until_done(self.open)
        for folder in ("second", "data"):
            for _ in range(2):
                self.append(calm)
            again_until_done(lambda folder=folder: self.store.move_partition("t", 0, folder))
            with calm():
                assert numbers(self.path) == list(range(self.written))

    def open(self):
        create(self.path)
        self.store = Store.open(self.path)

    def append(self, calm):
        """An append must not be repeated if it took place."""

        def add():
            with calm():
                if Store.open(self.path).latest_offset("t", 0) > self.written:
                    return
            self.store.append("t", rows(self.written, padding=60), sync=True)

        again_until_done(add)
        self.written += 3

    def check_at_the_end(self):
        for _ in range(2):  # The first may find an old folder under the partition's name, and puts it away.
            Store.open(self.path).clean()
        self.append(contextlib.nullcontext)
        assert numbers(self.path) == list(range(self.written))
        assert places(self.path) == ["data"]
        assert damages(self.path) == []


@pytest.mark.parametrize("kind", FAULTS)
def test_faults(memory_path, kind, monkeypatch, capsys):
    try_faults(monkeypatch, capsys, Work, memory_path, kind, 8, least=60)


def test_a_folder_that_fails_amid_a_move_leaves_the_partition_where_it_is(memory_path):
    make(memory_path / "store")
    path = str(memory_path / "store")

    def count_or_fail(left):
        def observer(change):
            nonlocal left
            left -= "second" in change.path
            if left < 0 and "/second/" in change.path:
                raise OSError(5, os.strerror(5), change.path)

        return observer

    for left in (1, 5, 20):
        failed = pytest.raises(LogDirOfflineError, match=r"t-0: the log dir .*/second has failed")
        with observed(count_or_fail(left)), failed:
            shift(path)
        assert numbers(path) == list(range(RECORDS))
    shift(path)
    check(path)
