"""A replica of a node whose files are damaged, or lack what they had: it is copied again from its leader, if that is
another broker. A node that would lead with it refuses."""

import contextlib
import os
import shutil
from dataclasses import replace
from functools import partial

import pytest

from pyspark_log import Store
from pyspark_log.errors import LogDamagedError
from pyspark_log.server.cluster.image import NO_LEADER, TOPIC_RESOURCE, Resource
from pyspark_log.server.node import replicas as node_replicas
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs.clock import now_ms
from tests.stops import StopBefore, copy_folder, count_changes, run_until
from tests.store_tools import damages, rows
from tests.unit.mirror.conftest import NODE, SMALL, has, replicas_in
from tests.unit.mirror.test_mirrored_topics import segments, values
from tests.waiting import wait_until


def active(path, topic):
    """The active segment of the copy's first partition."""
    return max((path / "data" / f"{topic}-0").glob("*.log"))


def cut(path, topic):
    os.truncate(active(path, topic), active(path, topic).stat().st_size - 10)


def take_away(path, topic):
    active(path, topic).unlink()


def state_of(path, topic):
    with Store.open(path) as store:
        return path / "state" / f"{store.describe_topic(topic).topic_id}-0"


def empty_state(path, topic):
    state_of(path, topic).write_bytes(bytes(4096))


def lose_state(path, topic):
    state_of(path, topic).unlink()


DAMAGES = {"cut": cut, "no segment": take_away, "empty state": empty_state, "no state": lose_state}


@pytest.fixture
def image(image, topic):
    """With small segments."""
    return replace(image, configs={Resource(TOPIC_RESOURCE, topic): SMALL})


@pytest.fixture
def follow(image, topic, first, upstream, tmp_path):
    """Follows an image in the node's store until the copy of the first partition is whole."""

    def run(image=image):
        with FolderStore.open_or_create(tmp_path / "node") as store:
            made = replicas_in(store, pytest.fail)
            made.follow(image, {*made.known_ids(), *image.topics}, ())
            end = upstream.latest_offset(topic, 0)
            wait_until(partial(has, tmp_path / "node", first, end), "the copy is whole")
            made.close()

    return run


@pytest.fixture
def copied(follow, upstream, topic, tmp_path):
    """The store of a node with a copy of some segments."""
    for number in range(12):
        upstream.append(topic, rows(*[b"%d.%d" % (number, row) + b"." * 40 for row in range(10)]), partition=0)
    follow()
    return tmp_path / "node"


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_it_is_copied_again(copied, follow, upstream, topic, first, caplog, monkeypatch, damage):
    before = segments(upstream, first)
    assert len(before) > 1
    damage(copied, topic)
    left = {path.name: path.read_bytes() for path in active(copied, topic).parent.glob("*.log")}
    upstream.append(topic, rows(b"later"), partition=0)
    follow()
    [line] = [one.message for one in caplog.records if "copied again" in one.message]
    assert f"All of {topic}-0 is copied again from broker 1" in line
    assert "pylog repair" not in line
    with Store.open(copied) as store:
        assert segments(store, first) == segments(upstream, first)
        assert values(store, first) == values(upstream, first)
        # What was there is as it was, for a minute.
        [aside] = (copied / "data").glob(f"{topic}-0.*-delete")
        assert line.endswith(str(aside))
        assert {path.name: path.read_bytes() for path in aside.glob("*.log")} == left
        store.clean()
        assert aside.exists()
        monkeypatch.setattr(store.logs, "clock", lambda: now_ms() + 60_001)
        store.clean()
        assert not aside.exists()
    assert damages(copied) == []


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("leader", [NODE, NO_LEADER])
def test_it_is_left_alone_where_no_other_leads(copied, image, topic, first, caplog, damage, leader):
    [(topic_id, known)] = image.topics.items()
    parts = {0: known.partitions[0]._replace(leader=leader, leader_epoch=1), 1: known.partitions[1]}
    led = replace(image, topics={topic_id: known._replace(partitions=parts)})
    if leader == NODE:
        led = replace(led, brokers={**image.brokers, NODE: image.brokers[1]})
    damage(copied, topic)
    before = {path: path.read_bytes() for path in copied.rglob("*") if "lock" not in path.name and path.is_file()}
    # The end finds it, too.
    with contextlib.suppress(LogDamagedError), FolderStore.open(copied) as store:
        made = replicas_in(store, pytest.fail)
        made.follow(led, led.topics, ())
        assert not made.has(first)
        made.close()
    assert "kafka-leader-election.sh" in caplog.text
    assert {path: path.read_bytes() for path in before} == before


def test_one_that_is_damaged_while_it_follows(copied, image, upstream, topic, first, caplog, monkeypatch):
    monkeypatch.setattr(node_replicas, "_RETRY", 0)
    with FolderStore.open(copied) as store:
        made = replicas_in(store, pytest.fail)
        made.follow(image, image.topics, ())
        cut(copied, topic)
        upstream.append(topic, rows(b"later"), partition=0)
        wait_until(made.undone, "the damage was found")
        made.follow(image, made.undone(), ())
        wait_until(partial(has, copied, first, upstream.latest_offset(topic, 0)), "the copy is whole")
        made.close()
    assert caplog.text.count("copied again") == 1
    with Store.open(copied) as store:
        assert segments(store, first) == segments(upstream, first)


def test_a_kill_while_it_is_set_aside(copied, image, follow, upstream, topic, first, tmp_path):
    cut(copied, topic)
    damaged = tmp_path / "damaged"
    copy_folder(copied, damaged)
    broker = image.brokers[1]._replace(endpoints=())  # Nothing is fetched meanwhile.

    def set_aside():
        with FolderStore.open(copied) as store:
            made = replicas_in(store, pytest.fail)
            made.follow(replace(image, brokers={1: broker}), image.topics, ())
            made.close()

    changes = count_changes(set_aside)
    assert changes > 5
    for number in range(changes):
        shutil.rmtree(copied)
        copy_folder(damaged, copied)
        assert run_until(set_aside, StopBefore(number))
        follow()
        with Store.open(copied) as store:
            assert segments(store, first) == segments(upstream, first)
        assert damages(copied) == []
