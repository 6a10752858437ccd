"""A process whose knowledge of a log is older than the log's first segment, or than its compaction.

`A` is the process that was suspended: an open store that has read the log up to some offset. `B` continues meanwhile.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from producer_tools import ending, ready

from pyspark_log.errors import OutOfOrderSequenceError
from pyspark_log.storage.catalog.topics import OFFSETS_TOPIC, PUBLISH_TOPIC
from pyspark_log.storage.compaction.cleaner import compact
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.log.producers import snapshot
from pyspark_log.storage.log.producers.state import ProducerEntry, WrittenBatch
from pyspark_log.storage.log.retention import delete_before
from pyspark_log.storage.maintenance.repair.store import repair
from pyspark_log.storage.publish.claims import last_number
from pyspark_log.storage.publish.pending import tidy
from pyspark_log.storage.store import Store
from pyspark_log.types import LATEST, READ_COMMITTED, TopicPartition
from tests.store_tools import cut_log, damages, new_store, observed, publish, roll_log, stage

NOW = time.time_ns() // 1_000_000
DELETED = {"segment.bytes": "1000", "retention.ms": "-1"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1000",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
    "min.compaction.lag.ms": "0",
}


@pytest.fixture(params=["deleted", "compacted"])
def configs(request):
    return DELETED if request.param == "deleted" else COMPACTED


@pytest.fixture
def a(tmp_path, configs):
    settings = {"offsets.topic.num.partitions": "1"}
    if configs is COMPACTED:
        # The cleaner keeps the last batch of a producer, and with it the end of its transaction, until the producer has
        # expired.
        settings["producer.id.expiration.ms"] = "1"
    store = new_store(tmp_path, configs, settings=settings)
    return store


@pytest.fixture
def b(a):
    return Store.open(a.path)


def send(store, sequence, **fields):
    return store.append_batch("t", 0, ready(sequence, b"v", timestamp=NOW, **fields))


def end_transaction(store, *, commit):
    with store.logs.writer("t", 0).hold() as writer:
        writer.append(bytearray(ending(commit, timestamp=NOW)), sync=False)


def plain(store, count=3):
    rows = {"key": [b"k"] * count, "value": [b"." * 400] * count}
    for row in range(count):
        store.append("t", pa.record_batch({name: column[row : row + 1] for name, column in rows.items()}))


def lose_history(store, configs):
    """All that was appended up to now is deleted: the segments, or the batches in them."""
    if configs is DELETED:
        plain(store)
        store.delete_records("t", 0, LATEST)
        return
    for _ in range(4):
        # The end of a transaction is deleted some rounds after its records.
        plain(store)
        roll_log(store)
        (outcome,) = compact(Store.open(store.path).logs, "t")
        assert not outcome.problem
    assert [one for one in batches(store) if one.is_control] == []


def batches(store):
    state = store.logs.reader("t", 0).state()
    for segment, size in store.logs.reader("t", 0).opened(state):
        yield from segment.headers(0, size)


@pytest.mark.parametrize("configs", [DELETED], ids=["deleted"])
def test_a_batch_that_follows_is_taken_and_one_that_was_taken_is_not_taken_again(a, b, configs):
    send(a, 0)
    for sequence in range(1, 9):
        send(b, sequence)
    lose_history(b, configs)
    with pytest.raises(OutOfOrderSequenceError, match="expected 9"):
        send(a, 1)
    assert not send(a, 9).duplicate
    roll_log(a)
    assert not send(Store.open(a.path), 10).duplicate
    assert damages(a.path) == []


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_has_ended_is_not_open_for_ever(a, b, configs, commit, torn):
    send(a, 0, transactional=True)
    end_transaction(b, commit=commit)
    lose_history(b, configs)
    if torn:
        # As a checkpoint that a cleaner is writing just now, or that another version has written.
        Path(a.logs.place("t", 0).cleaner_path).write_bytes(b"x" * 512)
    plain(a)
    roll_log(a)
    plain(a)
    fresh = Store.open(a.path)
    assert fresh.latest_offset("t", 0, isolation_level=READ_COMMITTED) == fresh.latest_offset("t", 0)


def test_a_reader_does_not_wait_for_a_transaction_that_has_ended(a, b, configs):
    send(b, 0, transactional=True)
    plain(b)
    assert a.latest_offset("t", 0, isolation_level=READ_COMMITTED) == 0
    end_transaction(b, commit=True)
    lose_history(b, configs)
    assert a.latest_offset("t", 0, isolation_level=READ_COMMITTED) == b.latest_offset("t", 0)


@pytest.mark.parametrize("configs", [DELETED], ids=["deleted"])
def test_a_batch_that_was_truncated_is_taken_again(a, b):
    send(a, 0)
    cut_log(b, 0)
    plain(b, 1)
    assert not send(a, 0).duplicate
    assert a.latest_offset("t", 0) == 2


@pytest.mark.parametrize("configs", [DELETED], ids=["deleted"])
def test_a_reader_does_not_wait_for_a_transaction_that_was_truncated(a, b):
    """The log is as long as before, with other records."""
    send(b, 0, transactional=True)
    plain(b, 1)
    assert a.latest_offset("t", 0, isolation_level=READ_COMMITTED) == 0
    cut_log(b, 0)
    plain(b, 2)
    assert a.latest_offset("t", 0, isolation_level=READ_COMMITTED) == b.latest_offset("t", 0) == 2


@pytest.mark.parametrize("configs", [DELETED], ids=["deleted"])
def test_snapshots_that_were_written_without_the_history_are_found_and_repaired(a, tmp_path):
    for sequence in range(9):
        send(a, sequence)
    lose_history(a, DELETED)
    plain(a, 1)
    roll_log(a)
    folder = f"{a.path}/data/t-0"
    # As a process wrote it that had seen sequence 0 only.
    stale = ProducerEntry(1, 0, -1, NOW, None, (WrittenBatch(0, 0, 0, NOW),))
    snapshot.write(folder, a.latest_offset("t", 0), [stale])
    (found,) = damages(a.path)
    assert found.file.endswith(".snapshot")
    assert "last sequence number 0 at offset 0, but the log says epoch 0, last sequence number 8" in found.what
    repair(a.path, tmp_path / "mended")
    mended = Store.open(tmp_path / "mended")
    assert not send(mended, 9).duplicate
    assert damages(mended.path) == []


def delete_all(store, topic):
    """What is never done to a topic of the engine: its settings forbid it, and an administrator can change them."""
    with store.logs.writer(topic, 0).hold() as writer:
        delete_before(writer.log, writer.state.next_offset)


@pytest.mark.parametrize("configs", [DELETED], ids=["deleted"])
def test_committed_offsets_whose_records_were_deleted_are_not_known_any_more(a, b):
    at = TopicPartition("t", 0)
    OffsetsLog(a).commit("old", {at: 1})
    assert OffsetsLog(a).fetch("old")[at].offset == 1
    OffsetsLog(b).commit("other", {at: 2})
    delete_all(b, OFFSETS_TOPIC)
    OffsetsLog(b).commit("new", {at: 3})
    for store in (a, Store.open(a.path)):
        assert OffsetsLog(store).groups() == ["new"]
        assert OffsetsLog(store).fetch("old") == {}
        assert OffsetsLog(store).fetch("new")[at].offset == 3


@pytest.mark.parametrize("configs", [DELETED], ids=["deleted"])
def test_publishers_whose_records_were_deleted_are_not_known_any_more(a, b):
    publish_one(a, "old")
    assert last_number(a.decisions, "old") == 0
    publish_one(b, "other")
    tidy(b.decisions)
    delete_all(b, PUBLISH_TOPIC)
    publish_one(b, "new")
    for store in (a, Store.open(a.path)):
        store.decisions.follow()
        assert set(store.decisions.last) == {"new"}


def publish_one(store, publisher):
    publish(store.decisions, publisher, 0, stage(store, pa.record_batch({"value": [b"v"]})))


@pytest.mark.parametrize("configs", [DELETED], ids=["deleted"])
def test_what_a_process_knows_is_not_read_again_in_the_active_segment(a):
    """Other files are inspected only for logs that rolled meanwhile, not for each append."""
    send(a, 0)
    opened = []
    with observed(opened.append):
        send(a, 1)
    assert [change.kind for change in opened] == ["write", "write"]
