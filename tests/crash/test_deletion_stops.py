"""The deletion of a topic is stopped before each of its changes to files.

What groups have committed for it goes with it, at the latest when its files are cleaned or its name is used again; what
they commit for the next topic of that name stays.
"""

import pytest
from sampling import SAMPLED

from pyspark_log.errors import UnknownTopicError
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.stops import StopBefore, copy_folder, count_changes, run_until
from tests.store_tools import faults, rows

pytestmark = [pytest.mark.usefixtures("little_sizes"), *SAMPLED]

AT, OTHER = TopicPartition("t", 0), TopicPartition("other", 0)


@pytest.fixture
def made(memory_path):
    """A store with two topics, and groups that have read them."""
    configs = {"offsets.topic.num.partitions": "3", "log.segment.delete.delay.ms": "0"}
    with Store.create(memory_path / "made", configs) as store:
        for at in (AT, OTHER):
            store.create_topic(at.topic, 1)
            store.append(at.topic, rows(*[b"1"] * 9))
        for name in ("a", "b", "c"):
            store.groups[name].commit({AT: 5, OTHER: 6})
        store.groups["only"].commit({AT: 7})
    return memory_path / "made"


def delete(path):
    with Store.open(path) as store:
        store.delete_topic("t")


def committed(store):
    return {(group, at): one.offset for group in store.groups for at, one in store.groups[group].committed().items()}


def clean(store):
    store.clean()


def recreate(store):
    """The next topic of that name, also before anything is cleaned; what groups commit for it stays."""
    store.create_topic("t", 1)
    left = {(group, at) for group, at in committed(store) if at == AT}
    store.groups["a"].commit({AT: 0})
    store.clean()
    assert committed(store).pop(("a", AT)) == 0
    store.groups["a"].delete_offsets([AT])
    assert left == set()


def recreate_by_a_write(store):
    """The same by a write whose rows name the topic."""
    writer = store.publishes.writer(store.publishes.plan([], others=True))
    writer.append("t", rows(b"v"))
    writer.discard()
    assert AT not in {at for _, at in committed(store)}


@pytest.mark.parametrize(
    "finish",
    [clean, recreate_by_a_write, *(pytest.param(one, marks=pytest.mark.slow) for one in (janitor.clean, recreate))],
)
def test_what_groups_have_committed_goes_with_it(made, memory_path, finish):
    path = memory_path / "stopped"
    copy_folder(made, path)
    changes, stopped = count_changes(lambda: delete(path)), 0
    assert changes > 10
    for number in range(changes + 1):
        path = memory_path / f"stopped{number}"
        copy_folder(made, path)
        stopped += run_until(lambda path=path: delete(path), StopBefore(number))
        with Store.open(path) as store:
            if "t" in store.topics():
                assert [store.groups[name].committed()[AT].offset for name in ("a", "only")] == [5, 7]
                continue
            with pytest.raises(UnknownTopicError):
                store.latest_offset("t", 0)
            finish(store)
            assert committed(store) == {(name, OTHER): 6 for name in ("a", "b", "c")}
        assert faults(path) == []
    assert stopped == changes


def test_what_is_committed_after_the_deletion_stays(made):
    """A member may commit for the next topic of that name before this one is created."""
    with Store.open(made) as store:
        store.alter_configs("t", {"file.delete.delay.ms": "60000"})
        store.delete_topic("t")
        store.groups["a"].commit({AT: 0})
        store.create_topic("t", 1)
        assert committed(store).get(("a", AT)) == 0
