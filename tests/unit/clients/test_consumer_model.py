"""Random calls of a consumer, while records are appended and deleted, beside a plain model of what it must hand out."""

import shutil
import tempfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from searching import examples

from pyspark_log import Consumer, Store, TopicPartition
from tests.store_tools import rows

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
AT = st.sampled_from(PARTITIONS)


class Consuming(RuleBasedStateMachine):
    """The model: of each partition the records that are there, and the position."""

    seen = Bundle("seen")

    @initialize(size=st.sampled_from([1, 200, 1024 * 1024]), most=st.integers(1, 7))
    def begin(self, size, most):
        self.folder = tempfile.mkdtemp(dir="/dev/shm")
        self.store = Store.create(f"{self.folder}/store", {"offsets.topic.num.partitions": "1"})
        self.store.create_topic("t", 3, {"retention.ms": "-1", "segment.bytes": "600"})
        self.settings = {
            "group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False, "max_poll_records": most,
            "max_partition_fetch_bytes": size, "consumer_timeout_ms": 0,
        }  # fmt: skip
        self.log = {at: {} for at in PARTITIONS}
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.starts = dict.fromkeys(PARTITIONS, 0)
        self.committed = {}
        self.paused = set()
        self.position = dict.fromkeys(PARTITIONS, 0)
        self.open()

    def open(self):
        self.consumer = Consumer(self.store, **self.settings)
        self.consumer.assign(PARTITIONS)

    def expect(self, at, records):
        """Records that were handed out of a partition are those that come next."""
        assert at not in self.paused
        for record in records:
            # What was fetched before it was deleted may still come.
            assert record.offset == max(min(record.offset, self.starts[at]), self.position[at])
            assert record.value == b"%s/%d" % (str(at).encode(), record.offset)
            self.position[at] = record.offset + 1

    @rule(at=AT, count=st.integers(1, 12))
    def append(self, at, count):
        end = self.ends[at]
        values = [b"%s/%d" % (str(at).encode(), offset) for offset in range(end, end + count)]
        self.store.append("t", rows(*values), partition=at.partition)
        self.ends[at] = end + count

    @rule(at=AT, part=st.floats(0, 1))
    def delete(self, at, part):
        before = round(self.starts[at] + part * (self.ends[at] - self.starts[at]))
        self.store.delete_records("t", at.partition, before)
        self.starts[at] = before

    @rule()
    def poll(self):
        for at, records in self.consumer.poll().items():
            assert records
            self.expect(at, records)

    @rule(count=st.integers(1, 9))
    def iterate(self, count):
        for _, record in zip(range(count), self.consumer, strict=False):
            self.expect(TopicPartition(record.topic, record.partition), [record])
            assert self.consumer.position(TopicPartition("t", record.partition)) == record.offset + 1

    @rule()
    def poll_arrow(self):
        batch = self.consumer.poll_arrow()
        if batch is not None:
            for row in batch.to_pylist():
                at = TopicPartition(row["topic"], row["partition"])
                assert at not in self.paused
                assert row["value"] == b"%s/%d" % (str(at).encode(), row["offset"])
                assert row["offset"] in (self.position[at], max(self.position[at], self.starts[at]))
                self.position[at] = row["offset"] + 1

    @rule(at=AT, part=st.floats(0, 1))
    def seek(self, at, part):
        self.position[at] = round(part * self.ends[at])
        self.consumer.seek(at, self.position[at])

    @rule(at=AT)
    def pause(self, at):
        self.consumer.pause(at)
        self.paused.add(at)

    @rule(at=AT)
    def resume(self, at):
        self.consumer.resume(at)
        self.paused.discard(at)

    @rule()
    def commit(self):
        self.consumer.commit()
        self.committed = dict(self.position)

    @rule(rewinds=st.booleans())
    def open_again(self, rewinds):
        if rewinds and self.committed:
            self.consumer.rewind()
        else:
            self.consumer.close()
            self.open()
            self.paused = set()
        self.position = {at: self.committed.get(at, self.starts[at]) for at in PARTITIONS}

    @rule()
    def read_all(self):
        self.consumer.resume(*PARTITIONS)
        self.paused = set()
        idle = 0
        while idle < 2:
            polled = self.consumer.poll()
            idle = 0 if polled else idle + 1
            for at, records in polled.items():
                self.expect(at, records)
        for at in PARTITIONS:
            assert max(self.position[at], self.starts[at]) == self.ends[at]
            self.position[at] = self.ends[at]
            assert self.consumer.position(at) == self.ends[at]

    @invariant()
    def positions_are_exact(self):
        for at in PARTITIONS:
            # It moves to the log start when it finds that what it was to read is deleted.
            assert self.consumer.position(at) in (self.position[at], max(self.position[at], self.starts[at]))
            self.position[at] = self.consumer.position(at)
        assert self.consumer.paused() == self.paused

    def teardown(self):
        if hasattr(self, "consumer"):
            self.consumer.close()
            shutil.rmtree(self.folder)


Consuming.TestCase.settings = settings(max_examples=examples(100), deadline=None, stateful_step_count=40)
TestConsuming = pytest.mark.sampled(pytest.mark.timeout(300)(Consuming.TestCase))
