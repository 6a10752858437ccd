"""Any order of appends, rolls, reopenings and torn tails equals a list in memory."""

import os
import shutil
import tempfile

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pyspark_log.storage import files
from pyspark_log.storage.segment import list_segments
from pyspark_log.storage.store import Store
from pyspark_log.storage.types import OffsetAndTimestamp

RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=8),
        st.none() | st.binary(max_size=60),
        st.integers(0, 50),
    ),
    min_size=1,
    max_size=12,
)


class LogAgainstList(RuleBasedStateMachine):
    """One partition of small segments, and the list of what it must hold."""

    @initialize(
        codec=st.sampled_from(["uncompressed", "gzip", "snappy", "lz4", "zstd"]),
        segment_bytes=st.integers(1500, 4000),
        interval=st.sampled_from([0, 100, 1000]),
    )
    def begin(self, codec, segment_bytes, interval):
        self.folder = tempfile.mkdtemp()
        self.store = Store.create(os.path.join(self.folder, "store"))
        self.store.create_topic("t", 1, {
            "compression.type": codec,
            "segment.bytes": str(segment_bytes),
            "index.interval.bytes": str(interval),
            "retention.ms": "-1",  # The times are of 1970.
        })
        self.expected = []

    def teardown(self):
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    @rule(records=RECORDS, sync=st.booleans())
    def append(self, records, sync):
        keys, values, times = zip(*records, strict=True)
        result = self.store.append("t", pa.record_batch({
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(times, pa.int64()),
        }), sync=sync)  # fmt: skip
        assert [(r.base_offset, r.next_offset) for r in result] == [
            (len(self.expected), len(self.expected) + len(records))
        ]
        self.expected += records

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
            folder = self.store.reader("t", 0).place.folder
            path = f"{folder}/{len(self.expected):020d}.log"
            if not os.path.exists(path):
                files.create(path).close()

    @rule(data=st.data())
    def read_a_range(self, data):
        start = data.draw(st.integers(0, len(self.expected)))
        end = data.draw(st.integers(start, len(self.expected)))
        assert self.read(start, end) == self.expected[start:end]

    @rule(time=st.integers(0, 51))
    def look_up_a_time(self, time):
        wanted = next(
            (OffsetAndTimestamp(offset, record[2]) for offset, record in enumerate(self.expected) if record[2] >= time),
            None,
        )
        assert self.store.offset_for_timestamp("t", 0, time) == wanted

    def read(self, start, end):
        rows = [row for batch in self.store.read("t", 0, start, end, max_bytes=200) for row in batch.to_pylist()]
        assert [row["offset"] for row in rows] == list(range(start, end))
        return [(row["key"], row["value"], int(row["timestamp"].timestamp() * 1000 + 0.5)) for row in rows]

    @invariant()
    def all_of_it_is_there(self):
        if hasattr(self, "expected"):
            assert (self.store.earliest_offset("t", 0), self.store.latest_offset("t", 0)) == (0, len(self.expected))
            assert self.read(0, len(self.expected)) == self.expected
            if self.expected:
                bases = list_segments(self.store.reader("t", 0).place.folder)
                assert bases == sorted(set(bases))


LogAgainstList.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestLogAgainstList = LogAgainstList.TestCase
