"""Tasks of one write that went by different partitions of a topic publish nothing."""

import os

import pyarrow as pa
import pytest

from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.spark_connector.writing.commit import StagedMessage, publish_batch
from pyspark_log.spark_connector.writing.query_run import QueryRun
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan
from pyspark_log.storage.store import Store


def task(store, plan):
    """What a task reports."""
    writer = StagedWriter(store.logs, plan)
    writer.append("new", pa.record_batch({"key": [b"%d" % key for key in range(40)], "value": [b"v"] * 40}))
    parts = writer.finish()
    return StagedMessage(parts, QueryRun("", "", ""), agreed=tuple(writer.agreed))


@pytest.mark.parametrize("removed", [False, True])
def test_an_agreement_that_was_removed_while_tasks_were_at_work_is_noticed(tmp_path, removed):
    store = Store.create(tmp_path / "store")
    store.create_topic("seed", 1)
    plan = StagingPlan.make(store.logs, ["seed"], others=True)
    first = task(store, plan)
    store.add_partitions("new", 7)
    if removed:
        os.unlink(f"{store.path}/staging/{first.agreed[0].file}")
    messages = [first, task(store, plan)]
    ends = [store.latest_offset("new", partition) for partition in range(7)]
    if removed:
        with pytest.raises(ConnectorError, match=r"not published: .* saw 1 and 7 partitions of topic 'new'.*again"):
            publish_batch(StoreRef.to(store), messages, "p", 0, one_off=False)
        assert [store.latest_offset("new", partition) for partition in range(7)] == ends
    else:
        publish_batch(StoreRef.to(store), messages, "p", 0, one_off=False)
        assert [store.latest_offset("new", partition) for partition in range(7)] == [80, 0, 0, 0, 0, 0, 0]
