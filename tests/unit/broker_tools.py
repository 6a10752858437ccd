"""A folder of a Kafka broker's logs, batch by batch, and what is read of it."""

from __future__ import annotations

import contextlib
import re

from record_tools import Record, build

from pyspark_log.mirror import Mirror, MirrorPlan, open_folder
from pyspark_log.replication import Rules
from pyspark_log.storage.catalog import kafka_files
from pyspark_log.storage.catalog.kafka_files import HIGH_WATERMARK
from pyspark_log.storage.segment.file_names import LOG, segment_path
from pyspark_log.types import EARLIEST, TopicPartition

T0 = TopicPartition("t", 0)

ALL = [(0, b"a"), (2, b"c"), (3, b"d"), (12, b"m"), (15, b"p"), (16, b"q"), (20, b"u")]


def batch(offset, *values, timestamp=0):
    """A batch at an offset; the base offset is not under the CRC."""
    data = build([Record(b"k%d" % number, value, timestamp + number) for number, value in enumerate(values)])
    return offset.to_bytes(8, "big") + data[8:]


def add(folder, base, *batches, suffix=LOG):
    folder.mkdir(exist_ok=True)
    with open(segment_path(str(folder), base, suffix), "ab") as file:
        for data in batches:
            file.write(data)


def rows(store, partition=0, topic="t", start=EARLIEST, end=None, **how):
    """Pairs of offset and value."""
    found = []
    for part in store.read(topic, partition, start, end, **how):
        found += zip(part["offset"].to_pylist(), part["value"].to_pylist(), strict=True)
    return found


def high_watermark(root, offset):
    kafka_files.write_offsets(str(root / HIGH_WATERMARK), {T0: offset})


def fill(root):
    """Partition 0 of `t`: three segments, with gaps between and within them; `ALL` is what they hold."""
    add(root / "t-0", 0, batch(0, b"a"), batch(2, b"c", b"d"))
    add(root / "t-0", 10, batch(12, b"m"), batch(15, b"p", b"q"))
    add(root / "t-0", 20, batch(20, b"u"))


def tree(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in [folder, *folder.rglob("*")]}


def mirrored(store, folder, *topics, groups=None, **rules):
    """Mirrors topics of a broker's folder, or of a store, until now; the results by partition."""
    plan = MirrorPlan([re.compile(topic) for topic in topics], groups and re.compile(groups), True, Rules(**rules))
    with contextlib.closing(open_folder(str(folder), store)) as source:
        return {result.at: result for result in Mirror(store, source, plan).run()}
