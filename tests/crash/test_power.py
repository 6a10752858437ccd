"""The power fails before any change to files; of what was not synced any part may stay.

Afterwards everything that was acknowledged as durable is there, once; an offset that readers may have seen never
has another record; what was deleted does not come back; `verify` finds no damage; the partitions can be read and
written, once more after another look; and an idempotent producer can resume where the log ends for it.
"""

import pyarrow as pa
import pytest
from attacks import PowerLoss, record_run, try_losses_of_run
from numbered import check_index, end_transaction
from sampling import PARTS, SAMPLED
from workload import PARTITIONS, Workload, numbered, see

from pyspark_log.storage.store import Store
from tests.scratch import memory_folder

pytestmark = [pytest.mark.usefixtures("little_sizes"), *SAMPLED]


class Acknowledged:
    """What holds after a step: what readers see, and what of it survives a power loss."""

    def __init__(self):
        self.seen, self.durable = {}, {}

    def after(self, workload, step):
        """The same after one more step."""
        now = Acknowledged()
        now.seen = see(workload.path)
        for place, seen in now.seen.items():
            before = self.seen.get(place)
            same = before is not None and before.topic_id == seen.topic_id
            offsets = set(self.durable[place]) if same else set()
            if step == workload.flushed:
                offsets |= set(seen.values)
            elif step in workload.syncs:
                offsets |= set(seen.values) - set(before.values if same else ())
            now.durable[place] = offsets & set(seen.values)
        return now


@pytest.fixture(scope="module")
def recorded(little_sizes):
    """The trace of an undisturbed run, and what holds after each step."""
    with memory_folder() as folder:
        yield record_run(Workload, Acknowledged(), folder)


class Loss(PowerLoss):
    """One power loss, and the checks of what is left."""

    def check_readers(self):
        self.check_topics(see(self.path))

    def check_written(self, store):
        for topic in store.topics():
            for partition in range(PARTITIONS):
                store.append(topic, pa.record_batch({"value": [b"after"]}), partition=partition)
        seen = see(self.path)
        self.check_topics(seen)
        for place, found in seen.items():
            self.check_partition(place, found)
        self.check_healthy()
        self.check_numbered(store, seen)
        self.check_nothing_left_to_do()

    def check_topics(self, seen):
        for place, before in self.before.seen.items():
            after = self.after.seen.get(place)
            if after is not None and after.topic_id == before.topic_id:
                assert seen[place].topic_id == before.topic_id, place
        for place, found in seen.items():
            known = [held.seen[place].topic_id for held in (self.before, self.after) if place in held.seen]
            assert found.topic_id in known, place

    def check_partition(self, place, found):
        held = [
            held.seen[place]
            for held in (self.before, self.after)
            if place in held.seen and held.seen[place].topic_id == found.topic_id
        ]
        values = list(found.values.values())
        assert values.pop() == "after", place
        assert len(values) == len(set(values)), (place, "a record is there twice")
        # What the step under way deletes may be gone, what earlier ones did is gone.
        assert held[0].start <= found.start <= max(seen.start for seen in held), place
        shown = held[0].values if self.before.seen.get(place) is held[0] else {}
        new = set(held[-1].values.values()) - set(shown.values())
        for offset, value in list(found.values.items())[:-1]:
            # What is decided and not applied comes where the log continues.
            assert shown.get(offset) == value or (offset not in shown and value in new), (place, offset, value)
        if shown and held[-1].end >= held[0].end:  # Else the step takes records back.
            assert max(found.values) > max(shown), place
        durable = self.durable(place, found) if shown else set()
        lost = {offset for offset in durable if offset in held[-1].values and offset not in found.values}
        assert not lost, (place, lost)

    def durable(self, place, found):
        return {offset for offset in self.before.durable[place] if offset >= found.start}

    def check_numbered(self, store, seen):
        """The producer sends its last batch again, and continues."""
        if ("small", 0) not in seen:
            return
        there = [value for value in seen["small", 0].values.values() if value.startswith("numbered")]
        following = len(there) // 2
        assert there == [f"numbered {number}: {row}" for number in range(following) for row in range(2)]
        for number in range(max(following - 1, 0), following + 2):
            assert store.append_batch("small", 0, numbered(number)).duplicate is (number < following)
        for partition, producer in enumerate((7, 8)):
            check_index(store, "small", partition)
            end_transaction(store, "small", partition, producer)
            check_index(Store.open(self.path), "small", partition)

    def check_nothing_left_to_do(self):
        """The second time there is nothing to recover."""
        store = Store.open(self.path)
        for topic in store.topics():
            for partition in range(PARTITIONS):
                end = store.latest_offset(topic, partition)
                again = Store.open(self.path).append(topic, pa.record_batch({"value": [b"last"]}), partition=partition)
                assert again[0].base_offset == end


def test_power_losses(recorded, capsys):
    try_losses_of_run(recorded, Loss, 110, capsys, parts=PARTS)
