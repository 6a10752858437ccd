"""Topics and partitions that are created, deleted and recreated while a streaming query reads them."""

import json
import random
import time

import pyarrow as pa
import pytest
from spark_tools import fails, fill, read_stream

from tests.amounts import one_in
from tests.query_offsets import of_topics
from tests.seeds import new_seed

# Without the second for which a query waits before it takes records as lost.
LENIENT = {"failOnDataLoss": "false", "startingOffsets": "earliest", "fetchOffset.retryIntervalMs": "1"}


def of_pattern(spark, store):
    return spark.readStream.format("pylog").options(subscribePattern="^t-", **LENIENT).load(store.path)


def to_list(df, seen, checkpoint):
    """A stream that puts the values into a list."""
    writer = df.writeStream.foreachBatch(
        lambda batch, _number: seen.extend(row.value.decode() for row in batch.select("value").collect())
    )
    return writer.option("checkpointLocation", str(checkpoint))


@pytest.mark.slow
def test_topics_of_a_pattern_come_and_go(spark, store, tmp_path):
    fill(store, "t-a", ["a"], ["a"])
    seen = []
    query = to_list(of_pattern(spark, store), seen, tmp_path).start()

    def check(*expected):
        query.processAllAvailable()
        assert sorted(seen) == sorted(expected)
        seen.clear()

    try:
        check("a", "a")
        fill(store, "t-b", ["b", "b"])
        check("b", "b")
        store.delete_topic("t-a")
        fill(store, "t-c", ["c"])
        check("c")
        for topic in ("t-b", "t-c"):
            store.delete_topic(topic)
        check()
        fill(store, "t-d", ["d"])
        check("d")
    finally:
        query.stop()
    entries = [path.read_text().splitlines()[-1] for path in (tmp_path / "offsets").iterdir() if path.name.isdigit()]
    assert len(entries) >= 4
    assert all(of_topics(json.loads(entry)) for entry in entries)


# What the topic is recreated with: fewer partitions, or fewer records.
SMALLER = pytest.mark.parametrize("again", [[["new"] * 20], [["new"], []]], ids=["partitions", "records"])


@pytest.mark.slow
@SMALLER
@pytest.mark.parametrize("fail_on_data_loss", one_in(2, ["true", "false"]))
def test_a_topic_is_recreated_during_available_now(spark, store, tmp_path, again, fail_on_data_loss):
    fill(store, "t", range(10), range(10, 20))
    seen = []

    def take(batch, number):
        seen.extend(row.value.decode() for row in batch.collect())
        if number == 0:
            store.delete_topic("t")
            fill(store, "t", *again)

    df = read_stream(spark, store, "t", maxOffsetsPerTrigger="4", failOnDataLoss=fail_on_data_loss)
    query = df.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    if fail_on_data_loss == "true":
        with fails(r"\[PYLOG_DATA_LOSS.PARTITIONS_DELETED\] Partitions t-0, t-1 .*recreated"):
            query.start().awaitTermination()
        assert sorted(seen) == ["0", "1", "10", "11"]
    else:
        query.start().awaitTermination()
        query.start().awaitTermination()
        assert sorted(seen) == sorted(["0", "1", "10", "11", *(value for values in again for value in values)])


@pytest.mark.slow
@pytest.mark.long
def test_any_changes_for_twenty_seconds(spark, store, tmp_path):
    seed = new_seed()
    print("seed", seed)
    chance, seen, appended = random.Random(seed), [], 0
    query = to_list(of_pattern(spark, store), seen, tmp_path).start()
    try:
        query.processAllAvailable()
        until = time.monotonic() + 20
        while time.monotonic() < until:
            assert query.isActive, str(query.exception())
            topic = f"t-{chance.randrange(5)}"
            if topic not in store.topics():
                store.create_topic(topic, chance.randrange(1, 4), {"file.delete.delay.ms": "0"})
            elif chance.random() < 0.1:
                store.delete_topic(topic)
            else:
                count = chance.randrange(1, 6)
                values = [str(value) for value in range(appended, appended + count)]
                store.append(topic, pa.record_batch({"value": values}))
                appended += count
        fill(store, "t-last", ["last"])
        query.processAllAvailable()
        assert query.isActive, str(query.exception())
    finally:
        query.stop()
    assert seen.count("last") == 1
    assert len(seen) == len(set(seen))
    assert len(seen) < appended
