"""A driver is killed, or held up for a while, before each change to files that it makes.

It is a process that does to the store what a streaming query does with a task or two: it claims the query, stages, and
commits as Spark has it do. A driver that is started after it begins with the last batch that was not recorded as done,
as Spark does then. Whatever the first one did or does, in the end all output is there once and in order.
"""

import contextlib
import itertools
import os
import shutil
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from pyspark_log import Store
from pyspark_log.spark_connector.source import PylogDataSource
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.spark_connector.writing.query_run import QueryRun, claim_run
from pyspark_log.spark_connector.writing.task_writer import StagedMessage
from pyspark_log.storage.catalog import log_dir
from pyspark_log.storage.fs import files
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan
from tests.processes import PROCESSES
from tests.scratch import memory_folder

TOPIC, PARTITIONS = "t", 2
BATCHES = 2
# Rows of a batch's two tasks: one sends them along, the other makes a file.
TASK_ROWS = (6, 1800)
# A second driver that is not done after this many seconds waits for what the first one has locked.
PATIENCE = 0.25

pytestmark = [pytest.mark.slow, pytest.mark.long]


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
        writer = StagedWriter(store.logs, StagingPlan.make(store.logs, [TOPIC]))
        writer.append(TOPIC, rows(batch, task))
        messages.append(StagedMessage(tuple(writer.finish()), identity))
    return messages


def drive(path, run, first, tell, stop_before, sign):
    """A driver: publishes the batches from `first` on, and reports each that is done.

    Before the change `stop_before` to files it sends itself the signal `sign`.
    """
    # Partitions are applied by threads; each number is given to one change.
    changes = itertools.count()

    def aim(_change):
        if next(changes) == stop_before:
            os.kill(os.getpid(), sign)

    # Kafka's checkpoints are written by the clock: a slower driver would make more changes.
    log_dir.INTERVAL = 3600
    files.set_observer(aim)
    source = PylogDataSource({"path": path, "topic": TOPIC})
    for batch in range(first, BATCHES):
        messages = stage(Store.shared(path), batch, run)
        source.streamWriter(StructType().add("value", StringType()), False).commit(messages, batch)
        tell.send((batch + 1, next(changes)))


class Driver:
    """A driver in a process of its own.

    Attributes:
        done: the batches that are recorded as done.
        changes: how many changes to files it had made then.
    """

    def __init__(self, path, run, first=0, stop_before=-1, sign=0):
        self._told, tell = PROCESSES.Pipe(duplex=False)
        self.done = first
        self.changes = 0
        arguments = (str(path), run, first, tell, stop_before, sign)
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


@pytest.fixture
def template(tmp_path):
    """A folder with a store as it is before the first batch; in memory if it can be: kills lose nothing written."""
    with memory_folder() as folder:
        store = Store.create(f"{folder}/template")
        # Segments that one batch fills, so that a commit rolls.
        store.create_topic(TOPIC, PARTITIONS, {"segment.bytes": "250000"})
        yield folder


def check_end(path, where):
    assert content(path) == values(BATCHES), where
    store = Store.open(path)
    staged = Path(path, "staging")
    for name in os.listdir(staged):
        os.utime(staged / name, (0, 0))
    janitor.sweep_staging(store)
    assert os.listdir(staged) == [], where
    # And nothing holds up the next publisher.
    store.append(TOPIC, rows(9, 0))


def all_changes(template):
    driver = Driver(shutil.copytree(template / "template", template / "count"), "run 0")
    assert driver.wait()
    assert driver.done == BATCHES
    check_end(template / "count", "undisturbed")
    return driver.changes


def test_a_killed_commit_is_made_good_by_the_next_driver(template, capsys):
    changes, killed = all_changes(template), 0
    for change in range(changes):
        path = shutil.copytree(template / "template", template / "killed")
        first = Driver(path, "run 1", 0, change, signal.SIGKILL)
        assert first.wait()
        where = f"killed before change {change}, after {first.done} batches"
        killed += first.process.exitcode == -signal.SIGKILL
        for seen, before, after in zip(content(path), values(first.done), values(first.done + 1), strict=True):
            assert seen in (before, after), where
        second = Driver(path, "run 2", first.done)
        assert second.wait()
        assert second.done == BATCHES, where
        check_end(path, where)
        shutil.rmtree(path)
    with capsys.disabled():
        print(f"\n{killed} kills, before {changes} changes")
    assert killed >= 0.9 * changes


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="sees in /proc that a process is stopped, which Linux has")
def test_a_driver_that_comes_back_does_no_harm(template, capsys):
    changes, stopped, waited = all_changes(template), 0, 0
    for change in range(changes):
        path = shutil.copytree(template / "template", template / "stopped")
        first = Driver(path, "run 1", 0, change, signal.SIGSTOP)
        stopped += first.wait_until_stopped()
        where = f"stopped before change {change}, after {first.done} batches"
        second = Driver(path, "run 2", first.done)
        try:
            waited += not second.wait(PATIENCE)
            first.resume()
            assert first.wait(), where
            assert second.wait(), where
        finally:
            first.end()
            second.end()
        # The first one may have continued before the second one began: then a third continues from there.
        done = max(first.done, second.done)
        last = second if second.done == BATCHES else Driver(path, "run 3", done)
        assert last.wait(), where
        assert last.done == BATCHES, where
        check_end(path, where)
        shutil.rmtree(path)
    with capsys.disabled():
        print(f"\n{stopped} stops, before {changes} changes; in {waited} the second driver waited for a lock")
    assert stopped >= 0.9 * changes
