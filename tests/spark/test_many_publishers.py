"""Ten streaming queries and batch jobs publish to the same partitions at once."""

import json
import os
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from spark_tools import values_in

QUERIES, JOBS = 10, 3
TOPICS = ("even", "odd")
BATCHES, BATCH_ROWS, JOB_ROWS = 3, 400, 5_000


def output(rows, publisher):
    """Where numbers go: to both topics, and to both partitions of each, in their order."""
    return rows.selectExpr(
        f"concat('{publisher}: ', id) value", "int(id % 2) partition", "if(id div 2 % 2 = 0, 'even', 'odd') topic"
    )


def wanted(rows):
    """What each partition gets of the numbers below `rows`."""
    return {(topic, at): list(range(at + 2 * TOPICS.index(topic), rows, 4)) for topic in TOPICS for at in range(2)}


def query(spark, store, folder, number):
    """Writes numbers from files, a file a micro-batch."""
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(folder / "input"))
    writer = output(rows, f"query {number}").writeStream.format("pylog")
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint {number}"))
    return writer.trigger(availableNow=True).start(store.path)


def job(spark, store, number, marks=None):
    """Writes numbers. With a folder for marks it makes `begun` there, and does not end before there is `continue`."""

    def hold_up(batches):
        for batch in batches:
            yield batch
            if marks is not None:
                (marks / "begun").touch()
                while not (marks / "continue").exists():
                    time.sleep(0.01)

    # In a thread of its own Spark finds no Python data source for a write before the session is active there.
    spark.createDataFrame([], "id long")
    rows = spark.range(0, JOB_ROWS, 1, 1).mapInArrow(hold_up, "id long")
    output(rows, f"job {number}").write.format("pylog").mode("append").save(store.path)


def by_publisher(store):
    """What each publisher has in each partition, in its order."""
    found = defaultdict(lambda: defaultdict(list))
    for topic in TOPICS:
        for partition, values in enumerate(values_in(store, topic)):
            for value in values:
                name, number = value.split(": ")
                found[name][topic, partition].append(int(number))
    return found


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_many_publishers_at_once(spark, store, tmp_path):
    for topic in TOPICS:
        store.create_topic(topic, 2, {"segment.bytes": "30000"})
    (tmp_path / "input").mkdir()
    for number in range(BATCHES):
        lines = [json.dumps({"id": number * BATCH_ROWS + row}) for row in range(BATCH_ROWS)]
        path = tmp_path / f"input/{number}.json"
        path.write_text("\n".join(lines))
        # The source takes the oldest file first.
        os.utime(path, (1e9 + number, 1e9 + number))
    with ThreadPoolExecutor(JOBS + 1) as pool:
        long_job = pool.submit(job, spark, store, JOBS, tmp_path)
        while not (tmp_path / "begun").exists():
            assert not long_job.done()
            time.sleep(0.01)
        queries = [query(spark, store, tmp_path, number) for number in range(QUERIES)]
        jobs = [pool.submit(job, spark, store, number) for number in range(JOBS)]
        try:
            for one in queries:
                assert one.awaitTermination(500), one.status
            for one in jobs:
                one.result(500)
            # It has staged all the while, and has delayed no other publisher.
            assert not long_job.done()
            assert f"job {JOBS}" not in by_publisher(store)
        finally:
            (tmp_path / "continue").touch()
        long_job.result(300)
    expected = {f"query {number}": wanted(BATCHES * BATCH_ROWS) for number in range(QUERIES)}
    expected |= {f"job {number}": wanted(JOB_ROWS) for number in range(JOBS + 1)}
    assert by_publisher(store) == expected
