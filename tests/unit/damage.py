"""A store with several segments, and every way to damage the records of its partition t-0."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from record_tools import with_crc

from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.record import layout
from pyspark_log.storage.record.headers import scan
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.store_tools import flip, publish
from tests.store_tools import stage as stage_rows

RECORDS = 120


def rows(first, count, time=1_000_000):
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "key": pa.array([b"%d" % number for number in numbers], pa.binary()),
            "value": pa.array([b"record %06d" % number for number in numbers], pa.binary()),
            "timestamp": pa.array([time + number for number in numbers], pa.int64()),
        }
    )


def stage(store, count, topic="p", large=False):
    data = rows(0, count)
    if large:
        data = data.set_column(1, "value", pa.array([bytes(100_000)] * count, pa.binary()))
    return stage_rows(store, data, topic)


def build(path):
    """120 records in t-0, three a batch, in segments of 2,000 bytes; publishes to p; committed positions."""
    store = Store.create(path, {"offsets.topic.num.partitions": "2"})
    store.create_topic("t", 1, {"segment.bytes": "2000", "index.interval.bytes": "300", "retention.ms": "-1"})
    store.create_topic("p", 2, {"retention.ms": "-1"})
    for number in range(0, RECORDS, 3):
        store.append("t", rows(number, 3), partition=0)
    for number in range(3):
        publish(store.decisions, "query", number, stage(store, 10), run="run")
    OffsetsLog(store).commit("group", {TopicPartition("t", 0): 7})
    return store


def log(path, number):
    """The file of the segment of that number of t-0; -1 is the active one."""
    return sorted((path / "data" / "t-0").glob("*.log"))[number]


def headers(file):
    data = file.read_bytes()
    return scan(data, 0, len(data))


def records(path, topic="t", partition=0):
    """What readers see: offset to value."""
    found = {}
    for batch in Store.open(path).read(topic, partition):
        found |= dict(zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True))
    return found


def tree(path):
    """Every file with its content."""
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


class Hit(NamedTuple):
    """Where a finding must be, and which offsets it must name."""

    file: Path
    position: int
    first_offset: int
    next_offset: int
    lost: bool = True


def _of(file, header, **changes):
    return Hit(file, header.position, header.base_offset, header.next_offset)._replace(**changes)


def _flipped(at, segment=1, number=2):
    """Flips a bit of one batch, `at` bytes after its start (or, negative, before its end)."""

    def damage(path):
        file = log(path, segment)
        header = headers(file)[number]
        flip(file, at + (header.end if at < 0 else header.position))
        return [_of(file, header)]

    return damage


def _epoch(path):
    file = log(path, 1)
    header = headers(file)[2]
    flip(file, header.position + layout.LEADER_EPOCH_AT + 3)
    return [_of(file, header, lost=False)]


def _undecodable(path):
    file = log(path, 1)
    header, data = headers(file)[3], bytearray(file.read_bytes())
    one = data[header.position : header.end]
    one[layout.HEADER_SIZE] ^= 0x40  # the length of its first record
    data[header.position : header.end] = with_crc(bytes(one))
    file.write_bytes(data)
    return [_of(file, header)]


def _zeros(path):
    file = log(path, 1)
    header, data = headers(file)[1], bytearray(file.read_bytes())
    data[header.position : header.end] = bytes(header.size)
    file.write_bytes(data)
    return [_of(file, header)]


def _two_neighbours(path):
    file = log(path, 1)
    one, two = headers(file)[2:4]
    flip(file, one.end - 1)
    flip(file, two.end - 1)
    return [_of(file, one, next_offset=two.next_offset)]


def _two_apart(path):
    return [*_flipped(70, 1, 1)(path), *_flipped(70, 1, 4)(path)]


def _inserted(path):
    file = log(path, 1)
    header, data = headers(file)[2], file.read_bytes()
    file.write_bytes(data[: header.position] + b"\2" * 100 + data[header.position :])
    return [_of(file, header, next_offset=header.base_offset)]


def _cut(segment, bytes_left):
    def damage(path):
        file = log(path, segment)
        header = headers(file)[-1]
        with file.open("r+b") as open_file:
            open_file.truncate(header.position + bytes_left)
        return [_of(file, header)]

    return damage


def _removed_first(path):
    file, following = log(path, 0), log(path, 1)
    file.unlink()
    return [Hit(file, -1, 0, int(following.stem))]


def _removed_middle(path):
    before, file, following = log(path, 0), log(path, 1), log(path, 2)
    file.unlink()
    return [Hit(before, before.stat().st_size, int(file.stem), int(following.stem))]


def _removed_active(path):
    file = log(path, -1)
    file.unlink()
    return [Hit(file, -1, int(file.stem), RECORDS)]


def _swapped(path):
    one, two, three = log(path, 0), log(path, 1), log(path, 2)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    return [Hit(one, 0, 0, int(two.stem)), Hit(two, 0, int(two.stem), int(three.stem))]


#: Each damages the store in a folder and returns where.
DAMAGES = {
    "base offset": _flipped(layout.BASE_OFFSET_AT + 7),
    "base offset, far": _flipped(layout.BASE_OFFSET_AT),
    "length": _flipped(layout.LENGTH_AT + 3),
    "length, far": _flipped(layout.LENGTH_AT),
    "magic": _flipped(layout.MAGIC_AT),
    "crc": _flipped(layout.CRC_AT),
    "attributes": _flipped(layout.ATTRIBUTES_AT + 1),
    "last offset delta": _flipped(layout.LAST_OFFSET_DELTA_AT + 3),
    "max timestamp": _flipped(layout.MAX_TIMESTAMP_AT),
    "count": _flipped(layout.COUNT_AT + 3),
    "records": _flipped(layout.HEADER_SIZE + 10),
    "last byte": _flipped(-1),
    "first batch of a segment": _flipped(80, number=0),
    "last batch of a segment": _flipped(-1, number=-1),
    "last batch of the log": _flipped(-1, segment=-1, number=-1),
    "leader epoch": _epoch,
    "a record that is none, under a right crc": _undecodable,
    "zeros": _zeros,
    "two neighbours": _two_neighbours,
    "two apart": _two_apart,
    "bytes inserted": _inserted,
    "an inactive segment cut in a batch": _cut(1, 30),
    "an inactive segment cut between batches": _cut(1, 0),
    "the active segment cut": _cut(-1, 65),
    "the first segment removed": _removed_first,
    "a segment removed": _removed_middle,
    "the active segment removed": _removed_active,
    "two segments swapped": _swapped,
}
