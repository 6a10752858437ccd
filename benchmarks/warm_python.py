"""What a new session of Spark waits for: its first write, read and query, by Python, `pylog-python` and at Kafka.

    python benchmarks/warm_python.py [--rounds 3] [--kafka]

Each session is a process of its own, in turns; the warm process is up before. A query copies 1,000 rows from a topic to
a topic with `availableNow`, each time with a new checkpoint. Beside them a data source in Python that does nothing, by
`pylog-python`: what Spark itself needs. Medians, in seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import streams
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

ROWS, QUERIES = 1_000, 4
WARM = str(Path(sys.executable).with_name("pylog-python"))
PYTHONS = {"python": sys.executable, "pylog-python": WARM, "nothing": WARM}


class Nothing(DataSource):
    """Its rows are ready, and it drops what is written."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return "value string"

    def reader(self, schema):
        return Reader()

    def streamReader(self, schema):  # noqa: N802
        return StreamReader()

    def writer(self, schema, overwrite):
        return Writer()

    def streamWriter(self, schema, overwrite):  # noqa: N802
        return StreamWriter()


class Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["v"] * ROWS})


class StreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"rows": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802
        return {"rows": ROWS}

    def partitions(self, start, end) -> list[InputPartition]:
        return [InputPartition(0)]

    read = Reader.read


class Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class StreamWriter(DataSourceStreamArrowWriter):
    write = Writer.write


def seconds(step: Callable[[], object]) -> float:
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def measure(spark: SparkSession, kind: str, target: dict[str, str], folder: str) -> dict[str, float]:
    """The steps of one session; `target`: the options that say where the topics are."""
    rows = spark.range(ROWS).selectExpr("cast(id as string) as value")

    def write() -> None:
        if kind == "nothing":
            spark.dataSource.register(Nothing)  # Spark looks for pylog and others at that.
        rows.write.format(kind).options(topic="t", **target).mode("append").save()

    def read() -> None:
        spark.read.format(kind).options(subscribe="t", **target).load().count()

    def query(number: int) -> None:
        source = spark.readStream.format(kind).options(subscribe="t", startingOffsets="earliest", **target).load()
        sink = source.selectExpr("value").writeStream.format(kind).options(topic="o", **target)
        sink = sink.option("checkpointLocation", f"{folder}/checkpoint-{number}").trigger(availableNow=True)
        sink.start().awaitTermination()

    took = {"first write": seconds(write), "first read": seconds(read), "first query": seconds(lambda: query(0))}
    took["later query"] = statistics.median(
        seconds(lambda number=number: query(number)) for number in range(1, QUERIES)
    )
    return took


def session(kind: str) -> None:
    """Prints what one session has taken."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        spark = streams.session()
        spark.range(10).count()  # Java is warm in each of them.
        if kind == "kafka":
            broker = stack.enter_context(streams.kafka(spark, {"t": 1, "o": 1}))
            target = {"kafka.bootstrap.servers": broker}
        else:
            target = {"path": f"{folder}/store"}
        print(json.dumps(measure(spark, kind, target, folder)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--session", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.session:
        session(arguments.session)
        return
    kinds = [*PYTHONS, *(["kafka"] if arguments.kafka else [])]
    took: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    formats = {"kafka": "kafka", "nothing": "nothing"}
    for number in range(arguments.rounds + 1):
        for kind in kinds:
            python = PYTHONS.get(kind, sys.executable)
            done = subprocess.run(
                [sys.executable, __file__, "--session", formats.get(kind, "pylog")],
                env={**os.environ, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python},
                stdout=subprocess.PIPE,
                check=True,
            )
            if number:  # The first round has files read from the disk, and the warm process come up.
                took[kind].append(json.loads(done.stdout))
    print(f"{'':14}" + "".join(f"{kind:>14}" for kind in kinds))
    for step in took["python"][0]:
        medians = [statistics.median(session[step] for session in took[kind]) for kind in kinds]
        print(f"{step:14}" + "".join(f"{value:14.2f}" for value in medians))


if __name__ == "__main__":
    main()
