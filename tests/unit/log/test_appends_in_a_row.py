"""Appends in a row, for which the lock and the state are kept: the same files, stops, faults and interrupts as without.

The lock is kept from the second append on and for a minute, so that each append is made with the lock in hand.
"""

import contextlib
import errno
import os
import re
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from producer_tools import ready
from record_tools import Record, build
from searching import examples

from pyspark_log.errors import OutcomeUnknownError, OutOfOrderSequenceError
from pyspark_log.storage.fs import guarded
from pyspark_log.storage.log.appending import writer
from pyspark_log.storage.store import Store
from tests.amounts import few_or_many
from tests.interrupts import Interrupt
from tests.processes import forked
from tests.stops import StopBefore
from tests.store_tools import Stopped, faults, observed, store_with, values

CONFIGS = {"segment.bytes": "6000", "index.interval.bytes": "300", "retention.ms": "-1"}
store = store_with(CONFIGS)
NOW = 1_700_000_000_000


@pytest.fixture(autouse=True)
def locks_are_kept(monkeypatch):
    monkeypatch.setattr(guarded, "TURN", 60_000_000_000)
    monkeypatch.setattr(guarded, "USES_IN_A_ROW", 0)


@pytest.fixture
def in_room(monkeypatch):
    """How many appends needed the last steps only, and how many were left to the whole sequence."""
    count, append = Counter(), writer.append_in_room

    def counted(*given):
        made = append(*given)
        count["made" if made else "left"] += 1
        return made

    monkeypatch.setattr(writer, "append_in_room", counted)
    return count


def rows(*values, time=NOW):
    return pa.record_batch({"value": pa.array(values, pa.binary()), "timestamp": pa.array([time] * len(values))})


def plain(*values, time=NOW):
    return build([Record(None, value, time) for value in values], "none")


def content(path):
    return values(Store.open(path))


def test_appends_in_a_row_need_the_last_steps_only(store, in_room):
    for number in range(50):
        [appended] = store.append("t", rows(b"%d" % number))
        assert (appended.base_offset, appended.next_offset) == (number, number + 1)
    assert in_room["made"] > 40
    assert values(store) == content(store.path) == [b"%d" % number for number in range(50)]
    assert faults(store.path) == []


APPENDS = st.lists(
    st.tuples(
        st.sampled_from(["rows", "batches", "numbered", "synced"]),
        st.lists(st.integers(0, 700), min_size=1, max_size=4),
        st.integers(-5, 5),
    ),
    max_size=25,
)


def _run(path, appends, observer):
    store = Store.create(path)
    store.logs.clock.read = lambda: NOW
    store.create_topic("t", 1, CONFIGS)
    sequence = 0
    with observed(observer):
        for kind, sizes, time in appends:
            payload = [b"%d" % size + b"." * size for size in sizes]
            if kind in {"rows", "synced"}:
                store.append("t", rows(*payload, time=NOW + time), sync=kind == "synced")
            elif kind == "batches":
                store.append_batches("t", 0, [plain(one, time=NOW + time) for one in payload])
            else:
                store.append_batch("t", 0, ready(sequence, *payload))
                sequence += len(payload)
        store.close()
    return values(store)


@pytest.mark.sampled
@settings(max_examples=examples(100), deadline=None)
@given(appends=APPENDS)
def test_the_same_changes_in_the_same_order_as_without_kept_locks(tmp_path_factory, appends):
    found = []
    for keeps in (True, False):
        folder = str(tmp_path_factory.mktemp("store"))
        changes = []

        def note(change, changes=changes, folder=folder):
            path = re.sub(r"[A-Za-z0-9_-]{22}|[0-9a-f]{16}", "ID", change.path.removeprefix(folder))
            data = change.data if path.endswith((".log", ".index", ".timeindex")) else len(change.data)
            changes.append((change.kind, path, change.position, data))

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(guarded, "USES_IN_A_ROW", 0 if keeps else 1 << 30)
            found.append((_run(f"{folder}/s", appends, note), changes))
    assert found[0] == found[1]


def _ten(store):
    for number in range(10):
        store.append("t", rows(b"%d" % number + b"." * 90))
        yield


def test_a_stop_before_each_change(tmp_path, in_room):
    """As a kill: each record that was acknowledged is there, and of the next one all or nothing."""
    for stop in range(1000):
        store = Store.create(tmp_path / f"s{stop}")
        store.create_topic("t", 1, CONFIGS)
        store.append("t", rows(b"first"))
        done = 0
        with contextlib.suppress(Stopped), observed(StopBefore(stop)):
            for _ in _ten(store):
                done += 1
        found = content(store.path)[1:]
        assert done <= len(found) <= done + 1
        again = Store.open(store.path)
        again.append("t", rows(b"last"))
        assert content(store.path)[1:-1] == found
        assert faults(store.path) == []
        if done == 10:
            break
    assert in_room["made"] > 100


@pytest.mark.parametrize("short", [False, True])
def test_a_fault_at_each_change(tmp_path, in_room, short):
    """The same process continues. No append that raised OSError is in the log; one of unknown outcome may be."""
    for first in range(1000):
        store = Store.create(tmp_path / f"s{first}")
        store.create_topic("t", 1, CONFIGS)
        store.append("t", rows(b"first"))
        left, failed = first, False

        def observe(change):
            nonlocal left, failed
            left -= 1
            if left == -1:
                failed = True
                if short and change.kind == "write":
                    with open(change.path, "r+b") as file:
                        os.pwrite(file.fileno(), change.data[: len(change.data) // 2], change.position)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), change.path)

        expected = [b"first"]
        with observed(observe):
            for number in range(10):
                value = b"%d" % number + b"." * 90
                try:
                    store.append("t", rows(value))
                except OSError:
                    continue
                except OutcomeUnknownError:
                    if content(store.path) == expected:
                        continue
                expected.append(value)
        assert content(store.path) == expected
        Store.open(store.path).append("t", rows(b"another"))
        store.append("t", rows(b"last"))
        assert content(store.path) == [*expected, b"another", b"last"]
        assert faults(store.path) == []
        if not failed:
            break
    assert in_room["made"] > 100


def test_two_stores_of_a_process_append_by_turns(store, in_room):
    other = Store.open(store.path)
    for number in range(0, 60, 3):
        store.append("t", rows(b"%d" % number))
        other.append("t", rows(b"%d" % (number + 1)))
        store.append("t", rows(b"%d" % (number + 2)))
    assert content(store.path) == [b"%d" % number for number in range(60)]
    for number in range(60, 80):
        other.append("t", rows(b"%d" % number))
    store.append("t", rows(b"80"))
    assert in_room["made"] > 10
    assert content(store.path) == [b"%d" % number for number in range(81)]
    assert faults(store.path) == []


def test_a_topic_that_is_deleted_takes_no_more(store, in_room):
    for _ in range(5):
        store.append("t", rows(b"v"))
    assert in_room["made"]
    writer = store.logs.writer("t", 0)
    Store.open(store.path).delete_topic("t")
    with pytest.raises(Exception, match="deleted"):
        writer.append_in_turn([plain(b"late")], sync=False)


def test_what_needs_more_is_done_all_the_same(store, in_room):
    for _ in range(3):
        store.append("t", rows(b"v"))
    store.append_batch("t", 0, ready(0, b"numbered"))
    with pytest.raises(OutOfOrderSequenceError):
        store.append_batch("t", 0, ready(7, b"numbered"))
    store.append("t", rows(b"synced"), sync=True)
    store.append("t", rows(b"w"))
    store.append("t", rows(b"." * 4000))
    store.append("t", rows(b"-" * 4000))  # In another segment.
    store.append_batch("t", 0, ready(1, b"more"))
    assert content(store.path) == [b"v", b"v", b"v", b"numbered", b"synced", b"w", b"." * 4000, b"-" * 4000, b"more"]
    assert in_room["left"]
    assert faults(store.path) == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_and_its_parent_append(store, monkeypatch):
    monkeypatch.setattr(guarded, "TURN", 1_000_000)  # Else one would wait for the other.
    for _ in range(3):
        store.append("t", rows(b"before"))

    def append(value):
        for _ in range(100):
            store.append("t", rows(value))

    with forked(lambda: (append(b"child"), store.close())):
        append(b"parent")
    assert Counter(content(store.path)) == {b"before": 3, b"child": 100, b"parent": 100}
    assert faults(store.path) == []


def in_engine(frame, _event):
    return frame if f"{os.sep}pyspark_log{os.sep}" in frame.f_code.co_filename else None


# A generator that is dropped half-way is closed. That looks like a call of it, although Python runs no handlers there.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <generator:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("distance", few_or_many(5, 1))
def test_an_interrupt_at_each_moment(tmp_path, in_room, distance):
    """Of what was interrupted all or nothing is there; and the next appends of the same process work."""
    interrupt, moment = None, 1
    while interrupt is None or interrupt.at:
        store = Store.create(tmp_path / f"s{moment}")
        store.create_topic("t", 1, CONFIGS)
        for number in range(3):
            store.append("t", rows(b"%d" % number + b"." * 90))
        interrupt, done = Interrupt(moment, in_engine), 3
        with interrupt.armed():
            for number in range(3, 9):
                store.append("t", rows(b"%d" % number + b"." * 90))
                done += 1
        found = values(store)
        assert done <= len(found) <= done + 1, moment
        store.append("t", rows(b"last"))
        assert content(store.path) == [*found, b"last"], moment
        assert faults(store.path) == [], moment
        moment += distance
    assert moment > 200
    assert in_room["made"] > moment / distance
