"""What Spark keeps in its state of the records of two topics: sessions, states of keys, keys seen, and joins.

Each query runs to its end and again after more records, so that its state and its watermark come from the checkpoint.
The reader of states finds what is left there.
"""

from contextlib import contextmanager

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.functions import expr, session_window
from pyspark.sql.streaming import StatefulProcessor
from spark_tools import all_values_in, read_stream, run_to_the_end, write_stream

from pyspark_log.spark_connector.abilities import HAS_ADMISSION

# The records' times are so many seconds after this one.
BEGIN = 1_700_000_000
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def add(store, topic, *records):
    """Appends records of a key and a second, in turn to two partitions of a topic, which is made if it is missing."""
    if topic not in store.topics():
        store.create_topic(topic, 2, {"retention.ms": "-1"})
    for partition in range(2):
        if rows := [
            {"key": key, "value": key, "timestamp": (BEGIN + second) * 1000} for key, second in records[partition::2]
        ]:
            store.append(topic, pa.RecordBatch.from_pylist(rows), partition=partition)


def read_keys(spark, store, topics):
    """A stream of key, timestamp and second, with a watermark of ten seconds."""
    columns = ("cast(key as string) key", "timestamp", f"cast(timestamp as long) - {BEGIN} second")
    return read_stream(spark, store, topics, columns).withWatermark("timestamp", "10 seconds")


def joined_with_blanks(*columns):
    """An expression: the values of a row, with - for a null."""
    values = ", ".join(f"nvl(string({column}), '-')" for column in columns)
    return f"concat_ws(' ', {values}) value"


def write_all(rows, store, checkpoint, topic):
    """Writes the rows of all records that there are, until the watermark is where the last of them moves it."""
    writer = rows.writeStream.format("pylog").options(topic=topic, checkpointLocation=str(checkpoint))
    query = writer.start(store.path)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def state_rows(spark, checkpoint, *columns, **options):
    """What the reader of states shows of a checkpoint's state after its last micro-batch, sorted."""
    rows = spark.read.format("statestore").options(**options).load(str(checkpoint)).selectExpr(*columns).collect()
    return sorted(map(tuple, rows))


def operators(spark, checkpoint):
    """The names of a checkpoint's operators and of their stores."""
    rows = spark.read.format("state-metadata").load(str(checkpoint)).collect()
    return sorted((row.operatorName, row.stateStoreName) for row in rows)


@contextmanager
def states_in_rocks_db(spark):
    """Which Spark requires for the states of `transformWithState`."""
    spark.conf.set(PROVIDER, ROCKS_DB)
    try:
        yield
    finally:
        spark.conf.unset(PROVIDER)


def test_sessions(spark, store, tmp_path):
    add(store, "clicks", ("ann", 0), ("bob", 3), ("ann", 8))
    add(store, "views", ("ann", 14), ("bob", 30))
    bounds = [f"unix_seconds(session_window.{bound}) - {BEGIN}" for bound in ("start", "end")]
    sessions = (
        read_keys(spark, store, "clicks,views")
        .groupBy("key", session_window("timestamp", "10 seconds"))
        .count()
        .selectExpr(joined_with_blanks("key", *bounds, "count"))
    )
    write_stream(sessions, store, tmp_path / "cp", topic="sessions")
    # The watermark is 20 then, and ann's session to 24 still open. Spark closes bob's in the micro-batch after the one
    # that found the watermark. Before 4.2 a query that reads what is available has no other at its end.
    assert all_values_in(store, "sessions") == (["bob 3 13 1"] if HAS_ADMISSION else [])

    add(store, "clicks", ("ann", 23), ("bob", 60))
    write_all(sessions, store, tmp_path / "cp", "sessions")
    assert all_values_in(store, "sessions") == ["ann 0 33 4", "bob 3 13 1", "bob 30 40 1"]

    assert operators(spark, tmp_path / "cp") == [("sessionWindowStateStoreSaveExec", "default")]
    columns = ("key.key", f"unix_seconds(key.sessionStartTime) - {BEGIN}", "value.count")
    assert state_rows(spark, tmp_path / "cp", *columns) == [("bob", 60, 1)]


@pytest.mark.slow
def test_states_of_keys_with_timers(spark, store, tmp_path):
    """A count and a list for each key; the timer of a key that is idle for twenty seconds clears them."""

    class Visits(StatefulProcessor):
        def init(self, handle):
            self._handle = handle
            self._count = handle.getValueState("count", "count long")
            self._seconds = handle.getListState("seconds", "second long")

        def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark's names
            seconds = sorted(second for frame in rows for second in frame["second"].tolist())
            (count,) = self._count.get() if self._count.exists() else (0,)
            self._count.update((count + len(seconds),))
            self._seconds.appendList([(second,) for second in seconds])
            for timer in list(self._handle.listTimers()):
                self._handle.deleteTimer(timer)
            self._handle.registerTimer((BEGIN + seconds[-1] + 20) * 1000)
            yield pd.DataFrame({"value": [f"{key[0]} has {count + len(seconds)}"]})

        def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803 - Spark's names
            (count,) = self._count.get()
            seconds = sorted(second for (second,) in self._seconds.get())
            self._count.clear()
            self._seconds.clear()
            yield pd.DataFrame({"value": [f"{key[0]} had {count} at {seconds}"]})

        def close(self):
            pass

    add(store, "clicks", ("ann", 0), ("bob", 3), ("ann", 8))
    add(store, "views", ("ann", 14), ("bob", 30))
    visits = (
        read_keys(spark, store, "clicks,views")
        .groupBy("key")
        .transformWithStateInPandas(Visits(), "value string", "append", "EventTime")
    )
    with states_in_rocks_db(spark):
        write_all(visits, store, tmp_path / "cp", "visits")
        first = ["ann has 3", "bob has 2"]
        assert all_values_in(store, "visits") == first

        add(store, "clicks", ("bob", 23), ("cid", 52))
        write_all(visits, store, tmp_path / "cp", "visits")
        second = ["ann had 3 at [0, 8, 14]", "bob has 3", "cid has 1"]
        assert all_values_in(store, "visits") == sorted(first + second)

        counts = state_rows(spark, tmp_path / "cp", "key.key", "value.count", stateVarName="count")
        assert counts == [("bob", 3), ("cid", 1)]
        seconds = state_rows(spark, tmp_path / "cp", "key.key", "list_element.second", stateVarName="seconds")
        assert seconds == [("bob", 3), ("bob", 23), ("bob", 30), ("cid", 52)]


@pytest.mark.slow
def test_a_key_once_within_the_watermark(spark, store, tmp_path):
    """A key that is there already is forgotten when the watermark is ten seconds beyond its first record."""
    add(store, "clicks", ("ann", 0), ("bob", 3), ("ann", 8))
    add(store, "views", ("ann", 14), ("bob", 5))
    keys = (
        read_keys(spark, store, "clicks,views")
        .dropDuplicatesWithinWatermark(["key"])
        .selectExpr("concat('first ', key) value")
    )
    write_all(keys, store, tmp_path / "cp", "keys")
    assert all_values_in(store, "keys") == ["first ann", "first bob"]

    # The watermark is 4 when these come, so both keys are known, and 20 after them.
    add(store, "views", ("bob", 9), ("cid", 30))
    write_all(keys, store, tmp_path / "cp", "keys")
    assert all_values_in(store, "keys") == ["first ann", "first bob", "first cid"]
    assert operators(spark, tmp_path / "cp") == [("dedupeWithinWatermark", "default")]
    assert state_rows(spark, tmp_path / "cp", "key.key") == [("cid",)]

    add(store, "clicks", ("ann", 31), ("cid", 32))
    write_all(keys, store, tmp_path / "cp", "keys")
    assert all_values_in(store, "keys") == ["first ann", "first ann", "first bob", "first cid"]


@pytest.mark.slow
def test_an_outer_join_of_two_topics(spark, store, tmp_path):
    add(store, "orders", ("a", 0), ("b", 3), ("c", 8))
    add(store, "payments", ("b", 5), ("c", 40), ("d", 6))
    condition = "o.key = p.key AND p.timestamp BETWEEN o.timestamp AND o.timestamp + INTERVAL 10 seconds"
    joined = (
        read_keys(spark, store, "orders")
        .alias("o")
        .join(read_keys(spark, store, "payments").alias("p"), expr(condition), "full_outer")
        .selectExpr(joined_with_blanks("o.key", "o.second", "p.key", "p.second"))
    )
    write_all(joined, store, tmp_path / "cp", "joined")
    # The watermark is the lower one of both, before the first record.
    assert all_values_in(store, "joined") == ["b 3 b 5"]

    add(store, "orders", ("e", 60))
    add(store, "payments", ("e", 70), ("f", 75))
    write_all(joined, store, tmp_path / "cp", "joined")
    # It is 50 now.
    assert all_values_in(store, "joined") == ["- - c 40", "- - d 6", "a 0 - -", "b 3 b 5", "c 8 - -", "e 60 e 70"]

    sides = {
        side: state_rows(spark, tmp_path / "cp", "value.key", "value.second", joinSide=side)
        for side in ("left", "right")
    }
    assert sides == {"left": [("e", 60)], "right": [("e", 70), ("f", 75)]}
    stores = [f"{side}-{kind}" for side in ("left", "right") for kind in ("keyToNumValues", "keyWithIndexToValue")]
    assert operators(spark, tmp_path / "cp") == [("symmetricHashJoin", store) for store in stores]


@pytest.mark.slow
def test_each_row_to_an_object_in_the_tasks(spark, store, tmp_path):
    """`foreach` opens it for each partition of a micro-batch; a second run has the rows that are new."""
    add(store, "clicks", ("ann", 0), ("bob", 3), ("ann", 8))
    add(store, "views", ("ann", 14), ("bob", 30))
    folder = tmp_path / "rows"
    folder.mkdir()

    class Files:
        """A line for each row, in a file that is there once its partition is complete."""

        def open(self, partition_id, epoch_id):
            self._path, self._lines = folder / f"{epoch_id}-{partition_id}", []
            return True

        def process(self, row):
            self._lines.append(f"{row.topic} {row.partition} {row.offset} {row.key.decode()}\n")

        def close(self, error):
            if error is None:
                self._path.write_text("".join(self._lines))

    def run():
        rows = read_stream(spark, store, "clicks,views", ("topic", "partition", "offset", "key"))
        run_to_the_end(rows.writeStream.foreach(Files()), tmp_path / "cp")
        return [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]

    first = ["clicks 0 0 ann", "clicks 0 1 ann", "clicks 1 0 bob", "views 0 0 ann", "views 1 0 bob"]
    assert sorted(run()) == first
    add(store, "views", ("cid", 31))
    assert sorted(run()) == sorted([*first, "views 0 1 cid"])
