"""A store's folder is replaced by a copy, as a restore does, while processes use the store."""

import os
import shutil

import pytest

from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.processes import PROCESSES, started
from tests.scratch import memory_folder
from tests.store_tools import faults, publish, rows, stage, values

# How often each kind of copy is put in place: all in all a thousand times, unless few are asked for.
ROUNDS = 40 if os.environ.get("CRASH_POINTS") == "few" else 200
# More appends than a process makes before it keeps the lock between two of them.
IN_A_ROW = 40
AT = TopicPartition("t", 0)

pytestmark = pytest.mark.sampled


@pytest.fixture
def folder():
    with memory_folder() as folder:
        yield folder


def append(store, *given):
    for value in given:
        store.append("t", rows(value))


def numbered(name, count):
    return [b"%s %d" % (name, number) for number in range(count)]


def make(path, *given):
    store = Store.create(path)
    store.create_topic("t", 1)
    append(store, *given)
    store.close()
    return store


def publishers(store):
    store.decisions.follow()
    return list(store.decisions.last)


def put_in_place(copy, path):
    """Renames the folder at `path` away, and `copy` to its place."""
    os.rename(path, f"{path}-before")
    os.rename(copy, path)


@pytest.mark.parametrize("opens_again", [True, False], ids=["opened again", "still open"])
@pytest.mark.parametrize("kind", ["longer", "shorter"])
def test_an_append_in_a_row_continues_in_the_copy(folder, kind, opens_again):
    make(folder / "origin", *numbered(b"first", 10))
    shutil.copytree(folder / "origin", folder / "longer")
    append(Store.open(folder / "longer"), *numbered(b"a longer value", 60))
    replacement, path = folder / ("longer" if kind == "longer" else "origin"), folder / "live"
    expected = values(Store.open(replacement))
    for _ in range(ROUNDS):
        shutil.copytree(folder / "origin", path)
        shutil.copytree(replacement, folder / "copy")
        store = Store.open(path)
        append(store, *numbered(b"lost", IN_A_ROW))
        put_in_place(folder / "copy", path)
        used = Store.open(path) if opens_again else store
        append(used, b"new")
        assert values(used) == [*expected, b"new"]
        shutil.rmtree(path)
        shutil.rmtree(f"{path}-before")


def test_an_append_in_a_row_continues_in_another_store_with_a_topic_of_that_name(folder):
    make(folder / "other", *numbered(b"other", 70))
    path = folder / "live"
    for _ in range(ROUNDS):
        store = make(path, *numbered(b"lost", IN_A_ROW))
        shutil.copytree(folder / "other", folder / "copy")
        put_in_place(folder / "copy", path)
        append(store, b"new")
        append(Store.open(path), b"newer")
        assert values(Store.open(path)) == [*numbered(b"other", 70), b"new", b"newer"]
        shutil.rmtree(path)
        shutil.rmtree(f"{path}-before")


def test_an_append_in_a_row_continues_where_only_states_and_logs_were_replaced(folder):
    """As a tool does that copies only what differs: the store's and the topic's descriptions are the same files."""
    store = make(folder / "live", b"first")
    shutil.copytree(store.path, folder / "copy")
    append(Store.open(folder / "copy"), *numbered(b"a longer value", 60))
    expected = values(Store.open(folder / "copy"))
    for _ in range(ROUNDS // 4):
        append(store, *numbered(b"lost", IN_A_ROW))
        for name in ("data", "state"):
            shutil.copytree(folder / "copy" / name, folder / name)
        for name in ("data", "state"):
            put_in_place(folder / name, f"{store.path}/{name}")
        append(store, b"new")
        assert values(store) == [*expected, b"new"]
        for name in ("data", "state"):
            shutil.rmtree(f"{store.path}/{name}-before")


def _append_where_asked(connection, path, values_to_append):
    """Appends in a row, then each value that comes."""
    store = Store.open(path)
    append(store, *numbered(b"of another process", IN_A_ROW))
    connection.send("appended")
    for value in iter(values_to_append.recv, None):
        append(store, value)


def test_two_processes_continue_in_the_copy(folder):
    store = make(folder / "live", b"first")
    shutil.copytree(store.path, folder / "origin")
    for _ in range(ROUNDS // 10):
        shutil.copytree(folder / "origin", folder / "copy")
        theirs, mine = PROCESSES.Pipe(duplex=False)
        with started(_append_where_asked, store.path, theirs):
            append(store, *numbered(b"lost", IN_A_ROW))
            put_in_place(folder / "copy", store.path)
            append(store, b"mine")
            mine.send(b"theirs")
            mine.send(None)
        append(Store.open(store.path), b"mine again")
        assert values(store) == [b"first", b"mine", b"theirs", b"mine again"]
        assert not faults(store.path)
        shutil.rmtree(f"{store.path}-before")


def test_reads_groups_and_decisions_are_those_of_the_copy(folder):
    store = make(folder / "live", *numbered(b"first", 4))
    shutil.copytree(store.path, folder / "copy")
    copy = Store.open(folder / "copy")
    for one, offset, publisher in ((store, 1, "mine"), (copy, 2, "theirs")):
        one.groups["g"].commit({AT: offset})
        publish(one.decisions, publisher, 0, stage(one, rows(publisher.encode())))
    shared = Store.shared(store.path)
    for one in (store, shared):
        assert one.groups["g"].committed()[AT].offset == 1
        assert values(one)[-1] == b"mine"
        assert publishers(one) == ["mine"]
    put_in_place(folder / "copy", store.path)
    for one in (store, Store.shared(store.path)):
        assert one.groups["g"].committed()[AT].offset == 2
        assert values(one)[-1] == b"theirs"
        assert publishers(one) == ["theirs"]
    assert Store.shared(store.path) is not shared
