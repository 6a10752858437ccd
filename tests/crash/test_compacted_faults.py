"""The disk fails at a change to files, or an opening of one, while a compacted topic is written to and cleaned.

The same process continues, and tries again. A cleaning that fails has removed nothing but what it may, and does not
take the disk's error for damage; committed offsets and numbered batches stay known; and in the end all can be cleaned.
"""

import contextlib

import pytest
from compacted import SETTINGS, check_dense, compact, numbered, records_of, rows
from faults import FAULTS, again_until_done, try_faults
from sampling import SAMPLED

from pyspark_log.errors import UnknownGroupError
from pyspark_log.storage.compaction import partition_cleaner
from pyspark_log.storage.groups.committed_offsets import OffsetMoves
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.log import cleaner_checkpoint
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition
from tests.store_tools import damages, publish, stage

pytestmark = [pytest.mark.usefixtures("little_logs"), *SAMPLED]

CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "900", "index.interval.bytes": "200"}
AT = TopicPartition("keyed", 1)


class Work:
    """Steps that are tried until they succeed, and what must be there after each."""

    def __init__(self, path):
        self.path = path
        self.store = Store.create(path, SETTINGS)
        self.store.create_topic("keyed", 2, CONFIGS)
        self.offsets = OffsetsLog(self.store)
        self.committed = {}

    def run(self, calm):
        for number in range(4):
            self.append(f"append {number}", [number, number + 1, 9], calm)
            again_until_done(lambda number=number: self.store.append_batch("keyed", 1, numbered(number)))
            self.commit("by hand", number, calm)
            if number % 2:
                self.publish(number // 2)
                self.compact(calm)
                self.take_back(calm)
            with calm():
                self.check_committed_offsets()

    def check_at_the_end(self):
        log = self.store.logs.writer("keyed", 1)
        with log.hold() as held:
            held.log.roll()
        before = records_of(self.store, "keyed", 1)
        assert partition_cleaner.run(log, self.store.logs.reader("keyed", 1), 1 << 20, lambda _: None).finished
        last = {key: offset for offset, (key, _) in before.items()}
        assert records_of(self.store, "keyed", 1) == {offset: before[offset] for offset in sorted(last.values())}
        wrong = damages(self.path)
        assert not wrong, wrong
        check_dense(self.path)
        self.check_committed_offsets()
        assert self.store.append_batch("keyed", 1, numbered(3)).duplicate

    def check_committed_offsets(self):
        for offsets in (self.offsets, OffsetsLog(Store.open(self.path))):
            for group, offset in self.committed.items():
                found = offsets.fetch(group).get(AT)
                assert (None if found is None else found.offset) == offset, group

    def append(self, name, keys, calm):
        data = rows(name, keys)
        with calm():
            expected = records_of(self.store, "keyed", 1)
            end = self.store.latest_offset("keyed", 1)
            expected |= {end + row: (f"{key}", f"{name}: {row}") for row, key in enumerate(keys)}

        def once():
            with calm():
                there = records_of(self.store, "keyed", 1) == expected
            if not there:
                self.store.append("keyed", data, partition=1, sync=True)

        again_until_done(once)
        with calm():
            assert records_of(self.store, "keyed", 1) == expected

    def publish(self, number):
        step = OffsetStep("moved", AT, self.committed.get("moved"), number)

        def stage_and_publish():
            publish(
                self.store.decisions,
                "q",
                number,
                stage(self.store, rows(f"publish {number}", list(range(16)), partitions=2), "keyed"),
                participants=[OffsetMoves(self.store.committed_offsets, [step])],
            )

        again_until_done(stage_and_publish)
        self.committed["moved"] = number

    def commit(self, group, offset, calm):
        """Often enough that the log begins segments, and that commits compact it."""
        for one in (offset + 100, offset):
            again_until_done(lambda one=one: self.offsets.commit(group, {AT: one}, "." * 150))
        self.committed[group] = offset

    def compact(self, calm):
        """A round that fails has removed only what is replaced."""
        with calm():
            before = records_of(self.store, "keyed", 1)
        last = {key: offset for offset, (key, _) in before.items()}

        def once():
            try:
                compact(self.store, "keyed", 1)
            finally:
                with calm():
                    after = records_of(self.store, "keyed", 1)
                    assert after.items() <= before.items()
                    assert set(last.values()) <= after.keys()
                    assert cleaner_checkpoint.read(self.store.logs.place("keyed", 1)).reason == ""

        again_until_done(once)

    def take_back(self, calm):
        """One group expires, the other is deleted."""
        again_until_done(lambda: self.offsets.commit("idle", {AT: 1}, expire_timestamp=1))
        again_until_done(lambda: self.offsets.commit("leaving", {AT: 1}))
        again_until_done(self.offsets.expire)

        def delete():
            # A second time it may be gone: it was deleted, and then something failed.
            with contextlib.suppress(UnknownGroupError):
                self.offsets.delete_group("leaving")

        again_until_done(delete)
        self.committed |= {"idle": None, "leaving": None}


@pytest.mark.parametrize("kind", FAULTS)
def test_faults(memory_path, kind, monkeypatch, capsys):
    try_faults(monkeypatch, capsys, Work, memory_path, kind, 10)
