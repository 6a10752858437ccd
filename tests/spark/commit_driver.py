"""A driver as a process that does to a store what a streaming query does with a task or two.

It claims the query, stages, and commits as Spark has it do. Started after another one, it begins with the last batch
that was not recorded as done, as Spark does then. It can stop before each change to files, or each request to an object
store.
"""

import contextlib
import itertools
import os
import signal
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from pyspark_log import Store
from pyspark_log.spark_connector.source import PylogDataSource
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.spark_connector.writing.commit import StagedMessage
from pyspark_log.spark_connector.writing.query_run import QueryRun, claim_run
from pyspark_log.storage.catalog import log_dirs
from pyspark_log.storage.fs import files
from pyspark_log.storage.objects import observer
from tests.processes import PROCESSES

TOPIC, PARTITIONS = "t", 2
BATCHES = 2
# Rows of a batch's two tasks: one sends them along, the other makes a file.
TASK_ROWS = (6, 1800)


def rows(batch, task):
    count = TASK_ROWS[task]
    return pa.record_batch(
        {
            "value": [f"batch {batch}, task {task}, row {row:04}".ljust(200, ".") for row in range(count)],
            "partition": pa.array([row % PARTITIONS for row in range(count)], pa.int32()),
        }
    )


def values(batches):
    """What the partitions hold when this number of batches is published."""
    wanted = [[] for _ in range(PARTITIONS)]
    for batch in range(batches):
        for task in range(len(TASK_ROWS)):
            for row in rows(batch, task).to_pylist():
                wanted[row["partition"]].append(row["value"])
    return wanted


def content(path):
    store = Store.open(path)
    return [
        [value.decode() for batch in store.read(TOPIC, partition) for value in batch["value"].to_pylist()]
        for partition in range(PARTITIONS)
    ]


def stage(store, batch, run):
    """What the tasks of a batch report."""
    identity = QueryRun("query", run, "")
    claim_run(StoreRef.to(store), identity, batch)
    messages = []
    for task in range(len(TASK_ROWS)):
        writer = store.publishes.writer(store.publishes.plan([TOPIC]))
        writer.append(TOPIC, rows(batch, task))
        messages.append(StagedMessage(tuple(writer.finish()), identity))
    return messages


def drive(path, run, first, tell, stop_before, sign, environment):
    """A driver: publishes the batches from `first` on, and reports each that is done.

    Before the change `stop_before` to files, or before and after a request to an object store, it sends itself the
    signal `sign`.
    """
    # The server that forks this process may have been started before the object server.
    os.environ.update(environment)
    # Partitions are applied by threads; each number is given to one change.
    changes = itertools.count()

    def aim(_change):
        if next(changes) == stop_before:
            os.kill(os.getpid(), sign)

    # Kafka's checkpoints are written by the clock: a slower driver would make more changes.
    log_dirs.INTERVAL = 3600
    files.set_observer(aim)
    observer.set_observer(aim)
    source = PylogDataSource({"path": path, "topic": TOPIC})
    for batch in range(first, BATCHES):
        messages = stage(Store.shared(path), batch, run)
        source.streamWriter(StructType().add("value", StringType()), False).commit(messages, batch)
        tell.send((batch + 1, next(changes)))


class Driver:
    """A driver in a process of its own.

    Attributes:
        done: the batches that are recorded as done.
        changes: how many changes to files, or requests, it had made then.
    """

    def __init__(self, path, run, first=0, stop_before=-1, sign=0):
        self._told, tell = PROCESSES.Pipe(duplex=False)
        self.done = first
        self.changes = 0
        arguments = (str(path), run, first, tell, stop_before, sign, dict(os.environ))
        self.process = PROCESSES.Process(target=drive, args=arguments, daemon=True)
        self.process.start()
        tell.close()

    def wait(self, timeout=240.0):
        """Whether it has ended in that time (seconds), of itself or not."""
        deadline = time.monotonic() + timeout
        with contextlib.suppress(EOFError):
            while self._told.poll(max(0, deadline - time.monotonic())):
                self.done, self.changes = self._told.recv()
            return False
        self.process.join()
        return True

    def wait_until_stopped(self):
        """True when it is stopped; False if it has ended."""
        while not self.wait(0):
            state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "T":
                self.wait(0)  # for what it reported just before
                return True
            time.sleep(0.001)
        return False

    def resume(self):
        # It can have ended without stopping: runs differ by a few changes.
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGCONT)

    def end(self):
        """Kills it if it is still there."""
        self.process.kill()
        self.process.join()
