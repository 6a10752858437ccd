"""Spark's own Kafka connector with a broker, and ours with a store: the same is done to both sides."""

import contextlib
import itertools
import json
import uuid

from kafka_clients import KafkaAdminClient, TopicAlreadyExistsError, TopicPartition, create_topics
from kafka_tools import PATIENCE
from pyspark.errors import StreamingQueryException
from test_kafka_reads import NOW, cleaned, ended, producer, send
from written import Row, append, end_transaction
from written import send as send_numbered

from pyspark_log.storage.compaction import compact
from tests.query_offsets import of_topics
from tests.waiting import wait_until

#: Kafka's consumer waits half a second at the end of a partition, and Spark's connector one before it asks once more.
QUICK = {"kafka.fetch.max.wait.ms": "10", "fetchOffset.retryIntervalMs": "1"}
_RETENTION = {"retention.ms": "-1"}


def values(start, count):
    """Rows without a time that matters."""
    return [Row(-1, NOW + number, b"key", b"%d" % number, ()) for number in range(start, start + count)]


class KafkaSide:
    """Spark's own connector, and a broker."""

    name = "kafkas"

    def __init__(self, broker):
        self._broker = broker
        self._open = {}

    def close(self):
        for _, held in self._open.values():
            held.close()

    def load(self, reader, options):
        return reader.format("kafka").options(**{"kafka.bootstrap.servers": self._broker.bootstrap, **options}).load()

    def create(self, topic, partitions=1, configs=None):
        def created():
            with contextlib.suppress(TopicAlreadyExistsError):  # a topic that is being deleted
                create_topics(self._broker, {topic: partitions}, _RETENTION | (configs or {}))
                return True
            return False

        wait_until(created, f"{topic} is deleted, and made again")

    def add_partitions(self, topic, total):
        with self._admin() as admin:
            admin.create_partitions({topic: total})

    def delete(self, topic):
        with self._admin() as admin:
            admin.delete_topics([topic])
            wait_until(lambda: topic not in admin.list_topics(), f"{topic} is deleted")

    def delete_records(self, topic, partition, before):
        with self._admin() as admin:
            admin.delete_records({TopicPartition(topic, partition): before})

    def _admin(self):
        return KafkaAdminClient(bootstrap_servers=self._broker.bootstrap)

    def send(self, topic, rows, partition=0):
        with producer(self._broker, linger_ms=20) as found:
            send(found, topic, rows, partition)

    def transact(self, topic, rows, *, commit):
        """Sends the rows in a transaction; with None for `commit` it stays open, until `end`."""
        held = contextlib.ExitStack()
        found = held.enter_context(
            producer(self._broker, transactional_id=str(uuid.uuid4()), transaction_timeout_ms=900_000)
        )
        self._open[topic] = found, held
        found.init_transactions()
        found.begin_transaction()
        send(found, topic, rows)
        if commit is not None:
            self.end(topic, commit=commit)

    def end(self, topic, *, commit):
        """Ends the topic's only open transaction."""
        found, held = self._open.pop(topic)
        with held:
            if commit:
                found.commit_transaction()
            else:
                found.abort_transaction()
        ended(self._broker, topic)

    def compact(self, topic):
        cleaned(self._broker, topic)


class StoreSide:
    """Our connector, and a store."""

    name = "ours"

    def __init__(self, store):
        self.store = store
        self._open, self._producers = {}, itertools.count(1)

    def load(self, reader, options):
        return reader.format("pylog").options(**options).load(self.store.path)

    def create(self, topic, partitions=1, configs=None):
        self.store.create_topic(topic, partitions, _RETENTION | (configs or {}))

    def add_partitions(self, topic, total):
        self.store.add_partitions(topic, total)

    def delete(self, topic):
        self.store.delete_topic(topic)

    def delete_records(self, topic, partition, before):
        self.store.delete_records(topic, partition, before)

    def send(self, topic, rows, partition=0):
        append(self.store, topic, partition, rows)

    def transact(self, topic, rows, *, commit):
        """The same in batches as a broker writes them: a store's own transactions leave neither markers nor gaps."""
        self._open[topic] = next(self._producers)
        send_numbered(self.store, topic, 0, rows, self._open[topic], base_sequence=0, transactional=True)
        if commit is not None:
            self.end(topic, commit=commit)

    def end(self, topic, *, commit):
        end_transaction(self.store, topic, 0, self._open.pop(topic), commit=commit)

    def compact(self, topic):
        assert list(compact(self.store.logs, topic)), "nothing is due"


class Sides:
    """Kafka's side, then ours: what is called is done to both."""

    def __init__(self, kafkas, ours):
        self._both = kafkas, ours

    def __iter__(self):
        return iter(self._both)

    def make(self, topic, *rows, configs=None):
        """Makes a topic with a partition for each of these lists of rows."""
        for side in self:
            side.create(topic, len(rows), configs)
            for partition, found in enumerate(rows):
                if found:
                    side.send(topic, found, partition)

    def send(self, topic, rows, partition=0):
        for side in self:
            side.send(topic, rows, partition)

    def transact(self, topic, rows, *, commit):
        for side in self:
            side.transact(topic, rows, commit=commit)

    def add_partitions(self, topic, total):
        for side in self:
            side.add_partitions(topic, total)

    def delete_records(self, topic, partition, before):
        for side in self:
            side.delete_records(topic, partition, before)

    def delete(self, topic):
        for side in self:
            side.delete(topic)


class Query:
    """A streaming query of one side: what each of its micro-batches has, over all runs of its checkpoint.

    Attributes:
        rows: the rows of each micro-batch.
        offsets: what the progress of each micro-batch says: its start, its end, and how many rows it has.
    """

    def __init__(self, spark, side, options, folder):
        self._side, self._checkpoint = side, folder / side.name
        self._spark, self._options = spark, options
        self._running, self._refusal = None, ""
        self.rows, self.offsets = {}, {}

    def start(self, options, trigger):
        self._running = None
        try:
            df = self._side.load(self._spark.readStream, self._options | options)
        except Exception as error:  # noqa: BLE001  (Spark's own errors are of many classes)
            self._refusal = str(error)
            return
        writer = df.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(self._checkpoint))
        self._running = writer.trigger(**trigger).start()

    def catch_up(self):
        """Returns when there is nothing to read any more."""
        self._running.processAllAvailable()

    def end(self):
        """Waits for the end of the query; the text of its error, or ""."""
        if self._running is None:
            return self._refusal
        try:
            assert self._running.awaitTermination(PATIENCE), f"{self._side.name}: the query does not end"
            error = ""
        except StreamingQueryException as refusal:
            error = str(refusal)
        self._note()
        return error

    def stop(self):
        if self._running is not None:
            self._running.stop()
            self._note()

    def forget_the_last_commit(self):
        """As if the driver had died before it noted that the last micro-batch is done."""
        folder = self._checkpoint / "commits"
        last = max(int(path.name) for path in folder.iterdir() if path.name.isdigit())
        for name in (f"{last}", f".{last}.crc"):
            (folder / name).unlink(missing_ok=True)

    def _keep(self, df, batch_id):
        rows = sorted(map(tuple, df.collect()), key=lambda row: row[2:5])
        # A batch that is run again has the same rows.
        assert self.rows.setdefault(batch_id, rows) == rows

    def _note(self):
        for progress in self._running.recentProgress:
            told = json.loads(progress.json)
            if told["batchId"] in self.rows and told["batchId"] not in self.offsets:
                (source,) = told["sources"]
                ends = [_without_ours(source[name]) for name in ("startOffset", "endOffset")]
                self.offsets[told["batchId"]] = (*ends, source["numInputRows"])


class Queries:
    """The same streaming query of both sides."""

    def __init__(self, spark, sides, options, folder):
        options = QUICK | {"startingOffsets": "earliest", "includeHeaders": "true"} | options
        self.both = [Query(spark, side, options, folder) for side in sides]

    def run(self, options=None, **trigger):
        """Runs both to their end; the errors of Kafka's and ours, "" for none."""
        self.start(options, **trigger or {"availableNow": True})
        return [query.end() for query in self.both]

    def start(self, options=None, **trigger):
        for query in self.both:
            query.start(options or {}, trigger or {"processingTime": "0 seconds"})

    def catch_up(self):
        for query in self.both:
            query.catch_up()

    def end(self):
        return [query.end() for query in self.both]

    def stop(self):
        for query in self.both:
            query.stop()

    def forget_the_last_commit(self):
        for query in self.both:
            query.forget_the_last_commit()

    def check(self, *sizes):
        """Both have the same rows and offsets, in micro-batches of these sizes."""
        kafkas, ours = self.both
        assert ours.rows == kafkas.rows
        assert ours.offsets == kafkas.offsets
        assert [len(ours.rows[number]) for number in sorted(ours.rows)] == list(sizes)


def _without_ours(offset):
    offset = json.loads(offset) if isinstance(offset, str) else offset
    return offset and of_topics(offset)
