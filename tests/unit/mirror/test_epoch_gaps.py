"""Leader epochs whose first batches compaction has removed begin in the copy where they begin in the leader's log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log import Store
from pyspark_log.kafka.fetcher import Fetched
from pyspark_log.replication import CopiedPartition, Rules
from pyspark_log.replication.epoch_gaps import Gap, epochs_in
from pyspark_log.storage.catalog.topics import id_bytes
from pyspark_log.storage.log import leader_epochs
from pyspark_log.storage.log.leader_epochs import LeaderEpochs
from pyspark_log.storage.record import headers_in
from pyspark_log.types import TopicPartition
from tests.unit.record_tools import Record, build

AT = TopicPartition("t", 0)


@given(st.data())
def test_the_epochs_are_those_of_the_leader(data):
    starts = sorted(data.draw(st.sets(st.integers(1, 40), max_size=8)))
    epochs = sorted(data.draw(st.sets(st.integers(0, 20), min_size=len(starts) + 1, max_size=len(starts) + 1)))
    leader = LeaderEpochs(zip(epochs, [0, *starts], strict=True))
    start = data.draw(st.integers(0, 40))
    end = data.draw(st.integers(start + 1, 41))
    gap = Gap(start, end, leader.of(start - 1), leader.of(end))
    found = epochs_in(gap, lambda epoch: leader.end_of(epoch, 50))
    expected = [one for one in leader.entries if start <= one.start_offset <= end and one.epoch > gap.last_epoch]
    assert found == expected


@pytest.mark.parametrize("last", [-1, 2])
def test_a_leader_that_does_not_know(last):
    assert epochs_in(Gap(10, 20, last, 5), lambda _: leader_epochs.EpochEnd(-1, -1)) == [(5, 20)]


@pytest.fixture
def copy(tmp_path):
    """A copy of a topic, which is empty."""
    with Store.create(tmp_path / "mirror") as store:
        store.create_topic("t", 1)
        made = CopiedPartition(store, AT, id_bytes(store.describe_topic("t").topic_id), Rules())
        made.folder = f"{store.path}/data/t-0"
        yield made


def answer(copy, *batches):
    data = b"".join(build([Record(None, b"v")], "none", base_offset=at, leader_epoch=epoch) for at, epoch in batches)
    assert len(headers_in(data, 0, len(data))) == len(batches)
    return Fetched(AT, copy.position(9), 0, 100, 0, None, memoryview(data))


def test_a_copy_asks_before_it_takes_in_what_comes_after_such_a_gap(copy):
    assert copy.take(answer(copy, (0, 5), (4, 5))) == ()
    fetched = answer(copy, (5, 5), (20, 8), (30, 8), (31, 9))
    assert copy.take(fetched) == [Gap(6, 20, 5, 8)]
    assert copy.end == 5
    assert copy.take(fetched, [(7, 10), (8, 12)]) == ()
    assert copy.end == 32
    assert leader_epochs.read(copy.folder).entries == [(5, 0), (7, 10), (8, 12), (9, 31)]
