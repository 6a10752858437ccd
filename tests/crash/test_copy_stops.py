"""A copy of another log is stopped before each of its changes to files, or the power fails there.

What is there afterwards is a beginning of that log, and the copy continues until it is equal to it, byte for byte.
"""

from bisect import bisect_right

import pytest
from attacks import Attacked
from counted import rows
from numbered import batch, check_index, end_transaction
from sampling import SAMPLED

from pyspark_log.replication.epoch_gaps import epochs_in, gaps_in
from pyspark_log.storage.log import leader_epochs
from pyspark_log.storage.log.appending.replica import append_copied, end_of_agreement, truncate
from pyspark_log.storage.log.retention import delete_before
from pyspark_log.storage.log.state import EMPTY
from pyspark_log.storage.log.state.partition_state import MIRROR
from pyspark_log.storage.record import scan
from pyspark_log.storage.record.layout import LEADER_EPOCH_AT
from pyspark_log.storage.store import Store
from tests.scratch import memory_folder
from tests.stops import copy_folder
from tests.store_tools import faults

pytestmark = SAMPLED

CONFIGS = {"segment.bytes": "600", "index.interval.bytes": "1", "retention.ms": "-1"}
PRODUCER = 4711
END = 10_000
# Compaction has removed batches there: one, and all in which epoch 3 ends, of epoch 4, and in which epoch 5 begins.
# Where an election has cut the log; up to where it was deleted.
GAP, CUT, DELETED = 10, 36, 8


def lead(store, epoch):
    """A new leader appends from now on."""
    with store.logs.writer("t", 0).hold() as writer:
        leader_epochs.begin(writer.log.place.folder, epoch, writer.state.next_offset)
        writer.log.lease.save(writer.state._replace(leader_epoch=epoch), durable=True)


def work(store, first, sequence):
    """Four batches, two of them of a transaction that is aborted."""
    store.append("t", rows(first))
    store.append_batch("t", 0, batch(sequence, [b"numbered"] * 2, PRODUCER, transactional=True))
    store.append("t", rows(first))
    store.append_batch("t", 0, batch(sequence + 2, [b"numbered"], PRODUCER, transactional=True))
    end_transaction(store, "t", 0, PRODUCER)


def batches(store):
    """The batches of the log, but for one: pairs of a header and its bytes."""
    found = []
    for path in store.segment_files("t", 0):
        with open(path, "rb") as file:
            data = file.read()
        found += [(one, data[one.position : one.end]) for one in scan(data, 0, len(data)) if one.base_offset != GAP]
    return found


@pytest.fixture(scope="module")
def logs():
    """The batches and epochs of a log, those after an election has cut it, and where the copies begin."""
    with memory_folder() as folder:
        with Store.create(folder / "leader") as store:
            store.create_topic("t", 1, CONFIGS)
            work(store, 0, 0)
            lead(store, 3)
            work(store, 50, 3)
            work(store, 100, 6)
            work(store, 150, 9)
            old = batches(store), leader_epochs.read(f"{store.path}/data/t-0")
            with store.logs.writer("t", 0).hold() as writer:
                assert truncate(writer.log, CUT) < writer.state.next_offset + 1
            lead(store, 4)
            store.append("t", rows(190))
            lead(store, 5)
            store.append("t", rows(195))
            last = store.latest_offset("t", 0)
            store.append("t", rows(200))
            store.append("t", rows(300))
            first = [one.base_offset for one, _ in batches(store) if one.leader_epoch == 3][-1]
            old = [one for one in old[0] if one[0].base_offset != first], old[1]
            new = [one for one in batches(store) if not first <= one[0].base_offset < last]
            new = new, leader_epochs.read(f"{store.path}/data/t-0")
        with Store.create(folder / "copy") as store:
            store.create_topic("t", 1, CONFIGS)
            store.logs.make_state(store.logs.topic("t"), 0, begins=EMPTY._replace(owner_node=MIRROR))
        yield old, new, folder


def add(writer, log, epochs):
    """Copies the batches of a log that are missing, a few at a time; its `epochs` are asked for."""
    left = [one for one in log if one[0].base_offset >= writer.state.next_offset]
    for start in range(0, len(left), 4):
        some = left[start : start + 4]
        data, headers, at = b"".join(piece for _, piece in some), [], 0
        for header, piece in some:
            headers.append(header._replace(position=at))
            at += len(piece)
        end = writer.state.next_offset
        last = leader_epochs.read(writer.log.place.folder).of(end - 1)
        gaps = gaps_in(headers, end, last)
        starts = [start for gap in gaps for start in epochs_in(gap, lambda epoch: epochs.end_of(epoch, END))]
        append_copied(writer.log, memoryview(data), headers, starts)


def copy_old(path, old, epochs):
    with Store.open(path) as store, store.logs.writer("t", 0).hold() as writer:
        add(writer, old, epochs)


def copy_new(path, new, epochs, *, is_cut=False):
    """Copies what a leader of epoch 5 has: epoch 3 ends there where the log was cut, unless `is_cut` already."""
    with Store.open(path) as store, store.logs.writer("t", 0).hold() as writer:
        end = writer.state.next_offset
        last = leader_epochs.read(writer.log.place.folder).of(end - 1)
        agreed = epochs.end_of(last, END)
        if last >= 0 and agreed.end_offset < end:
            assert not is_cut
            truncate(writer.log, end_of_agreement(writer.log, *agreed))
        add(writer, new, epochs)
        delete_before(writer.log, DELETED)


def contents(path):
    with Store.open(path) as store:
        # How many whole segments are left before that depends on where they begin.
        data = [piece for header, piece in batches(store) if header.next_offset > DELETED]
        with store.logs.writer("t", 0).hold() as writer:
            return (
                data,
                list(leader_epochs.read(writer.log.place.folder).entries),
                # A snapshot has the last batch of each only, and one time for it and a marker after it.
                [
                    (one.producer_id, one.epoch, one.last_timestamp, one.batches[-1]._replace(timestamp=0))
                    for one in writer.log.producers.entries(writer.state, 0)
                ],
                writer.state.log_start,
            )


def check(path, new, epochs, whole):
    """What can be read begins one of the logs; the rest can be copied, and then all is as without a stop."""
    with Store.open(path) as store:
        seen = [value for part in store.read("t", 0) for value in part["value"].to_pylist()]
    assert len(seen) <= 60
    with Store.open(path) as store, store.logs.writer("t", 0).hold() as writer:
        # Once an epoch of the new leader has begun, all of it is the leader's.
        is_cut = writer.state.leader_epoch >= 4
    copy_new(path, new, epochs, is_cut=is_cut)
    assert contents(path) == whole
    with Store.open(path) as store:
        check_index(store, "t", 0)
        ends = [header.next_offset for header, _ in new]
        assert store.latest_offset("t", 0) == ends[-1]
        assert bisect_right(ends, DELETED)
    assert faults(path) == []


class TestCopy(Attacked):
    most_stops, most_losses, least, parts = 60, 60, 100, 2

    @pytest.fixture(autouse=True)
    def copied(self, logs, memory_path):
        """The logs, and what a copy is at its end."""
        self.old, (self.new, self.epochs), self.folder = logs
        self.make(memory_path / "whole")
        self.run(memory_path / "whole")
        self.whole = contents(memory_path / "whole")

    def make(self, path):
        copy_folder(self.folder / "copy", path)

    def run(self, path):
        copy_old(path, *self.old)
        copy_new(path, self.new, self.epochs)

    def check_whole(self, path):
        data, epochs, producers, start = self.whole
        # Empty batches fill the gaps, one for each epoch.
        filling = [b for b in data if b not in [piece for _, piece in self.new]]
        assert [int.from_bytes(b[LEADER_EPOCH_AT : LEADER_EPOCH_AT + 4], "big") for b in filling] == [3, 4, 5]
        assert [b for b in data if b not in filling] == [piece for one, piece in self.new if one.next_offset > DELETED]
        # Those of the leader, but for what was deleted.
        assert epochs == [(0, DELETED), *self.epochs.entries[1:]]
        assert [epoch for epoch, _ in epochs] == [0, 3, 4, 5]
        assert len(producers) == 1
        assert start == DELETED
        assert len(list(path.glob("data/t-0/*.log"))) > 3

    def check(self, path):
        check(path, self.new, self.epochs, self.whole)
