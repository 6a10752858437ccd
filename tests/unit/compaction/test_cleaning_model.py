"""Random logs and rounds of cleaning, against what a few lines of Python say must be left."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass, field

import pytest
from cleaning_tools import DAY, Log
from hypothesis import given, settings
from hypothesis import strategies as st
from producer_tools import ending
from record_tools import NOW, Record, read
from searching import examples

from pyspark_log.storage.log.producers.manager import idempotent_batches
from pyspark_log.storage.log.producers.state import ProducerStates
from pyspark_log.storage.log.read.isolation import AbortedRanges
from pyspark_log.storage.record.layout import CODECS
from pyspark_log.storage.segment.segment import SegmentReader
from tests.old_messages import message, message_set

KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"d"])
RECORDS = st.lists(
    st.builds(
        Record,
        KEYS,
        st.sampled_from([None, b"", b"v", b"w" * 40]),
        st.integers(NOW - 50, NOW + 50),
        st.sampled_from([(), (("h", b"1"), ("", None))]),
    ),
    min_size=1,
    max_size=5,
)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), RECORDS, st.sampled_from(CODECS), st.booleans()),
        st.tuples(st.just("transactional"), RECORDS, st.sampled_from(CODECS), st.integers(1, 2)),
        st.tuples(st.just("end"), st.booleans(), st.integers(1, 2)),
        st.tuples(st.just("old"), RECORDS, st.sampled_from(["none", "gzip", "lz4"]), st.integers(0, 1)),
        st.tuples(st.just("roll")),
        st.tuples(st.just("clean"), st.sampled_from([1, DAY // 2, DAY]), st.integers(1, 3)),
    ),
    min_size=4,
    max_size=24,
)


@dataclass
class Batch:
    records: list[Record]  # those that are left
    producer: int = -1
    old: bool = False
    horizon: int | None = None


@dataclass
class Model:
    """What is in the log, and what a cleaning makes of it."""

    batches: list[Batch] = field(default_factory=list)
    open: dict[int, list[Batch]] = field(default_factory=dict)

    def add(self, first: int, records: list[Record], **fields) -> None:
        numbered = [dataclasses.replace(record, offset=first + index) for index, record in enumerate(records)]
        batch = Batch(numbered, **fields)
        self.batches.append(batch)
        if batch.producer >= 0:
            self.open.setdefault(batch.producer, []).append(batch)

    def end(self, producer: int, commit: bool) -> None:
        for batch in self.open.pop(producer, []):
            if not commit:
                batch.records = []

    def clean(self, until: int, now: int) -> None:
        known = [record for batch in self.batches for record in batch.records if record.offset < until]
        last = {record.key: record.offset for record in known if record.key is not None}
        for batch in self.batches:
            expired = not batch.old and batch.horizon is not None and batch.horizon <= now
            batch.records = [
                record
                for record in batch.records
                if record.offset >= until
                or (last.get(record.key) == record.offset and not (record.value is None and expired))
            ]
            below = [record for record in batch.records if record.offset < until]
            if batch.horizon is None and any(record.value is None for record in below):
                batch.horizon = now + DAY

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records]


class Run:
    """A log and its model, changed alike."""

    def __init__(self, folder: str) -> None:
        self.log, self.model, self.now = Log(folder), Model(), NOW
        self.sequences = {1: 0, 2: 0}

    def put(self, records: list[Record], codec: str, append_time: bool) -> None:
        fields = {"log_append_time": NOW + 7} if append_time else {}
        as_read = records
        if append_time:
            as_read = [dataclasses.replace(r, timestamp=NOW + 7, timestamp_type=1) for r in records]
        self.model.add(self.log.end, as_read)
        self.log.put(*records, codec=codec, **fields)

    def transactional(self, records: list[Record], codec: str, producer: int) -> None:
        self.model.add(self.log.end, records, producer=producer)
        sequence, self.sequences[producer] = self.sequences[producer], self.sequences[producer] + len(records)
        self.log.put(
            *records, codec=codec, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True
        )

    def end(self, commit: bool, producer: int) -> None:
        self.model.end(producer, commit)
        self.log.append(ending(commit, producer=producer))

    def old(self, records: list[Record], codec: str, magic: int) -> None:
        first = self.log.end
        as_read = [
            dataclasses.replace(r, headers=(), timestamp=r.timestamp if magic else -1, timestamp_type=magic - 1)
            for r in records
        ]
        self.model.add(first, as_read, old=True)
        if codec == "none":
            for at, r in enumerate(records, first):
                self.log.append(message(magic, r.key, r.value, offset=at, time=r.timestamp), at + 1)
            return
        base = 0 if magic else first
        inside = b"".join(
            message(magic, r.key, r.value, offset=base + index, time=r.timestamp) for index, r in enumerate(records)
        )
        last = first + len(records) - 1
        self.log.append(message_set(magic, codec, inside, offset=last), last + 1)

    def roll(self) -> None:
        if self.log.end > self.log.writer.base_offset:
            self.log.roll()

    def clean(self, later: int, group: int) -> None:
        self.now += later
        bases = self.log.inactive()
        # Up to the first open transaction, as the code that chooses segments does.
        unstable = self.log.states.first_unstable_offset
        stable = [base for base in [*bases, self.log.writer.base_offset] if unstable is None or base <= unstable]
        until = stable[-1] if stable else 0
        self.log.clean(self.now, [stable[:-1][at : at + group] for at in range(0, len(stable) - 1, group)], until=until)
        self.model.clean(until, self.now)

    def check(self) -> None:
        ranges = AbortedRanges(self.log.aborted())
        found = read(self.log.bytes(), dense=True, follows=0, aborted=ranges.hold)
        # Of an open transaction the records are there, too.
        assert found == self.model.records()
        assert written(self.producers()) == written(self.log.states)

    def producers(self) -> ProducerStates:
        """What the log alone says of them."""
        states = ProducerStates()
        for base in [*self.log.inactive(), self.log.writer.base_offset]:
            segment = SegmentReader(self.log.folder, base)
            for header, marker in idempotent_batches(segment, segment.log.size(), 0, self.log.end):
                states.enter(header, marker)
            segment.close()
        return states


def written(states: ProducerStates):
    """The last batch of each producer that has written records, and where its open transaction begins."""
    # Its largest time may have gone with the record that had it.
    return {
        entry.producer_id: (entry.batches[-1]._replace(timestamp=0), entry.txn_first_offset)
        for entry in states.entries
        if entry.batches
    }


@pytest.mark.sampled
@settings(max_examples=examples(40), deadline=None)
@given(OPERATIONS)
def test_a_log_holds_what_the_model_holds(operations):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder)
        for name, *arguments in operations:
            getattr(run, name)(*arguments)
            if name == "clean":
                run.check()
        run.roll()
        run.clean(DAY, 2)
        run.check()
        run.clean(DAY, 2)
        run.check()
