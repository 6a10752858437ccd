"""Any order of appends, publishes, rolls, deletions, truncations, reopenings and torn tails equals a list in memory."""

import os
import shutil
import tempfile
import time

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from record_tools import Record, build
from searching import examples

from pyspark_log.storage.fs import files
from pyspark_log.storage.log.appending.replica import truncate
from pyspark_log.storage.log.state import partition_state, state_file
from pyspark_log.storage.record.headers import scan
from pyspark_log.storage.segment.file_names import list_segments
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetAndTimestamp
from tests.store_tools import publish, stage

RECORDS = st.lists(
    st.tuples(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=60), st.integers(0, 50)),
    min_size=1,
    max_size=12,
)

# Of records whose producer must not be forgotten.
NOW = time.time_ns() // 1_000_000


def rows(records):
    keys, values, times = zip(*records, strict=True)
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(times, pa.int64()),
        }
    )


class LogAgainstList(RuleBasedStateMachine):
    """One partition of small segments, and the list of what it must hold from an offset on.

    Attributes:
        expected: every record that has an offset; those below `start` were deleted.
    """

    @initialize(
        codec=st.sampled_from(["uncompressed", "gzip", "snappy", "lz4", "zstd"]),
        segment_bytes=st.integers(1500, 4000),
        interval=st.sampled_from([0, 100, 1000]),
    )
    def begin(self, codec, segment_bytes, interval):
        self.folder = tempfile.mkdtemp()
        self.store = Store.create(os.path.join(self.folder, "store"))
        self.store.create_topic(
            "t",
            1,
            {
                "compression.type": codec,
                "segment.bytes": str(segment_bytes),
                "index.interval.bytes": str(interval),
                "retention.ms": "-1",  # The times are of 1970.
            },
        )
        self.expected, self.start, self.number = [], 0, 0
        self.sent = []  # numbered batches, with their first offsets and how many records they have

    def teardown(self):
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    @rule(records=RECORDS, sync=st.booleans())
    def append(self, records, sync):
        result = self.store.append("t", rows(records), sync=sync)
        assert [(r.base_offset, r.next_offset) for r in result] == [
            (len(self.expected), len(self.expected) + len(records))
        ]
        self.expected += records

    @rule(records=RECORDS)
    def publish(self, records):
        publish(self.store.decisions, "p", self.number, stage(self.store, rows(records)))
        self.number += 1
        self.expected += records

    @rule(records=RECORDS)
    def append_numbered(self, records):
        records = [(key, value, NOW) for key, value, _ in records]
        batch = build(
            [Record(*record) for record in records],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sum(count for _, count, _ in self.sent),
        )
        result = self.store.append_batch("t", 0, batch)
        assert (result.base_offset, result.duplicate) == (len(self.expected), False)
        self.sent.append((result.base_offset, len(records), batch))
        self.expected += records

    @rule()
    def send_again(self):
        for offset, _, batch in self.sent[-1:]:
            result = self.store.append_batch("t", 0, batch)
            assert (result.base_offset, result.duplicate) == (offset, True)

    @rule(data=st.data())
    def delete_records(self, data):
        before = data.draw(st.integers(0, len(self.expected)))
        self.start = max(self.start, before)
        assert self.store.delete_records("t", 0, before) == self.start

    @rule(data=st.data())
    def truncate(self, data):
        """Whole batches go, from the one on in which the offset is; all of it, if that one reaches before the start."""
        offset = data.draw(st.integers(self.start, len(self.expected)))
        with self.store.logs.writer("t", 0).hold() as writer:
            edges = [edge for edge in [*self.edges(writer.state), len(self.expected)] if edge <= offset]
            end = truncate(writer.log, offset)
        assert end == max([*edges, self.start])
        del self.expected[end:]
        self.sent = [sent for sent in self.sent if sent[0] + sent[1] <= end]

    def edges(self, state):
        """Where batches begin."""
        for path in self.store.segment_files("t", 0):
            with open(path, "rb") as log:
                data = log.read()
            # A newer one is what a killed writer left.
            if int(path[-24:-4]) <= state.active_base:
                yield from (header.base_offset for header in scan(data, 0, len(data)))

    @rule()
    def restart(self):
        """The machine went down when all was synced."""
        path = self.store.logs.reader("t", 0).place.state_path
        if os.path.exists(path):
            with self.store.logs.writer("t", 0).hold() as writer:
                writer.log.flush()
            state = state_file.read(path).state._replace(boot=b"anotherb")
            with open(path, "r+b") as file:
                file.write(partition_state.encode_slot(state) + bytes(state_file.FILE_SIZE - partition_state.SLOT_SIZE))
            self.store = Store.open(self.store.path)

    @rule()
    def reopen(self):
        self.store = Store.open(self.store.path)

    @rule(tail=st.binary(min_size=1, max_size=100), times=st.integers(1, 50))
    def tear_the_tail(self, tail, times):
        """A writer was killed after it had written part of its batches."""
        if self.expected:
            with open(self.store.segment_files("t", 0)[-1], "ab") as log:
                log.write(tail * times)

    @rule()
    def repeat_the_tail(self):
        """A writer was killed after whole batches, before it moved the end."""
        if self.expected:
            path = self.store.segment_files("t", 0)[-1]
            with open(path, "rb") as log:
                data = log.read()
            with open(path, "ab") as log:
                log.write(data)

    @rule()
    def leave_a_segment_behind(self):
        """A writer was killed while it rolled."""
        if self.expected:
            folder = self.store.logs.reader("t", 0).place.folder
            path = f"{folder}/{len(self.expected):020d}.log"
            if not os.path.exists(path):
                files.create(path).close()

    @rule(data=st.data())
    def read_a_range(self, data):
        start = data.draw(st.integers(self.start, len(self.expected)))
        end = data.draw(st.integers(start, len(self.expected)))
        assert self.read(start, end) == self.expected[start:end]

    @rule(time=st.integers(0, 51) | st.integers(NOW, NOW + 1))
    def look_up_a_time(self, time):
        there = enumerate(self.expected[self.start :], start=self.start)
        found = (OffsetAndTimestamp(offset, record[2]) for offset, record in there if record[2] >= time)
        wanted = next(found, None)
        assert self.store.offset_for_timestamp("t", 0, time) == wanted

    def read(self, start, end):
        rows = [row for batch in self.store.read("t", 0, start, end, max_bytes=200) for row in batch.to_pylist()]
        assert [row["offset"] for row in rows] == list(range(start, end))
        return [(row["key"], row["value"], int(row["timestamp"].timestamp() * 1000 + 0.5)) for row in rows]

    @invariant()
    def all_of_it_is_there(self):
        if hasattr(self, "expected"):
            both = self.store.earliest_offset("t", 0), self.store.latest_offset("t", 0)
            assert both == (self.start, len(self.expected))
            assert self.read(*both) == self.expected[self.start :]
            if self.expected:
                bases = list_segments(self.store.logs.reader("t", 0).place.folder)
                assert bases == sorted(set(bases))


LogAgainstList.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
TestLogAgainstList = pytest.mark.sampled(LogAgainstList.TestCase)
