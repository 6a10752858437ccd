"""Numbered producers and their transactions, by Kafka's rules; and the snapshots of what is known of them."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from producer_tools import ABORT, COMMIT, NOW, data, marker
from searching import searched

from pyspark_log.config import INT_MAX
from pyspark_log.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    SideFileError,
    TransactionCoordinatorFencedError,
)
from pyspark_log.storage.log.producers import snapshot
from pyspark_log.storage.log.producers.snapshot import Snapshot
from pyspark_log.storage.log.producers.state import (
    Duplicate,
    ProducerEntry,
    ProducerStates,
    WrittenBatch,
    sequence_after,
)
from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.storage.segment.txn_index import AbortedTransaction
from tests.paths import LOGDIR

KAFKA = LOGDIR / "orders-0"
DAY = 86_400_000


def after(*steps):
    """What is known after a log of those headers; a marker comes with its header as a pair."""
    states = ProducerStates()
    for step in steps:
        states.enter(*step if isinstance(step[0], tuple) else (step,))
    return states


# ---- sequences


@pytest.mark.parametrize(
    ("sequence", "count", "expected"), [(5, 5, 10), (INT_MAX, 1, 0), (INT_MAX - 5, 10, 4), (-1, 1, 0)]
)
def test_sequences_wrap_to_0_after_the_largest(sequence, count, expected):
    assert sequence_after(sequence, count) == expected


@searched
@given(st.integers(0, INT_MAX), st.integers(1, 1000))
def test_the_first_sequence_of_a_batch_is_found_again(sequence, count):
    (entry,) = after(data(0, sequence, count)).entries
    assert entry.batches[0].first_sequence == sequence


@pytest.fixture
def nine():
    """Sequences 0 to 5 one by one at offsets 10 to 15, then 6 to 8 as one batch."""
    return after(*(data(10 + n, n) for n in range(6)), data(16, 6, 3, timestamp=NOW + 6))


def test_the_last_five_batches_are_known_again(nine):
    assert nine.check(data(30, 6, 3)) == Duplicate(16, 18, NOW + 6)
    for sequence in range(2, 6):
        assert nine.check(data(30, sequence)) == Duplicate(10 + sequence, 10 + sequence, NOW)
    assert nine.check(data(30, 9)) is None


@pytest.mark.parametrize(("sequence", "count"), [(7, 2), (1, 1), (6, 4), (10, 1), (0, 1)])
def test_part_of_a_batch_an_old_batch_or_a_gap_is_out_of_order(nine, sequence, count):
    with pytest.raises(OutOfOrderSequenceError, match="expected 9"):
        nine.check(data(30, sequence, count))


def test_sequence_0_follows_the_largest():
    states = after(data(0, INT_MAX - 1, 2))
    assert states.check(data(2, 0)) is None
    with pytest.raises(OutOfOrderSequenceError):
        states.check(data(2, 1))
    across = after(data(0, INT_MAX, 3))
    assert across.check(data(9, INT_MAX, 3)) == Duplicate(0, 2, NOW)
    assert across.check(data(9, 2)) is None


def test_an_unknown_producer_may_begin_anywhere_and_a_new_epoch_at_0_only():
    assert ProducerStates().check(data(0, 16)) is None
    states = after(data(0, 16, epoch=4))
    assert states.check(data(1, 17, epoch=4)) is None
    assert states.check(data(1, 0, epoch=5)) is None
    with pytest.raises(OutOfOrderSequenceError):
        states.check(data(1, 1, epoch=5))
    with pytest.raises(InvalidProducerEpochError, match="epoch 3"):
        states.check(data(1, 17, epoch=3))


def test_a_new_epoch_forgets_the_batches_of_the_one_before():
    states = after(data(0, 0), data(1, 0, epoch=1))
    assert states.check(data(2, 0, epoch=1)) == Duplicate(1, 1, NOW)
    assert states.check(data(2, 1, epoch=1)) is None
    assert states.check(data(2, 0, epoch=2)) is None


def test_check_changes_nothing(nine):
    before = nine.entries
    nine.check(data(19, 9))
    assert nine.entries == before
    assert nine.end_offset == 19


# ---- transactions


def test_a_marker_ends_the_transaction_of_its_producer():
    states = after(data(5, 0, 3, transactional=True))
    assert states.entries[0].txn_first_offset == 5
    states.enter(marker(8, timestamp=NOW + 1), EndTxnMarker(True, 7))
    (entry,) = states.entries
    assert (entry.txn_first_offset, entry.coordinator_epoch, entry.last_timestamp) == (None, 7, NOW + 1)
    assert states.check(data(9, 3)) is None


def test_a_batch_outside_of_the_open_transaction_is_refused():
    states = after(data(0, 0, transactional=True))
    with pytest.raises(InvalidTxnStateError, match="offset 0"):
        states.check(data(1, 1))
    assert states.check(data(1, 1, transactional=True)) is None


def test_markers_of_old_epochs_are_fenced():
    states = after((marker(0, epoch=2), EndTxnMarker(True, 5)))
    with pytest.raises(TransactionCoordinatorFencedError, match="epoch 4"):
        states.check(marker(1, epoch=2), EndTxnMarker(True, 4))
    with pytest.raises(InvalidProducerEpochError):
        states.check(marker(1, epoch=1), EndTxnMarker(True, 5))
    assert states.check(marker(1, epoch=2), EndTxnMarker(True, 5)) is None


def test_a_marker_with_a_raised_epoch_leaves_no_batches():
    states = after(data(0, 0, transactional=True), (marker(1, epoch=1), COMMIT))
    assert states.entries == [ProducerEntry(1, 1, 0, NOW)]
    assert states.check(data(2, 0, epoch=1)) is None


def test_a_marker_that_the_cleaner_emptied_changes_nothing():
    states = after(data(0, 0, transactional=True))
    before = states.entries
    states.enter(marker(1)._replace(count=0))
    assert states.entries == before


def test_an_abort_gives_an_entry_for_the_transaction_index():
    states = after(data(0, 0, producer=1000, transactional=True), data(2, 0, producer=1001, transactional=True))
    assert states.aborted_by(marker(10, producer=1001), COMMIT) is None
    # Bytes of Kafka's own: facts on .txnindex; producer 1000 is open since offset 0.
    assert states.aborted_by(marker(10, producer=1001), ABORT) == AbortedTransaction(1001, 2, 10, 0)
    states.enter(marker(10, producer=1001), ABORT)
    assert states.aborted_by(marker(11, producer=1000), ABORT) == AbortedTransaction(1000, 0, 11, 12)


def test_an_abort_without_a_transaction_gives_none():
    assert ProducerStates().aborted_by(marker(0), ABORT) is None
    assert after(data(0, 0)).aborted_by(marker(1), ABORT) is None


def test_a_transaction_is_unstable_until_its_end_is_acknowledged():
    states = after(data(99, 0, transactional=True))
    assert states.first_unstable_offset == 99
    states.enter(data(105, 0, producer=2, transactional=True))
    states.enter(marker(106), COMMIT)
    for high_watermark, first in ((100, 99), (106, 99), (107, 105)):
        states.acknowledge(high_watermark)
        assert states.first_unstable_offset == first
    states.enter(marker(107, producer=2), ABORT)
    states.acknowledge(108)
    assert states.first_unstable_offset is None


def test_idle_producers_expire_but_never_with_an_open_transaction():
    states = after(data(0, 0, producer=1), data(1, 0, producer=2, transactional=True))
    states.expire(NOW + DAY - 1, DAY)
    assert len(states.entries) == 2
    states.expire(NOW + DAY, DAY)
    assert [entry.producer_id for entry in states.entries] == [2]
    assert states.first_unstable_offset == 1


# ---- snapshots

int16, int32, int64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))
offsets = st.integers(0, 2**63 - 1)


@st.composite
def entries(draw):
    timestamp = draw(int64)
    batch = st.builds(WrittenBatch, int32, offsets, int32, st.just(timestamp))
    return ProducerEntry(
        draw(int64),
        draw(int16),
        draw(int32),
        timestamp,
        draw(st.none() | offsets),
        draw(st.lists(batch, max_size=1).map(tuple)),
    )


@searched
@given(st.lists(entries(), max_size=4))
def test_a_snapshot_keeps_what_it_has_room_for(known):
    data = snapshot.encode(known)
    assert len(data) == 10 + 46 * len(known)
    assert snapshot.decode(data, "s") == known


def test_a_snapshot_has_kafkas_layout():
    batch = data(7, 3, 4, producer=1000, epoch=2, transactional=True)
    states = after(batch, (marker(11, producer=9), EndTxnMarker(True, 8)))
    known, bumped = snapshot.encode(states.entries)[10:56], snapshot.encode(states.entries)[56:]
    assert struct.unpack(">qhiqiqiq", known) == (1000, 2, 6, 10, 3, NOW, -1, 7)
    assert struct.unpack(">qhiqiqiq", bumped) == (9, 0, -1, -1, 0, NOW, 8, -1)


@pytest.mark.parametrize("offset", [31, 63, 79])
def test_kafkas_snapshots_are_read_and_written_alike(offset):
    golden = (KAFKA / f"{offset:020d}.snapshot").read_bytes()
    assert snapshot.decode(golden, "golden") == []
    assert snapshot.encode([]) == golden


SNAPSHOT = snapshot.encode(after(data(0, 0), data(1, 0, producer=2, transactional=True)).entries)


@pytest.mark.parametrize("at", range(len(SNAPSHOT)))
def test_a_snapshot_with_any_byte_changed_or_missing_is_refused(at):
    changed = bytearray(SNAPSHOT)
    changed[at] ^= 1
    for bad in (bytes(changed), SNAPSHOT[:at]):
        with pytest.raises(SideFileError, match="path/s"):
            snapshot.decode(bad, "path/s")


@searched
@given(st.binary(max_size=120), st.booleans())
def test_any_bytes_give_producers_or_the_error(body, sealed):
    data = b"\x00\x01" + crc32c(body).to_bytes(4, "big") + body if sealed else body
    with contextlib.suppress(SideFileError):
        ProducerStates(snapshot.decode(data, "s"))


def test_a_damaged_snapshot_is_deleted_and_the_one_before_it_counts(tmp_path):
    folder, known = str(tmp_path), after(data(0, 0)).entries
    for offset in (1, 5, 9, 12):
        snapshot.write(folder, offset, known)
    (tmp_path / f"{9:020d}.snapshot").write_bytes(SNAPSHOT[:-1])
    assert snapshot.load_newest(folder, log_start=1, log_end=11) == Snapshot(5, known)
    assert snapshot.list_snapshots(folder) == [1, 5, 12]
    snapshot.delete(folder, [5])
    assert snapshot.load_newest(folder, log_start=1, log_end=11) is None


@pytest.mark.parametrize(
    ("snapshots", "bases", "gone"),
    [([2, 5, 42], [5], [2]), ([1, 2, 3, 4], [1, 2, 4], [3]), ([7, 8], [5], [7]), ([7, 8], [], [7]), ([], [5], [])],
)
def test_snapshots_of_no_segment_are_strays_but_for_one_at_the_log_end(snapshots, bases, gone):
    assert snapshot.strays(snapshots, bases) == gone


steps = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["data", "txn", "commit", "abort"])), max_size=30)


@searched
@given(steps, st.data())
def test_a_snapshot_and_the_rest_of_the_log_say_what_the_whole_log_says(steps, choice):
    log, sequences = [], {}
    for offset, (producer, kind) in enumerate(steps):
        if kind in ("commit", "abort"):
            log.append((marker(offset, producer=producer), EndTxnMarker(kind == "commit", 0)))
        else:
            sequence = sequences[producer] = sequences.get(producer, -1) + 1
            log.append(data(offset, sequence, producer=producer, transactional=kind == "txn"))
    cut = choice.draw(st.integers(0, len(log)))
    early, whole = after(*log[:cut]), after(*log)
    resumed = ProducerStates(snapshot.decode(snapshot.encode(early.entries), "s"), early.end_offset)
    for step in log[cut:]:
        resumed.enter(*step if isinstance(step[0], tuple) else (step,))
    resumed.acknowledge(len(log))
    whole.acknowledge(len(log))
    assert resumed.first_unstable_offset == whole.first_unstable_offset
    for one, other in zip(resumed.entries, whole.entries, strict=True):
        assert one._replace(batches=one.batches[-1:]) == other._replace(batches=other.batches[-1:])
