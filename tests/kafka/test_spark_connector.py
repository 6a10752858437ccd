"""Spark's own Kafka connector over a broker, and ours over that broker's folder: the same rows, tasks and offsets."""

import json
from pathlib import Path

import pytest
from chispa import assert_df_equality
from kafka_clients import create_topics
from test_kafka_reads import SMALL, consumed, producer, rows_of, send, shown

TOPIC = "beside"
COUNTS = (90, 31, 2)


@pytest.fixture(scope="module")
def logs(broker):
    """The broker's folder, with a topic of plain records in three partitions, and one of transactions."""
    create_topics(broker, {TOPIC: len(COUNTS), "beside-ended": 1}, SMALL)
    with producer(broker, compression_type="gzip", linger_ms=20) as found:
        for partition, count in enumerate(COUNTS):
            send(found, TOPIC, rows_of(count), partition)
    with producer(broker, transactional_id="beside", transaction_timeout_ms=600_000) as found:
        found.init_transactions()
        for number in range(5):
            found.begin_transaction()
            send(found, "beside-ended", rows_of(6))
            if number % 2:
                found.abort_transaction()
            else:
                found.commit_transaction()
        found.begin_transaction()
        send(found, "beside-ended", rows_of(3))
        for topic, partitions in ((TOPIC, len(COUNTS)), ("beside-ended", 1)):
            for partition in range(partitions):
                shown(broker, topic, consumed(broker, topic, partition)[1], partition)
        yield broker.log_dir
        found.abort_transaction()


@pytest.fixture
def both(spark, broker, logs):
    """Two readers with the same options: Spark's own one and ours."""

    def read(reader, options):
        kafkas = reader.format("kafka").options(**{"kafka.bootstrap.servers": broker.bootstrap, **options}).load()
        return kafkas, reader.format("pylog").options(**options).load(str(logs))

    return read


def tasks(df):
    """What each task has of a partition: how many rows, and from which offset on."""
    aggregated = df.groupBy("partition", "task").agg({"offset": "min", "*": "count"})
    return sorted((row.partition, row["min(offset)"], row["count(1)"]) for row in aggregated.collect())


def offsets(*numbers):
    return json.dumps({TOPIC: {str(partition): offset for partition, offset in enumerate(numbers)}})


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"includeHeaders": "true"}, 3),
        ({"startingOffsets": offsets(7, -2, 2), "endingOffsets": offsets(-1, 30, -1)}, 2),
        ({"minPartitions": "10"}, 10),
        ({"maxRecordsPerPartition": "10"}, 3),
        ({"maxRecordsPerPartition": "11", "minPartitions": "17", "endingOffsets": offsets(90, 31, 2)}, 13),
        ({"startingTimestamp": "1700000000007", "endingOffsets": offsets(80, -1, -1)}, 3),
    ],
)
def test_batch_reads(spark, both, options, count):
    kafkas, ours = both(spark.read, {"subscribe": TOPIC, **options})
    assert_df_equality(ours, kafkas, ignore_row_order=True)
    found = [tasks(df.selectExpr("*", "spark_partition_id() task")) for df in (ours, kafkas)]
    assert found[0] == found[1]
    assert len(found[0]) == count


@pytest.mark.parametrize(("level", "count"), [("read_committed", 18), ("read_uncommitted", 33)])
@pytest.mark.parametrize("least", ["1", "7"])
def test_isolation_levels(spark, both, level, count, least):
    options = {"subscribe": "beside-ended", "kafka.isolation.level": level, "minPartitions": least}
    kafkas, ours = both(spark.read, options)
    assert_df_equality(ours, kafkas, ignore_row_order=True)
    assert ours.count() == count


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 1),
        ({"maxOffsetsPerTrigger": "40", "minPartitions": "5", "kafka.isolation.level": "read_committed"}, 4),
    ],
)
def test_streams(spark, both, tmp_path, options, count):
    """Both keep the same offsets in their checkpoints, batch by batch."""
    kept, rows = [], []
    given = {"subscribe": f"{TOPIC},beside-ended", "startingOffsets": "earliest", "includeHeaders": "true", **options}
    for name, df in zip(("kafkas", "ours"), both(spark.readStream, given), strict=True):
        checkpoint = tmp_path / name
        query = (
            df.writeStream.format("memory").queryName(name).option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        kept.append(offsets_in(checkpoint))
        rows.append(spark.table(name))
    assert_df_equality(rows[0], rows[1], ignore_row_order=True)
    assert kept[0] == kept[1]
    assert len(kept[0]) == count


def offsets_in(checkpoint):
    """The offsets of each batch, without what is ours alone."""
    batches = {}
    for path in Path(checkpoint, "offsets").iterdir():
        if path.name.isdigit():
            offset = json.loads(path.read_text().splitlines()[-1])
            offset.pop("@", None)
            batches[int(path.name)] = offset
    return batches
