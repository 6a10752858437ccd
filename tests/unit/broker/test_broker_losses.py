"""What a broker's folder has lost shows in what else it holds: ends in checkpoints, aborted records in markers."""

from __future__ import annotations

import logging
import os

import pytest
from broker_tools import ALL, T0, add, batch, high_watermark, mirrored
from broker_tools import rows as read
from transaction_tools import LEVEL, Log, as_brokers
from transaction_tools import rows as committed

from pyspark_log import Store
from pyspark_log.replication import LostRecordsError
from pyspark_log.storage.catalog import kafka_files
from pyspark_log.storage.catalog.kafka_files import META_PROPERTIES, RECOVERY_POINT, MetaProperties
from pyspark_log.storage.segment import txn_index
from pyspark_log.storage.segment.file_names import LOG, segment_path
from pyspark_log.storage.segment.txn_index import AbortedTransaction

pytestmark = pytest.mark.usefixtures("prompt_checkpoints")


def cut_in_a_batch(root):
    path = segment_path(str(root / "t-0"), 20, LOG)
    os.truncate(path, os.path.getsize(path) - 3)
    return "20.log ends at offset 20"


def cut_between_batches(root):
    path = segment_path(str(root / "t-0"), 20, LOG)
    os.truncate(path, 0)
    return "20.log ends at offset 20"


def without_its_last_segment(root):
    os.unlink(segment_path(str(root / "t-0"), 20, LOG))
    return "10.log ends at offset 17"


def without_any_segment(root):
    (root / META_PROPERTIES).write_bytes(kafka_files.encode_meta_properties(MetaProperties("c", 1)))
    for base in (0, 10, 20):
        os.unlink(segment_path(str(root / "t-0"), base, LOG))
    return "there is no segment"


@pytest.mark.parametrize("lose", [cut_in_a_batch, cut_between_batches, without_its_last_segment, without_any_segment])
@pytest.mark.parametrize("checkpoint", ["replication-offset-checkpoint", RECOVERY_POINT])
def test_a_log_that_has_lost_its_end_is_reported(root, tmp_path, caplog, lose, checkpoint):
    kafka_files.write_offsets(str(root / checkpoint), {T0: 21})
    assert (read(Store.open(root)), caplog.messages) == (ALL, [])
    what = lose(root)
    store = Store.open(root)
    left = [] if lose is without_any_segment else ALL[:-1]
    assert [read(store), read(store)] == [left, left]
    (told,) = caplog.messages
    assert told.startswith("t-0: ")
    assert what in told
    assert f"{root}/{checkpoint} says that the log had reached 21" in told
    assert caplog.records[0].levelno == logging.WARNING
    # A mirror reports it, unless it is to continue without that.
    copy = Store.create(tmp_path / "store")
    error = mirrored(copy, root, "t")[T0].error
    assert isinstance(error, LostRecordsError)
    assert what in str(error)
    assert "--skip-lost" in str(error)
    assert mirrored(copy, root, "t", skip_lost=True)[T0].error is None
    assert read(copy) == left


def test_a_checkpoint_that_is_late_is_as_it_should_be(root, tmp_path, caplog):
    high_watermark(root, 12)
    kafka_files.write_offsets(str(root / RECOVERY_POINT), {T0: 2})
    store = Store.open(root)
    assert read(store) == ALL[:3]
    assert mirrored(Store.create(tmp_path / "store"), root, "t")[T0].error is None
    caplog.clear()
    # The end is reported again when it has changed.
    for offset in (25, 25, 24):
        high_watermark(root, offset)
        assert read(store) == ALL
    assert [message.split("had reached ")[1][:3] for message in caplog.messages] == ["25:", "24:"]
    add(root / "t-0", 20, batch(21, b"v", b"w", b"x"))
    assert read(store)[-1] == (23, b"x")
    assert len(caplog.messages) == 2


def missing(entries):
    return []


def unwritten(entries):
    return entries[:-1]


def of_another_producer(entries):
    return [entries[0]._replace(producer_id=9), *entries[1:]]


def one_too_many(entries):
    # What the marker at offset 3 commits.
    return sorted([*entries, AbortedTransaction(1, 2, 3, 4)], key=lambda entry: entry.last_offset)


def one_that_begins_too_early(entries):
    return [*entries[:-1], entries[-1]._replace(first_offset=2)]


def one_that_begins_too_late(entries):
    return [entries[0]._replace(first_offset=1), *entries[1:]]


@pytest.mark.parametrize(
    "change",
    [missing, unwritten, of_another_producer, one_too_many, one_that_begins_too_early, one_that_begins_too_late],
)
def test_an_index_of_aborted_transactions_that_the_log_refutes_is_not_believed(tmp_path, log, caplog, change):
    log.write(1, b"aborted")
    log.finish(1, commit=False)
    log.write(1, b"kept")
    log.finish(1, commit=True)
    log.write(1, b"aborted, too")
    log.finish(1, commit=False)
    log.plain(b"plain")
    folder = as_brokers(log, tmp_path / "logs").path
    path = segment_path(f"{folder}/t-0", 0, ".txnindex")
    entries = txn_index.read_entries(path, 0)
    assert [entry[:3] for entry in entries] == [(1, 0, 1), (1, 4, 5)]
    assert (committed(Store.open(folder)), caplog.messages) == (log.seen(0, 7), [])
    txn_index.write_entries(path, change(entries))
    store = Store.open(folder)
    assert [committed(store), committed(store)] == [[(2, b"kept"), (6, b"plain")]] * 2
    (told,) = caplog.messages
    assert told.startswith("t-0: the index of aborted transactions")
    assert "What the log says counts" in told
    assert len(read(store)) == 4
    # Ranges that are read apart.
    for start in range(7):
        for end in range(start, 8):
            assert committed(store, start, min(end, 7)) == log.seen(start, end)
    # A copy has an index of its own, by the markers.
    target = Store.create(tmp_path / "target")
    mirrored(target, folder, "t")
    assert committed(target) == log.seen(0, 7)


def test_markers_whose_records_were_compacted_away_need_no_entry(tmp_path, caplog):
    """Kafka's cleaner keeps the marker for a while, and leaves its entry out of the index."""
    log = Log(tmp_path / "store")
    log.finish(1, commit=False)
    log.plain(b"plain")
    log.write(1, b"kept")
    log.finish(1, commit=True)
    store = as_brokers(log, tmp_path / "logs")
    assert committed(store) == log.seen(0, 4)
    assert store.latest_offset("t", 0, **LEVEL) == 4
    mirrored(Store.create(tmp_path / "target"), store.path, "t")
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
