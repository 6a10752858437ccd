"""Runs out of disk in the middle of writes: `full_disk.py FOLDER`, in a mount namespace of its own.

It mounts a small disk in memory on FOLDER, and says "all is there" if all went well.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from drivers import copy_events, make_session
from spark_tools import fails, fill, values_in

from pyspark_log import Store

SIZE = "24m"
TOPIC = "t"
FULL = "No space left on device"


class Disk:
    """A store on the disk, and a folder for what the sink notes there."""

    def __init__(self, folder, name):
        self.store = Store.create(f"{folder}/{name}")
        self.store.create_topic(TOPIC, 2)
        self.marks = Path(folder, f"{name} marks")
        self.marks.mkdir()

    def fault(self, fault):
        return {"fault": fault, "marks": str(self.marks)}

    def make_room(self):
        (self.marks / "filler").unlink()


def staging(spark, folder):
    """The tasks of a batch write find no room for the files that they stage."""
    disk = Disk(folder, "staging")
    rows = spark.range(0, 40_000, 1, 2).selectExpr("lpad(id, 20, '0') value", "int(id % 2) partition")
    write = rows.write.format("pylog_failing").mode("append").option("topic", TOPIC)
    write = write.options(**disk.fault("disk full when it stages"))
    with fails(r"\[PYLOG_IO_ERROR\]", FULL, "/staging/"):
        write.save(disk.store.path)
    assert values_in(disk.store, TOPIC) == [[], []]
    disk.make_room()
    write.save(disk.store.path)
    assert values_in(disk.store, TOPIC) == [[f"{n:020}" for n in range(start, 40_000, 2)] for start in (0, 1)]


def committing(spark, folder, checkpoints, step, error, again):
    """A streaming query finds no room when it publishes its first micro-batch."""
    disk = Disk(folder, step)
    fill(disk.store, "events", range(0, 200, 2), range(1, 200, 2))
    query = copy_events(
        spark,
        disk.store.path,
        f"{checkpoints}/{step}",
        TOPIC,
        "pylog_failing",
        **disk.fault(f"disk full before {step}"),
    ).trigger(availableNow=True)
    for expected in (error, again):
        with fails(expected, FULL):
            query.start().awaitTermination()
        assert values_in(disk.store, TOPIC)[1] == []
    disk.make_room()
    query.start().awaitTermination()
    assert values_in(disk.store, TOPIC) == values_in(disk.store, "events")


def main(folder):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], check=True)
    spark = make_session("local[2]")
    staging(spark, folder)
    with tempfile.TemporaryDirectory() as checkpoints:
        # The decision may find room in a block that is begun; then its output finds none.
        either, io = r"\] (not published|published and pending): ", r"\[PYLOG_(IO_ERROR|PUBLISH_PENDING)\] "
        committing(spark, folder, checkpoints, "the decision is written", either, io)
        pending = r"\[PYLOG_PUBLISH_PENDING\] published and pending: "
        committing(spark, folder, checkpoints, "the output is written", pending, pending)
    spark.stop()
    print("all is there")


if __name__ == "__main__":
    main(sys.argv[1])
