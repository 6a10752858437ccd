"""What the driver refuses to publish, and what it does before it publishes."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from pyspark_log import DefaultSource
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.spark_connector.writing.commit import (
    StagedMessage,
    WritePlan,
    publish_batch,
    publish_micro_batch,
    stage,
)
from pyspark_log.spark_connector.writing.query_run import QueryRun
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.store import Store


@pytest.fixture
def ref(tmp_path):
    return StoreRef.to(Store.create(tmp_path / "store"))


def message(*run):
    return StagedMessage((), QueryRun(*run))


def test_a_task_that_reports_nothing(ref):
    messages = [message("q", "r", ""), None]
    with pytest.raises(ConnectorError, match=r"PYLOG_INCOMPLETE_WRITE\] not published: 1 of 2 tasks"):
        publish_batch(ref, messages, "p", 0, one_off=True)
    with pytest.raises(ConnectorError, match="PYLOG_INCOMPLETE_WRITE"):
        publish_micro_batch(ref, messages, 0, "", "")


@pytest.mark.parametrize("runs", [[("q", "r1", ""), ("q", "r2", "")], [("", "r", "")]])
def test_tasks_that_are_not_of_one_query(ref, runs):
    with pytest.raises(ConnectorError, match=r"PYLOG_UNKNOWN_QUERY\] not published: "):
        publish_micro_batch(ref, [message(*run) for run in runs], 0, "", "")


def test_what_is_kept_of_a_failed_write_is_said(ref, caplog):
    ref.reopen().create_topic("t")
    source = DefaultSource({"path": ref.place.path, "topic": "t"})
    source.writer(StructType([StructField("value", StringType())]), overwrite=False).abort([None])
    path = ref.place.path
    assert f"staged output of its 1 task is kept in {path} until staged.output.expiration.ms has passed" in caplog.text


NOW, WEEK = now_ms(), 7 * 86_400_000


@pytest.mark.parametrize("before", [500, 1500, 2000, 1_000_000])
def test_a_time_before_1970_is_refused(ref, monkeypatch, before):
    """But that of records without a time, as they are read: -1 ms."""
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(getLocalProperty=lambda _: None))
    store = ref.reopen()
    store.create_topic("t")
    plan = WritePlan(ref, "t", "at", store.publishes.plan(["t"]))
    good, bad = (
        pa.record_batch({"value": ["v", "w"], "at": pa.array(times, pa.timestamp("us", "UTC"))})
        for times in ([None, -1000], [5, -before])
    )
    assert [part.count for part in stage(plan, [good]).parts] == [2]
    with pytest.raises(ConnectorError, match=r"\[PYLOG_INVALID_RECORD\] (t: )?row 1 has (the time|timestamp)"):
        stage(plan, [good, bad])


@pytest.mark.parametrize("column", [False, True], ids=["option", "column"])
@pytest.mark.parametrize(
    ("created", "ages", "kept"),
    [
        (False, [WEEK * 2, 0], True),  # one that the write creates
        (False, [WEEK // 2, None], False),
        (True, [WEEK * 2], False),  # one that is there
    ],
)
def test_a_topic_that_a_write_creates_keeps_old_records(place, caplog, monkeypatch, column, created, ages, kept):
    """Else a load of old events would be gone after the write that follows."""
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(getLocalProperty=lambda _: None))
    with Store.create(place) as store:
        if created:
            store.create_topic("t")
        given = {} if column else {"topic": "t"}
        source = DefaultSource({"path": store.path, "timestampColumn": "at", **given})
        times = pa.array([None if age is None else NOW - age for age in ages], pa.timestamp("ms", "UTC"))
        rows = {"value": ["v"] * len(ages), "at": times}
        schema = StructType([StructField("value", StringType()), StructField("at", TimestampType())])
        if column:
            rows["topic"] = ["t"] * len(ages)
            schema.add("topic", StringType())
        writer = source.writer(schema, overwrite=False)
        writer.commit([writer.write(iter([pa.record_batch(rows)])) for _ in range(2)])
        found = store.describe_topic("t").configs
        assert found == ({"retention.ms": "-1"} if kept else {})
        assert ("topic t is created with retention.ms=-1, as its first records are of 20" in caplog.text) == kept
        assert ("created the missing topic t, with 1 partition" in caplog.text) != created
