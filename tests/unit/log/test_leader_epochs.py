"""Leader epochs and where they began: what is kept, and what is cut."""

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
    ("log_start", "entries"),
    [
        (4, [(1, 5), (2, 10), (4, 20)]),
        (5, [(1, 5), (2, 10), (4, 20)]),
        (7, [(1, 7), (2, 10), (4, 20)]),
        (10, [(2, 10), (4, 20)]),
        (99, [(4, 99)]),
    ],
)
def test_a_cut_at_the_start_keeps_the_epoch_that_spans_it(log_start, entries):
    epochs = LeaderEpochs([(1, 5), (2, 10), (4, 20)])
    assert epochs.cut_start(log_start) is (log_start > 5)
    assert epochs.entries == entries


@searched
@given(st.lists(st.tuples(st.integers(-1, 9), st.integers(0, 9))), st.integers(0, 12))
def test_epochs_and_offsets_always_increase(assigned, log_start):
    epochs = LeaderEpochs(assigned)
    epochs.cut_start(log_start)
    for before, later in zip(epochs.entries, epochs.entries[1:], strict=False):
        assert before.epoch < later.epoch
        assert before.start_offset < later.start_offset
