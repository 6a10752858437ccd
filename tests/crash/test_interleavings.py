"""Two writers of one partition, step by step in every order; one is killed, or the power fails, between any two steps.

The writers are the engine itself, on real files (schedules.py). After each step a reader looks, which keeps its files
open: what it saw once stays, in its place, and what was acknowledged is there. In the end another writer appends.
"""

import random
import shutil

import pytest
from attacks import naming
from power import Trace
from sampling import SAMPLED, SEED, sample
from schedules import AnyOrder, EveryOrder, run, stepping

from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.store import Store
from tests.store_tools import damages, rows

TOPIC = "t"
# The number of records with which the next append but one begins a segment.
FULL = 3
# How many runs a sample is taken from by chance, and about how many steps each has.
RUNS, STEPS = 3000, 60
# How many combinations of writes and names that a power loss keeps are tried at one point, if there are more.
SUBSETS = 16


@pytest.fixture
def store_of(memory_path):
    """Makes a store with some records in it, and deletes the one before."""
    templates = {}

    def make(records):
        if records not in templates:
            store = Store.create(memory_path / f"template {records}")
            store.create_topic(TOPIC, 1, {"segment.bytes": "300"})
            for number in range(records):
                store.append(TOPIC, rows(b"before %d" % number))
            templates[records] = store.path
        path = memory_path / "store"
        shutil.rmtree(path, ignore_errors=True)
        return shutil.copytree(templates[records], path)

    return make


def contents(store):
    """The value at each offset."""
    return {
        offset: value
        for batch in store.read(TOPIC, 0)
        for offset, value in zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
    }


class Two:
    """Two writers, what was acknowledged to them, and what a reader has seen. The appends of `b` are synced."""

    def __init__(self, path, appends=1):
        self._path = path
        self._reader = Store.open(path)
        self.seen = contents(self._reader)
        self.acknowledged = []
        self.programs = [(name, lambda name=name: self._write(name, appends)) for name in "ab"]

    def _write(self, name, appends):
        store = Store.open(self._path)
        for number in range(appends):
            value = f"{name} {number}".encode()
            store.append(TOPIC, rows(value), sync=name == "b")
            self.acknowledged.append(value)

    def look(self):
        self._check(contents(self._reader))

    def end(self):
        """Checks what there is when both have ended or were killed."""
        Store.open(self._path).append(TOPIC, rows(b"end"))
        self._check(contents(Store.open(self._path)))
        assert not damages(self._path)

    def _check(self, found):
        assert list(found) == list(range(len(found))), found
        assert found.items() >= self.seen.items(), f"{self.seen} was seen, and now there is {found}"
        assert {*found.values()} >= {*self.acknowledged}, f"{self.acknowledged} was acknowledged, there is {found}"
        assert len({*found.values()}) == len(found), found
        self.seen = found


def every_order(store_of, records, kills, *, traced=None, **how):
    """Tries all orders; returns how many there are.

    `traced`: gets the moments that differ in what was changed and acknowledged so far: the trace, how many changes it
    had then, what was acknowledged, and what was seen.
    """
    orders, tried, more, known = EveryOrder(), 0, True, set()
    while more:
        path = store_of(records)
        two, trace, moments = Two(path), Trace(path), []

        def after(two=two, trace=trace, moments=moments):
            two.look()
            moments.append((len(trace.changes), [*two.acknowledged], two.seen))

        with stepping(trace.changes, **how):
            steps = run(two.programs, orders.choose, kills, after)
        two.end()
        tried, more = tried + 1, orders.next()
        if traced is not None:
            for number, moment in enumerate(moments, 1):
                made = tuple((name, at) for what, name, at in steps[:number] if at and what == "step")
                key = made, len(moment[1])
                if key not in known:
                    known.add(key)
                    traced.append((trace, *moment))
    return tried


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("records", [1, FULL], ids=["append", "roll"])
def test_two_kills_in_every_order_of_two_appends(store_of, records):
    assert every_order(store_of, records, 2) > 50


def no_lock(_file, *_patience):
    """Every program gets every lock."""


@pytest.mark.parametrize("records", [1, FULL], ids=["append", "roll"])
def test_without_the_lock_an_order_is_found_that_loses_records(store_of, records):
    with pytest.raises(AssertionError, match=r"after \[.*(acknowledged|seen|Error)"):
        every_order(store_of, records, 0, flock=no_lock)


class TestWithASample:
    pytestmark = SAMPLED

    @pytest.mark.parametrize(
        ("records", "least"),
        [(1, 35), pytest.param(FULL, 100, marks=[pytest.mark.slow, pytest.mark.long])],
        ids=["append", "roll"],
    )
    def test_a_kill_in_every_order_of_two_appends_and_a_power_loss(
        self, store_of, memory_path, monkeypatch, records, least
    ):
        traced = []
        assert every_order(store_of, records, 1, traced=traced) > least
        monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
        for number, moment in sample(enumerate(traced), 150):
            with naming(f"moment {number}, seed {SEED}"):
                lose_power(memory_path / "after", *moment)

    @pytest.mark.parametrize("records", [0, FULL - 1], ids=["new partition", "roll"])
    def test_orders_of_four_appends_by_chance(self, store_of, records):
        for number in sample(range(RUNS), 150):
            two = Two(store_of(records), appends=2)
            with stepping():
                run(two.programs, AnyOrder(random.Random(number), STEPS).choose, 1, two.look)
            two.end()


def lose_power(path, trace, count, acknowledged, seen):
    """Whatever part of the unsynced changes is left: what was synced is there, and no offset has another record."""
    ((_, disk),) = trace.disks([count])
    synced = {value for value in acknowledged if value.startswith(b"b ")}
    chance = random.Random(SEED)
    for fate in [*disk.subsets(SUBSETS, chance)[1], disk.any_part(chance)]:
        disk.write(path, fate)
        Store.open(path).append(TOPIC, rows(b"end"))
        found = contents(Store.open(path))
        changes = trace.changes[:count]
        assert {*found.values()} >= synced, (found, changes)
        assert len({*found.values()}) == len(found), (found, changes)
        assert all(seen.get(offset, value) == value for offset, value in found.items()), (found, seen, changes)
        shutil.rmtree(path)
