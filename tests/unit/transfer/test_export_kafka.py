"""`export-kafka` gives a folder in Kafka's layout that has all of a topic, or it gives nothing."""

import errno
import json
import os
import shutil
import time
from pathlib import Path

import pytest
from broker_tools import mirrored
from click.testing import CliRunner
from damage import headers, rows
from leader_tools import lead
from producer_tools import end_transaction, ready

from pyspark_log.cli.main import main
from pyspark_log.errors import (
    CorruptRecordError,
    InvalidConfigError,
    InvalidTopicError,
    LogDamagedError,
    ReadOnlyError,
    StoreExistsError,
    StoreNotFoundError,
    UnknownTopicError,
)
from pyspark_log.replication import promote
from pyspark_log.storage.compaction.cleaner import compact
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.appending.replica import truncate
from pyspark_log.storage.maintenance.transfer.kafka_export import ExportedPartition, export_kafka
from pyspark_log.storage.segment import scanner
from pyspark_log.storage.store import Store
from tests.paths import KAFKA_JAVA
from tests.store_tools import cut_log, flip, new_store, observed

ID = "AAECAwQFBgcICQoLDA0ODw"
CONFIG = {"segment.bytes": "1500", "index.interval.bytes": "400", "retention.ms": "-1"}


@pytest.fixture
def store(tmp_path):
    """120 records in t-0, in many segments, and none in t-1."""
    store = new_store(tmp_path, CONFIG, partitions=2)
    append(store, 0, 120)
    return store


@pytest.fixture
def folder(tmp_path):
    """The target folder; there is nothing else beside it."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "kafka"


def append(store, first, count, time=1_000_000):
    for number in range(first, first + count, 3):
        store.append("t", rows(number, 3, time), partition=0)


def source(store, partition=0, topic="t"):
    return Path(store.path, "data", f"{topic}-{partition}")


def segments(folder):
    return sorted(folder.glob("*.log"))


def values(path, partition=0):
    """What is read at each offset."""
    return {row["offset"]: row for batch in Store.open(path).read("t", partition) for row in batch.to_pylist()}


def text(path):
    return path.read_text().splitlines()


def test_it_has_the_segments_of_the_store(store, folder):
    for number, file in enumerate(segments(source(store))):
        os.utime(file, ns=(0, 10**18 + number))
    exported = export_kafka(store, "t", folder, ID)
    ours, theirs = source(store), folder / "t-0"
    size = sum(file.stat().st_size for file in segments(ours))
    assert exported == [ExportedPartition(0, 0, 120, len(segments(ours)), size), ExportedPartition(1, 0, 0, 1, 0)]
    assert len(segments(ours)) > 3
    for file in sorted(ours.iterdir()):
        if file.name == "partition.metadata":
            assert text(theirs / file.name) == ["version: 0", f"topic_id: {ID}"]
        else:
            assert (theirs / file.name).read_bytes() == file.read_bytes(), file.name
            # A broker relies on it, too, where records have no times.
            assert file.suffix != ".log" or (theirs / file.name).stat().st_mtime_ns == file.stat().st_mtime_ns
    assert {file.name for file in theirs.iterdir()} == {file.name for file in ours.iterdir()}
    assert [file.stat().st_size for file in segments(folder / "t-1")] == [0]
    assert text(folder / "recovery-point-offset-checkpoint") == ["0", "2", "t 0 120", "t 1 0"]
    assert text(folder / "replication-offset-checkpoint") == ["0", "2", "t 0 120", "t 1 0"]
    assert text(folder / "log-start-offset-checkpoint") == ["0", "0"]
    assert os.listdir(folder.parent) == ["kafka"]


def test_bytes_beyond_the_log_end_are_not_copied(store, folder):
    expected = values(store.path)
    with open(segments(source(store))[-1], "ab") as file:
        file.write(bytes(1000))
    shutil.copy(segments(source(store))[0], source(store) / f"{500:020}.log")
    export_kafka(store, "t", folder, ID)
    assert [file.name for file in segments(folder / "t-0")] == [file.name for file in segments(source(store))[:-1]]
    assert values(folder) == expected


def test_a_log_start_within_a_segment_is_kept(store, folder):
    store.delete_records("t", 0, 50)
    expected = values(store.path)
    assert min(expected) == 50
    (exported, _) = export_kafka(store, "t", folder, ID)
    assert (exported.log_start, exported.log_end) == (50, 120)
    assert int(segments(folder / "t-0")[0].stem) < 50
    assert text(folder / "log-start-offset-checkpoint") == ["0", "1", "t 0 50"]
    assert text(folder / "t-0" / "leader-epoch-checkpoint") == ["0", "1", "0 50"]
    assert values(folder) == expected


def test_a_log_start_that_begins_a_segment_needs_no_checkpoint(store, folder):
    start = int(segments(source(store))[2].stem)
    store.delete_records("t", 0, start)
    (exported, _) = export_kafka(store, "t", folder, ID)
    assert exported.log_start == start == int(segments(folder / "t-0")[0].stem)
    assert text(folder / "log-start-offset-checkpoint") == ["0", "0"]


def test_a_log_without_records_continues_at_its_end(store, folder):
    store.delete_records("t", 0, 120)
    (exported, _) = export_kafka(store, "t", folder, ID)
    assert (exported.log_start, exported.log_end) == (120, 120)
    assert values(folder) == {}
    assert Store.open(folder).latest_offset("t", 0) == 120


def test_leader_epochs_are_those_of_a_new_cluster(store, folder):
    with store.logs.writer("t", 0).hold() as held:
        truncate(held.log, 60)
        lead(held, 1)
    append(store, 60, 9)
    expected = values(store.path)
    assert {header.leader_epoch for file in segments(source(store)) for header in headers(file)} == {0, 1}
    export_kafka(store, "t", folder, ID)
    assert {header.leader_epoch for file in segments(folder / "t-0") for header in headers(file)} == {0}
    assert text(folder / "t-0" / "leader-epoch-checkpoint") == ["0", "1", "0 0"]
    assert values(folder) == expected


def test_what_is_known_of_producers_is_there(store, folder):
    now = time.time_ns() // 1_000_000
    for sequence in range(60):
        store.append_batch("t", 0, ready(sequence, b"v" * 50, transactional=True, timestamp=now))
    end_transaction(store, False, timestamp=now)
    append(store, 0, 60)
    export_kafka(store, "t", folder, ID)
    beside = {file.name for suffix in ("snapshot", "txnindex") for file in source(store).glob(f"*.{suffix}")}
    assert len([name for name in beside if name.endswith(".snapshot")]) > 3
    assert len([name for name in beside if name.endswith(".txnindex")]) == 1
    for name in beside:
        assert (folder / "t-0" / name).read_bytes() == (source(store) / name).read_bytes()


@pytest.mark.parametrize(
    ("segment", "damage", "error"),
    [
        (1, lambda file: flip(file, 100), CorruptRecordError),
        (-1, lambda file: flip(file, 3), CorruptRecordError),
        (0, os.unlink, LogDamagedError),
        (2, os.unlink, LogDamagedError),
        (1, lambda file: os.truncate(file, headers(file)[-1].position), LogDamagedError),
        (-1, lambda file: os.truncate(file, headers(file)[-1].position), LogDamagedError),
        (-1, os.unlink, LogDamagedError),
    ],
)
def test_damage_is_reported_and_nothing_is_exported(store, folder, segment, damage, error):
    damage(segments(source(store))[segment])
    with pytest.raises(error, match=rf"^t-0: .*{source(store)}"):
        export_kafka(store, "t", folder, ID)
    assert os.listdir(folder.parent) == []


def test_it_goes_nowhere_but_to_a_new_folder_outside(store, folder):
    folder.mkdir()
    with pytest.raises(StoreExistsError, match="exists"):
        export_kafka(store, "t", folder, ID)
    for inside in (Path(store.path, "new"), Path(store.path, "data", "new")):
        with pytest.raises(StoreExistsError, match="outside"):
            export_kafka(store, "t", inside, ID)
        assert not inside.exists()
    with pytest.raises(StoreNotFoundError, match="above"):
        export_kafka(store, "t", folder / "a" / "b", ID)
    assert os.listdir(folder) == []


def test_what_cannot_be_exported_is_refused(store, folder):
    store.create_topic("__consumer_offsets", 1)
    for topic, topic_id, error in (
        ("missing", ID, UnknownTopicError),
        ("__consumer_offsets", ID, InvalidTopicError),
        ("t", "short", InvalidConfigError),
        ("t", ID[:-1] + "=", InvalidConfigError),
    ):
        with pytest.raises(error):
            export_kafka(store, topic, folder, topic_id)
    export_kafka(store, "t", folder, ID)
    with pytest.raises(ReadOnlyError):
        export_kafka(Store.open(folder), "t", folder.parent / "again", ID)
    assert os.listdir(folder.parent) == ["kafka"]


def while_exporting(store, folder, action, change="create", segment=3):
    """Exports, and has something happen when that segment is begun."""
    name = str(folder.parent)
    seen = []

    def observe(event):
        if event.kind == change and event.path.startswith(name) and event.path.endswith(".log"):
            seen.append(event.path)
            if len(seen) == segment:
                files.set_observer(None)
                action()

    with observed(observe):
        return export_kafka(store, "t", folder, ID)
        assert len(seen) >= segment


def test_others_may_write_meanwhile(store, folder):
    expected = values(store.path)
    while_exporting(store, folder, lambda: append(store, 120, 60))
    assert values(folder) == expected
    assert len(values(store.path)) == 180


def test_retention_may_take_segments_meanwhile(store, folder):
    while_exporting(store, folder, lambda: store.delete_records("t", 0, 100), segment=2)
    assert sorted(values(folder)) == list(range(100, 120))
    assert values(folder) == values(store.path)


@pytest.mark.parametrize("together", [False, True])
def test_a_cleaner_may_swap_segments_meanwhile(store, folder, together):
    """Also the segment that was active when it began. If several become one, it starts over."""
    before = values(store.path)

    def compacted():
        for number in range(0, 120, 3):  # the same keys once more
            store.append("t", rows(number, 3), partition=0)
        store.alter_configs("t", {"cleanup.policy": "compact", "segment.bytes": "1000000" if together else "1500"})
        list(compact(store.logs, "t"))

    while_exporting(store, folder, compacted, segment=2)
    found, now = values(folder), values(store.path)
    assert min(now) > 99
    if together:
        assert found == now
    else:
        assert found.keys() > {offset for offset in now if offset < 120} | set(range(33)) | set(range(99, 120))
        assert found == {offset: before[offset] for offset in found}


def test_the_log_may_be_moved_meanwhile(store, folder, tmp_path):
    store.add_log_dir(f"{tmp_path}/second")
    while_exporting(store, folder, lambda: store.move_partition("t", 0, f"{tmp_path}/second"), segment=2)
    assert values(folder) == values(store.path)


@pytest.mark.parametrize("offset", [6, 60])
def test_the_end_may_be_taken_back_meanwhile(store, folder, offset):
    """Also where others write until all segments begin and end where they did."""
    assert [int(file.stem) for file in segments(source(store))][1:3] == [33, 66]

    def take_back():
        cut_log(store, offset)
        append(store, offset, 60, time=2_000_000)

    while_exporting(store, folder, take_back)
    assert values(folder) == values(store.path)
    assert len(values(folder)) == offset + 60


def test_the_end_may_be_taken_back_within_the_segment_that_is_copied(store, folder, monkeypatch):
    monkeypatch.setattr(scanner, "WINDOW", 400)

    def take_back():
        cut_log(store, 102)
        append(store, 102, 18, time=2_000_000)

    # Three batches a write: four for each of the three segments of eleven, and then the first of the active one.
    while_exporting(store, folder, take_back, "write", 13)
    assert values(folder) == values(store.path)


def test_the_topic_may_be_deleted_meanwhile(store, folder):
    with pytest.raises(UnknownTopicError):
        while_exporting(store, folder, lambda: store.delete_topic("t"))
    assert os.listdir(folder.parent) == []


@pytest.mark.parametrize("change", ["create", "write", "sync"])
def test_a_full_disk_leaves_no_leftovers(store, folder, change):
    def fail():
        raise OSError(errno.ENOSPC, "no space left")

    with pytest.raises(OSError, match="no space left"):
        while_exporting(store, folder, fail, change)
    assert os.listdir(folder.parent) == []


@pytest.mark.parametrize(("magic", "name"), [(0, "01_none_basic"), (1, "02_gzip_basic")])
def test_older_formats_stay(tmp_path, store, folder, magic, name):
    golden = KAFKA_JAVA / f"magic{magic}" / f"{name}.json"
    (tmp_path / "broker" / "old-0").mkdir(parents=True)
    log = bytes.fromhex(json.loads(golden.read_text())["hex"])
    (tmp_path / "broker" / "old-0" / f"{500:020}.log").write_bytes(log)
    result = mirrored(store, tmp_path / "broker", "old")
    promote(store, *result)
    store.append("old", rows(0, 3))
    export_kafka(store, "old", folder, ID)
    (exported,) = segments(folder / "old-0")
    (ours,) = segments(source(store, topic="old"))
    assert exported.stat().st_size == ours.stat().st_size
    assert exported.read_bytes().startswith(log)


def test_progress_is_reported_in_bytes_of_segments(store, folder):
    told = []
    export_kafka(store, "t", folder, ID, progress=lambda done, total: told.append((done, total)))
    size = store.size("t", 0)
    assert told[-1] == (size, size)
    assert told == sorted(told)
    assert len(told) == len(segments(source(store)))


def test_the_command(store, folder):
    found = CliRunner().invoke(main, ["--store", store.path, "export-kafka", "t", str(folder), "--topic-id", ID])
    assert found.exit_code == 0
    lines = found.output.splitlines()
    assert lines[0].split() == ["PARTITION", "START", "END", "SEGMENTS", "SIZE"]
    assert [line.split()[:4] for line in lines[1:3]] == [
        ["0", "0", "120", str(len(segments(source(store))))],
        ["1", "0", "0", "1"],
    ]
    assert lines[3].endswith(f"into {folder}")
    again = CliRunner().invoke(main, ["--store", store.path, "export-kafka", "t", str(folder), "--topic-id", ID])
    assert again.exit_code == 1
    assert "[PYLOG_STORE_EXISTS]" in again.output
    without = CliRunner().invoke(main, ["--store", store.path, "export-kafka", "t", str(folder)])
    assert without.exit_code == 2
    arguments = ["--store", store.path, "export-kafka", "t", f"{folder}2", "--topic-id", ID, "--json"]
    first, second = json.loads(CliRunner().invoke(main, arguments).stdout)
    assert first.items() >= {"partition": 0, "log_start": 0, "log_end": 120}.items()
    assert first["bytes"] > 0
    assert (second["log_end"], second["segments"]) == (0, 1)
