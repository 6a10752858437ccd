"""Leader epochs and where they began: what is kept, what is cut, and what a copy of the log is told."""


import pytest
from hypothesis import given
from hypothesis import strategies as st
from searching import searched

from pyspark_log.storage.log.leader_epochs import LeaderEpochs
from tests.paths import LOGDIR

KAFKA = LOGDIR / "orders-0" / "leader-epoch-checkpoint"


def test_kafkas_checkpoint_is_read_and_written_alike(tmp_path):
    epochs = LeaderEpochs.read(str(KAFKA))
    assert epochs.entries == [(0, 0), (3, 39)]
    epochs.write(str(tmp_path / "checkpoint"))
    assert (tmp_path / "checkpoint").read_bytes() == KAFKA.read_bytes()


def test_without_a_file_nothing_is_known(tmp_path):
    assert LeaderEpochs.read(str(tmp_path / "checkpoint")).entries == []


@pytest.mark.parametrize(
    ("epoch", "start", "entries"),
    [
        (4, 30, None),
        (4, 20, None),
        (-1, 40, None),
        (5, 40, [(1, 0), (2, 10), (4, 20), (5, 40)]),
        (4, 15, [(1, 0), (2, 10), (4, 15)]),
        (3, 30, [(1, 0), (2, 10), (3, 30)]),
        (5, 10, [(1, 0), (5, 10)]),
        (0, 0, [(0, 0)]),
    ],
)
def test_a_new_epoch_drops_what_contradicts_it(epoch, start, entries):
    epochs = LeaderEpochs([(1, 0), (2, 10), (4, 20)])
    assert epochs.assign(epoch, start) is (entries is not None)
    assert epochs.entries == (entries or [(1, 0), (2, 10), (4, 20)])


@pytest.mark.parametrize(
    ("log_end", "entries"), [(21, [(1, 5), (2, 10), (4, 20)]), (20, [(1, 5), (2, 10)]), (6, [(1, 5)]), (5, [])]
)
def test_a_cut_at_the_end_drops_what_begins_behind_it(log_end, entries):
    epochs = LeaderEpochs([(1, 5), (2, 10), (4, 20)])
    assert epochs.cut_end(log_end) is (len(entries) < 3)
    assert epochs.entries == entries


@pytest.mark.parametrize(
    ("log_start", "entries"),
    [
        (4, [(1, 5), (2, 10), (4, 20)]),
        (5, [(1, 5), (2, 10), (4, 20)]),
        (7, [(1, 7), (2, 10), (4, 20)]),
        (10, [(2, 10), (4, 20)]),
        (99, [(4, 99)]),
    ],
)
def test_a_cut_at_the_start_keeps_the_epoch_that_goes_on_there(log_start, entries):
    epochs = LeaderEpochs([(1, 5), (2, 10), (4, 20)])
    assert epochs.cut_start(log_start) is (log_start > 5)
    assert epochs.entries == entries


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (5, (-1, -1)), (4, (4, 33)), (3, (2, 20)), (2, (2, 20)), (1, (1, 10)), (0, (0, 5))],
)
def test_a_copy_is_told_where_its_epoch_ended(epoch, answer):
    assert LeaderEpochs([(1, 5), (2, 10), (4, 20)]).end_offset_for(epoch, log_end=33) == answer


def test_nothing_is_known_of_an_empty_log():
    assert LeaderEpochs().end_offset_for(0, log_end=0) == (-1, -1)


@searched
@given(st.lists(st.tuples(st.integers(-1, 9), st.integers(0, 9))), st.integers(0, 12), st.integers(0, 12))
def test_epochs_and_offsets_always_increase(assigned, log_start, log_end):
    epochs = LeaderEpochs(assigned)
    epochs.cut_start(log_start)
    epochs.cut_end(log_end)
    for before, later in zip(epochs.entries, epochs.entries[1:], strict=False):
        assert before.epoch < later.epoch
        assert before.start_offset < later.start_offset
