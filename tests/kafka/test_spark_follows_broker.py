"""Streaming queries follow the folder of a broker that is at work, and get what a consumer gets.

Meanwhile the broker appends, rolls segments, compacts, deletes by retention and on request, stops and starts again; and
the queries are stopped, and resumed from their checkpoints.
"""

import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from typing import NamedTuple

import pytest
from kafka_clients import create_topics
from kafka_tools import PATIENCE
from test_kafka_reads import KafkaAdminClient, KafkaConsumer, KafkaPartition, cleaned, consumed, producer

PLAIN, COMPACTED, DELETED = "followed", "followed-compacted", "followed-deleted"
PLACES = [(PLAIN, 0), (PLAIN, 1), (COMPACTED, 0), (DELETED, 0)]
SEGMENTS = {"internal.segment.bytes": "30000", "index.interval.bytes": "300", "retention.ms": "-1"}
COMPACTION = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "500",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "200",
}
RETENTION = {"cleanup.policy": "delete", "retention.bytes": "500000"}
# Records for each partition, several times a second: more than a query with this limit reads.
ROUND, LIMIT = 50, 20


class Clients:
    """A producer that writes, and a consumer that reads from the first record on, each in a thread.

    Attributes:
        produced: the key and value of each offset, for each partition.
        consumed: offsets, keys and values in the order in which they came, for each partition.
    """

    def __init__(self, broker):
        self._broker = broker
        self._threads = ThreadPoolExecutor(2)
        self._end_writing, self._end_reading = threading.Event(), threading.Event()
        #: To hold while nothing may be written.
        self.writing = threading.Lock()
        self.produced = {place: {} for place in PLACES}
        self.consumed = {place: [] for place in PLACES}
        self._all = [self._threads.submit(self._write), self._threads.submit(self._consume)]

    def check(self):
        """Raises what has ended one of them."""
        for one in self._all:
            if one.done():
                one.result()

    def end_writing(self):
        self._end_writing.set()
        self._all[0].result(PATIENCE)

    def close(self):
        self._end_writing.set()
        self._end_reading.set()
        self._threads.shutdown()

    def _write(self):
        number = 0
        with producer(self._broker, linger_ms=5) as found:
            while not self._end_writing.wait(0.1):
                rows = [_record(n) for n in range(number, number + ROUND)]
                number += ROUND
                with self.writing:
                    sent = {
                        (topic, partition): [found.send(topic, value, key, partition=partition) for key, value in rows]
                        for topic, partition in PLACES
                    }
                    for place, futures in sent.items():
                        offsets = [future.get(PATIENCE).offset for future in futures]
                        self.produced[place].update(zip(offsets, rows, strict=True))

    def _consume(self):
        options = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
        with KafkaConsumer(bootstrap_servers=self._broker.bootstrap, **options) as consumer:
            consumer.assign([KafkaPartition(*place) for place in PLACES])
            while not self._end_reading.is_set():
                for place, records in consumer.poll(timeout_ms=200).items():
                    self.consumed[place.topic, place.partition] += [(r.offset, r.key, r.value) for r in records]


def _record(number):
    """Keys that come again and again, some that come once, and a tombstone now and then."""
    key = b"once %d" % number if number % 37 == 0 else b"key %d" % (number % 500)
    return key, None if number % 61 == 5 else b"%d " % number * 40


class Gap(NamedTuple):
    """Offsets without rows, from `start` to `end`, and where the log started when the row after them had been read."""

    start: int
    end: int
    log_start: int


class Following:
    """A streaming query, which can be stopped and started again; a micro-batch that is run again counts once.

    Attributes:
        topics: the topics that it reads.
        query: Spark's own, once it has been started.
        batches: the rows of each micro-batch.
        log_starts: where the log of the topic with deletion started when the batch had been read.
        ends: the offset after the last row, for each partition.
    """

    def __init__(self, spark, broker, checkpoint, topics, **options):
        self._spark, self._broker, self._checkpoint = spark, broker, checkpoint
        self.topics, self.query = topics, None
        self._options = {"subscribe": ",".join(topics), "startingOffsets": "earliest", **options}
        self.batches, self.log_starts, self.ends = {}, {}, defaultdict(int)

    def start(self, **options):
        df = self._spark.readStream.format("pylog").options(**self._options, **options).load(str(self._broker.log_dir))
        writer = df.select("topic", "partition", "offset", "key", "value").writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self._checkpoint)).trigger(processingTime="1 second")
        self.query = writer.start()

    def _take(self, df, number):
        rows = [
            (row.topic, row.partition, row.offset, row.key and bytes(row.key), row.value and bytes(row.value))
            for row in df.collect()
        ]
        self.log_starts[number] = bases(self._broker, DELETED)[0]
        self.batches[number] = rows
        for topic, partition, offset, _, _ in rows:
            self.ends[topic, partition] = offset + 1

    def check(self):
        """Raises what has ended the query."""
        assert self.query.isActive, self.query.exception()

    def stop(self):
        """Ends the query, if it was started."""
        if self.query is not None:
            self.query.stop()

    def rows(self, place):
        """All rows of a partition, in the order in which they came."""
        found = chain.from_iterable(self.batches[number] for number in sorted(self.batches))
        return [row[2:] for row in found if row[:2] == place]

    def missed(self):
        """The gaps in the offsets of the topic with deletion."""
        gaps, end = [], 0
        for number, rows in sorted(self.batches.items()):
            for _, _, offset, _, _ in rows:
                if offset > end:
                    gaps.append(Gap(end, offset, self.log_starts[number]))
                end = offset + 1
        return gaps


def bases(broker, topic, partition=0):
    """The base offsets of a partition's segments, by the names of their files."""
    return sorted(int(path.stem) for path in (broker.log_dir / f"{topic}-{partition}").glob("*.log"))


def wait(condition, *parts, why):
    """Waits until the condition holds, while the parts of the test are well."""
    deadline = time.monotonic() + 2 * PATIENCE
    while not condition():
        for part in parts:
            part.check()
        assert time.monotonic() < deadline, why
        time.sleep(0.1)


def are_in_order(rows):
    return all(before[0] < after[0] for before, after in pairwise(rows))


@pytest.fixture
def clients(broker):
    for name, configs in ((PLAIN, {}), (COMPACTED, COMPACTION), (DELETED, RETENTION)):
        create_topics(broker, {name: 2 if name == PLAIN else 1}, SEGMENTS | configs)
    clients = Clients(broker)
    try:
        yield clients
    finally:
        clients.close()


@pytest.mark.long
def test_queries_follow_a_broker_at_work(spark, broker, clients, tmp_path):
    produced = clients.produced
    # Compaction is no loss.
    kept = Following(spark, broker, tmp_path / "kept", [PLAIN, COMPACTED], failOnDataLoss="true")
    late = Following(spark, broker, tmp_path / "late", [DELETED], failOnDataLoss="false")
    strict = Following(spark, broker, tmp_path / "strict", [DELETED], failOnDataLoss="true")
    queries = (kept, late, strict)
    well = (clients, kept, late)

    def at_end(query):
        places = [place for place in PLACES if place[0] in query.topics]
        return all(query.ends[place] == max(produced[place]) + 1 for place in places)

    def deleted_unread(*unread):
        """Whether records that the queries have not read are deleted."""
        return bases(broker, DELETED)[0] > max(query.ends[DELETED, 0] for query in unread)

    try:
        wait(lambda: all(produced.values()), clients, why="nothing is written")
        # Spark's first micro-batch takes far longer than others. Nothing is to be deleted before it.
        with clients.writing:
            kept.start()
            late.start(maxOffsetsPerTrigger=LIMIT)
            strict.start()
            wait(
                lambda: at_end(kept) and at_end(strict) and late.ends[DELETED, 0],
                *well,
                strict,
                why="the queries do not run",
            )

        wait(lambda: deleted_unread(late), *well, why="retention does not overtake a slow query")
        wait(
            lambda: len(consumed(broker, COMPACTED)[0]) < len(produced[COMPACTED, 0]) // 2,
            *well,
            why="the cleaner does not run",
        )

        with clients.writing:
            broker.stop()
            try:
                wait(lambda: at_end(kept), *well, why="what a broker has written before it stopped is not read")
            finally:
                broker.start()
        before = dict(kept.ends)
        wait(
            lambda: all(kept.ends[place] > end for place, end in before.items()),
            *well,
            why="what the broker writes after its start is not read",
        )

        for query in queries:
            query.stop()
        wait(
            lambda: bases(broker, DELETED)[-1] > max(query.ends[DELETED, 0] for query in (late, strict)),
            clients,
            why="nothing is written while the queries are stopped",
        )
        delete_up_to(broker, bases(broker, DELETED)[-1])
        wait(lambda: deleted_unread(late, strict), clients, why="records that are to be deleted stay")
        before = {query: dict(query.ends) for query in (kept, late)}
        for query in queries:
            query.start()
        wait(lambda: not strict.query.isActive, *well, why="a loss does not end the query that is to fail then")
        wait(
            lambda: all(query.ends[place] > end for query, ends in before.items() for place, end in ends.items()),
            *well,
            why="the queries make no progress",
        )

        clients.end_writing()
        wait(lambda: at_end(kept) and at_end(late), *well, why="the queries do not come to the end")
        wait(
            lambda: all(clients.consumed[place][-1][0] == max(produced[place]) for place in PLACES),
            clients,
            why="the consumer does not come to the end",
        )
    finally:
        for query in queries:
            query.stop()
    cleaned(broker, COMPACTED)
    left = [(row.offset, row.key, row.value) for row in consumed(broker, COMPACTED)[0]]
    written = {place: [(offset, *record) for offset, record in found.items()] for place, found in produced.items()}

    for place in PLACES[:2]:
        assert kept.rows(place) == clients.consumed[place] == written[place]
        assert len(bases(broker, *place)) > 3

    place = (COMPACTED, 0)
    rows = kept.rows(place)
    assert are_in_order(rows)
    assert set(rows) <= set(written[place])
    # What no reader may miss: what is there to this day, and what no later record of its key replaces.
    last = {key: (offset, key, value) for offset, key, value in written[place]}
    assert set(left) | {row for row in last.values() if row[2] is not None} <= set(rows)
    assert len(left) < len(written[place])

    place = (DELETED, 0)
    rows = late.rows(place)
    assert are_in_order(rows)
    assert set(rows) <= set(written[place])
    assert late.missed()
    # Only what had been deleted when the next records were read.
    assert not [gap for gap in late.missed() if gap.end > gap.log_start]
    # All up to the loss.
    rows = strict.rows(place)
    assert rows == written[place][: len(rows)]
    assert "[PYLOG_DATA_LOSS." in str(strict.query.exception())


def delete_up_to(broker, offset):
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_records({KafkaPartition(DELETED, 0): offset})
