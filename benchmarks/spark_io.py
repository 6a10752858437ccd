"""What the store adds to Spark's own cost of a Python data source, in batch reads and writes.

    python benchmarks/spark_io.py [--rows 3000000] [--partitions 4] [--rounds 7] [--folder DIR] [--kafka] [--document]

Reads: all rows of a topic into Spark's `noop` sink, beside a data source that yields the same Arrow batches ready-made.
Writes: the rows of that source into a new topic, beside Parquet and two sinks in Python: one drops what it gets, one
writes its bytes to plain files and syncs them. Records have keys of 8 bytes and values of 100 random ones. The ways
take turns; medians, a ratio within each round. MB/s (10**6 bytes) count keys and values. Nothing is compressed. A write
into a topic ends when it is published and synced to the disk, one into Parquet before. "Set up" is with the setting for
writes of small rows (docs/guides/streaming.md, "Large micro-batches"). With --kafka also Spark's Kafka connector and a
broker on this machine (`make kafka-jars` first).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator

import pyarrow as pa
import streams
import tables
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from pyspark_log import Store

KEY_SIZE, VALUE_SIZE = 8, 100
# About what a read of the store yields at once.
CHUNK_ROWS = 65_536
NOW = 1_700_000_000_000
_BYTES_OF_A_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"


def random_column(rows: int, size: int, seed: int) -> pa.Array:
    offsets = array("i", range(0, rows * size + 1, size))
    data = random.Random(seed).randbytes(rows * size)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def rows_of(partition: int) -> pa.RecordBatch:
    """One chunk of rows, as the connector gives them."""
    count = CHUNK_ROWS
    times = pa.array([NOW] * count, pa.int64()).cast(pa.timestamp("ms")).cast(pa.timestamp("us", tz="UTC"))
    return pa.record_batch(
        {
            "key": random_column(count, KEY_SIZE, 2 * partition),
            "value": random_column(count, VALUE_SIZE, 2 * partition + 1),
            "topic": pa.repeat("t", count),
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": times,
            "timestampType": pa.repeat(pa.scalar(0, pa.int32()), count),
        }
    )


def chunks(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, CHUNK_ROWS):
        yield batch.slice(0, min(CHUNK_ROWS, rows - start))


class ReadyMade(DataSource):
    """Yields batches that are there already."""

    @classmethod
    def name(cls) -> str:
        return "ready_made"

    def schema(self) -> str:
        return (
            "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
        )

    def reader(self, schema):
        return ReadyMadeReader(int(self.options["rows"]), self.options["path"])


class ReadyMadeReader(DataSourceReader):
    def __init__(self, rows: int, folder: str) -> None:
        self.rows, self.folder = rows, folder

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(name) for name in sorted(os.listdir(self.folder))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(f"{self.folder}/{partition.value}") as file:
            yield from chunks(pa.ipc.open_file(file).get_batch(0), self.rows)


class Dropping(DataSource):
    """A sink that takes batches and forgets them."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def writer(self, schema, overwrite):
        return DroppingWriter()


class DroppingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages) -> None:
        pass


class PlainFile(DataSource):
    """A sink whose tasks write the bytes of keys and values to a file each, and sync it."""

    @classmethod
    def name(cls) -> str:
        return "plain_file"

    def writer(self, schema, overwrite):
        return PlainFileWriter(self.options["path"])


class PlainFileWriter(DroppingWriter):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        file, _ = tempfile.mkstemp(dir=self.folder)
        for batch in iterator:
            for column in batch.columns:
                os.write(file, column.buffers()[-1])
        os.fdatasync(file)
        os.close(file)
        return WriterCommitMessage()


def take_turns(
    works: dict[str, Callable[[], None]], rounds: int, tidy: Callable[[], None] = lambda: None
) -> dict[str, list[float]]:
    """The seconds of each in each round, after a first round that is not counted; `tidy` is called before each."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            tidy()
            os.sync()  # A sync of ours must not wait for what others left unwritten.
            start = time.perf_counter()
            work()
            if turn:
                times[name].append(time.perf_counter() - start)
    return times


def lines(title: str, times: dict[str, list[float]], rows: int) -> list[list[str]]:
    """Lines of the table; the first way is the bound, and one may be Kafka."""
    bound, found = next(iter(times.values())), []
    for name, taken in times.items():
        speed = rows / statistics.median(taken)
        found.append(
            [
                f"{title}: {name}",
                f"{statistics.median(taken):.2f}",
                f"{speed / 1e6:.2f}",
                f"{speed * (KEY_SIZE + VALUE_SIZE) / 1e6:,.0f}",
                f"{tables.ratio(bound, taken):.2f}",
                f"{tables.ratio(times['Kafka'], taken):.2f}" if "Kafka" in times else "",
            ]
        )
    return found


def make_session() -> SparkSession:
    spark = streams.session()
    spark.dataSource.register(ReadyMade)
    spark.dataSource.register(Dropping)
    spark.dataSource.register(PlainFile)
    return spark


def unbounded(spark: SparkSession, work: Callable[[], None]) -> None:
    """Does it without a bound in bytes for Spark's Arrow batches."""
    before = spark.conf.get(_BYTES_OF_A_BATCH)
    spark.conf.set(_BYTES_OF_A_BATCH, str(2**31 - 1))
    work()
    spark.conf.set(_BYTES_OF_A_BATCH, before)


def run(spark: SparkSession, folder: str, partitions: int, rows_each: int, rounds: int, broker: str) -> list[list[str]]:
    """Lines of the table; `broker`: the address of one with the empty topics t and w, or ""."""
    ready_folder = f"{folder}/ready"
    os.mkdir(ready_folder)
    store = Store.create(f"{folder}/store")
    store.create_topic("t", partitions)
    for number in range(partitions):
        batch = rows_of(number)
        with pa.ipc.new_file(f"{ready_folder}/{number}", batch.schema) as file:
            file.write_batch(batch)
        for chunk in chunks(batch.select(["key", "value", "timestamp"]), rows_each):
            store.append("t", chunk, partition=number)

    ready = spark.read.format("ready_made").option("rows", rows_each).load(ready_folder)
    topic = spark.read.format("pylog").option("subscribe", "t").load(store.path)
    rows = partitions * rows_each
    assert topic.count() == ready.count() == rows

    targets = [f"{folder}/target-0"]

    def new_target() -> None:
        # A store of its own each time, so that old output does not fill the disk.
        shutil.rmtree(targets[-1], ignore_errors=True)
        targets.append(f"{folder}/target-{len(targets)}")
        Store.create(targets[-1]).create_topic("w", partitions)

    def write_topic() -> None:
        ready.select("key", "value").write.format("pylog").mode("append").option("topic", "w").save(targets[-1])

    def drop() -> None:
        ready.select("key", "value").write.format("dropping").mode("append").save()

    def write_plain() -> None:
        ready.select("key", "value").write.format("plain_file").mode("append").save(targets[-1])

    def read(df) -> None:
        df.write.format("noop").mode("overwrite").save()

    def write_parquet() -> None:
        ready.select("key", "value").write.option("compression", "none").parquet(f"{targets[-1]}/parquet")

    reads = {"source of ready-made batches": lambda: read(ready), "pylog": lambda: read(topic)}
    writes = {
        "sink that drops": drop,
        "sink that drops, set up": lambda: unbounded(spark, drop),
        "sink of plain files, synced, set up": lambda: unbounded(spark, write_plain),
        "pylog, exactly once, synced": write_topic,
        "pylog, set up": lambda: unbounded(spark, write_topic),
        "Parquet, neither synced nor compressed": write_parquet,
    }
    if broker:
        kafka = {"kafka.bootstrap.servers": broker}
        topic.select("key", "value", "partition").write.format("kafka").options(topic="t", **kafka).save()
        reads["Kafka"] = lambda: read(spark.read.format("kafka").options(subscribe="t", **kafka).load())
        writes["Kafka"] = lambda: ready.select("key", "value").write.format("kafka").options(topic="w", **kafka).save()
    return lines("read", take_turns(reads, rounds), rows) + lines("write", take_turns(writes, rounds, new_target), rows)


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--kafka", action="store_true")
    given = parser.parse_args()
    spark, partitions = make_session(), given.partitions
    with contextlib.ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory(dir=given.folder))
        broker = held.enter_context(streams.kafka(spark, {"t": partitions, "w": partitions})) if given.kafka else ""
        found = run(spark, folder, partitions, given.rows // partitions, given.rounds, broker)
    header = [f"{given.rows:,} rows", "seconds", "M rows/s", "MB/s", "of the bound", "times Kafka's speed"]
    tables.show("spark: batch", header, found, document=given.document)
    spark.stop()


if __name__ == "__main__":
    main()
