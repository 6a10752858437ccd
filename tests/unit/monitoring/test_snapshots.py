"""How often a store is read for those that ask for its figures."""

import dataclasses
from types import SimpleNamespace

import pytest

from pyspark_log import Store
from pyspark_log.monitoring import Request, Snapshots
from pyspark_log.monitoring import snapshot as module
from pyspark_log.ui import Guard, Ui


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
        store.append("t", [{"key": "k", "value": "v"}])
        yield store


@pytest.fixture
def taken(monkeypatch):
    """The snapshots that were taken, and a clock (s), by which reading takes a second and all else no time."""
    clock, taken, take = [100.0], [], module.take_snapshot

    def slow(*arguments):
        clock[0] += 1.0
        taken.append(dataclasses.replace(take(*arguments), seconds=1.0))
        return taken[-1]

    monkeypatch.setattr(module, "take_snapshot", slow)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return taken, clock


def test_reading_takes_a_twentieth_of_the_time(store, taken):
    found, clock = taken
    snapshots = Snapshots(store, fresh_s=2.0)
    for pause, count in ((0, 1), (3, 1), (16, 1), (1, 2), (19, 2), (1, 3)):
        clock[0] += pause
        snapshots.current()
        assert len(found) == count


def test_pages_of_records_have_no_figures(store, taken):
    found, _ = taken
    app = Ui(Snapshots(store), Guard(None))
    for path in ("/topics/t/records", "/topics/t/records/0/0", "/topics/none/records"):
        assert app.answer(Request(path, "", {}, "127.0.0.1")).status == (404 if "none" in path else 200)
    assert found == []
    assert app.answer(Request("/topics/t", "", {}, "127.0.0.1")).status == 200
    assert len(found) == 1
