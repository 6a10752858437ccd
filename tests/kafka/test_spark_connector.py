"""Batch reads: Spark's Kafka connector over a broker, and ours over that broker's folder, have the same rows and tasks.

tests/kafka/test_spark_connector_streams.py does this for streaming queries.
"""

import json
from typing import Any, NamedTuple

import pytest
from kafka_clients import create_topics
from spark_sides import QUICK
from test_kafka_reads import NOW, SMALL, consumed, producer, rows_of, send, shown

from tests.amounts import one_in

TOPIC = "beside"
COUNTS = (90, 31, 2)
_SUBSCRIPTIONS = {"subscribe", "subscribepattern", "assign"}


@pytest.fixture(scope="module")
def logs(broker):
    """The broker's folder, with a topic of plain records in three partitions, one of transactions, and an empty one."""
    create_topics(broker, {TOPIC: len(COUNTS), "beside-ended": 1, "beside-empty": 2}, SMALL)
    with producer(broker, compression_type="gzip", linger_ms=20) as found:
        for partition, count in enumerate(COUNTS):
            send(found, TOPIC, rows_of(count), partition)
    with producer(broker, transactional_id="beside", transaction_timeout_ms=900_000) as found:
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


class Found(NamedTuple):
    """What a read found: the rows, their schema, how many tasks it had, and the offsets that each of them read."""

    rows: list[tuple[Any, ...]]
    schema: str
    tasks: int
    offsets: list[list[tuple[Any, ...]]]


@pytest.fixture
def both(spark, broker, logs):
    """Reads by Spark's own connector and by ours, with the same options: what is found, or the error."""

    def read(options):
        if not {name.lower() for name in options} & _SUBSCRIPTIONS:
            options = {"subscribe": TOPIC, **options}
        options = {name: value for name, value in options.items() if value is not None}
        kafkas = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).options(**QUICK)
        ours = spark.read.format("pylog").options(**QUICK)
        return found_or_error(kafkas, options), found_or_error(ours, options, str(logs))

    return read


def found_or_error(reader, options, *path):
    try:
        df = reader.options(**options).load(*path)
        rows_and_tasks = df.selectExpr("*", "spark_partition_id()")
        rows = sorted(map(tuple, rows_and_tasks.collect()), key=lambda row: row[2:5])
        offsets = {}
        for row in rows:
            offsets.setdefault(row[-1], []).append(row[2:5])
        # Of the same plan, so that nothing is planned again.
        tasks = rows_and_tasks._jdf.queryExecution().toRdd().getNumPartitions()
    except Exception as error:  # noqa: BLE001  (Spark's own errors are of many classes)
        return error
    return Found([row[:-1] for row in rows], str(df.schema), tasks, sorted(offsets.values()))


def offsets(*numbers):
    return json.dumps({TOPIC: {str(partition): offset for partition, offset in enumerate(numbers)}})


def ended(offset):
    return json.dumps({"beside-ended": {"0": offset}})


def at(after):
    """A time in ms after that of the first record."""
    return str(NOW + after)


def times(*after):
    """The same for each partition."""
    return offsets(*(NOW + ms for ms in after))


ENDED = {"subscribe": "beside-ended"}
COMMITTED = {"kafka.isolation.level": "read_committed"}
TWO_TOPICS = '{"beside":{"0":1,"1":0,"2":0},"beside-ended":{"0":-2}}'

# What a batch read is given, and how many rows and tasks both have.
ALIKE = [
    # Transactions.
    (ENDED, 33, 1),
    (ENDED | COMMITTED, 18, 1),
    (ENDED | {"kafka.isolation.level": "read_uncommitted"}, 33, 1),
    (ENDED | COMMITTED | {"minPartitions": "7"}, 18, 7),
    (ENDED | {"minPartitions": "7"}, 33, 7),
    (ENDED | {"maxRecordsPerPartition": "4", "startingOffsets": ended(0), "endingOffsets": ended(20)}, 18, 5),
    (ENDED | COMMITTED | {"startingOffsets": ended(3)}, 15, 1),
    (ENDED | COMMITTED | {"startingOffsets": ended(8), "endingOffsets": ended(12)}, 0, 1),
    (ENDED | COMMITTED | {"startingOffsets": ended(6), "endingOffsets": ended(7)}, 0, 1),
    (ENDED | COMMITTED | {"endingOffsets": ended(16)}, 8, 1),
    (ENDED | COMMITTED | {"endingOffsets": ended(35)}, 18, 1),
    (ENDED | {"endingOffsets": ended(36)}, 31, 1),
    (ENDED | COMMITTED | {"startingTimestamp": at(7)}, 17, 1),
    (ENDED | COMMITTED | {"startingTimestamp": at(7), "endingTimestamp": at(20), "includeHeaders": "true"}, 2, 1),
    # Subscriptions.
    ({}, 123, 3),
    ({"subscribe": " beside , beside-ended ,, beside"}, 156, 4),
    ({"SUBSCRIBE": "beside"}, 123, 3),
    ({"subscribe": "beside-empty"}, 0, 2),
    ({"subscribe": "beside-empty,beside"}, 123, 5),
    ({"subscribePattern": "^bes.de$"}, 123, 3),
    ({"subscribePattern": "esid"}, 156, 6),
    ({"subscribePattern": " ^beside$ "}, 123, 3),
    ({"subscribePattern": r"^\w+de-en.*"}, 33, 1),
    ({"subscribePattern": "(?i)BESIDE$"}, 123, 3),
    ({"subscribePattern": "^(?:beside|other)$"}, 123, 3),
    ({"SUBSCRIBEPATTERN": "beside$"}, 123, 3),
    ({"assign": '{"beside":[0,2]}'}, 92, 2),
    ({"assign": ' {"beside":[0],"beside-ended":[0]} '}, 123, 2),
    ({"ASSIGN": '{"beside":[2]}'}, 2, 1),
    ({"assign": '{"beside":[1,1]}'}, 31, 1),
    ({"assign": '{"beside":[1,9]}'}, 31, 1),
    # Offsets.
    ({"startingOffsets": "earliest"}, 123, 3),
    ({"startingOffsets": " EarLiest ", "endingOffsets": "LATEST"}, 123, 3),
    ({"STARTINGOFFSETS": "earliest", "endingoffsets": "latest"}, 123, 3),
    ({"startingOffsets": offsets(-2, -2, -2)}, 123, 3),
    ({"startingOffsets": offsets(7, -2, 2), "endingOffsets": offsets(-1, 30, -1)}, 113, 3),
    ({"startingOffsets": offsets(-2, 0, 0), "endingOffsets": offsets(6, 1, -1)}, 9, 3),
    ({"startingOffsets": offsets(90, 31, 2)}, 0, 3),
    ({"startingOffsets": '{"beside":{"00":5,"1":0,"2":0}}'}, 118, 3),
    ({"startingOffsets": '{"beside":{"0":5,"0":6,"1":0,"2":0}}'}, 117, 3),
    ({"endingOffsets": " Latest"}, 123, 3),
    ({"endingOffsets": offsets(0, 0, 0)}, 0, 3),
    ({"endingOffsets": offsets(5, -1, 1)}, 37, 3),
    ({"endingOffsets": offsets(95, 31, 2), "kafkaConsumer.pollTimeoutMs": "2000", "failOnDataLoss": "false"}, 123, 3),
    ({"subscribe": "beside,beside-ended", "startingOffsets": TWO_TOPICS}, 155, 4),
    ({"assign": '{"beside":[0,2]}', "startingOffsets": '{"beside":{"0":3,"2":1}}'}, 88, 2),
    ({"assign": '{"beside":[0,9]}', "startingOffsets": '{"beside":{"0":3}}'}, 87, 1),
    # Times.
    ({"startingTimestamp": at(0)}, 123, 3),
    ({"STARTINGTIMESTAMP": at(7), "MINPARTITIONS": "6"}, 120, 6),
    ({"startingTimestamp": "0"}, 123, 3),
    ({"startingTimestamp": f" +{NOW + 7} "}, 120, 3),
    ({"startingTimestamp": at(300), "startingOffsetsByTimestampStrategy": "LATEST"}, 47, 3),
    ({"startingTimestamp": at(3000), "startingOffsetsByTimestampStrategy": "latest"}, 0, 3),
    ({"startingTimestamp": at(7), "endingOffsets": offsets(80, -1, -1)}, 110, 3),
    ({"startingTimestamp": at(7), "startingOffsetsByTimestamp": "x", "startingOffsets": "y"}, 120, 3),
    ({"startingTimestamp": at(7), "startingOffsetsByTimestamp": times(9, 9, 9), "startingOffsets": "latest"}, 120, 3),
    ({"startingOffsetsByTimestamp": times(0, 0, 7), "startingOffsets": "y"}, 122, 3),
    ({"startingOffsetsByTimestamp": times(0, 0, 7), "startingOffsets": offsets(3, 3, 1)}, 122, 3),
    ({"startingOffsetsByTimestamp": times(100, 7, 0)}, 107, 3),
    ({"startingOffsetsByTimestamp": times(100, 7, 8), "startingOffsetsByTimestampStrategy": "latest"}, 105, 3),
    ({"endingTimestamp": at(100)}, 32, 3),
    ({"endingTimestamp": at(10_000)}, 123, 3),
    ({"endingTimestamp": "0"}, 0, 3),
    ({"endingTimestamp": at(100), "endingOffsetsByTimestamp": "x", "endingOffsets": "y"}, 32, 3),
    ({"endingOffsetsByTimestamp": times(7, 14, 7)}, 4, 3),
    ({"endingOffsetsByTimestamp": times(7, 14, 9)}, 5, 3),
    ({"endingOffsetsByTimestamp": times(7, 14, 7), "endingOffsets": "y"}, 4, 3),
    ({"startingTimestamp": at(0), "endingTimestamp": at(14)}, 6, 3),
    ({"startingOffsets": offsets(5, 5, 1), "endingTimestamp": at(70)}, 11, 3),
    ({"startingOffsetsByTimestamp": times(70, 7, 0), "endingOffsetsByTimestamp": times(140, 70, 7)}, 20, 3),
    ({"subscribe": "beside-empty", "startingTimestamp": "0", "startingOffsetsByTimestampStrategy": "latest"}, 0, 2),
    ({"subscribe": "beside-empty", "endingTimestamp": "0"}, 0, 2),
    # Tasks.
    ({"minPartitions": "1"}, 123, 3),
    ({"minPartitions": "4"}, 123, 4),
    ({"minPartitions": "10"}, 123, 10),
    ({"minPartitions": "+5"}, 123, 5),
    ({"minPartitions": "10", "startingOffsets": offsets(10, 5, 1), "endingOffsets": offsets(50, 6, 2)}, 42, 10),
    ({"maxRecordsPerPartition": "10"}, 123, 3),
    ({"maxRecordsPerPartition": "10", "startingOffsets": offsets(0, 0, 0)}, 123, 3),
    ({"maxRecordsPerPartition": "10", "endingOffsets": offsets(90, 31, 2)}, 123, 14),
    ({"maxRecordsPerPartition": "11", "minPartitions": "17", "endingOffsets": offsets(90, 31, 2)}, 123, 13),
    ({"maxRecordsPerPartition": "5", "minPartitions": "2", "endingTimestamp": at(100)}, 32, 7),
    ({"maxRecordsPerPartition": str(2**63 - 1)}, 123, 3),
    # Others.
    ({"includeHeaders": "true"}, 123, 3),
    ({"INCLUDEHEADERS": "TRUE"}, 123, 3),
    ({"includeHeaders": "False"}, 123, 3),
    ({"failOnDataLoss": "false"}, 123, 3),
    ({"failOnDataLoss": "FALSE"}, 123, 3),
    ({"minOffsetsPerTrigger": "x", "maxTriggerDelay": "z"}, 123, 3),
    ({"maxOffsetsPerTrigger": "y"}, 123, 3),
    ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "10"}, 123, 3),
    ({"kafka.key.serializer": "x"}, 123, 3),
    ({"kafka.group.id": "mine", "GROUPIDPREFIX": "x"}, 123, 3),
    ({"kafka.max.poll.records": "7", "kafka.check.crcs": "false", "kafka.nosuch": "x", "nosuch": "x"}, 123, 3),
    ({"kafka.isolation.level": " read_committed "}, 123, 3),
    ({"fetchOffset.numRetries": "5", "kafkaconsumer.polltimeoutms": "5000"}, 123, 3),
]


@pytest.mark.parametrize(("options", "rows", "tasks"), one_in(5, ALIKE))
def test_the_same_rows_and_tasks(both, options, rows, tasks):
    kafkas, ours = both(options)
    assert ours == kafkas
    assert (len(ours.rows), ours.tasks) == (rows, tasks)


# What both refuse.
REFUSED = [
    # Transactions.
    ENDED | COMMITTED | {"endingOffsets": ended(36), "kafkaConsumer.pollTimeoutMs": "2000"},
    # Subscriptions.
    {"subscribe": ""},
    {"subscribe": "beside,nosuch"},
    {"subscribe": "BESIDE"},
    {"subscribe": None},
    {"subscribe": TOPIC, "subscribePattern": "b"},
    {"subscribe": TOPIC, "assign": '{"beside":[0]}'},
    {"subscribePattern": "("},
    {"subscribePattern": ""},
    {"assign": '{"nosuch":[0]}'},
    {"assign": '{"beside":["a"]}'},
    {"assign": '{"beside":["1"]}'},
    {"assign": '{"beside":0}'},
    {"assign": "{'beside':[0]}"},
    {"assign": "beside"},
    {"assign": ""},
    # Offsets.
    {"startingOffsets": "latest"},
    {"startingOffsets": "soonest"},
    {"startingOffsets": offsets(-1, 0, 0)},
    {"startingOffsets": offsets(-3, 0, 0)},
    {"startingOffsets": offsets(91, 0, 0)},
    {"startingOffsets": offsets(100, 0, 0), "failOnDataLoss": "false"},
    {"startingOffsets": offsets(2**63 - 1, 0, 0)},
    {"startingOffsets": offsets(2**63, 0, 0)},
    {"startingOffsets": offsets(0, 0)},
    {"startingOffsets": offsets(0, 0, 0, 0)},
    {"startingOffsets": "{}"},
    {"startingOffsets": "[1]"},
    {"startingOffsets": '{"beside":"earliest"}'},
    {"startingOffsets": offsets("earliest", -2, -2)},
    {"startingOffsets": offsets("7", 0, 0)},
    {"startingOffsets": offsets(True, 0, 0)},
    {"startingOffsets": '{"beside":{"a":7,"1":0,"2":0}}'},
    {"endingOffsets": "earliest"},
    {"endingOffsets": offsets(-2, 0, 0)},
    {"endingOffsets": offsets(-3, 31, 2)},
    {"endingOffsets": offsets(1, 1)},
    {"endingOffsets": offsets(95, 31, 2), "kafkaConsumer.pollTimeoutMs": "2000"},
    {"startingOffsets": offsets(5, 0, 0), "endingOffsets": offsets(4, 1, 1)},
    {"startingOffsets": offsets(5, 0, 0), "endingOffsets": offsets(6, 1)},
    {"startingOffsets": TWO_TOPICS},
    {"assign": '{"beside":[0,9]}', "startingOffsets": '{"beside":{"0":3,"9":1}}'},
    {"subscribePattern": "besid.*", "startingOffsets": offsets(0, 0, 0)},
    # Times.
    {"startingTimestamp": "1.5"},
    {"startingTimestamp": at(7) + "L"},
    {"startingTimestamp": str(2**63)},
    {"startingTimestamp": at(300)},
    {"startingTimestamp": at(0), "startingOffsetsByTimestampStrategy": "first"},
    {"startingOffsetsByTimestampStrategy": "x"},
    {"startingOffsetsByTimestamp": times(100, 7, 8)},
    {"startingOffsetsByTimestamp": times(100, 7, 8), "startingOffsetsByTimestampStrategy": "error"},
    {"startingOffsetsByTimestamp": times(100, 7)},
    {"startingOffsetsByTimestamp": times(100, 7, 0, 0)},
    {"startingOffsetsByTimestamp": "x"},
    {"startingOffsetsByTimestamp": offsets("1", 2, 0)},
    {"endingTimestamp": "soon"},
    {"endingOffsetsByTimestamp": times(7)},
    {"startingTimestamp": at(7), "endingTimestamp": at(0)},
    {"startingOffsets": offsets(5, 5, 1), "endingTimestamp": at(0)},
    {"subscribe": "beside-empty", "startingTimestamp": "0"},
    # Tasks.
    {"minPartitions": "0"},
    {"minPartitions": "a"},
    {"minPartitions": "1.0"},
    {"minPartitions": str(2**31)},
    {"maxRecordsPerPartition": str(2**63)},
    {"maxRecordsPerPartition": "0"},
    {"maxRecordsPerPartition": "x"},
    # Others.
    {"includeHeaders": "yes"},
    {"includeHeaders": " true "},
    {"failOnDataLoss": "maybe"},
    {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "10"},
    {"minOffsetsPerTrigger": "x", "maxOffsetsPerTrigger": "10"},
    {"kafka.auto.offset.reset": "earliest"},
    {"kafka.key.deserializer": "x"},
    {"KAFKA.enable.auto.commit": "false"},
    {"kafka.interceptor.classes": "x"},
    {"kafka.isolation.level": "x"},
    {"kafka.isolation.level": "READ_COMMITTED"},
    {"fetchOffset.numRetries": "x"},
    {"fetchOffset.retryIntervalMs": "x"},
]


@pytest.mark.parametrize("options", one_in(8, REFUSED))
def test_both_refuse(both, options):
    kafkas, ours = both(options)
    assert isinstance(kafkas, Exception), kafkas
    assert "[PYLOG_" in str(ours), ours


# What is not the same (docs/reference/kafka-connector.md): rows and tasks of Kafka's connector and ours; None: refused.
DIFFERENT = [
    # A look-up by time, in a topic with transactions.
    (ENDED | {"startingTimestamp": at(40)}, (27, 1), None),
    (ENDED | {"startingTimestamp": at(400), "startingOffsetsByTimestampStrategy": "latest"}, (27, 1), (0, 1)),
    (
        ENDED | COMMITTED | {"startingTimestamp": at(400), "startingOffsetsByTimestampStrategy": "latest"},
        (12, 1),
        (0, 1),
    ),
    (ENDED | {"endingTimestamp": at(400)}, (6, 1), (33, 1)),
    (ENDED | COMMITTED | {"endingTimestamp": at(400)}, (6, 1), (18, 1)),
    # The tasks of a batch read for partitions without records.
    ({"subscribePattern": "nosuch"}, (0, 0), (0, 1)),
    ({"subscribePattern": "BESIDE"}, (0, 0), (0, 1)),
    ({"subscribePattern": "__"}, (0, 0), (0, 1)),
    ({"assign": '{"beside":[9]}'}, (0, 0), (0, 1)),
    ({"startingOffsets": offsets(5, 0, 0), "endingOffsets": offsets(5, 1, 1)}, (2, 3), (2, 2)),
    ({"startingTimestamp": at(7), "endingTimestamp": at(7)}, (0, 3), (0, 1)),
    ({"minPartitions": "10", "startingOffsets": offsets(90, 0, 0)}, (33, 10), (33, 11)),
    ({"subscribe": "beside-empty", "minPartitions": "5"}, (0, 0), (0, 2)),
    # What only Java's regular expressions have.
    ({"subscribePattern": r"\p{Lower}eside$"}, (123, 3), None),
    ({"subscribePattern": "besid[e&&[^x]]$"}, (123, 3), None),
    # An assignment of nothing that can be.
    ({"assign": '{"beside":[-1]}'}, (0, 0), None),
    ({"assign": '{"beside":[]}'}, (0, 0), None),
    ({"assign": "{}"}, (0, 0), None),
    # JSON that is none, or in which a number is not whole.
    ({"assign": '{"beside":[1.0]}'}, (31, 1), None),
    ({"assign": '{"beside":[0]} x'}, (90, 1), None),
    ({"startingOffsets": offsets(7.5, 0, 0)}, (116, 3), None),
    ({"startingOffsets": '{"beside":{"0":1e1,"1":0,"2":0}}'}, (113, 3), None),
    ({"startingOffsets": offsets(None, 0, 0)}, (123, 3), None),
    ({"startingOffsets": offsets(0, 0, 0) + " x"}, (123, 3), None),
    # Times below 0.
    ({"startingTimestamp": "-1"}, (0, 3), None),
    ({"startingOffsetsByTimestamp": offsets(-1, -2, 0)}, (33, 3), None),
    ({"endingTimestamp": "-5"}, (123, 3), None),
    # Other numbers, and values of options without effect.
    ({"minPartitions": " 5 "}, None, (123, 5)),
    ({"minOffsetsPerTrigger": "0", "maxOffsetsPerTrigger": "10"}, (123, 3), None),
    ({"fetchOffset.numRetries": "0"}, None, (123, 3)),
    ({"kafka.max.poll.records": "0"}, None, (123, 3)),
    ({"kafkaConsumer.pollTimeoutMs": "x"}, None, (123, 3)),
]


@pytest.mark.parametrize(("options", "kafkas", "ours"), one_in(4, DIFFERENT))
def test_known_differences(both, options, kafkas, ours):
    found = [one if isinstance(one, Exception) else (len(one.rows), one.tasks) for one in both(options)]
    for outcome, expected, condition in zip(found, (kafkas, ours), ("", "[PYLOG_"), strict=True):
        if expected is None:
            assert isinstance(outcome, Exception), outcome
            assert condition in str(outcome)
        else:
            assert outcome == expected
