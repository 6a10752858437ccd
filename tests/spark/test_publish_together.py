"""Several DataFrames of one micro-batch, published as one."""

import shutil
from pathlib import Path

import pytest
from chispa import assert_df_equality
from spark_tools import all_values_in, fails, fill, read, read_stream, run_to_the_end, values_in

from pyspark_log import Publish, Store
from pyspark_log.storage.publish.claims import last_number

VALUE = ("string(value) value",)


def numbers(spark, *numbers):
    return spark.createDataFrame([(str(number),) for number in numbers], "value string")


def staged_files(store):
    return [path.name for path in Path(store.path, "staging").glob("*.staged")]


def split(store):
    """Even numbers go to one topic, odd ones and counts to others."""

    def function(batch, batch_id):
        with Publish(store.path, "split", batch_id) as out:
            out.write(batch.where("int(value) % 2 = 0"), topic="even")
            out.write(batch.where("int(value) % 2 = 1").selectExpr("value", "'odd' topic"))
            out.write(batch.groupBy().count().selectExpr("string(count) value"), topic="counts")

    return function


@pytest.fixture
def topics(store):
    for topic in ("even", "odd", "counts"):
        store.create_topic(topic, 2)
    return store


def contents(store):
    return [all_values_in(Store.open(store.path), topic) for topic in ("even", "odd", "counts")]


def test_one_publish_of_several_writes(spark, topics):
    with Publish(topics.path, "p", 7) as out:
        out.write(numbers(spark, 1, 2), topic="even")
        out.write(numbers(spark, 3).selectExpr("value", "'odd' topic", "'k' key"))
        out.write(numbers(spark, 4), topic="even")
        out.write(numbers(spark), topic="counts")
        assert contents(topics) == [[], [], []]
    assert contents(topics) == [["1", "2", "4"], ["3"], []]
    assert (out.result.records, out.result.replayed, last_number(topics.decisions, "p")) == (4, False, 7)
    assert len(topics.decisions.last) == 1
    back = read(spark, topics, "odd").selectExpr("string(key) key", "string(value) value")
    assert_df_equality(back, spark.createDataFrame([("k", "3")], "key string, value string"), ignore_nullable=True)


@pytest.mark.slow
def test_order_is_that_of_the_writes_and_their_tasks(spark, store):
    store.create_topic("t", 1)
    with Publish(store.path, "p", 0) as out:
        out.write(spark.range(0, 30_000, 1, 4).selectExpr("string(id) value"), topic="t")
        out.write(spark.range(30_000, 40_000, 1, 3).selectExpr("string(id) value"), topic="t")
    assert values_in(store, "t") == [[str(number) for number in range(40_000)]]


def test_an_error_in_the_block_leaves_nothing(spark, topics):
    rows = spark.range(0, 100_000, 1, 2).selectExpr("string(id) value", "repeat('x', 50) key")

    def fails_in_between():
        with Publish(topics.path, "p", 0) as out:
            out.write(rows, topic="even")
            out.write(numbers(spark, 1).selectExpr("value", "'made-by-column' topic"))
            assert staged_files(topics)
            raise KeyError("nobody")

    with pytest.raises(KeyError):
        fails_in_between()
    assert (contents(topics), staged_files(topics), last_number(topics.decisions, "p")) == ([[], [], []], [], None)
    with Publish(topics.path, "p", 0) as out:
        out.write(numbers(spark, 2), topic="even")
    assert contents(topics) == [["2"], [], []]


@pytest.mark.slow
def test_what_is_refused(spark, topics):
    for arguments in (("", 0), ("p", -1)):
        with fails(r"\[PYLOG_INVALID_OPTION\].*an id and a number"):
            Publish(topics.path, *arguments)
    out = Publish(topics.path, "p", 0)
    with out:
        with fails(r"\[PYLOG_"):
            out.write(spark.range(1), topic="even")
        with fails(r"\[PYLOG_INVALID_TOPIC\]"):
            out.write(numbers(spark, 1), topic="__consumer_offsets")
        with fails(r"\[PYLOG_INVALID_TOPIC\]"):
            out.write(numbers(spark, 1).selectExpr("value", "'__consumer_offsets' topic"))
    with fails("has ended"):
        out.write(numbers(spark, 1), topic="even")
    with fails(r"\[PYLOG_PUBLISH_NUMBER\].*number 2 after 0"), Publish(topics.path, "p", 2) as out:
        out.write(numbers(spark, 1), topic="even")
    assert contents(topics) == [[], [], []]


@pytest.mark.slow
def test_a_query_writes_each_micro_batch_once(spark, topics, tmp_path):
    fill(topics, "source", range(0, 6), range(6, 10))
    source = read_stream(spark, topics, "source", columns=VALUE, maxOffsetsPerTrigger="4")
    run_to_the_end(source.writeStream.foreachBatch(split(topics)), tmp_path / "checkpoint")
    whole = contents(topics)
    assert whole[:2] == [["0", "2", "4", "6", "8"], ["1", "3", "5", "7", "9"]]
    assert sum(map(int, whole[2])) == 10
    # A micro-batch that Spark does not know to be done runs again, and is recognised.
    last = last_number(topics.decisions, "split")
    (tmp_path / "checkpoint" / "commits" / str(last)).unlink()
    (tmp_path / "checkpoint" / "commits" / f".{last}.crc").unlink(missing_ok=True)
    run_to_the_end(source.writeStream.foreachBatch(split(topics)), tmp_path / "checkpoint")
    assert contents(topics) == whole
    fill(topics, "source", range(10, 12))
    run_to_the_end(source.writeStream.foreachBatch(split(topics)), tmp_path / "checkpoint")
    assert [len(values) for values in contents(topics)[:2]] == [6, 6]


@pytest.mark.slow
@pytest.mark.long
def test_another_query_cannot_have_the_id_and_a_copy_of_the_checkpoint_fences_the_first(spark, topics, tmp_path):
    fill(topics, "source", range(4))
    source = read_stream(spark, topics, "source", columns=VALUE)
    run_to_the_end(source.writeStream.foreachBatch(split(topics)), tmp_path / "checkpoint")
    with fails(r"PYLOG_PUBLISHER_FENCED.*belongs to the checkpoint of query .* \(process \d+ on .*, since 20"):
        run_to_the_end(source.writeStream.foreachBatch(split(topics)), tmp_path / "of another query")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    before = contents(topics)
    # The copy continues with its own input; the first, restarted, is the newer one again.
    fill(topics, "source", range(4, 6))
    run_to_the_end(source.writeStream.foreachBatch(split(topics)), tmp_path / "copy")
    assert [len(values) for values in contents(topics)] == [len(before[0]) + 1, len(before[1]) + 1, 2]


@pytest.mark.slow
@pytest.mark.long
def test_a_block_without_rows_belongs_to_its_query_too(spark, topics, tmp_path):
    """Also where nothing is written, or Spark runs no task for what is written, as it sees that it is empty."""
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "0").write_text("0\n1\n")
    source = spark.readStream.text(str(tmp_path / "input"))
    run_to_the_end(source.writeStream.foreachBatch(split(topics)), tmp_path / "checkpoint")

    def nothing(writes):
        def function(batch, _):
            with Publish(topics.path, "split", last_number(topics.decisions, "split") + 1) as out:
                for topic in writes:
                    out.write(batch.where("false"), topic=topic)

        return function

    for number, writes in enumerate(((), ("even", "odd")), 1):
        with fails(r"PYLOG_PUBLISHER_FENCED.*belongs to the checkpoint of query .*; this is the checkpoint of query "):
            run_to_the_end(source.writeStream.foreachBatch(nothing(writes)), tmp_path / f"of another query {number}")
        (tmp_path / "input" / str(number)).write_text("2\n")
        run_to_the_end(source.writeStream.foreachBatch(nothing(writes)), tmp_path / "checkpoint")
        assert last_number(topics.decisions, "split") == number
