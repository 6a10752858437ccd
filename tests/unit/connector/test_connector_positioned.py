"""The streaming reader as Spark calls it that has no admission control (4.0, 4.1), over a real store, without Spark."""

import pytest
from stream_readers import append, plan, reader_of

from pyspark_log.spark_connector import source
from pyspark_log.types import TopicPartition
from tests.query_offsets import own_of
from tests.store_tools import store_with

store = store_with(partitions=2)


@pytest.fixture(autouse=True)
def _no_admission(monkeypatch):
    monkeypatch.setattr(source, "HAS_ADMISSION", False)


def first_batch(reader):
    """Spark asks for the end, and only then where batch 0 begins."""
    end = reader.latestOffset()
    return end, plan(reader, reader.initialOffset(), end)


def next_batch(reader, start):
    end = reader.latestOffset()
    return end, plan(reader, start, end)


def begun_again(store, end, **options):
    """A reader of a query that starts again after a micro-batch that was done: Spark plans nothing at its end."""
    reader = reader_of(store, **options)
    assert plan(reader, end, end) == []
    return reader


def test_micro_batches_are_bounded(store):
    append(store, 0, 25)
    reader = reader_of(store, maxOffsetsPerTrigger="10")
    end, ranges = first_batch(reader)
    assert ranges == [(0, 0, 10)]
    end, ranges = next_batch(reader, end)
    assert ranges == [(0, 10, 20)]
    end, ranges = next_batch(reader, end)
    assert ranges == [(0, 20, 25)]
    assert reader.latestOffset() == end


def test_a_query_that_starts_again_goes_where_it_was(store):
    append(store, 0, 25)
    limit = {"maxOffsetsPerTrigger": "10"}
    end, _ = first_batch(reader_of(store, **limit))
    reader = begun_again(store, end, **limit)
    again, ranges = next_batch(reader, end)
    assert ranges == [(0, 10, 20)]
    # A micro-batch that was planned and not done is planned again, before another end is asked for.
    reader = reader_of(store, **limit)
    assert plan(reader, end, again) == [(0, 10, 20)]
    _, ranges = next_batch(reader, again)
    assert ranges == [(0, 20, 25)]


def test_batch_0_of_a_topic_without_records(store):
    reader = reader_of(store)
    end, ranges = first_batch(reader)
    assert ranges == []
    assert own_of(end)["start"] == {"t": {"0": 0, "1": 0}}
    assert reader.latestOffset() == end
    append(store, 1, 2)
    assert next_batch(begun_again(store, end), end)[1] == [(1, 0, 2)]


def test_records_that_come_after_the_first_look(store):
    """Batch 0 begins where the first look began, also at "latest"."""
    append(store, 0, 3)
    reader = reader_of(store, startingOffsets="latest")
    end = reader.latestOffset()
    append(store, 0, 4)
    assert plan(reader, reader.initialOffset(), end) == []
    assert next_batch(reader, end)[1] == [(0, 3, 7)]


def test_the_group_has_what_is_done(store):
    append(store, 0, 25)
    reader = reader_of(store, kafka__group__id="g", maxOffsetsPerTrigger="10")
    for done in (0, 10, 20):
        reader.latestOffset()
        assert store.groups["g"].committed()[TopicPartition("t", 0)].offset == done


def test_least_records_are_waited_for(store, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("pyspark_log.spark_connector.reading.stream_reader.time.monotonic", lambda: now[0])
    reader = reader_of(store, minOffsetsPerTrigger="15", maxTriggerDelay="5s")
    append(store, 0, 10)
    end, ranges = first_batch(reader)
    assert ranges == [(0, 0, 10)]
    append(store, 0, 6)
    assert reader.latestOffset() == end
    now[0] += 5
    assert next_batch(reader, end)[1] == [(0, 10, 16)]
