"""`store.partitions` and `store.publishes`, as what is built on a store uses them."""

import collections
import os
from pathlib import Path

import pytest

from pyspark_log.errors import StagedOutputError, UnknownTopicError
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.store_tools import rows, stage, store_with

store = store_with(partitions=20)
ALL = [TopicPartition("t", number) for number in range(20)]


@pytest.fixture
def decided(store, monkeypatch):
    """A publisher has died between its decision and the application of that; another process has the store open."""
    store.append("t", rows(b"a"), partition=0)
    parts = stage(store, rows(b"b", b"c"))
    with monkeypatch.context() as stopped:
        stopped.setattr("pyspark_log.storage.publish.publishing.apply_decision", lambda *_: None)
        store.publishes.publish("p", 0, parts)
    return Store.open(store.path)


def test_ends_of_partitions_are_those_that_readers_see_by_now(decided):
    before = decided.partitions.latest_offsets(ALL)
    assert sum(before.values()) == 1
    assert decided.publishes.apply_pending() is None
    assert sum(decided.partitions.latest_offsets(ALL).values()) == 3


def test_the_ends_of_a_topic_have_what_is_decided(decided):
    assert sum(decided.topic("t").latest_offsets().values()) == 3


def test_what_hinders_a_decided_publish_is_returned(decided):
    (manifest,) = Path(decided.path, "staging").glob("*.manifest")
    manifest.unlink()
    assert isinstance(decided.publishes.apply_pending(), StagedOutputError)


def test_the_ends_of_a_topic_cost_one_look_for_decided_publishes(store, monkeypatch):
    store.publishes.publish("p", 0, stage(store, rows(b"a")))

    def opens_of_decisions(action):
        opened, real = collections.Counter(), os.open
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", lambda path, *how, **more: (opened.update([path]), real(path, *how, **more))[1])
            action()
        return opened[store.logs.topic("__pylog_publish").state_path(0)]

    topic = store.topic("t")
    assert opens_of_decisions(lambda: store.latest_offset("t", 0)) > 0
    assert opens_of_decisions(topic.latest_offsets) == opens_of_decisions(lambda: store.latest_offset("t", 0))


def test_partitions_that_do_not_exist_are_errors_or_left_out(store):
    asked = [TopicPartition("t", 0), TopicPartition("t", 20), TopicPartition("other", 0)]
    with pytest.raises(UnknownTopicError):
        store.partitions.latest_offsets(asked)
    assert store.partitions.latest_offsets(asked, skip_missing=True) == {asked[0]: 0}
