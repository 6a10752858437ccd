"""Appends that wait for nothing, between those of other writers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from producer_tools import NOW, ready
from record_tools import Record, build
from searching import examples

from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.log import Appended
from tests.processes import held_by_another
from tests.scratch import memory_folder
from tests.store_tools import faults


def _batch(value):
    return build([Record(None, value, NOW)])


def _store(folder, **configs):
    store = FolderStore.create(folder)
    store.create_topic("t", 1, {"retention.ms": "-1", **{key.replace("_", "."): one for key, one in configs.items()}})
    return store


def _stored(store):
    return [row["value"] for rows in store.read("t", 0) for row in rows.to_pylist()]


@pytest.mark.sampled
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.sampled_from(["at once", "in turn", "other", "roll", "flush"]), max_size=40))
def test_between_those_of_another_writer(steps):
    """Two stores in one folder: what each has cached of the log is as in two processes."""
    with memory_folder() as folder:
        store = _store(folder / "store")
        other = FolderStore.open(folder / "store")
        mine, theirs = store.logs.writer("t", 0), other.logs.writer("t", 0)
        expected, sequence, at_once = [], 0, 0
        for number, step in enumerate(steps):
            value = b"%d " % number * (number % 7 + 1)
            if step == "roll":
                with theirs.hold() as writer:
                    writer.log.roll()
                continue
            if step == "flush":
                store.flush("t")
                continue
            if step == "other":
                theirs.append_in_turn([_batch(value)], sync=False)
            else:
                data, sequence = [ready(sequence, value, producer=5)], sequence + 1
                outcomes = mine.append_at_once(data) if step == "at once" else None
                at_once += outcomes is not None
                [outcome] = outcomes or mine.append_in_turn(data, sync=False)
                assert outcome == Appended(len(expected), len(expected) + 1)
            expected.append(value)
        assert _stored(store) == _stored(other) == expected
        store.close()
        other.close()
        assert faults(store.path) == []


def test_nothing_is_done_while_another_process_has_the_lock(tmp_path):
    store = _store(tmp_path / "store")
    writer = store.logs.writer("t", 0)
    writer.append_in_turn([_batch(b"a")], sync=False)
    with held_by_another(store, "t"):
        assert writer.append_at_once([_batch(b"b")]) is None
    assert _stored(store) == [b"a"]
    writer.append_in_turn([_batch(b"b")], sync=False)
    assert writer.append_at_once([_batch(b"c")]) == [Appended(2, 3)]
    assert _stored(store) == [b"a", b"b", b"c"]


def test_the_first_append_of_a_process_waits(tmp_path):
    """It has to read what is there."""
    _store(tmp_path / "store").append("t", [{"value": b"a"}])
    writer = FolderStore.open(tmp_path / "store").logs.writer("t", 0)
    assert writer.append_at_once([_batch(b"b")]) is None


@pytest.mark.parametrize("configs", [{"flush_messages": "1"}, {"flush_ms": "0"}, {"segment_bytes": "200"}])
def test_what_syncs_or_rolls_waits(tmp_path, configs):
    store = _store(tmp_path / "store", **configs)
    writer = store.logs.writer("t", 0)
    for _ in range(2):
        writer.append_in_turn([_batch(b"a")], sync=False)
    assert writer.append_at_once([_batch(b"b")]) is None
    assert _stored(store) == [b"a", b"a"]


def test_a_repeated_batch_waits(tmp_path):
    store = _store(tmp_path / "store")
    writer = store.logs.writer("t", 0)
    sent = ready(0, b"a")
    writer.append_in_turn([sent], sync=False)
    assert writer.append_at_once([sent]) is None
    assert writer.append_in_turn([sent], sync=False) == [Appended(0, 1, duplicate=True)]
