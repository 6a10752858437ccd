"""The files that Kafka keeps beside its segments: each is there when Kafka would have it, with Kafka's bytes."""

import errno
import os
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from leader_tools import lead
from producer_tools import ready

from pyspark_log.storage.catalog import kafka_files, log_dirs
from pyspark_log.storage.catalog.kafka_files import MetaProperties, read_offsets
from pyspark_log.storage.fs.locking.locks import lock_for
from pyspark_log.storage.log.appending.replica import truncate
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.record.headers import scan
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.paths import LOGDIR
from tests.store_tools import cut_log, faults, observed, store_with

RECOVERY, HIGH, START = (
    f"{name}-checkpoint" for name in ("recovery-point-offset", "replication-offset", "log-start-offset")
)


store = store_with({"segment.bytes": "1000"})


@pytest.fixture
def always(monkeypatch):
    """Checkpoints are written whenever there is something to write."""
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)


def data(store, name=""):
    return Path(store.path, "data", name)


def append(store, count=1, topic="t"):
    for _ in range(count):
        store.append(topic, pa.record_batch({"value": [b"." * 200]}))


def roll(store, topic="t"):
    before = max(1, len(store.segment_files(topic, 0)))
    while len(store.segment_files(topic, 0)) <= before:
        append(store, topic=topic)


def offsets(store, topic="t"):
    """What the three checkpoints say of a partition."""
    found = (read_offsets(str(data(store, name))) for name in (RECOVERY, HIGH, START))
    return tuple(of.get(TopicPartition(topic, 0)) for of in found)


def reopen_after_power_loss(store, monkeypatch, boot):
    monkeypatch.setattr(state_file, "this_boot", lambda: boot)
    return Store.open(store.path)


# ---- in a partition's folder


def test_kafkas_own_batches_give_kafkas_files(tmp_path):
    """The golden folder: leader epoch 0, from offset 39 on 3; three segments."""
    store = Store.create(tmp_path / "store")
    store.create_topic("orders", 1, {"segment.bytes": "2000", "index.interval.bytes": "200", "retention.ms": "-1"})
    names = [f"{base:020d}.log" for base in (0, 31, 63)]
    log = b"".join((LOGDIR / "orders-0" / name).read_bytes() for name in names)
    with store.logs.writer("orders", 0).hold() as writer:
        for header in scan(log, 0, len(log)):
            if writer.state.next_offset == 39:
                lead(writer, 3)
            writer.append(bytearray(log[header.position : header.end]), sync=False)
        writer.log.close_segment(writer.log.segment, writer.state.position)
    for name in [*names, *(re.sub("log", suffix, n) for n in names for suffix in ("index", "timeindex"))]:
        assert data(store, f"orders-0/{name}").read_bytes() == (LOGDIR / "orders-0" / name).read_bytes(), name
    epochs = data(store, "orders-0/leader-epoch-checkpoint").read_bytes()
    assert epochs == (LOGDIR / "orders-0/leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n3 39\n"
    metadata = data(store, "orders-0/partition.metadata").read_bytes()
    kafkas = (LOGDIR / "orders-0/partition.metadata").read_bytes()
    assert metadata == kafkas[:-22] + store.describe_topic("orders").topic_id.encode()


def test_the_first_append_begins_epoch_0(store):
    append(store)
    assert data(store, "t-0/leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"


def test_a_power_loss_begins_an_incarnation_and_no_epoch(store, monkeypatch):
    append(store, 3)
    store.flush()
    for boot in (b"boot two", b"boot six"):
        store = reopen_after_power_loss(store, monkeypatch, boot)
        append(store)
        store.flush()
    assert store.logs.reader("t", 0).state().incarnation == 2
    assert data(store, "t-0/leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"
    log = b"".join(Path(path).read_bytes() for path in store.segment_files("t", 0))
    assert {header.leader_epoch for header in scan(log, 0, len(log))} == {0}


def test_a_truncation_begins_an_incarnation_and_takes_back_epochs(store):
    append(store, 3)
    with store.logs.writer("t", 0).hold() as writer:
        lead(writer, 2)
    append(store, 3)
    with store.logs.writer("t", 0).hold() as writer:
        truncate(writer.log, 2)
        state = writer.state
    assert (state.incarnation, state.truncations, state.leader_epoch) == (1, 1, 2)
    assert data(store, "t-0/leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n2 2\n"


def test_a_leader_that_has_no_record_yet_leaves_one_epoch(store):
    with store.logs.writer("t", 0).hold() as writer:
        lead(writer, 1)
    append(store)
    assert data(store, "t-0/leader-epoch-checkpoint").read_bytes() == b"0\n1\n1 0\n"


def test_epochs_follow_the_log_start(store):
    append(store, 3)
    with store.logs.writer("t", 0).hold() as writer:
        lead(writer, 1)
    append(store, 3)
    store.delete_records("t", 0, 2)
    assert data(store, "t-0/leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 2\n1 3\n"
    store.delete_records("t", 0, 5)
    assert data(store, "t-0/leader-epoch-checkpoint").read_bytes() == b"0\n1\n1 5\n"


def test_a_damaged_epoch_checkpoint_is_replaced(store, monkeypatch, caplog):
    append(store, 3)
    store.flush()
    data(store, "t-0/leader-epoch-checkpoint").write_bytes(b"0\n9\n")
    append(reopen_after_power_loss(store, monkeypatch, b"boot two"))
    assert data(store, "t-0/leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 3\n"
    assert "9 entries should follow" in caplog.text


# ---- in the folder of logs


def test_meta_properties_are_written_once(store):
    path = str(data(store, "meta.properties"))
    written = kafka_files.read_meta_properties(path)
    assert written == MetaProperties(store.cluster_id, 0, written.directory_id)
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", written.directory_id)
    append(Store.open(store.path))
    assert kafka_files.read_meta_properties(path) == written
    kafkas = kafka_files.read_meta_properties(str(LOGDIR / "meta.properties"))
    assert (kafkas.node_id, kafkas.directory_id) == (1, "ESIzRFVmd4iZqrvM3e7_AA")


def test_checkpoints_follow_each_roll(store, always):
    for _ in range(3):
        roll(store)
        base = int(Path(store.segment_files("t", 0)[-1]).stem)
        assert offsets(store) == (base, base, None)
    assert data(store, RECOVERY).read_bytes() == f"0\n1\nt 0 {base}\n".encode()
    assert data(store, START).read_bytes() == b"0\n0\n"


def test_a_flush_writes_all_checkpoints(store, always):
    roll(store)
    store.create_topic("u", 1)
    append(store, topic="u")
    end = store.latest_offset("t", 0)
    Store.open(store.path).flush()
    assert (offsets(store), offsets(store, "u")) == ((end, end, None), (1, 1, None))


def test_a_log_start_inside_of_a_segment_is_reported_until_the_segment_goes(store, always):
    append(store, 3)
    store.delete_records("t", 0, 2)
    assert offsets(store) == (3, 3, 2)
    roll(store)
    base = int(Path(store.segment_files("t", 0)[-1]).stem)
    store.delete_records("t", 0, base)
    assert offsets(store) == (store.latest_offset("t", 0), store.latest_offset("t", 0), None)


def test_a_truncation_takes_the_offsets_back(store, always):
    roll(store)
    cut_log(store, 2)
    assert offsets(store) == (2, 2, None)


@pytest.fixture
def written(store):
    """When the checkpoints were written, in ms since 1970: within that millisecond."""
    append(store)
    now = store.logs.clock()
    os.utime(data(store, HIGH), ns=(now * 1_000_000 + 999_999,) * 2)
    return now


def test_they_are_written_once_a_second_at_most(store, written):
    for age in (0, 999):
        store.logs.clock.read = lambda age=age: written + age
        roll(store)
        assert offsets(store) == (0, 0, None), age
    store.logs.clock.read = lambda: written + 1000
    roll(store)
    base = int(Path(store.segment_files("t", 0)[-1]).stem)
    assert offsets(store) == (base, base, None)


def test_a_clock_that_was_set_back_stops_no_writer(store, written):
    store.logs.clock.read = lambda: written - 1
    roll(store)
    assert offsets(store)[0] > 0


def test_no_writer_waits_for_their_lock_and_the_next_write_adds_what_is_missing(store, always):
    lock = lock_for(f"{store.path}/state/checkpoints.lock")
    append(store)
    lock.acquire()
    roll(store)
    lock.release()
    assert offsets(store) == (0, 0, None)
    store.create_topic("u", 1)
    append(store, topic="u")
    base = int(Path(store.segment_files("t", 0)[-1]).stem)
    assert offsets(store) == (base, store.latest_offset("t", 0), None)


def test_two_processes_lose_nothing_of_each_others(store, always):
    other = Store.open(store.path)
    other.create_topic("u", 1, {"segment.bytes": "1000"})
    for _ in range(2):
        roll(store)
        roll(other, "u")
    for topic in ("t", "u"):
        base = int(Path(store.segment_files(topic, 0)[-1]).stem)
        assert offsets(store, topic) == (base, base, None)


def test_deleted_topics_go_from_them(store, always):
    store.create_topic("u", 1)
    append(store, topic="u")
    append(store, 3)
    store.delete_records("t", 0, 2)
    store.delete_topic("t")
    store.flush()
    assert offsets(store) == (None, None, None)
    store.create_topic("t", 1)
    append(store)
    assert offsets(store) == (0, 0, None)


def test_a_topic_that_another_process_creates_again_gets_no_offsets_of_the_deleted_one(store, monkeypatch):
    other = Store.open(store.path)
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)
    append(store, 3)
    store.flush()
    monkeypatch.setattr(log_dirs, "INTERVAL", 3600)
    append(store, 4)
    store.flush()
    assert offsets(store) == (3, 3, None)  # 7 is noted, and not due.
    other.delete_topic("t")
    assert offsets(store) == (None, None, None)
    other.create_topic("t", 1)
    append(other)
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)
    store.close()
    assert offsets(store) == (None, None, None)
    assert not faults(store.path)
    other.close()
    assert offsets(store) == (1, 1, None)


def test_a_copy_that_has_replaced_the_store_keeps_its_offsets(store, monkeypatch, tmp_path):
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)
    append(store, 3)
    store.flush()
    shutil.copytree(store.path, tmp_path / "copy")
    monkeypatch.setattr(log_dirs, "INTERVAL", 3600)
    append(store, 4)
    store.flush()
    os.rename(store.path, tmp_path / "before")
    os.rename(tmp_path / "copy", store.path)
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)
    store.logs.write_checkpoints()
    assert offsets(store) == (3, 3, None)


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename"])
def test_no_append_fails_for_them(store, always, kind, caplog):
    append(store)

    def full(change):
        if change.kind == kind and os.path.dirname(change.path) == str(data(store)):
            raise OSError(errno.ENOSPC, "No space left on device")

    with observed(full):
        roll(store)
    assert "checkpoints could not be written" in caplog.text
    assert offsets(store) == (0, 0, None)
    append(store)
    store.flush()
    end = store.latest_offset("t", 0)
    assert offsets(store) == (end, end, None)


def test_a_damaged_checkpoint_is_replaced(store, always, caplog):
    append(store)
    data(store, RECOVERY).write_bytes(b"noise\n")
    store.flush()
    assert offsets(store) == (1, 1, None)
    assert "recovery-point-offset-checkpoint, line 1" in caplog.text


def test_a_folder_of_logs_holds_nothing_else(store, always):
    roll(store)
    store.append_batch("t", 0, ready(0, b"v"))
    roll(store)
    names = {path.name for path in data(store).iterdir()}
    assert names == {"t-0", "meta.properties", RECOVERY, HIGH, START}
    assert not any("cleanshutdown" in name for _, _, names in os.walk(store.path) for name in names)


def test_a_copy_of_the_folder_alone_reads_like_kafkas(store, always, tmp_path):
    """Without the store's own files a broker's rules hold: every side file is in its format."""
    roll(store)
    store.append_batch("t", 0, ready(0, b"v"))
    roll(store)
    copy = shutil.copytree(data(store), tmp_path / "copy")
    topic_id = kafka_files.read_partition_metadata(f"{copy}/t-0/partition.metadata")
    assert topic_id == store.describe_topic("t").topic_id
    known = re.compile(r"\d{20}\.(log|index|timeindex|snapshot)|leader-epoch-checkpoint|partition\.metadata")
    assert all(known.fullmatch(path.name) for path in (copy / "t-0").iterdir())
