"""Streaming queries of Spark's own Kafka connector and of ours: the same rows and offsets, micro-batch by micro-batch.

Each side has its own log (spark_sides.py), as its topics change while the queries run. A query that is not restarted to
see a change waits for `minOffsetsPerTrigger` records, so that its micro-batches are the same in each run.
"""

import json

import pyarrow as pa
import pytest
from spark_sides import values
from test_kafka_reads import NOW, rows_of
from written import Row

from pyspark_log import Transactions
from tests.amounts import one_in

FLOW, COUNTS = "flow", (60, 21, 2)


@pytest.fixture(scope="module", autouse=True)
def flow(sides):
    """A topic of plain records in three partitions, and one of transactions."""
    sides.make(FLOW, *map(rows_of, COUNTS))
    sides.make("flow-ended", [])
    for number in range(5):
        sides.transact("flow-ended", rows_of(6), commit=number % 2 == 0)
    sides.transact("flow-ended", rows_of(3), commit=None)


def offsets(*numbers):
    return json.dumps({FLOW: {str(partition): offset for partition, offset in enumerate(numbers)}})


ONCE = {"once": True}
PATTERN = {"subscribePattern": "^flow"}


STARTS_AND_RATES = [
    # Where it starts.
    ({}, {}, [83]),
    ({"startingOffsets": "latest"}, {}, [0]),
    ({"startingOffsets": offsets(50, -1, -2)}, {}, [12]),
    ({"startingTimestamp": str(NOW + 70)}, {}, None),
    ({"startingTimestamp": str(NOW + 7), "startingOffsets": "x", "startingOffsetsByTimestamp": "y"}, {}, [80]),
    ({"startingTimestamp": str(NOW + 70), "startingOffsetsByTimestampStrategy": "latest"}, {}, [61]),
    ({"startingOffsetsByTimestamp": offsets(NOW + 70, NOW, NOW), "startingOffsets": "x"}, {}, [73]),
    ({"startingOffsets": offsets(50, 0)}, {}, None),
    ({"startingOffsets": offsets(61, 0, 0), "fetchOffset.numRetries": "1"}, {}, None),
    ({"startingOffsets": offsets(61, 0, 0), "failOnDataLoss": "false"}, {}, [23]),
    ({"startingTimestamp": str(NOW + 7), "endingTimestamp": "1"}, ONCE, [80]),
    # What it is of.
    ({**PATTERN, "kafka.isolation.level": "read_committed"}, {}, [101]),
    ({"assign": '{"flow":[0,2,7],"flow-ended":[0]}'}, {}, [95]),
    # How much of it.
    ({"maxOffsetsPerTrigger": "40"}, {}, [39, 40, 4]),
    ({"maxOffsetsPerTrigger": "40"}, ONCE, [83]),
    ({"maxOffsetsPerTrigger": "40", "maxRecordsPerPartition": "7", "minPartitions": "9"}, {}, [39, 40, 4]),
    ({"maxOffsetsPerTrigger": str(2**63 - 1), "startingOffsets": offsets(5, 5, 1)}, {}, [72]),
    ({"minOffsetsPerTrigger": "1000"}, {}, [83]),
    ({"minOffsetsPerTrigger": "30", "maxOffsetsPerTrigger": "50"}, {}, [49, 34]),
    ({"minOffsetsPerTrigger": "30", "maxOffsetsPerTrigger": "30", "maxTriggerDelay": "1ms"}, {}, [29, 29, 25]),
    ({"minOffsetsPerTrigger": "30", "maxOffsetsPerTrigger": "50"}, ONCE, [83]),
    ({**PATTERN, "maxOffsetsPerTrigger": "60", "kafka.isolation.level": "read_committed"}, {}, [50, 51]),
]


@pytest.mark.parametrize(("options", "trigger", "sizes"), one_in(3, STARTS_AND_RATES))
def test_starts_and_rates(query, options, trigger, sizes):
    named = {} if options.keys() & {"subscribePattern", "assign"} else {"subscribe": FLOW}
    queries = query(**named, **options)
    errors = queries.run(**trigger)
    assert [bool(error) for error in errors] == [sizes is None] * 2, errors
    queries.check(*sizes or [])


REFUSED = [
    {"endingOffsets": "latest"},
    {"endingOffsetsByTimestamp": offsets(NOW, NOW, NOW)},
    {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "10"},
    {"maxOffsetsPerTrigger": "x"},
    {"minOffsetsPerTrigger": "x"},
    {"minOffsetsPerTrigger": "1.5"},
    {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "soon"},
    {"minOffsetsPerTrigger": "1", "maxTriggerDelay": ""},
    {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "5 minutes"},
    {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "1.5h"},
    {"subscribe": "nosuch"},
    {"minPartitions": "0"},
    {"kafka.auto.offset.reset": "earliest"},
]


@pytest.mark.parametrize("options", one_in(6, REFUSED))
def test_both_refuse(query, options):
    errors = query(**{"subscribe": FLOW, **options}).run()
    assert all(errors), errors


DIFFERENT = [
    ({"maxOffsetsPerTrigger": "0"}, 0, None),
    ({"maxOffsetsPerTrigger": "-1"}, 0, None),
    ({"minOffsetsPerTrigger": "0"}, 83, None),
    ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "-1s"}, 83, None),
    ({"fetchOffset.numRetries": "0"}, None, 83),
]


@pytest.mark.parametrize(("options", "kafkas", "ours"), one_in(3, DIFFERENT))
def test_known_differences_of_limits(query, options, kafkas, ours):
    """How many rows are read; None: refused."""
    queries = query(subscribe=FLOW, **options)
    errors = queries.run()
    read = [sum(map(len, one.rows.values())) for one in queries.both]
    assert [None if error else rows for error, rows in zip(errors, read, strict=True)] == [kafkas, ours], errors


def test_a_query_that_is_run_again(sides, query, topic):
    """With other options, which count or do not count any more."""
    queries = query(subscribe=topic)
    sides.make(topic, values(0, 10))
    assert queries.run({"startingOffsets": "latest"}) == ["", ""]
    sides.send(topic, values(10, 20))
    assert queries.run({"maxOffsetsPerTrigger": "15"}) == ["", ""]
    sides.send(topic, values(30, 8))
    assert all(queries.run({"startingOffsets": "x"}))
    queries.start({"startingOffsets": "earliest"})
    queries.catch_up()
    queries.stop()
    queries.check(0, 15, 5, 8)


def test_a_query_that_continues(sides, query, topic):
    """Partitions are added while it runs."""
    queries = query(subscribe=topic, minOffsetsPerTrigger="10")
    sides.make(topic, values(0, 3))
    queries.start()
    queries.catch_up()
    sides.send(topic, values(0, 10))
    queries.catch_up()
    sides.add_partitions(topic, 3)
    sides.send(topic, values(0, 6), 2)
    sides.send(topic, values(0, 4), 1)
    queries.catch_up()
    queries.stop()
    queries.check(3, 10, 10)


def test_partitions_that_are_added_between_runs(sides, query, topic):
    queries = query(subscribe=topic, maxOffsetsPerTrigger="10")
    sides.make(topic, values(0, 12))
    assert queries.run() == ["", ""]
    sides.add_partitions(topic, 3)
    sides.send(topic, values(0, 12), 2)
    sides.send(topic, values(12, 5))
    assert queries.run() == ["", ""]
    queries.check(10, 2, 9, 8)


@pytest.mark.parametrize("running", one_in(2, [True, False]))
def test_a_new_topic_that_matches_a_pattern(sides, query, topic, running):
    queries = query(subscribePattern=f"{topic}[.]", minOffsetsPerTrigger="5")
    sides.make(f"{topic}.a", values(0, 4))
    if running:
        queries.start()
        queries.catch_up()
    else:
        queries.run()
    sides.make(f"{topic}.b", values(0, 2), values(0, 3))
    if not running:
        queries.start()
    queries.catch_up()
    queries.stop()
    queries.check(4, 5)


@pytest.mark.parametrize("running", one_in(2, [True, False]))
def test_a_compacted_topic(sides, query, topic, running):
    """The gaps in it are no loss."""
    queries = query(subscribe=topic, **{"minOffsetsPerTrigger": "62"} if running else {"maxOffsetsPerTrigger": "30"})
    rows = [Row(-1, NOW, b"key %d" % (n % 7), b"%d" % n, ()) for n in range(20)]
    sides.make(topic, rows, configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    if running:
        queries.start()
        queries.catch_up()
    for side in sides:
        side.send(topic, [Row(-1, NOW, b"key %d" % (n % 5), None if n == 50 else b"%d" % n, ()) for n in range(60)])
        # Late enough to begin another segment: those before it are compacted.
        side.send(topic, [Row(-1, NOW + 14 * 24 * 3_600_000, b"late", b"late", ())])
        side.compact(topic)
        side.send(topic, [Row(-1, NOW + 14 * 24 * 3_600_000, b"last", b"last", ())])
    if running:
        queries.catch_up()
        queries.stop()
    else:
        assert queries.run() == ["", ""]
    queries.check(*[20, 7] if running else [2, 0, 7])


@pytest.mark.parametrize(
    ("level", "running", "sizes"),
    [
        ("read_committed", True, [5, 2, 5]),
        pytest.param("read_committed", False, [5, 2, 5], marks=pytest.mark.long),
        pytest.param("read_uncommitted", False, [15, 2, 0, 5], marks=pytest.mark.long),
    ],
)
def test_transactions(sides, query, topic, level, running, sizes):
    """A query sees them end. Of those that are not committed a running one could read the markers alone or not."""
    queries = query(subscribe=topic, **{"kafka.isolation.level": level})
    sides.make(topic, [])
    sides.transact(topic, values(0, 5), commit=True)
    sides.transact(topic, values(5, 5), commit=False)
    sides.transact(topic, values(10, 5), commit=None)

    def resume():
        if running:
            queries.catch_up()
        else:
            assert queries.run() == ["", ""]

    if running:
        queries.start()
    resume()
    sides.send(topic, values(15, 2))
    resume()
    for side in sides:
        side.end(topic, commit=False)
    resume()
    sides.transact(topic, values(17, 5), commit=True)
    resume()
    queries.stop()
    queries.check(*sizes)


@pytest.mark.parametrize(("level", "count"), one_in(2, [("read_committed", 10), ("read_uncommitted", 15)]))
def test_a_stores_own_transactions(sides, query, topic, level, count):
    """Known difference: no marker takes an offset, and an aborted transaction leaves nothing."""
    kafkas, ours = sides
    sides.make(topic, [])
    transactions = Transactions(ours.store, topic)
    for number, commit in enumerate((True, False, True)):
        rows = values(5 * number, 5)
        kafkas.transact(topic, rows, commit=commit)
        transaction = transactions.begin()
        transaction.append(topic, pa.record_batch({"value": [row.value for row in rows]}))
        if commit:
            transaction.commit()
        else:
            transaction.abort()
    queries = query(subscribe=topic, **{"kafka.isolation.level": level})
    assert queries.run() == ["", ""]
    read = [[row[1] for row in one.rows[0]] for one in queries.both]
    assert len(read[0]) == count
    assert read[1] == [b"%d" % number for number in (*range(5), *range(10, 15))]
    assert level == "read_uncommitted" or read[0] == read[1]
    assert [one.offsets[0][1] for one in queries.both] == [{topic: {"0": 18}}, {topic: {"0": 10}}]


def test_a_batch_that_is_run_again(sides, query, topic):
    """As its end was not recorded; it has the same offsets though there are more records by now."""
    queries = query(subscribe=topic, maxOffsetsPerTrigger="8")
    sides.make(topic, values(0, 10), values(0, 5))
    assert queries.run() == ["", ""]
    queries.forget_the_last_commit()
    sides.send(topic, values(10, 10))
    assert queries.run() == ["", ""]
    queries.check(7, 8, 8, 2)
