"""What the driver refuses to publish."""

import pytest

from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.spark_connector.writing.commit import publish_batch, publish_micro_batch
from pyspark_log.spark_connector.writing.query_run import QueryRun
from pyspark_log.spark_connector.writing.task_writer import StagedMessage
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
