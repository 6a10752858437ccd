"""The power fails before any change to files of a workload in which compaction meets all else.

Of what was not synced any part may stay. Afterwards each key has its last durable record or a later one; nothing
comes back that a cleaner has removed; what was seen has its offset; readers of committed records see no aborted one,
and all others; `verify` finds no damage; and a cleaning of all takes no key's last record then.
"""

import pyarrow as pa
import pytest
from attacks import PowerLoss, record_run, try_losses_of_run
from compacted import PARTITIONS, CompactedWorkload, check_committed, check_dense, compact, is_aborted, records_of, see
from power import Trace
from sampling import SAMPLED

from pyspark_log.storage.log import cleaner_checkpoint
from pyspark_log.storage.store import Store
from tests.scratch import memory_folder
from tests.store_tools import roll_log

pytestmark = [pytest.mark.usefixtures("little_logs"), *SAMPLED]

BY_HAND = ("by hand", "other", "idle", "leaving")


class Acknowledged:
    """What holds after a step.

    Attributes:
        seen: what readers see.
        committed: the committed offsets.
        durable: of each partition the offset of each key's last record that survives a power loss.
        ever: which committed offsets each group has had.
        flushed: the committed offsets that survive, of groups that no publish moves.
    """

    def __init__(self):
        self.seen, self.committed, self.durable, self.ever, self.flushed = {}, {}, {}, {}, {}

    def after(self, workload, step):
        """The same after one more step."""
        now = Acknowledged()
        now.seen, now.committed = see(workload.path)
        now.ever = {group: self.ever.get(group, set()) | {offset} for group, offset in now.committed.items()}
        now.ever = self.ever | now.ever
        now.flushed = now.committed if step in workload.flushes else self.flushed
        for at, seen in now.seen.items():
            before = self.seen[at].records if at in self.seen else {}
            kept = dict(self.durable.get(at, {}))
            for offset, (key, value) in seen.records.items():
                if is_aborted(value):
                    continue
                synced = step in workload.flushes or (step in workload.syncs and offset not in before)
                # What has replaced a durable one was in an inactive segment, and so is durable.
                replaced = offset > kept.get(key, offset) and kept[key] not in seen.records
                if replaced or (synced and offset > kept.get(key, -1)):
                    kept[key] = offset
            now.durable[at] = {key: offset for key, offset in kept.items() if offset in seen.records}
        return now


@pytest.fixture(scope="module")
def recorded(little_logs):
    """The trace of an undisturbed run, and what holds after each step."""
    with memory_folder() as folder:
        yield record_run(CompactedWorkload, Acknowledged(), folder)


class Loss(PowerLoss):
    """One power loss, and the checks of what is left."""

    def check_readers(self):
        self.check_committed()

    def check_written(self, store):
        for topic in store.topics():
            for partition in range(PARTITIONS[topic]):
                last = pa.record_batch({"key": [b"after"], "value": [b"after"]})
                store.append(topic, last, partition=partition)
        seen, committed = see(self.path)
        assert self.before.seen.keys() <= seen.keys() <= self.after.seen.keys()
        for at, found in seen.items():
            self.check_partition(at, found)
        self.check_committed_offsets(committed)
        # The file of inactive segments is never synced, and can be torn.
        self.check_healthy()
        check_dense(self.path)
        self.clean(store, seen)

    def check_partition(self, at, found):
        check_committed(at, found)
        held = [which.seen[at] for which in (self.before, self.after) if at in which.seen]
        shown = held[0].records if at in self.before.seen else {}
        new = set(held[-1].records.values()) - set(shown.values())
        records = dict(found.records)
        assert records.pop(max(records)) == ("after", "after"), at
        assert held[0].start <= found.start <= held[-1].start, at
        values = [value for _, value in records.values() if value is not None]
        assert len(values) == len(set(values)), (at, "a record is there twice")
        for offset, record in records.items():
            # What is decided and not applied comes where the log continues.
            assert shown.get(offset) == record or (offset not in shown and record in new), (at, offset, record)
        if shown and held[-1].end >= held[0].end:  # Else the step takes records back.
            assert max(found.records) > max(shown), at
        self.check_keys(at, found, held[-1])

    def check_keys(self, at, found, after):
        """Of each key the last durable record is there, or a later one."""
        there, left = {key for key, _ in after.records.values()}, dict.fromkeys(self.before.durable.get(at, ()), -1)
        left |= {key: offset for offset, (key, value) in found.records.items() if not is_aborted(value)}
        for key, durable in self.before.durable.get(at, {}).items():
            if found.start <= durable < after.end and key in there:
                assert left[key] >= durable, (at, key)

    def check_committed_offsets(self, found):
        held = [self.before.committed, self.after.committed]
        assert found.get("moved") in [committed.get("moved") for committed in held]
        for group in BY_HAND:
            if group in found:
                assert found[group] in self.after.ever[group], group
            kept, floor = self.before.flushed.get(group), found.get(group, -1)
            if group in self.after.committed and kept is not None:
                assert floor >= kept, (group, floor, kept)

    def clean(self, store, seen):
        """A cleaning of all takes no last record of a key, but for tombstones that are old enough."""
        for (topic, partition), before in seen.items():
            roll_log(store, topic, partition)
            compact(store, topic, partition)
            after = records_of(store, topic, partition)
            assert after.items() <= before.records.items()
            assert latest(after) == latest(before.records), (topic, partition)
        check_dense(self.path)
        self.check_committed()

    def check_committed(self):
        seen, _ = see(self.path)
        for at, found in seen.items():
            check_committed(at, found)


def latest(records):
    """The last value of each key that has one; what was aborted is no value."""
    found = {}
    for key, value in records.values():
        if not is_aborted(value):
            found[key] = value
    return {key: value for key, value in found.items() if value is not None}


def test_power_losses(recorded, capsys):
    try_losses_of_run(recorded, Loss, 30, capsys)


def test_how_far_a_cleaner_goes_is_on_the_disk_before_its_first_swap(memory_path):
    """`verify` relies on it."""
    workload = CompactedWorkload(memory_path / "store")
    first = min(workload.cleanings)
    workload.run(until=first)
    trace = Trace(workload.path)
    trace.record(lambda: workload.run(until=first + 1))
    (swap, *_) = [number for number, change in enumerate(trace.changes) if change.target.endswith(".swap")]
    for _, disk in trace.disks([swap]):
        disk.write(memory_path / "after", disk.nothing())
    assert cleaner_checkpoint.read(Store.open(memory_path / "after").logs.place("keyed", 0)).touched_to > 0
