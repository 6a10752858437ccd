"""A topic has a bounded number of partitions, and those that were never written to cost nothing."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from broker_tools import add, batch, mirrored
from cli_tools import output

from pyspark_log import Store
from pyspark_log.errors import InvalidConfigError
from pyspark_log.storage.catalog.topics import MAX_PARTITIONS
from pyspark_log.storage.compaction import cleaner
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.types import TopicPartition
from tests.store_tools import new_store

HUGE = 2**31 - 1
ROW = pa.record_batch({"key": [b"k"], "value": [b"v"]})


def test_more_partitions_than_a_topic_can_have_are_refused(tmp_path):
    store = Store.create(tmp_path / "store")
    for count in (0, -1, MAX_PARTITIONS + 1, HUGE, 2**64):
        with pytest.raises(InvalidConfigError, match=f"{count} partitions; it can have 1 to {MAX_PARTITIONS}"):
            store.create_topic("t", count)
    assert store.topics() == []
    store.create_topic("t", 3)
    with pytest.raises(InvalidConfigError, match=f"1 to {MAX_PARTITIONS}"):
        store.add_partitions("t", MAX_PARTITIONS + 1)
    assert store.describe_topic("t").partitions == 3
    assert store.add_partitions("t", MAX_PARTITIONS).partitions == MAX_PARTITIONS
    settings = Store.create(tmp_path / "many", {"num.partitions": str(HUGE), "offsets.topic.num.partitions": str(HUGE)})
    with pytest.raises(InvalidConfigError, match=f"1 to {MAX_PARTITIONS}"):
        settings.create_topic("t")
    with pytest.raises(InvalidConfigError, match=f"1 to {MAX_PARTITIONS}"):
        OffsetsLog(settings).commit("g", {TopicPartition("t", 0): 1})


def test_partitions_without_records_cost_nothing(tmp_path):
    """Of a topic that an earlier version was given with as many as there are numbers."""
    store = new_store(tmp_path, {"cleanup.policy": "compact,delete", "retention.ms": "-1"}, partitions=7)
    path = tmp_path / "store" / "topics" / "t.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"partitions": HUGE}))
    for partition in (6, 5_000_000):
        with store.logs.writer("t", partition).hold() as writer:
            writer.append(bytearray(batch(0, b"v")), sync=False)
    store = Store.open(store.path)
    assert store.written_partitions("t") == [6, 5_000_000]
    store.flush()
    assert store.clean() == 0
    assert [one.partitions.keys() for one in store.describe_log_dirs()] == [
        {TopicPartition("t", 6), TopicPartition("t", 5_000_000)}
    ]
    assert cleaner.due(store.logs) == []
    report = verify(store.path)
    assert (report.partitions, report.damaged) == (2, False)
    for command in (["topics", "list"], ["topics", "describe"], ["consume", "t"], ["log-dirs", "list"], ["verify"]):
        output(store, *command)
    assert output(store, "consume", "t") == "v\nv\n"
    store.delete_topic("t")
    assert not list((tmp_path / "store" / "data").glob("t-[0-9]"))
    assert store.topics() == []


def test_a_folder_with_a_high_number(tmp_path):
    root = tmp_path / "logs"
    root.mkdir()
    add(root / f"t-{HUGE}", 0, batch(0, b"x"))
    source = Store.open(root)
    assert source.written_partitions("t") == [HUGE]
    assert not verify(root).damaged
    (result,) = mirrored(Store.create(tmp_path / "store"), root, "t").values()
    assert f"1 to {MAX_PARTITIONS}" in str(result.error)
