"""What the tests of jobs have in common: records with known values, runs of jobs, and what is in their files."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.campaigns.processes import end_session, session
from tests.campaigns.spark_cluster import SPARK_HOME

JOBS = Path(__file__).parents[2] / "pyspark_log" / "jobs"
#: The first hour of 2026, in ms.
T0 = 1_767_225_600_000
HOUR = 3_600_000


def fill(store, topic, partitions, count, *, step=60_000):
    """Appends `count` records to each partition of a topic, which is made if it is missing; a minute apart."""
    if topic not in store.topics():
        store.create_topic(topic, partitions, {"retention.ms": "-1"})
    for partition in range(partitions):
        first = store.latest_offset(topic, partition)
        numbers = range(first, first + count)
        store.append(topic, pa.record_batch({
            "key": [b"%d" % (number % 7) for number in numbers],
            "value": [value_of(topic, partition, number) for number in numbers],
            "timestamp": [T0 + number * step for number in numbers],
        }), partition=partition)  # fmt: skip


def value_of(topic, partition, offset):
    """The value that `fill` gives a record."""
    return f'{{"at": "{topic}-{partition}", "n": {offset}}}'.encode()


def files_in(target, ending=".parquet"):
    """The complete files, by their paths in the target."""
    found = sorted(path.relative_to(target) for path in Path(target).rglob(f"*{ending}") if path.is_file())
    return [str(path) for path in found if path.parts[0] != "_pylog"]


def rows_in(target):
    """Topic, partition, offset and value of each row, sorted; with nothing left out that is there twice."""
    rows = []
    for name in files_in(target):
        table = pq.ParquetFile(Path(target) / name).read()
        topic = Path(name).name.rsplit("-", 3)[0] if "topic" not in table.column_names else None
        topic = name.partition("topic=")[2].partition("/")[0] if "topic=" in name else topic
        for row in table.drop(["timestamp"]).to_pylist():
            rows.append((row.get("topic", topic), row["partition"], row["offset"], row["value"]))
    return sorted(rows)


def rows_of(store, *topics):
    """The same of what is in topics."""
    return sorted(
        (topic, row["partition"], row["offset"], row["value"])
        for topic in topics
        for row in store.topic(topic).read().to_table().to_pylist()
    )


def committed(store, group="bulk-load"):
    """The committed offsets of a group, by the names of partitions."""
    return {str(at): one.offset for at, one in store.groups[group].committed().items()}


def left_over(target):
    """What is in the hidden folder of a target, but for empty folders."""
    return [path.name for path in (Path(target) / "_pylog").rglob("*") if path.is_file()]


class Job:
    """A job in processes of its own, for use with `with`: at its end none of them is left.

    Attributes:
        began: when it was started, in seconds since 1970.
    """

    def __init__(self, log, master, name, *arguments, options=()):
        """`name`: of a job, or the path of a program; `options` are more of spark-submit."""
        program = JOBS / f"{name}.py" if isinstance(name, str) else name
        command = [
            SPARK_HOME / "bin/spark-submit", "--master", master, "--conf", "spark.driver.host=127.0.0.1",
            "--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.memory=600m",
            "--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false",
            "--conf", "spark.python.authenticate.socketTimeout=120s", *options, program, *arguments,
        ]  # fmt: skip
        env = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        self.log, self.began = Path(log), time.time()
        with self.log.open("a") as output:
            self.process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def is_running(self):
        return self.process.poll() is None

    def wait(self, seconds=400):
        """Its exit code."""
        return self.process.wait(seconds)

    def own(self):
        """Its processes: the driver's JVM and Python, and on no cluster Python workers."""
        return session(self.process.pid)

    def kill(self):
        """Kills all of it."""
        end_session(self.process)
