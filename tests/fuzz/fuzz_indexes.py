"""The indexes of segments, and the list of inactive segments: they change nothing but how long a look-up takes.

An entry of the list has a CRC. If it fits, the entry is believed: then there must be an answer or an error, no more.
"""

from __future__ import annotations

import os
import random
import struct
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from family import Family
from mutations import changed, noise, rearranged

from pyspark_log.errors import PylogError
from pyspark_log.storage.log import retention
from pyspark_log.storage.log.read import segment_cache
from pyspark_log.storage.log.read.reader import LogReader
from pyspark_log.storage.maintenance.verify.findings import Finder
from pyspark_log.storage.maintenance.verify.log import indexes
from pyspark_log.storage.maintenance.verify.log.indexes import IndexCheck
from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.storage.segment.file_names import LOG, segment_path
from pyspark_log.storage.segment.segment import SegmentReader, SegmentWriter, read_headers
from pyspark_log.storage.store import Store

_SUFFIXES = (".index", ".timeindex")
_INTERVAL = 150
# Segments, offsets of each, and the distance between the times of records.
_SEGMENTS, _OFFSETS, _STEP = 3, 40, 10
_END = _SEGMENTS * _OFFSETS


class Input(NamedTuple):
    """What one input is.

    Attributes:
        base: the segment whose indexes are replaced.
        index, times, listed: the bytes of its indexes, and of the list of inactive segments; None: no file.
        believed: whether the list has CRCs that fit.
        offset, time: what is looked for.
        look: which reader reads it; all of them with each input would take hours.
    """

    base: int
    index: bytes | None
    times: bytes | None
    listed: bytes | None
    believed: bool
    offset: int
    time: int
    look: str


class Indexes(Family):
    """Looks up offsets and times in a log of three segments."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # The writer's entries are not waited for: there is no writer.
        indexes._PAUSE = 0
        store = Store.create(folder / "store")
        store.create_topic("t", 1, {"index.interval.bytes": str(_INTERVAL), "retention.ms": "-1"})
        for number in range(_END):
            if number and number % _OFFSETS == 0:
                with store.logs.writer("t", 0).hold() as writer:
                    writer.log.roll()
                    retention.maintain(writer.log)
            row = {"value": [b"%08d" % number * 3], "timestamp": pa.array([_time(number)], pa.int64())}
            store.append("t", pa.record_batch(row), partition=0)
        self._place, self._config = store.logs.reader("t", 0).place, store.topic_config("t")
        self._bases = range(0, _END, _OFFSETS)
        self._good = {path: path.read_bytes() for base in self._bases for path in self._paths(base)}
        self._sizes = {base: os.path.getsize(segment_path(self._place.folder, base, LOG)) for base in self._bases}
        assert len(self._good[self._list]) == (_SEGMENTS - 1) * segment_cache.WIDTH
        self._looks = {
            "read by offset": self._by_offset,
            "looked up by time": self._by_time,
            "looked up by largest time": self._by_largest_time,
            "read by segment": self._by_segment,
            "checked": self._by_check,
            "opened for writing": self._by_writer,
        }

    @property
    def _list(self) -> Path:
        return Path(self._place.segments_path)

    def _paths(self, base: int) -> list[Path]:
        return [*(Path(segment_path(self._place.folder, base, suffix)) for suffix in _SUFFIXES), self._list]

    # ---- making

    def input(self, pick: random.Random) -> Input:
        base, believed = pick.choice(self._bases), pick.random() < 0.2
        index, times, listed = (self._good[path] for path in self._paths(base))
        listed = self._believable(pick, listed) if believed else _damaged(pick, listed, segment_cache.WIDTH)
        time = pick.choice((_time(pick.randrange(_END)) + pick.randint(-1, 1), -1, 0, 1 << 62))
        return Input(
            base, _damaged(pick, index, 8), _damaged(pick, times, 12), listed, believed,
            pick.randrange(_END), time, pick.choice(list(self._looks)),
        )  # fmt: skip

    def _believable(self, pick: random.Random, data: bytes) -> bytes:
        """Entries that are changed and have the CRC that fits."""
        seed = crc32c(os.path.basename(self._place.state_path).encode())
        width = segment_cache.WIDTH
        entries = bytearray()
        for at in range(0, len(data), width):
            entry = bytearray(data[at : at + width - 4])
            for _ in range(pick.randint(0, 2)):
                field = 8 * pick.randrange(5)
                number = pick.choice((-1, 0, _OFFSETS, 2 * _OFFSETS, _END, 1 << 62, -(1 << 63), pick.randrange(_END)))
                entry[field : field + 8] = struct.pack(">q", number)
            entries += entry + struct.pack(">I", crc32c(bytes(entry), seed))
        return rearranged(pick, bytes(entries), width) if pick.random() < 0.3 else bytes(entries)

    # ---- feeding

    def feed(self, data: Input, counts: Counter[str]) -> None:
        paths = self._paths(data.base)
        for path, content in zip(paths, (data.index, data.times, data.listed), strict=True):
            _put(path, content)
        try:
            self._looks[data.look](data)
            counts[data.look] += 1
        except PylogError as error:
            self.must(data.believed and "t-0" in str(error), error)
            counts["refused for a list that is believed"] += 1
        finally:
            for path in paths:
                _put(path, self._good[path])

    def _by_offset(self, data: Input) -> None:
        (chunk,) = LogReader(self._place).read(data.offset, data.offset + 1, max_bytes=1)
        assert chunk.columns["value"].to_pylist() == [b"%08d" % data.offset * 3]

    def _by_time(self, data: Input) -> None:
        found = LogReader(self._place).find_timestamp(data.time)
        if not data.believed:
            # A right entry after lost ones leads to a record that is not the first; never to none.
            assert (found is None) == (data.time > _time(_END - 2))
        assert found is None or found.timestamp == _time(found.offset) >= data.time

    def _by_largest_time(self, data: Input) -> None:
        latest = LogReader(self._place).find_max_timestamp()
        if not data.believed:
            assert latest is not None
            assert latest.timestamp == _time(_END - 2)
        assert latest is None or latest.timestamp == _time(latest.offset)

    def _by_segment(self, data: Input) -> None:
        reader = SegmentReader(self._place.folder, data.base)
        try:
            assert reader.largest_timestamp(self._sizes[data.base]) <= _time(data.base + _OFFSETS - 2)
        finally:
            reader.close()

    def _by_check(self, data: Input) -> None:
        end = _END if data.base == self._bases[-1] else None
        check = IndexCheck(self._place.folder, data.base, _INTERVAL, self._sizes[data.base], end)
        found = Finder(self._place.folder)
        list(check.findings(lambda path, what, position: found.index(path, what, "", position)))
        list(segment_cache.read_all(self._place))

    def _by_writer(self, data: Input) -> None:
        """A writer makes of it what it will; then what the log proves must be found."""
        base, size = data.base, self._sizes[data.base]
        writer = SegmentWriter(self._place.folder, base, size, self._config)
        assert writer.position == size
        writer.close()
        reader = SegmentReader(self._place.folder, base)
        try:
            start = reader.position_of(base + data.offset % _OFFSETS, size)
            first = next(read_headers(reader.log, start, size))
            assert first.base_offset <= base + data.offset % _OFFSETS
        finally:
            reader.close()


def _time(number: int) -> int:
    """Times rise, but each second one is before the one before it."""
    return 1_000_000 + (number ^ 1) * _STEP


def _put(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(content)


def _damaged(pick: random.Random, data: bytes, width: int) -> bytes | None:
    kind = pick.randrange(10)
    if kind == 0:
        return data
    if kind == 1:
        return None
    if kind == 2:
        return noise(pick)
    if kind == 3:
        return data[: pick.randrange(len(data) + 1)]
    if kind < 7:
        return rearranged(pick, data, width)
    return changed(pick, data, 4, in_place=pick.random() < 0.5)
