"""Folders of a broker, and stores, are mirrored: the same records at the same offsets, once or all the time."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from broker_tools import ALL, T0, add, batch, high_watermark, mirrored, rows
from cli_tools import output, pylog
from producer_tools import end_transaction, ready

from pyspark_log import Store
from pyspark_log.errors import (
    CorruptRecordError,
    InvalidConfigError,
    OutOfOrderSequenceError,
    PartitionOwnedError,
    ReadOnlyError,
)
from pyspark_log.mirror import Mirror, MirrorPlan, open_folder
from pyspark_log.replication import DivergedError, LostRecordsError, ReplicationError
from pyspark_log.storage.catalog import kafka_files
from pyspark_log.storage.catalog.kafka_files import LOG_START
from pyspark_log.storage.log.appending.replica import truncate
from pyspark_log.storage.log.read.reader import LogReader
from pyspark_log.storage.segment.file_names import LOG, segment_path
from pyspark_log.types import READ_COMMITTED, TopicPartition
from tests.paths import LOGDIR
from tests.server_tools import PATIENCE
from tests.store_tools import damages, flip
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("prompt_checkpoints")


def contents(store, topic, partition=0):
    """The bytes of a partition's segments, in order."""
    return [Path(path).read_bytes() for path in store.segment_files(topic, partition)]


# ---- a broker's folder


def test_gaps_become_empty_batches(root, store):
    result = mirrored(store, root, "t")[T0]
    assert (result.error, result.log_start, result.end, result.missing) == (None, 0, 21, 14)
    assert result.bytes == Store.open(root).size("t", 0)
    assert rows(store) == ALL
    assert len(store.segment_files("t", 0)) == 3
    assert store.topic_config("t").retention_ms == -1
    assert damages(store.path) == []
    # What is set for the topic here stays, as the folder has no configs.
    store.alter_configs("t", {"retention.ms": "1000000000000"})
    add(root / "t-0", 20, batch(30, b"z"))
    assert mirrored(store, root, "t")[T0].begun_at == 21
    assert rows(store) == [*ALL, (30, b"z")]
    assert store.describe_topic("t").configs == {"retention.ms": "1000000000000"}


def test_a_folder_of_kafkas_log_code(store):
    source = Store.open(LOGDIR)
    mirrored(store, LOGDIR, "orders")
    for ours, theirs in zip(store.read("orders", 0, headers=True), source.read("orders", 0, headers=True), strict=True):
        assert ours.equals(theirs)
    assert damages(store.path) == []
    # The segments are cut where they were, and the batches are the same bytes.
    assert contents(store, "orders") == contents(source, "orders")
    epochs = f"{LOGDIR}/orders-0/leader-epoch-checkpoint"
    copy = f"{store.path}/data/orders-0/leader-epoch-checkpoint"
    assert kafka_files.read_epochs(copy) == kafka_files.read_epochs(epochs)
    assert store.describe_topic("orders").topic_id == source.describe_topic("orders").topic_id


def test_what_is_seen_is_what_comes(root, store):
    kafka_files.write_offsets(str(root / LOG_START), {T0: 3})
    high_watermark(root, 13)
    add(root / "t-2", 7, batch(7, b"seven"))
    (root / "t-1").mkdir()
    results = mirrored(store, root, "t")
    assert [(at.partition, one.log_start, one.end, one.error) for at, one in sorted(results.items())] == [
        (0, 3, 13, None), (1, 0, 0, None), (2, 7, 8, None),
    ]  # fmt: skip
    assert [rows(store, number) for number in range(3)] == [ALL[2:4], [], [(7, b"seven")]]
    assert damages(store.path) == []
    high_watermark(root, 21)
    mirrored(store, root, "t")
    assert rows(store) == ALL[2:]


def test_producers_and_transactions_continue(tmp_path, store):
    origin = Store.create(tmp_path / "origin")
    origin.create_topic("t", 1, {"segment.bytes": "500", "retention.ms": "-1"})
    for number in range(6):
        origin.append_batch("t", 0, ready(number, b"%d" % number * 50, producer=1, transactional=True))
        end_transaction(origin, number % 2 == 0, producer=1)
    origin.append_batch("t", 0, ready(0, b"open", producer=2, transactional=True))
    origin.append_batch("t", 0, ready(0, b"idempotent", producer=3))
    origin.close()
    shutil.copytree(tmp_path / "origin" / "data", tmp_path / "logs")
    done = pylog(store, "mirror", str(tmp_path / "logs"), "--topics", "t", "--until-now", "--promote")
    assert done.exit_code == 0, done.output
    assert "t-0 ends at offset 14, and is no mirror any more" in done.stdout
    assert "t-0: a transaction is open since offset 12, and no producer can end it here" in done.stderr
    assert rows(store) == rows(origin)
    assert contents(store, "t") == contents(origin, "t")
    committed = [part["value"].to_pylist() for part in store.read("t", 0, isolation_level=READ_COMMITTED)]
    assert [value for part in committed for value in part] == [b"0" * 50, b"2" * 50, b"4" * 50]
    assert store.append_batch("t", 0, ready(0, b"idempotent", producer=3)).duplicate
    with pytest.raises(OutOfOrderSequenceError):
        store.append_batch("t", 0, ready(7, b"x", producer=3))
    assert damages(store.path) == []


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("name", ["01_none_basic", "02_gzip_basic", "03_snappy_basic", "07_null_value_tombstone"])
def test_older_formats(tmp_path, store, magic, name):
    golden = LOGDIR.parent / f"magic{magic}" / f"{name}.json"
    add(tmp_path / "logs", 0, suffix=".none")
    add(tmp_path / "logs" / "t-0", 0, bytes.fromhex(json.loads(golden.read_text())["hex"]))
    end = Store.open(tmp_path / "logs").latest_offset("t", 0)
    add(tmp_path / "logs" / "t-0", 0, batch(end + 5, b"new"))
    source = Store.open(tmp_path / "logs")
    assert mirrored(store, tmp_path / "logs", "t")[T0].error is None
    assert rows(store) == rows(source)
    assert rows(store)[-1] == (end + 5, b"new")
    assert damages(store.path) == []


def test_damage_ends_the_mirror_of_its_partition(root, store):
    path = Path(segment_path(str(root / "t-0"), 10, LOG))
    flip(path, -1)
    add(root / "t-1", 0, batch(0, b"one"))
    results = mirrored(store, root, "t")
    error = results[T0].error
    assert isinstance(error, CorruptRecordError)
    place = (error.topic, error.partition, error.file, error.position, error.base_offset)
    assert place == ("t", 0, str(path), len(batch(12, b"m")), 15)
    assert "CRC" in str(error)
    assert results[TopicPartition("t", 1)].error is None
    # What is before it is there, and the mirror continues once it is repaired.
    assert rows(store) == ALL[:4]
    flip(path, -1)
    assert mirrored(store, root, "t")[T0].error is None
    assert rows(store) == ALL


def test_a_set_of_old_messages_that_is_damaged_ends_it_too(tmp_path, store):
    golden = LOGDIR.parent / "magic1" / "02_gzip_basic.json"
    data = bytes.fromhex(json.loads(golden.read_text())["hex"])
    add(tmp_path / "logs", 0, suffix=".none")
    add(tmp_path / "logs" / "t-0", 0, data[:-1] + bytes([data[-1] ^ 1]), batch(600, b"new"))
    error = mirrored(store, tmp_path / "logs", "t")[T0].error
    assert isinstance(error, CorruptRecordError)
    assert rows(store) == []


def test_all_topics_are_those_of_users(root, store):
    """Kafka's own are a list; two underscores in front make no topic one of them."""
    kafkas = (
        "__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata",
        "__remote_log_metadata",
    )  # fmt: skip
    for name in (*kafkas, "__mine", "__consumer_offsets.copy", "_schemas", "__pylog_publish"):
        add(root / f"{name}-0", 0, batch(0, b"x"))
    users = ["__consumer_offsets.copy", "__mine", "_schemas", "t"]
    assert Store.open(root).topics() == users
    output(store, "mirror", str(root), "--topics", ".*", "--until-now")
    assert store.topics() == store.topics(internal=True) == users
    assert [rows(store, topic=name) for name in ("__mine", "_schemas")] == [[(0, b"x")]] * 2


def test_what_is_refused(root, store, object_url):
    with pytest.raises(ReplicationError, match="no topic of such a name"):
        mirrored(store, root, "u")
    with pytest.raises(ReadOnlyError):
        mirrored(Store.open(root), LOGDIR, "orders")
    with pytest.raises(InvalidConfigError, match="is also the target"):
        open_folder(f"{store.path}/.", store)
    with pytest.raises(InvalidConfigError, match=r"no segment files.*use the job mirror"):
        open_folder(object_url, store)
    store.create_topic("t", 1)
    (result,) = mirrored(store, root, "t").values()
    assert "it is another topic" in str(result.error)


def test_the_command(root, tmp_path):
    add(root / "u-0", 0, batch(0, b"x"))
    new = tmp_path / "new"
    shown = output(new, "mirror", str(root), "--topics", "t", "--until-now")
    assert [line.split()[:4] for line in shown.splitlines()[-1:]] == [["t-0", "0", "0", "21"]]
    assert Store.open(new).topics() == ["t"]
    (document,) = json.loads(output(new, "mirror", str(root), "--topics", "u", "--until-now", "--json", "--promote"))
    assert document == {
        "topic": "u", "partition": 0, "begun_at": 0, "log_start": 0, "log_end": 1, "bytes": len(batch(0, b"x")),
        "missing": 0, "error": None,
    }  # fmt: skip
    Store.open(new).append("u", pa.record_batch({"value": [b"ours"]}))
    with pytest.raises(PartitionOwnedError):
        Store.open(new).append("t", pa.record_batch({"value": [b"ours"]}))
    assert "--promote ends a mirror" in pylog(new, "mirror", str(root), "--topics", "t", "--promote").stderr
    gone = pylog(new, "import-kafka", str(root))
    assert (gone.exit_code, "did you mean 'pylog mirror FOLDER" in gone.stderr) == (2, True)


def test_a_folder_that_is_missing(tmp_path):
    result = pylog(tmp_path / "new", "mirror", str(tmp_path / "none"), "--topics", "t")
    assert result.exit_code == 1
    assert f"there is no folder {tmp_path}/none: give a folder of a Kafka broker's log.dirs" in result.stderr


def merged(root):
    """A swap of the first two segments of `root`, as it is before the cleaner has put it in their place."""
    add(root / "t-0", 0, *(batch(offset, *values) for offset, *values in MERGED), suffix=".log.swap")


MERGED = [(0, b"a"), (2, b"c", b"d"), (12, b"m"), (15, b"p", b"q")]


def test_segments_that_the_cleaner_swaps_while_they_are_copied(root, store, monkeypatch):
    stored, reads = LogReader.stored_batches, []

    def swapped_after_the_first(self, *where):
        if reads == [0]:
            merged(root)
            for base in (0, 10):
                path = segment_path(str(root / "t-0"), base, LOG)
                os.rename(path, path + ".deleted")
            os.rename(segment_path(str(root / "t-0"), 0, ".log.swap"), segment_path(str(root / "t-0"), 0, LOG))
        reads.append(where[0])
        return stored(self, *where)

    monkeypatch.setattr(LogReader, "stored_batches", swapped_after_the_first)
    mirrored(store, root, "t")
    assert reads[:2] == [0, 4]
    assert rows(store) == ALL
    assert damages(store.path) == []


def test_a_swap_that_a_kill_has_left_halfway(root, store):
    merged(root)
    log = Path(segment_path(str(root / "t-0"), 0, LOG))
    log_gone = log.rename(f"{log}.deleted")
    source = Store.open(root)
    assert rows(source) == ALL
    assert source.size("t", 0) == sum(path.stat().st_size for path in (root / "t-0").glob("*.log*") if path != log_gone)
    mirrored(store, root, "t")
    assert rows(store) == ALL
    assert damages(store.path) == []


# ---- another store


@pytest.fixture
def origin(tmp_path):
    """A store with a topic of two partitions and small segments, of which the first has 100 batches."""
    with Store.create(tmp_path / "origin", {"log.segment.bytes": "4000"}) as origin:
        origin.create_topic("t", 2, {"retention.ms": "-1"})
        append(origin, 100)
        yield origin


def append(origin, count):
    for number in range(count):
        origin.append("t", pa.record_batch({"value": [b"%d" % number * 100]}), partition=0)


def test_a_store_has_its_configs_groups_and_bytes(origin, store):
    origin.groups["readers"].commit({T0: 25})
    mirrored(store, origin.path, "t", groups="^read")
    assert contents(store, "t") == contents(origin, "t")
    assert store.describe_topic("t").configs == {"retention.ms": "-1", "segment.bytes": "4000"}
    assert store.groups["readers"].committed()[T0].offset == 25
    origin.alter_configs("t", {"segment.bytes": "9000"})
    origin.delete_records("t", 0, 40)
    origin.groups["readers"].commit({T0: 77})
    append(origin, 100)
    result = mirrored(store, origin.path, "t", groups="^read")[T0]
    assert (result.begun_at, result.log_start, result.end) == (100, 40, 200)
    assert rows(store) == rows(origin)
    assert store.describe_topic("t").configs == {"retention.ms": "-1", "segment.bytes": "9000"}
    assert store.groups["readers"].committed()[T0].offset == 77
    assert damages(store.path) == []


def test_a_store_that_has_lost_or_replaced_records_is_reported(origin, store):
    mirrored(store, origin.path, "t")
    origin.delete_records("t", 0, 100)
    append(origin, 10)
    origin.delete_records("t", 0, 105)
    error = mirrored(store, origin.path, "t")[T0].error
    assert isinstance(error, LostRecordsError)
    assert "deleted offsets 100 to 104" in str(error)
    assert mirrored(store, origin.path, "t", skip_lost=True)[T0].end == 110
    with origin.logs.writer("t", 0).hold() as writer:
        truncate(writer.log, 107)
    assert isinstance(mirrored(store, origin.path, "t")[T0].error, DivergedError)
    assert mirrored(store, origin.path, "t", follow_truncation=True)[T0].end == 107
    origin.delete_topic("t")
    origin.create_topic("t", 1)
    (result,) = mirrored(store, origin.path, "t").values()
    assert "deleted and created again" in str(result.error)


# ---- all the time


@contextlib.contextmanager
def running(store, folder, *topics):
    """A mirror that runs until the end of this."""
    with contextlib.closing(open_folder(str(folder), store)) as source:
        run = Mirror(store, source, MirrorPlan([re.compile(topic) for topic in topics]))
        thread = threading.Thread(target=run.run)
        thread.start()
        try:
            yield run
        finally:
            run.stopping.set()
            thread.join(PATIENCE)
    assert not thread.is_alive()


def test_what_a_broker_appends_comes_at_once(root, store, monkeypatch):
    monkeypatch.setattr("pyspark_log.mirror.mirror._METADATA_INTERVAL", 0.05)
    with running(store, root, "[tu]"):
        wait_until(lambda: "t" in store.topics() and store.latest_offset("t", 0) == 21, "all is there")
        # Half a batch is no batch yet.
        data = batch(25, b"later")
        add(root / "t-0", 20, data[:-3])
        add(root / "u-0", 0, batch(0, b"new"))
        wait_until(lambda: "u" in store.topics() and store.latest_offset("u", 0) == 1, "the new topic is there")
        assert store.latest_offset("t", 0) == 21
        add(root / "t-0", 20, data[-3:])
        wait_until(lambda: store.latest_offset("t", 0) == 26, "the whole batch is there")
        # The broker rolls, and deletes the first segment.
        add(root / "t-0", 26, batch(26, b"rolled"))
        wait_until(lambda: store.latest_offset("t", 0) == 27, "the next segment is there")
        os.rename(segment_path(str(root / "t-0"), 0, LOG), segment_path(str(root / "t-0"), 0, LOG) + ".deleted")
        wait_until(lambda: store.earliest_offset("t", 0) == 10, "the log start follows")
    assert rows(store) == [*ALL[3:], (25, b"later"), (26, b"rolled")]


def test_a_mirror_that_is_killed_continues(origin, tmp_path):
    """It runs all the time, and is killed as soon as it has copied some of what comes meanwhile."""
    target = tmp_path / "target"
    call = [sys.executable, "-m", "pyspark_log.cli.main", "--store", str(target), "mirror", origin.path]
    call += ["--topics", "t", "--groups", "."]
    copied = 0
    for number in range(4):
        origin.groups["g"].commit({T0: origin.latest_offset("t", 0)})
        with open(tmp_path / f"log-{number}", "w") as log, subprocess.Popen(call, stderr=log) as process:
            wait_until(lambda copied=copied: copied_to(target) > copied, Path(log.name).read_text)
            append(origin, 200)
            process.send_signal(signal.SIGKILL)
        copied = copied_to(target)
    output(target, *call[5:], "--until-now")
    with Store.open(target) as store:
        assert contents(store, "t") == contents(origin, "t")
        assert store.groups["g"].committed()[T0].offset == origin.groups["g"].committed()[T0].offset
    assert damages(target) == []


def copied_to(target):
    """The log end of the copy."""
    if not (target / "store.json").exists():
        return 0
    with Store.open(target) as store:
        return store.latest_offset("t", 0) if "t" in store.topics() else 0
