"""Any order of writes, deletions, rolls, cleanings, kills amid a cleaning and reopenings equals a list in memory."""

import shutil
import tempfile

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from searching import examples

from pyspark_log.storage.compaction import partition_cleaner
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.store import Store
from tests.scratch import IN_MEMORY
from tests.stops import StopBefore
from tests.store_tools import Stopped, observed, publish, stage

# A few keys, so that most records are replaced; a value of None deletes its key.
RECORDS = st.lists(st.tuples(st.integers(0, 15), st.none() | st.binary(max_size=40)), min_size=1, max_size=8)
DELAY = 1000


class CompactedLog(RuleBasedStateMachine):
    """One compacted partition of small segments.

    Attributes:
        written: every record, at its offset: key and value.
        seen: when a cleaning has first met a record without a value, or may have, by its offset.
    """

    @initialize(codec=st.sampled_from(["uncompressed", "lz4", "gzip"]), segment_bytes=st.integers(300, 1500))
    def begin(self, codec, segment_bytes):
        self.folder = tempfile.mkdtemp(dir=IN_MEMORY)
        self.path = f"{self.folder}/store"
        self.store = Store.create(self.path)
        self.store.create_topic("t", 1, {
            "cleanup.policy": "compact", "compression.type": codec, "segment.bytes": str(segment_bytes),
            "index.interval.bytes": "100", "delete.retention.ms": str(DELAY),
        })  # fmt: skip
        self.written, self.seen, self.cleaned_to, self.now = [], {}, 0, 10_000_000_000_000
        self.log_start, self.publishes, self.whole = 0, 0, True

    def teardown(self):
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    def rows(self, records):
        return pa.record_batch(
            {
                "key": pa.array([b"%d" % key for key, _ in records], pa.binary()),
                "value": pa.array([value for _, value in records], pa.binary()),
                "timestamp": pa.array([1000 + len(self.written) + n for n in range(len(records))], pa.int64()),
            }
        )

    @rule(records=RECORDS)
    def append(self, records):
        self.store.append("t", self.rows(records))
        self.written += records

    @rule(records=RECORDS)
    def publish(self, records):
        publish(self.store.decisions, "p", self.publishes, stage(self.store, self.rows(records)))
        self.publishes += 1
        self.written += records

    @rule()
    def reopen(self):
        self.store = Store.open(self.path)

    @rule(ms=st.sampled_from([1, DELAY - 1, DELAY + 1]))
    def wait(self, ms):
        self.now += ms

    @rule(memory=st.sampled_from([24 * 10, 24 * 14, 1 << 20]))
    def compact(self, memory):
        done = self.clean(memory)
        if done is not None:
            self.whole = True
            assert done.finished or memory < 1000
            self.note(done.cleaned_to)

    @rule(changes=st.integers(0, 40))
    def compact_and_kill(self, changes):
        try:
            with observed(StopBefore(changes)):
                done = self.clean(1 << 20)
        except Stopped:
            self.whole = False  # some of it may be done
            self.note_tombstones(len(self.written))
            self.store = Store.open(self.path)
        else:
            if done is not None:
                self.whole = True
                self.note(done.cleaned_to)

    def clean(self, memory):
        writer = self.store.logs.writer("t", 0)
        writer.log.clock = lambda: self.now
        return partition_cleaner.run(writer, self.store.logs.reader("t", 0), memory, lambda _: None)

    def note(self, cleaned_to):
        """After a round that came to its end."""
        self.cleaned_to = cleaned_to
        self.note_tombstones(cleaned_to)

    def note_tombstones(self, end):
        """Which records without a value a round has met, or may have met before it was killed."""
        for offset, (_, value) in enumerate(self.written[:end]):
            if value is None:
                self.seen.setdefault(offset, self.now)

    @rule()
    def verify(self):
        found = verify(self.path).findings
        assert [finding for finding in found if finding.severity is not Severity.NOTE] == []

    @invariant()
    def holds_the_last_record_of_each_key(self):
        if not hasattr(self, "written"):
            return
        found = [
            (offset, int(key), value)
            for batch in self.store.read("t", 0)
            for offset, key, value in zip(*(batch[n].to_pylist() for n in ("offset", "key", "value")), strict=True)
        ]
        everything = [(offset, key, value) for offset, (key, value) in enumerate(self.written)]
        # Order, offsets and values are those that were written.
        offsets = {offset for offset, _, _ in found}
        assert found == [one for one in everything if one[0] in offsets]
        assert self.store.latest_offset("t", 0) == len(everything)
        last = {key: offset for offset, key, _ in everything}
        last_cleaned = {key: offset for offset, key, _ in everything[: self.cleaned_to]}
        for offset, key, value in everything:
            if offset in offsets:
                # What a cleaning that came to its end has gone over has no record that one below it replaces.
                assert not self.whole or offset >= self.cleaned_to or last_cleaned[key] == offset
            else:
                old_enough = value is None and self.seen.get(offset, self.now) + DELAY <= self.now
                assert last[key] != offset or old_enough


CompactedLog.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=25, deadline=None)
TestCompactedLog = CompactedLog.TestCase
