"""How large micro-batches are, and what the query's progress says is left."""

import json

import pytest
from spark_tools import batch_sizes, fails, fill, read_stream, run_to_the_end

from tests.amounts import one_in

LONG_MAX = 2**63 - 1


def left_after_each(query):
    """How many records each micro-batch has left, all partitions together."""
    found = []
    for progress in query.recentProgress:
        (source,) = json.loads(progress.json)["sources"]
        seen, done = source["latestOffset"]["t"], source["endOffset"]["t"]
        found.append(sum(seen[partition] - done[partition] for partition in seen))
    return found


@pytest.mark.slow
def test_limited_and_unlimited_batches_and_the_lag(spark, store, tmp_path):
    fill(store, "t", range(15))
    limited = read_stream(spark, store, "t", maxOffsetsPerTrigger="5").writeStream.format("noop")
    query = run_to_the_end(limited, tmp_path / "limited")
    assert batch_sizes(query) == [5, 5, 5]
    assert left_after_each(query)[:3] == [10, 5, 0]
    query = limited.option("checkpointLocation", str(tmp_path / "once")).trigger(once=True).start()
    query.awaitTermination()
    assert batch_sizes(query) == [15]
    assert left_after_each(query) == [0]
    from_5 = read_stream(spark, store, "t", startingOffsets='{"t":{"0":5}}', maxOffsetsPerTrigger=str(LONG_MAX))
    assert batch_sizes(run_to_the_end(from_5.writeStream.format("noop"), tmp_path / "largest")) == [10]


@pytest.mark.slow
@pytest.mark.long
def test_a_limit_for_each_of_two_sources(spark, store, tmp_path):
    fill(store, "a", range(10))
    fill(store, "b", range(15))
    one, other = (read_stream(spark, store, topic, maxOffsetsPerTrigger="5") for topic in "ab")

    def sizes():
        query = run_to_the_end(one.union(other).writeStream.format("noop"), tmp_path)
        found = [[source.numInputRows for source in progress.sources] for progress in query.recentProgress]
        return [sources for sources in found if any(sources)]

    assert sizes() == [[5, 5], [5, 5], [0, 5]]
    # A restart keeps where the idle one is.
    fill(store, "b", range(5))
    assert sizes() == [[0, 5]]


@pytest.mark.slow
@pytest.mark.long
def test_shares_of_partitions_and_a_batch_that_fails(spark, store, tmp_path):
    """What the user's code raises is what the user sees, also after partitions were added."""
    fill(store, "t", range(101), range(101, 112), [112])
    seen = []

    def start(limit, fail_at=None):
        def take(batch, number):
            if number == fail_at:
                raise RuntimeError("the user's own")
            seen.append([batch.filter(f"partition = {partition}").count() for partition in range(4)])

        df = read_stream(spark, store, "t", ("partition",), maxOffsetsPerTrigger=limit)
        run_to_the_end(df.writeStream.foreachBatch(take), tmp_path)

    with fails("the user's own"):
        start("10", fail_at=1)
    store.add_partitions("t", 4)
    fill(store, "t", [], [], [], range(3))
    with fails("the user's own"):
        start("10", fail_at=1)
    assert seen == [[8, 1, 1, 0]]
    # The batch was planned: it is what it was, whatever the limit is now.
    start("1000")
    assert seen == [[8, 1, 1, 0], [9, 1, 0, 0], [84, 9, 0, 3]]


@pytest.mark.slow
@pytest.mark.parametrize("most", one_in(2, ["20", None]))
def test_a_trigger_waits_for_records_or_for_its_time(spark, store, tmp_path, most):
    options = {"minOffsetsPerTrigger": "15", **({"maxOffsetsPerTrigger": most} if most else {})}
    sizes = []

    def start(delay):
        df = read_stream(spark, store, "t", maxTriggerDelay=delay, **options)
        query = df.writeStream.foreachBatch(lambda batch, _number: sizes.append(batch.count()))
        return query.option("checkpointLocation", str(tmp_path)).start()

    fill(store, "t", range(10))
    query = start("1h")
    query.processAllAvailable()
    assert sizes == [10]  # The first one never waits.
    fill(store, "t", range(6))
    query.processAllAvailable()
    assert sizes == [10]
    fill(store, "t", range(16))
    query.processAllAvailable()
    # The two that are left above the limit are too few again.
    assert sizes == [10, 20] if most else [10, 22]
    query.stop()

    fill(store, "t", range(1))
    query = start("1s")
    try:
        # A restarted query does not wait with its first batch; with the next for its time.
        query.processAllAvailable()
        done = len(sizes)
        fill(store, "t", range(4))
        while len(sizes) == done:
            assert query.isActive, query.exception()
            query.processAllAvailable()
        assert sum(sizes) == 37
    finally:
        query.stop()


@pytest.mark.slow
def test_progress_is_not_tracked_asynchronously(spark, store, tmp_path):
    """A sink that publishes each micro-batch once has to know which are done."""
    fill(store, "t", [1])
    options = {"asyncProgressTrackingEnabled": "true", "checkpointLocation": str(tmp_path), "topic": "out"}
    with fails("does not support async progress tracking"):
        read_stream(spark, store, "t").writeStream.format("pylog").options(**options).start(store.path)
