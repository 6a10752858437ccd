"""A streaming query that names its publishes, and that commits what it has read with them.

Its checkpoint is lost or copied, and it is moved to another one.
"""

import shutil

import pytest
from spark_tools import all_values_in, fails, fill, read_stream, write_stream

from pyspark_log import Store
from pyspark_log.types import TopicPartition


def copy(spark, store, checkpoint, *, source=None, **options):
    """Copies what `t` has into `out`; `source`: options of the read."""
    return write_stream(read_stream(spark, store, "t", **(source or {})), store, checkpoint, topic="out", **options)


@pytest.fixture
def topics(store):
    store.create_topic("out", 2)
    fill(store, "t", range(3), range(3, 5))
    return store


def out(store):
    return [int(value) for value in all_values_in(Store.open(store.path), "out")]


@pytest.mark.slow
@pytest.mark.long
def test_with_another_checkpoint_an_id_is_refused_until_it_is_taken_over(spark, topics, tmp_path):
    copy(spark, topics, tmp_path / "one", publishId="copy-t")
    fill(topics, "t", [5])
    with fails(r"PYLOG_PUBLISHER_FENCED.*not published: publisher 'copy-t' belongs to the checkpoint of query .* 0, "):
        copy(spark, topics, tmp_path / "two", publishId="copy-t")
    assert out(topics) == [*range(5)]
    # The refused one has planned its first micro-batch.
    rest = {"startingOffsets": '{"t":{"0":3,"1":2}}'}
    copy(spark, topics, tmp_path / "three", publishId="copy-t", publishTakeOver="true", source=rest)
    assert out(topics) == [*range(6)]
    fill(topics, "t", [6])
    with fails("PYLOG_PUBLISHER_FENCED.*belongs to the checkpoint of query"):
        copy(spark, topics, tmp_path / "one", publishId="copy-t")
    copy(spark, topics, tmp_path / "three", publishId="copy-t")
    assert out(topics) == [*range(7)]


GROUP = {"startingOffsets": "group", "kafka.group.id": "copies"}


@pytest.mark.slow
def test_a_query_that_commits_with_its_output_resumes_without_its_checkpoint(spark, topics, tmp_path):
    """A copy of it that also resumes there loses and doubles nothing: one of the two is refused."""
    copy(spark, topics, tmp_path / "one", publishOffsets="true", source=GROUP)
    committed = topics.groups["copies"].committed()
    assert {at: one.offset for at, one in committed.items()} == {TopicPartition("t", 0): 3, TopicPartition("t", 1): 2}
    shutil.copytree(tmp_path / "one", tmp_path / "copied")
    fill(topics, "t", [5], [6])
    copy(spark, topics, tmp_path / "two", publishOffsets="true", source=GROUP)
    assert out(topics) == [*range(7)]
    for checkpoint in ("one", "copied"):
        with fails("PYLOG_OFFSET_CONFLICT.*not published"):
            copy(spark, topics, tmp_path / checkpoint, publishOffsets="true", source=GROUP)
    fill(topics, "t", [7])
    copy(spark, topics, tmp_path / "two", publishOffsets="true", source=GROUP)
    assert out(topics) == [*range(8)]
    assert topics.groups["copies"].committed()[TopicPartition("t", 0)].offset == 5


@pytest.mark.slow
def test_a_partition_that_comes_later_is_committed_too(spark, topics, tmp_path):
    copy(spark, topics, tmp_path / "one", publishOffsets="true", source=GROUP)
    topics.add_partitions("t", 3)
    fill(topics, "t", [], [], [5, 6])
    copy(spark, topics, tmp_path / "one", publishOffsets="true", source=GROUP)
    assert topics.groups["copies"].committed()[TopicPartition("t", 2)].offset == 2
    copy(spark, topics, tmp_path / "two", publishOffsets="true", source=GROUP)
    assert out(topics) == [*range(7)]


@pytest.mark.slow
def test_offsets_of_another_store_cannot_be_committed(spark, topics, tmp_path):
    other = Store.create(tmp_path / "other")
    rows = read_stream(spark, topics, "t")
    with fails("no source of this query reads the store"):
        write_stream(rows, other, tmp_path / "one", topic="out", publishOffsets="true")
    assert all_values_in(other, "out") == []
