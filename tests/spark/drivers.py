"""A driver in a process of its own, in one session with its JVM and workers, which fails as a test wants it.

    drivers.py STORE CHECKPOINT TOPIC FAULT MARKS

It copies the topic `events` into another one by a streaming query, for ever, and prints why that ended.
"""

import os
import signal
import subprocess
import sys

from failing_sinks import register
from pyspark.errors import StreamingQueryException

from tests.campaigns import processes
from tests.campaigns.queries.program import session as start

#: Records that one micro-batch reads.
BATCH = 100


def make_session(master, **settings):
    """The one session of a process."""
    session = start(master, **settings)
    session.sparkContext.setLogLevel("OFF")
    register(session)
    return session


def copy_events(spark, path, checkpoint, topic, sink="pylog", **options):
    """A query whose output in a partition is, in the end, what that partition of `events` holds."""
    rows = (
        spark.readStream.format("pylog")
        .options(subscribe="events", startingOffsets="earliest", maxOffsetsPerTrigger=str(BATCH))
        .load(path)
    )
    writer = rows.select("value", "partition").writeStream.format(sink)
    return writer.options(path=path, topic=topic, checkpointLocation=str(checkpoint), **options)


class Driver:
    """For use with `with`, at whose end nothing of it is left."""

    def __init__(self, store, checkpoint, topic, fault, marks, log):
        self._log = log
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, __file__, store.path, str(checkpoint), topic, fault, str(marks)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        processes.end_session(self.process)

    def wait_until_stopped(self):
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self):
        processes.send(processes.session(self.process.pid), signal.SIGCONT)

    def said(self):
        return self._log.read_text()


def main(store, checkpoint, topic, fault, marks):
    spark = make_session("local[2]")
    query = copy_events(spark, store, checkpoint, topic, "pylog_failing", fault=fault, marks=marks).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        print("ended:", error)


if __name__ == "__main__":
    main(*sys.argv[1:])
