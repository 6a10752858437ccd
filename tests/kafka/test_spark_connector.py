"""Spark's own Kafka connector over a broker, and ours over that broker's folder: the same rows, tasks and offsets."""

import json
from pathlib import Path

import pytest
from chispa import assert_df_equality
from kafka_clients import create_topics
from test_kafka_reads import NOW, SMALL, consumed, producer, rows_of, send, shown

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
        options = {name: value for name, value in options.items() if value is not None}
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


def times(*after):
    """A time for each partition, in ms after that of the first record."""
    return json.dumps({TOPIC: {str(partition): NOW + ms for partition, ms in enumerate(after)}})


# What a batch read is given, and how many rows both find; None: both refuse it.
SETS = [
    ({"subscribe": None, "subscribePattern": "^bes.de$"}, 123),
    ({"subscribe": None, "subscribePattern": "esid"}, 156),
    ({"subscribe": None, "subscribePattern": "nosuch"}, 0),
    ({"subscribe": None, "subscribePattern": "("}, None),
    ({"subscribe": None, "assign": '{"beside":[0,2]}'}, 92),
    ({"subscribe": None, "assign": '{"beside":[1,9]}'}, 31),
    ({"subscribe": None, "assign": '{"nosuch":[0]}'}, None),
    ({"subscribe": None, "assign": '{"beside":["a"]}'}, None),
    ({"subscribe": "nosuch"}, None),
    ({"startingOffsetsByTimestamp": times(100, 7, 0)}, 75 + 30 + 2),
    ({"startingOffsetsByTimestamp": times(100, 7)}, None),
    ({"startingOffsetsByTimestamp": times(100, 7, 8)}, None),
    ({"startingOffsetsByTimestamp": times(100, 7, 8), "startingOffsetsByTimestampStrategy": "latest"}, 75 + 30),
    ({"startingTimestamp": str(NOW + 300)}, None),
    ({"startingTimestamp": str(NOW + 300), "startingOffsetsByTimestampStrategy": "LATEST"}, 90 - 43),
    ({"startingTimestamp": str(NOW), "startingOffsetsByTimestampStrategy": "first"}, None),
    ({"startingTimestamp": str(NOW + 7), "startingOffsetsByTimestamp": "x", "startingOffsets": "y"}, 89 + 30 + 1),
    ({"startingOffsetsByTimestamp": times(0, 0, 7), "startingOffsets": "y"}, 90 + 31 + 1),
    ({"endingTimestamp": str(NOW + 100)}, 15 + 15 + 2),
    ({"endingTimestamp": str(NOW + 10_000)}, 123),
    ({"endingTimestamp": "soon"}, None),
    ({"endingOffsetsByTimestamp": times(7, 14, 7)}, 1 + 2 + 1),
    ({"endingOffsetsByTimestamp": times(7)}, None),
    ({"endingOffsetsByTimestamp": times(7, 14, 7), "endingOffsets": "y"}, 4),
    ({"startingTimestamp": str(NOW + 7), "endingTimestamp": str(NOW)}, None),
    ({"failOnDataLoss": "false"}, 123),
    ({"failOnDataLoss": "maybe"}, None),
    ({"minOffsetsPerTrigger": "x", "maxTriggerDelay": "z"}, 123),
    ({"maxOffsetsPerTrigger": "y"}, 123),
    ({"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "10"}, None),
    ({"endingTimestamp": str(NOW + 100), "endingOffsetsByTimestamp": "x"}, 15 + 15 + 2),
    ({"startingOffsets": offsets(100, 0, 0), "failOnDataLoss": "false"}, None),
]


def rows_or_refusal(df):
    try:
        return df().count()
    except Exception as error:  # noqa: BLE001  (Spark's own errors are of many classes)
        return error


@pytest.mark.parametrize(("options", "count"), SETS)
def test_the_same_rows_or_both_refuse(spark, broker, logs, options, count):
    given = {name: value for name, value in {"subscribe": TOPIC, **options}.items() if value is not None}
    reader = spark.read.options(**given)
    kafkas = rows_or_refusal(lambda: reader.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).load())
    ours = rows_or_refusal(lambda: reader.format("pylog").load(str(logs)))
    if count is None:
        assert isinstance(kafkas, Exception), kafkas
        assert "[PYLOG_" in str(ours), ours
    else:
        assert (ours, kafkas) == (count, count)


@pytest.mark.parametrize(
    "options",
    [
        {"endingOffsets": "latest"},
        {"endingOffsetsByTimestamp": times(0, 0, 0)},
        {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "10"},
        {"maxOffsetsPerTrigger": "x"},
        {"minOffsetsPerTrigger": "x"},
        {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "soon"},
    ],
)
def test_both_refuse_a_stream(spark, broker, logs, options):
    reader, refusals = spark.readStream.options(subscribe=TOPIC, **options), []
    kafkas = reader.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    for load in (kafkas.load, lambda: reader.format("pylog").load(str(logs))):
        try:
            query = load().writeStream.format("noop").trigger(availableNow=True).start()
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001  (Spark's own errors are of many classes)
            refusals.append(str(error))
        else:
            refusals.append(None)
    assert all(refusals), refusals


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
        ({"minOffsetsPerTrigger": "30", "maxOffsetsPerTrigger": "50"}, 3),
        ({"subscribe": None, "subscribePattern": "beside", "failOnDataLoss": "false"}, 1),
        ({"subscribe": None, "assign": '{"beside":[0],"beside-ended":[0]}', "minOffsetsPerTrigger": "1000"}, 1),
        # A look-up by time finds the first record; a broker's also finds the end of a transaction.
        (
            {
                "subscribe": TOPIC, "startingTimestamp": str(NOW + 300), "endingTimestamp": "1",
                "startingOffsetsByTimestampStrategy": "latest",
            },
            1,
        ),
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
