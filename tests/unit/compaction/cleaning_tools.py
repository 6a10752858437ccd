"""A partition's folder with segments of given batches, and cleanings of it."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from record_tools import NOW, Record, build, read

from pyspark_log.config import TopicConfig
from pyspark_log.storage.catalog.log_dirs import PartitionPath
from pyspark_log.storage.compaction.build_offset_map import Source, fill
from pyspark_log.storage.compaction.offset_map import OffsetMap
from pyspark_log.storage.compaction.rewrite import CLEANED, LastRecord, Round, rewrite
from pyspark_log.storage.compaction.transactions import CleanedTransactions
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.producers.state import ProducerStates
from pyspark_log.storage.log.read.isolation import AbortedRanges, aborted_between
from pyspark_log.storage.record.end_txn_marker import decode_end_txn_marker
from pyspark_log.storage.record.headers import assign_offsets, scan
from pyspark_log.storage.segment.file_names import LOG, TXN_INDEX, list_segments, segment_path
from pyspark_log.storage.segment.segment import SegmentReader, SegmentWriter
from pyspark_log.storage.segment.txn_index import TxnIndex

DAY = 86_400_000


def pair(key: str | None, value: str | None, timestamp: int = NOW) -> Record:
    return Record(None if key is None else key.encode(), None if value is None else value.encode(), timestamp)


@contextlib.contextmanager
def nothing_more_mapped() -> Iterator[None]:
    """The system gives this process no more memory; little is still had of what it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class Log:
    """A log in a folder: batches are appended to the last segment, cleanings leave that one alone."""

    def __init__(self, folder, **settings) -> None:
        settings = {"index.interval.bytes": 200, **{name.replace("_", "."): text for name, text in settings.items()}}
        self.config = TopicConfig.resolve({name: str(text) for name, text in settings.items()}, {})
        self.folder = str(folder)
        self.place = PartitionPath("events", "", 0, self.folder, f"{self.folder}/state")
        self.end = self.checkpoint = 0
        self.epoch = 0
        self.states = ProducerStates()
        os.makedirs(self.folder, exist_ok=True)
        self.writer = self._begin()

    def _begin(self) -> SegmentWriter:
        files.create(segment_path(self.folder, self.end, LOG)).close()
        return SegmentWriter(self.folder, self.end, 0, self.config)

    def roll(self) -> None:
        self.writer.log.sync()
        self.writer.finish()
        self.writer.close()
        self.writer = self._begin()

    def append(self, data: bytes, next_offset: int | None = None) -> None:
        """Adds batches that get the next offsets; of a format that is not stamped, `next_offset` comes after them."""
        data = bytearray(data)
        if next_offset is None:
            next_offset = assign_offsets(data, 0, len(data), self.end, self.epoch)
        headers = scan(data, 0, len(data))
        self.writer.log.pwrite(data, self.writer.position)
        self.writer.enter(headers)
        self.end = next_offset
        for header in headers:
            if header.producer_id >= 0:
                batch = bytes(data[header.position : header.end])
                marker = decode_end_txn_marker(batch, header) if header.is_control else None
                if marker is not None and (aborted := self.states.aborted_by(header, marker)) is not None:
                    index = TxnIndex(self.path(TXN_INDEX, self.writer.base_offset), self.writer.base_offset)
                    index.append(aborted)
                    index.close()
                self.states.enter(header, marker)
                self.states.acknowledge(header.next_offset)

    def put(self, *records: Record, codec: str = "none", **fields) -> None:
        self.append(build(list(records), codec, **fields))

    def path(self, suffix: str, base_offset: int = 0) -> str:
        return segment_path(self.folder, base_offset, suffix)

    def inactive(self) -> list[int]:
        return [base for base in list_segments(self.folder) if base < self.writer.base_offset]

    def sources(self, bases: list[int]) -> list[Source]:
        readers = [SegmentReader(self.folder, base) for base in bases]
        return [Source(reader, reader.log.size()) for reader in readers]

    def aborted(self):
        return aborted_between(self.folder, list_segments(self.folder), 0, self.end)

    def fill(self, keys: OffsetMap, start: int | None = None, end: int | None = None, **options) -> int:
        start = self.checkpoint if start is None else start
        bases = self.inactive()
        first = max([base for base in bases if base <= start], default=0)
        sources = self.sources([base for base in bases if base >= first])
        try:
            return fill(
                keys,
                self.place,
                sources,
                start,
                self.writer.base_offset if end is None else end,
                **{"aborted": AbortedRanges(self.aborted()), "max_batch_bytes": 1 << 29, "throttle": lambda _: None}
                | options,
            )
        finally:
            for source in sources:
                source.segment.close()

    def round(self, keys: OffsetMap, now: int = NOW, **changes) -> Round:
        producers = {
            entry.producer_id: LastRecord(entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for entry in self.states.entries
        }
        return Round(**{
            "place": self.place, "config": self.config, "delete_retention_ms": DAY, "keys": keys, "now": now,
            "legacy_horizon_ms": 0, "transactions": CleanedTransactions(self.aborted()), "producers": producers,
            "throttle": lambda _: None, **changes,
        })  # fmt: skip

    def rewrite(self, cleaning: Round, bases: list[int] | None = None):
        """Writes a group of segments into one, and puts that in their place."""
        bases = self.inactive() if bases is None else bases
        until = min(base for base in list_segments(self.folder) if base > bases[-1])
        sources = self.sources(bases)
        try:
            rewritten = rewrite(cleaning, sources, until)
        finally:
            for source in sources:
                source.segment.close()
        for name in os.listdir(self.folder):
            if not name.endswith(CLEANED) and name[:20].isdigit() and int(name[:20]) in bases:
                os.unlink(f"{self.folder}/{name}")
        for name in os.listdir(self.folder):
            if name.endswith(CLEANED):
                os.rename(f"{self.folder}/{name}", f"{self.folder}/{name.removesuffix(CLEANED)}")
        return rewritten

    def clean(
        self,
        now: int = NOW,
        groups: list[list[int]] | None = None,
        memory: int = 1 << 16,
        until: int | None = None,
        **changes,
    ):
        """One cleaning of all inactive segments, or of those below `until`; what became of the last group."""
        keys = OffsetMap(memory)
        self.checkpoint = self.fill(keys, end=until)
        cleaning, rewritten = self.round(keys, now, **changes), None
        for group in groups or [self.inactive()]:
            if group and group[0] < self.checkpoint:
                rewritten = self.rewrite(cleaning, group)
        return rewritten

    def bytes(self) -> bytes:
        return b"".join(Path(self.path(LOG, base)).read_bytes() for base in list_segments(self.folder))

    def headers(self):
        data = self.bytes()
        return scan(data, 0, len(data), check_crcs=True)

    def records(self) -> list[Record]:
        """All of them, with the log proven to be dense up to its end."""
        return read(self.bytes(), dense=True, follows=0)

    def offsets(self) -> list[int]:
        """Of all records, those in control batches included."""
        return sorted(
            [record.offset for record in self.records()]
            + [header.base_offset for header in self.headers() if header.is_control and header.count]
        )
