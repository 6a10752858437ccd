"""Checkpoints that are lost, moved, copied, or restored from an older copy: nothing is lost or doubled in silence."""

import re
import shutil
import socket

import pytest
from drivers import BATCH, copy_events
from spark_tools import fails, fill, values_in

TOPIC = "t"
WHO = rf"process \d+ on {re.escape(socket.gethostname())}, \d{{4}}-\d\d-\d\d"


@pytest.fixture
def target(store):
    """A store with events for three micro-batches, and a topic for them."""
    store.create_topic(TOPIC, 2)
    more(store, 0, 3 * BATCH)
    return store


def more(store, start, count):
    fill(store, "events", range(start, start + count, 2), range(start + 1, start + count, 2))


def run(spark, store, checkpoint):
    copy_events(spark, store.path, checkpoint, TOPIC).trigger(availableNow=True).start().awaitTermination()


def check(store):
    assert values_in(store, TOPIC) == values_in(store, "events")


@pytest.mark.slow
@pytest.mark.long
def test_a_moved_checkpoint_resumes_even_with_a_replay(spark, target, tmp_path):
    run(spark, target, tmp_path / "here")
    # As if the driver had died after it published, and before Spark noted that.
    (tmp_path / "here/commits/2").unlink()
    more(target, 300, 10)
    run(spark, target, shutil.move(tmp_path / "here", tmp_path / "there"))
    check(target)


@pytest.mark.slow
def test_the_newer_query_of_a_copied_checkpoint_wins(spark, target, tmp_path):
    run(spark, target, tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    more(target, 300, 10)
    run(spark, target, tmp_path / "second")
    check(target)
    # The older one would read what the newer one has published, and more.
    more(target, 310, 10)
    with fails(r"\[PYLOG_PUBLISH_NUMBER\].*number 3 was published with other input", WHO, "was copied"):
        run(spark, target, tmp_path / "first")
    run(spark, target, tmp_path / "second")
    check(target)
    with fails(r"\[PYLOG_PUBLISH_NUMBER\].*number 3 after 4", WHO):
        run(spark, target, tmp_path / "first")
    check(target)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("batches", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_checkpoint_restored_from_an_older_copy_is_refused(spark, target, tmp_path, batches):
    checkpoint = tmp_path / "checkpoint"
    run(spark, target, checkpoint)
    backup = shutil.copytree(checkpoint, tmp_path / "backup")
    for number in range(batches):
        more(target, 300 + 10 * number, 10)
        run(spark, target, checkpoint)
    check(target)
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    more(target, 400, 10)
    published = values_in(target, TOPIC)
    with fails(r"\[PYLOG_PUBLISH_NUMBER\].*number 3 (after 4|was published)", "restored from an older copy"):
        run(spark, target, checkpoint)
    assert values_in(target, TOPIC) == published


@pytest.mark.slow
@pytest.mark.long
def test_a_lost_checkpoint_makes_a_new_query(spark, target, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    run(spark, target, checkpoint)
    # Of the query only its id is left: it begins again with number 0.
    for folder in ("offsets", "commits"):
        shutil.rmtree(checkpoint / folder)
    with fails(r"\[PYLOG_PUBLISH_NUMBER\].*number 0 after 2", WHO):
        run(spark, target, checkpoint)
    check(target)
    # Nothing is left: nothing distinguishes it from another query over the same topics.
    shutil.rmtree(checkpoint)
    run(spark, target, checkpoint)
    assert values_in(target, TOPIC) == [2 * values for values in values_in(target, "events")]
