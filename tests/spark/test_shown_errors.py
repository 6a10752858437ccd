"""What a user sees of an error of the connector: its sentence on a line of its own, and no lines of code."""

import pytest
from pyspark.errors import PySparkException
from spark_tools import fill, read, read_stream, write, write_stream


def shown(function):
    """The lines that Spark shows of an error, up to its description of the query."""
    with pytest.raises(PySparkException) as caught:
        function()
    return str(caught.value).partition("=== Streaming Query ===")[0].splitlines()


def test_of_options(spark):
    _, first, *others = shown(lambda: spark.read.format("pylog").option("subscribe", "t").load())
    assert first.startswith("[PYLOG_INVALID_OPTION] Option 'path' must be specified")
    assert [line.strip() for line in others] == ["SQLSTATE: 38000"]


def test_of_a_plan(spark, store):
    _, first, *others = shown(lambda: read(spark, store, "t").count())
    assert first == "[PYLOG_UNKNOWN_TOPIC_OR_PARTITION] there is no topic 't'"
    assert [line.strip() for line in others] == ["SQLSTATE: 38000"]


def test_of_a_write(spark, store):
    _, first, *others = shown(lambda: write(spark.range(1), store, topic="t"))
    assert first == "[PYLOG_INVALID_COLUMNS] Required attribute 'value' not found"
    assert [line.strip() for line in others] == ["SQLSTATE: 38000"]


@pytest.mark.slow
def test_of_a_task(spark, store):
    store.create_topic("t", 1, {"max.message.bytes": "100"})
    rows = spark.sql("select repeat('v', 1000) value")
    first, _, *others = shown(lambda: write(rows, store, topic="t"))
    assert first == "An exception was thrown from the Python worker:"
    assert others[0].startswith("[PYLOG_RECORD_TOO_LARGE] t-0: a batch of 1 record(s)")
    assert "but max.message.bytes allows 100: raise" in others[0]
    assert len(others) == 1


@pytest.mark.slow
def test_of_a_query(spark, store, tmp_path):
    _, first, *others = shown(lambda: write_stream(read_stream(spark, store, "t"), store, tmp_path, topic="out"))
    assert first == "[PYLOG_UNKNOWN_TOPIC_OR_PARTITION] there is no topic 't'"
    assert [line.strip() for line in others] == ["SQLSTATE: 38000 SQLSTATE: XXKST"]


@pytest.mark.slow
def test_an_error_in_code_of_the_users_is_shown_with_its_lines(spark, store):
    """Also after one of the connector's, for which Spark has used the same processes."""
    shown(lambda: read(spark, store, "t").count())
    fill(store, "t", [1])

    def fail(batches):
        for _ in batches:
            raise ValueError("no such carrier")

    lines = shown(lambda: read(spark, store, "t").mapInArrow(fail, "value binary").collect())
    assert any("in fail" in line for line in lines)
    assert any("ValueError: no such carrier" in line for line in lines)
