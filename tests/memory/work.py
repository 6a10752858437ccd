"""What the memory of a process is measured for, each in a process of its own.

`python work.py NAME FOLDER AMOUNT`: does it, with AMOUNT bytes of records, and prints its peak of resident memory in
KiB, less what it had before (with everything imported and the store open).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from pyspark_log.cli.records.consume import consume
from pyspark_log.cli.records.dump import dump
from pyspark_log.cli.target import Target
from pyspark_log.spark_connector.corruption import OnCorruption
from pyspark_log.spark_connector.planning.ranges import OffsetRange
from pyspark_log.spark_connector.reading.task_reader import RangePartition, ReadPlan, read_partition
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.storage.compaction.cleaner import compact
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.log.state import partition_state, state_file
from pyspark_log.storage.maintenance.repair.store import repair
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.publish.applier import apply
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan
from pyspark_log.storage.publish.staging.staged_file import StagedRegion
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_UNCOMMITTED, TopicPartition

# Records of about 1 KiB, and how many of them a call has; and tiny ones, each in a batch of its own.
VALUE, ROWS = os.urandom(1000), 1000
TINY = b"." * 40
SEGMENT = 64 << 20


def rows(count: int = ROWS, value: bytes = VALUE) -> pa.RecordBatch:
    return pa.record_batch({"key": pa.array([b"%08d" % n for n in range(count)]), "value": [value] * count})


def fill(folder: Path, amount: int) -> None:
    """A store with `amount` bytes in t-0, and a tenth of it in single records in tiny-0."""
    store = Store.create(folder / "store")
    store.create_topic("first", 1)
    store.create_topic("t", 1, {"segment.bytes": str(SEGMENT), "retention.ms": "-1"})
    store.create_topic("tiny", 1, {"segment.bytes": str(SEGMENT), "retention.ms": "-1", "max.message.bytes": "150"})
    for _ in range(amount // (ROWS * 1024)):
        store.append("t", rows(), partition=0)
    for _ in range(amount // 10 // (ROWS * 130)):
        store.append("tiny", rows(value=TINY), partition=0)
    store.flush()


# ---- reading


def read(store: Store, folder: Path, amount: int) -> None:
    for _ in store.read("t", 0, headers=True):
        pass


def read_tiny_batches(store: Store, folder: Path, amount: int) -> None:
    for _ in store.read("tiny", 0):
        pass


def spark_task(store: Store, folder: Path, amount: int) -> None:
    records = OffsetRange(TopicPartition("t", 0), 0, store.latest_offset("t", 0))
    columns = ("key", "value", "headers")
    plan = ReadPlan(StoreRef.to(store), columns, READ_UNCOMMITTED, True, OnCorruption(), None, None, columns)
    task = RangePartition(plan, records, None)
    for _ in read_partition(task):
        pass


def consume_all(store: Store, folder: Path, amount: int) -> None:
    _without_output(lambda: consume.main(["t"], obj=Target(store.path), standalone_mode=False))


def dump_all(store: Store, folder: Path, amount: int) -> None:
    arguments = [*store.segment_files("t", 0), "--records"]
    _without_output(lambda: dump.main(arguments, obj=Target(store.path), standalone_mode=False))


def _without_output(work: Callable[[], object]) -> None:
    out, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        work()
        sys.stdout.flush()
    finally:
        os.dup2(out, 1)


def look_up_times(store: Store, folder: Path, amount: int) -> None:
    for topic in ("t", "tiny"):
        for time in (0, 10**12, 1 << 60):
            store.offset_for_timestamp(topic, 0, time)


def verify_all(store: Store, folder: Path, amount: int) -> None:
    assert verify(store.path, jobs=2).findings == []


def repair_all(store: Store, folder: Path, amount: int) -> None:
    assert repair(store.path, folder / "copy").complete


# ---- writing


def append(store: Store, folder: Path, amount: int) -> None:
    for _ in range(amount // (ROWS * 1024)):
        store.append("t", rows(), partition=0)


def append_tiny_batches(store: Store, folder: Path, amount: int) -> None:
    for _ in range(amount // 10 // (ROWS * 130)):
        store.append("tiny", rows(value=TINY), partition=0)


def stage(store: Store, folder: Path, amount: int, topics: tuple[str, ...] = ("new",)) -> list:
    for topic in topics:
        store.create_topic(topic, 2, {"segment.bytes": str(SEGMENT), "retention.ms": "-1"})
    writer = StagedWriter(store.logs, StagingPlan.make(store.logs, topics))
    for number in range(amount // (ROWS * 1024)):
        writer.append(topics[number % len(topics)], rows())
    return writer.finish()


def stage_for_many_topics(store: Store, folder: Path, amount: int) -> None:
    stage(store, folder, amount, tuple(f"new{number}" for number in range(50)))


def stage_for_many_partitions(store: Store, folder: Path, amount: int) -> None:
    """A hundred partitions for the one, a thousand for the other amount; each gets a little again and again."""
    count = amount // 200_000
    store.create_topic("wide", count, {"retention.ms": "-1"})
    writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["wide"]))
    for _ in range(60):
        data = rows(count, VALUE)
        writer.append("wide", data.append_column("partition", pa.array(range(count), pa.int32())))
    writer.finish()


def stage_one_partition_after_another(store: Store, folder: Path, amount: int) -> None:
    """A hundred partitions for the one, a thousand for the other amount; each gets a batch and a bit of one."""
    count, data = amount // 300_000, rows(600)
    store.create_topic("wide", count, {"retention.ms": "-1", "compression.type": "lz4"})
    writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["wide"]))
    for partition in range(count):
        writer.append("wide", data.append_column("partition", pa.array([partition] * 600, pa.int32())))
    writer.finish()


def publish_large_batches(store: Store, folder: Path, amount: int) -> None:
    """Batches that are larger than the pieces in which all else is copied."""
    size = 12 << 20
    store.create_topic("new", 1, {"retention.ms": "-1", "max.message.bytes": str(2 * size)})
    writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["new"]))
    for _ in range(amount // size):
        writer.append("new", rows(1, bytes(size)))
    regions = [
        StagedRegion(f"{store.path}/staging/{part.file}", part.position, part.size, part.count, part.crcs)
        for part in writer.finish()
    ]
    apply(store.logs.writer("new", 0), 0, 1, regions, installs=False)
    assert verify(store.path, jobs=1).totals.records >= amount // size


def publish_large(store: Store, folder: Path, amount: int) -> None:
    parts = stage(store, folder, amount)
    store.publishes.publish("p", 0, parts)


def publish_copied(store: Store, folder: Path, amount: int) -> None:
    """Without second names: every byte is copied while it is applied."""
    parts = stage(store, folder, amount)
    mine = [part for part in parts if part.partition == 0]
    regions = [
        StagedRegion(f"{store.path}/staging/{part.file}", part.position, part.size, part.count, part.crcs)
        for part in mine
    ]
    apply(store.logs.writer("new", 0), 0, 1, regions, installs=False)


def publish_with_the_time_of_append(store: Store, folder: Path, amount: int) -> None:
    store.create_topic("new", 2, {"segment.bytes": str(SEGMENT), "message.timestamp.type": "LogAppendTime"})
    writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["new"]))
    for _ in range(amount // (ROWS * 1024)):
        writer.append("new", rows())
    store.publishes.publish("p", 0, writer.finish())


def publish_often(store: Store, folder: Path, amount: int) -> None:
    """Little each time; the decision log grows."""
    store.create_topic("new", 1, {"retention.ms": "-1"})
    for number in range(amount // 200_000):
        writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["new"]))
        writer.append("new", rows(10))
        store.publishes.publish("p", number, writer.finish())


def retention(store: Store, folder: Path, amount: int) -> None:
    store.alter_configs("t", {"retention.bytes": "1000"})
    store.alter_configs("tiny", {"retention.ms": "1"})
    assert store.clean() > 0


def compact_all(store: Store, folder: Path, amount: int) -> None:
    store.alter_configs("t", {"cleanup.policy": "compact"})
    assert not [outcome.problem for outcome in compact(store.logs, "t") if outcome.problem]


def recover(store: Store, folder: Path, amount: int) -> None:
    """After a power loss: all that is not synced is checked."""
    for topic in ("t", "tiny"):
        state_path = store.logs.reader(topic, 0).place.state_path
        state = state_file.read(state_path).state._replace(boot=b"anotherb", synced=0)
        Path(state_path).write_bytes(partition_state.encode_slot(state) + bytes(1792))
        Store.open(store.path).append(topic, rows(1, TINY), partition=0)


def commit_offsets(store: Store, folder: Path, amount: int) -> None:
    """The same positions, moved on again and again, and followed."""
    offsets = OffsetsLog(store)
    for number in range(amount // 100_000):
        offsets.commit("group", {TopicPartition("t", partition): number for partition in range(100)})
    assert len(OffsetsLog(store).fetch("group")) == 100


WORK = {
    work.__name__: work
    for work in (
        read, read_tiny_batches, spark_task, consume_all, dump_all, look_up_times, verify_all, repair_all, append,
        append_tiny_batches, stage, stage_for_many_topics, stage_for_many_partitions,
        stage_one_partition_after_another, publish_large, publish_copied, publish_large_batches,
        publish_with_the_time_of_append, publish_often, retention, compact_all, recover, commit_offsets,
    )
}  # fmt: skip
#: What needs a store that was filled before.
NEED_RECORDS = {
    "read", "read_tiny_batches", "spark_task", "consume_all", "dump_all", "look_up_times", "verify_all", "repair_all",
    "retention", "compact_all", "recover",
}  # fmt: skip


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)[1])


def main() -> None:
    name, folder, amount = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if name == "fill":
        fill(folder, amount)
        return
    work = WORK[name]
    if name not in NEED_RECORDS:
        fill(folder, 0)
    store = Store.open(folder / "store")
    # What every process needs once: threads, codecs, Arrow's pools.
    store.append("first", rows(10))
    list(store.read("first", 0))
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    work(store, folder, amount)
    print(_status("VmHWM") - before)


if __name__ == "__main__":
    main()
