"""Topics that are deleted while a streaming reader reads them, without Spark."""

import pyarrow as pa
import pytest
from test_connector_stream_reader import ALL, batch, store, values

from pyspark_log import DefaultSource
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.planning.ranges import identity_after
from pyspark_log.spark_connector.planning.subscription import Pattern, Topics
from pyspark_log.spark_connector.reading import stream_reader
from tests.query_offsets import of_topics, own_of

__all__ = ["store"]  # a fixture


def of(store, **options):
    source = DefaultSource({"path": store.path, "startingOffsets": "earliest", **options})
    return source.streamReader(source.schema())


@pytest.fixture
def two(store):
    """A store with two topics of records."""
    store.append("t", values(3), partition=0)
    store.create_topic("t2", 1)
    store.append("t2", values(2))
    return store


@pytest.fixture
def deleted_when_found(two, monkeypatch):
    """Deletes the topic t2 as soon as a reader has found it."""

    def arm():
        listed = []

        def then_delete(lookup):
            def partitions(self, store, **how):
                found = lookup(self, store, **how)
                if any(at.topic == "t2" for at in found):
                    listed.append(found)
                    if len(listed) == 1:
                        two.delete_topic("t2")
                return found

            return partitions

        for subscription in (Pattern, Topics):
            monkeypatch.setattr(subscription, "partitions", then_delete(subscription.partitions))

    return arm


PATTERN = {"subscribePattern": "^t"}


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_of_a_pattern_is_gone_before_the_first_offset_is_known(two, deleted_when_found, fail):
    deleted_when_found()
    reader = of(two, failOnDataLoss=fail, **PATTERN)
    assert reader.initialOffset()["t"] == {"0": 0, "1": 0}
    end, ranges = batch(reader, reader.initialOffset())
    assert ranges == [(0, 0, 3)]
    assert of_topics(end).keys() == {"t"}


def test_a_named_topic_that_is_gone_by_then_is_an_error(two, deleted_when_found):
    deleted_when_found()
    with pytest.raises(ConnectorError, match=r"\[PYLOG_UNKNOWN_TOPIC_OR_PARTITION\].*'t2'"):
        of(two, subscribe="t,t2", failOnDataLoss="false").initialOffset()


@pytest.mark.parametrize("options", [PATTERN, {"subscribe": "t,t2"}])
def test_a_topic_is_gone_while_a_batch_is_planned(two, deleted_when_found, options):
    reader, strict = of(two, failOnDataLoss="false", **options), of(two, **options)
    start = reader.initialOffset()
    deleted_when_found()
    end, ranges = batch(reader, start)
    assert ranges == [(0, 0, 3)]
    assert of_topics(end).keys() == {"t"}
    with pytest.raises(ConnectorError, match=r"\[PYLOG_DATA_LOSS.PARTITIONS_DELETED\].*t2"):
        strict.latestOffset(start, ALL)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_was_never_read_is_gone_while_a_batch_is_planned(two, deleted_when_found, fail):
    two.delete_topic("t2")
    reader = of(two, failOnDataLoss=fail, **PATTERN)
    start = reader.initialOffset()
    two.create_topic("t2", 1)
    deleted_when_found()
    end, ranges = batch(reader, start)
    assert ranges == [(0, 0, 3)]
    assert of_topics(end).keys() == {"t"}


def test_a_topic_that_is_made_while_a_batch_is_planned_comes_with_its_id(two, monkeypatch):
    """In the next batch then: without the id, a topic recreated under the name would be mistaken for it."""
    reader = of(two, **PATTERN)
    start = reader.initialOffset()

    def then_make(*arguments):
        found = identity_after(*arguments)
        two.ensure_topic("t3")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(stream_reader, "identity_after", then_make)
        first = reader.latestOffset(start, ALL)
    second = reader.latestOffset(first, ALL)
    assert [set(own_of(end)["topic_ids"]) for end in (first, second)] == [{"t", "t2"}, {"t", "t2", "t3"}]
    assert [set(of_topics(end)) for end in (first, second)] == [{"t", "t2"}, {"t", "t2", "t3"}]


def test_a_topic_is_gone_when_a_query_is_to_read_all_there_is(two, deleted_when_found):
    reader = of(two, **PATTERN)
    deleted_when_found()
    reader.prepareForTriggerAvailableNow()
    assert batch(reader, reader.initialOffset())[1] == [(0, 0, 3)]


def test_a_topic_is_deleted_while_a_task_reads_it(two):
    two.create_topic("long", 1, {"segment.bytes": "2000", "file.delete.delay.ms": "0"})
    for _ in range(20):
        two.append("long", pa.record_batch({"value": [b"v" * 100] * 10}))
    reader = of(two, subscribe="long", failOnDataLoss="false")
    start = reader.initialOffset()
    (work,) = reader.partitions(start, reader.latestOffset(start, ALL))
    rows = reader.read(work)
    count = next(rows).num_rows
    two.delete_topic("long")
    count += sum(more.num_rows for more in rows)
    assert 10 <= count <= 200
