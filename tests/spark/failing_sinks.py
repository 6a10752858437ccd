"""The data source pylog with a fault at a chosen place: what a machine or a process would do to it.

Spark's workers do not know this module: its classes travel to them by value (`register`).
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from pyspark import TaskContext, cloudpickle

from pyspark_log.spark_connector.source import PylogDataSource
from pyspark_log.spark_connector.writing.writer import PylogBatchWriter, PylogStreamWriter
from pyspark_log.storage.fs import files
from tests.campaigns import processes

#: Steps of a commit, each by the change to files that begins it. Only the output has a partition 1.
STEPS = {
    "the manifest gets its name": lambda kind, path: kind == "rename" and path.endswith(".manifest"),
    "the decision is written": lambda kind, path: kind == "write" and "/__pylog_publish-0/" in path,
    "the decision is synced": lambda kind, path: kind == "sync" and "/__pylog_publish-0/" in path,
    "the intent is written": lambda kind, path: kind == "write" and "/state/" in path and path.endswith("-1"),
    "the output is written": lambda kind, path: kind == "write" and path.endswith(".log") and "-1/" in path,
    "the output is synced": lambda kind, path: kind == "sync" and path.endswith(".log") and "-1/" in path,
}


def register(spark):
    """Makes the format `pylog_failing` known to a session."""
    for module in (sys.modules[__name__], processes):
        cloudpickle.register_pickle_by_value(module)
    spark.dataSource.register(FailingSource)


class FailingSource(PylogDataSource):
    """Options `fault`: what is to happen; `marks`: a folder where it is noted, as it happens once."""

    @classmethod
    def name(cls):
        return "pylog_failing"

    def writer(self, schema, overwrite):
        return FailingBatchWriter(self._place, self.options, schema)

    def streamWriter(self, schema, overwrite):  # noqa: N802
        return FailingStreamWriter(self._place, self.options, schema)


class FailingBatchWriter(PylogBatchWriter):
    def __init__(self, place, options, schema):
        super().__init__(place, options, schema)
        self.fault = Fault(options)

    def write(self, iterator):
        return self.fault.in_task(super().write, iterator)

    def commit(self, messages):
        self.fault.in_commit(super().commit, messages)


class FailingStreamWriter(PylogStreamWriter):
    def __init__(self, place, options, schema):
        super().__init__(place, options, schema)
        self.fault = Fault(options)

    def write(self, iterator):
        return self.fault.in_task(super().write, iterator)

    def commit(self, messages, batchId):  # noqa: N803
        self.fault.in_commit(super().commit, messages, batchId)


class Fault:
    def __init__(self, options):
        self.kind = options["fault"]
        self.marks = Path(options["marks"])

    def first(self, what):
        """Whether it happens for the first time."""
        try:
            (self.marks / what).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def fill_disk(self):
        """Leaves no room on the disk where the marks are."""
        with contextlib.suppress(OSError), (self.marks / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))

    def in_task(self, write, rows):
        if self.kind == "disk full when it stages" and self.first("struck"):
            self.fill_disk()
        message = write(self.cut_short(rows) if self.kind == "worker killed while it stages" else rows)
        task = TaskContext.get()
        if task.partitionId() == 0:
            self.when_staged(task)
        return message

    def cut_short(self, rows):
        for batch in rows:
            yield batch
            if self.first("struck"):
                os.kill(os.getpid(), signal.SIGKILL)

    def when_staged(self, task):
        if self.kind == "task fails when it has staged" and self.first("struck"):
            raise RuntimeError("this attempt fails when it has staged all of its output")
        if self.kind == "worker killed when it has staged" and self.first("struck"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "executor killed when a task has staged" and self.first("struck"):
            # A worker's parent is a daemon, whose parent is the executor.
            os.kill(processes.table()[os.getppid()][0], signal.SIGKILL)
            time.sleep(60)
        if self.kind == "two attempts at once":
            self.first(f"attempt {task.attemptNumber()}")
            # Each reports when both have staged: either may be the slower one, and Spark ends it at the first report.
            while not all((self.marks / f"attempt {number}").exists() for number in range(2)):
                time.sleep(0.01)
        batch = task.getLocalProperty("streaming.sql.batchId")
        if self.kind == "driver stopped in its third batch" and batch == "2" and self.first("struck"):
            signal_driver(signal.SIGSTOP)

    def in_commit(self, commit, *arguments):
        """Before a step of the commit the worker that commits is killed, or the whole driver, or the disk is full."""
        what, _, step = self.kind.partition(" before ")

        def strike(change):
            if STEPS[step](change.kind, change.target or change.path) and self.first("struck"):
                if what == "disk full":
                    self.fill_disk()
                elif what == "driver killed":
                    signal_driver(signal.SIGKILL)
                else:
                    os.kill(os.getpid(), signal.SIGKILL)

        if step in STEPS:
            files.set_observer(strike)
        try:
            commit(*arguments)
        finally:
            files.set_observer(None)


def signal_driver(sign):
    """Sends a signal to all processes of the driver that this one works for; to this one last."""
    me = os.getpid()
    processes.send([pid for pid in processes.session(os.getsid(0)) if pid != me], sign)
    os.kill(me, sign)
