"""A table of objects that may die at any time."""

import gc

import pytest

from pyspark_log.storage.fs.locking import locks


class Thing:
    """An object that dies once nothing holds it."""


class Dying:
    """One that dies when Python collects garbage, and enters another one then."""

    def __init__(self, table, thing):
        self._table, self._thing, self._cycle = table, thing, self

    def __del__(self):
        self._table.add(self._thing)


@pytest.fixture
def thresholds():
    """Lets a test change when garbage is collected."""
    before = gc.get_threshold()
    gc.collect()
    yield
    gc.set_threshold(*before)


def test_others_are_added_while_dead_ones_are_swept_away(thresholds):
    table, things = locks.Living(), [Thing() for _ in range(locks._LEAST)]
    late, last = Thing(), Thing()
    for thing in things:
        table.add(thing)
    # Python keeps some pairs for later ones: those are in use.
    pairs = [(number, thing) for number in range(3000) for thing in things[:1]]
    gc.collect()
    Dying(table, late)
    # Python 3.11 collects where objects are allocated: in the middle of a list of pairs.
    gc.set_threshold(locks._LEAST // 2)
    table.add(last)
    gc.collect()
    assert set(table) == {*things, late, last}
    assert len(pairs) == 3000
