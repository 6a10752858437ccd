"""Compaction of partitions with producers that number their records, and with transactions."""

from pathlib import Path

import pytest
from producer_tools import end_transaction, ready

from pyspark_log.errors import OutOfOrderSequenceError
from pyspark_log.storage.compaction.cleaner import compact
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.log import cleaner_checkpoint
from pyspark_log.storage.log.producers import snapshot
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_COMMITTED
from tests.store_tools import faults, store_with, values

# Each batch has a segment of its own, or two of them have.
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "200", "delete.retention.ms": "0"}


# What a power loss leaves of the bytes that a cleaner writes over those before, or another version writes there.
TORN = {
    "half": lambda data: data[:256] + bytes(256),
    "zeros": lambda data: bytes(512),
    "short": lambda data: data[:256],
    "another version": lambda data: b"\x03" + data[1:],
}


store = store_with(CONFIGS)


def send(store, sequence, *values, **how):
    # The key is the same for all, so each replaces the one before.
    return store.append_batch("t", 0, bytes(ready(sequence, *values, timestamp=now_ms(), **how)))


def end(store, commit, producer=1):
    end_transaction(store, commit, producer=producer, timestamp=now_ms())


def clean(store):
    (outcome,) = compact(store.logs, "t")
    assert not outcome.problem
    return outcome.rounds[-1].cleaned_to


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_producer_resumes_where_it_was(store, tmp_path, snapshots):
    for sequence in range(8):
        send(store, sequence, b"value %d" % sequence)
    # Another one's records take the place of all of its own.
    for sequence in range(4):
        send(store, sequence, b"other %d" % sequence, producer=2)
    assert clean(store) >= 8
    assert len(values(store)) < 6
    assert faults(store.path) == []
    if not snapshots:
        # What is known of producers is then read from the log alone.
        for path in (tmp_path / "store/data/t-0").glob("*.snapshot"):
            path.unlink()
    store = Store.open(store.path)
    assert send(store, 7, b"value 7").base_offset == 7  # It has come before.
    with pytest.raises(OutOfOrderSequenceError):
        send(store, 9, b"value 9")
    assert send(store, 8, b"value 8").base_offset == 12
    assert values(store)[-1] == b"value 8"


def test_an_open_transaction_holds_the_cleaner_back(store):
    send(store, 0, b"a0", producer=1)
    send(store, 1, b"a1", producer=1, transactional=True)
    for sequence in range(6):
        send(store, sequence, b"c%d" % sequence, producer=3)
    send(store, 0, b"b0", producer=2, transactional=True)
    for sequence in range(6, 12):
        send(store, sequence, b"c%d" % sequence, producer=3)
    assert (store.latest_offset("t", 0, isolation_level=READ_COMMITTED), store.latest_offset("t", 0)) == (1, 15)
    assert clean(store) == 1
    assert list(compact(store.logs, "t")) == []  # Though a segment of which a part is not cleaned yet has ended.
    end(store, True, producer=1)
    assert clean(store) == 8
    assert values(store, isolation_level=READ_COMMITTED) == [b"c5"]
    end(store, False, producer=2)
    for sequence in range(12, 16):
        send(store, sequence, b"c%d" % sequence, producer=3)
    assert clean(store) > 15
    assert b"b0" not in values(store)
    assert values(store)[-1] == b"c15"
    assert faults(store.path) == []


def test_what_a_snapshot_says_of_the_cleaned_part_is_believed(store, tmp_path):
    send(store, 0, b"first", producer=2)
    send(store, 0, b"begun", producer=1, transactional=True)
    for sequence in range(1, 4):
        send(store, sequence, b"other", producer=2)
    assert clean(store) == 1
    end(store, True, producer=1)
    for sequence in range(4, 8):
        send(store, sequence, b"other", producer=2)
    # From here on the log shows what was written: of one producer, only that its transaction ended.
    (tmp_path / "store/data/t-0/00000000000000000002.snapshot").unlink()
    assert faults(store.path) == []


def write_and_clean(store):
    for sequence in range(3):
        send(store, sequence, b"aborted", transactional=True)
        end(store, False)
        send(store, sequence, b"other %d" % sequence, producer=2)
    clean(store)


@pytest.mark.parametrize("tear", TORN.values(), ids=TORN)
def test_where_cleaners_have_been_is_not_known_when_it_is_torn(store, tear):
    """The cleaned part of the log lacks what the files beside it say, and readers miss nothing by that."""
    write_and_clean(store)
    place = store.logs.place("t", 0)
    path, end_offset = Path(place.cleaner_path), store.latest_offset("t", 0)
    path.write_bytes(tear(path.read_bytes()))
    assert faults(store.path) == []
    notes = [finding.what for finding in verify(store.path).findings if finding.file.endswith(".cleaner")]
    assert [what.startswith("it is torn") for what in notes] == [True]
    assert values(store, isolation_level=READ_COMMITTED) == values(store)
    clean(store)
    assert faults(store.path) == []
    assert [finding for finding in verify(store.path).findings if finding.file.endswith(".cleaner")] == []
    # From the log end of then on all is compared again.
    assert cleaner_checkpoint.read(place).touched_to <= end_offset
    for sequence in range(3, 7):
        send(store, sequence, b"other %d" % sequence, producer=2)
    assert faults(store.path) == []
    newest = snapshot.list_snapshots(place.folder)[-1]
    assert newest > end_offset
    snapshot.write(place.folder, newest, [])
    (fault,) = faults(store.path)
    assert fault.file.endswith(f"{newest:020}.snapshot")


def test_where_cleaners_have_been_is_seen_in_the_log_when_the_file_that_says_it_is_removed(store):
    """It is no damage: the next cleaner begins at the log start."""
    write_and_clean(store)
    place = store.logs.place("t", 0)
    Path(place.cleaner_path).unlink()
    assert faults(store.path) == []
    # Above the compacted part all is compared.
    for sequence in range(3, 7):
        send(store, sequence, b"other %d" % sequence, producer=2)
    newest = snapshot.list_snapshots(place.folder)[-1]
    entries = snapshot.read(f"{place.folder}/{newest:020}.snapshot")
    snapshot.write(place.folder, newest, [])
    (fault,) = faults(store.path)
    assert fault.file.endswith(f"{newest:020}.snapshot")
    snapshot.write(place.folder, newest, entries)
    clean(store)
    assert faults(store.path) == []
