"""Topics of brokers' folders are copied into a store, as they are and as a whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from broker_tools import ALL, T0, add, batch, high_watermark, rows, tree
from click.testing import CliRunner
from producer_tools import end_transaction, ready

from pyspark_log import Store
from pyspark_log.cli.main import main
from pyspark_log.errors import (
    CorruptRecordError,
    InvalidConfigError,
    InvalidTopicError,
    OutOfOrderSequenceError,
    ReadOnlyError,
    TopicExistsError,
    UnknownTopicError,
)
from pyspark_log.storage.catalog import kafka_files
from pyspark_log.storage.catalog.kafka_files import LOG_START
from pyspark_log.storage.log.read.reader import LogReader
from pyspark_log.storage.maintenance.transfer.kafka_import import import_kafka
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.segment.file_names import LOG, segment_path
from pyspark_log.types import READ_COMMITTED
from tests.paths import LOGDIR
from tests.stops import StopBefore, run_until
from tests.store_tools import flip

pytestmark = pytest.mark.usefixtures("prompt_checkpoints")


def is_sound(store):
    report = verify(store.path)
    assert [finding for finding in report.findings if finding.severity is not Severity.NOTE] == []
    return [finding.file for finding in report.findings]


def test_gaps_become_empty_batches(root, store):
    told = []
    logs = sorted((root / "t-0").glob("*.log"))
    for number, file in enumerate(logs):
        os.utime(file, ns=(0, 10**18 + number))
    source = Store.open(root)
    (one,) = import_kafka(store, source, "t", progress=lambda done, total: told.append((done, total)))
    assert (one.at, one.log_start, one.log_end, one.batches) == (T0, 0, 21, 5)
    assert one.bytes == source.size("t", 0) == told[-1][0] == told[-1][1]
    assert rows(store) == ALL
    copied = [Path(file).stat().st_mtime_ns for file in store.segment_files("t", 0)]
    assert copied == [file.stat().st_mtime_ns for file in logs]
    assert store.topic_config("t").retention_ms == -1
    assert is_sound(store) == []
    # It is a topic like any other.
    store.append("t", pa.record_batch({"value": [b"next"]}))
    assert rows(Store.open(store.path))[-1] == (21, b"next")
    assert store.offset_for_timestamp("t", 0, 0).offset == 0


def test_a_folder_of_kafkas_log_code(store):
    source = Store.open(LOGDIR)
    import_kafka(store, source, "orders", {"segment.bytes": "2000"})
    for one, other in zip(store.read("orders", 0, headers=True), source.read("orders", 0, headers=True), strict=True):
        assert one.equals(other)
    assert is_sound(store) == []
    # The segments are cut where they were, and the batches are the same bytes.
    copied = [Path(path).read_bytes() for path in store.segment_files("orders", 0)]
    assert copied == [Path(path).read_bytes() for path in source.segment_files("orders", 0)]
    epochs = f"{LOGDIR}/orders-0/leader-epoch-checkpoint"
    copy = f"{store.path}/data/orders-0/leader-epoch-checkpoint"
    assert kafka_files.read_epochs(copy) == kafka_files.read_epochs(epochs)


def test_what_is_seen_is_what_comes(root, store):
    kafka_files.write_offsets(str(root / LOG_START), {T0: 3})
    high_watermark(root, 14)
    add(root / "t-2", 7, batch(7, b"seven"))
    (root / "t-1").mkdir()
    found = import_kafka(store, Store.open(root), "t")
    assert [(one.at.partition, one.log_start, one.log_end) for one in found] == [(0, 3, 14), (2, 7, 8)]
    assert [rows(store, number) for number in range(3)] == [ALL[2:4], [], [(7, b"seven")]]
    assert is_sound(store) == []
    store.append("t", pa.record_batch({"value": [b"n"]}), partition=0)
    store.append("t", pa.record_batch({"value": [b"e"]}), partition=1)
    assert (rows(store)[-1], rows(store, 1)) == ((14, b"n"), [(0, b"e")])


def test_producers_and_transactions_continue(tmp_path, store):
    origin = Store.create(tmp_path / "origin")
    origin.create_topic("t", 1, {"segment.bytes": "500", "retention.ms": "-1"})

    def end(commit, producer):
        end_transaction(origin, commit, producer=producer)

    for number in range(6):
        origin.append_batch("t", 0, ready(number, b"%d" % number * 50, producer=1, transactional=True))
        end(number % 2 == 0, 1)
    origin.append_batch("t", 0, ready(0, b"open", producer=2, transactional=True))
    origin.append_batch("t", 0, ready(0, b"idempotent", producer=3))
    origin.close()
    shutil.copytree(tmp_path / "origin" / "data", tmp_path / "logs")
    (one,) = import_kafka(store, Store.open(tmp_path / "logs"), "t", {"segment.bytes": "700"})
    assert (one.last_stable_offset, one.log_end) == (12, 14)
    assert rows(store) == rows(origin)
    committed = [part["value"].to_pylist() for part in store.read("t", 0, isolation_level=READ_COMMITTED)]
    assert [value for part in committed for value in part] == [b"0" * 50, b"2" * 50, b"4" * 50]
    assert store.append_batch("t", 0, ready(0, b"idempotent", producer=3)).duplicate
    with pytest.raises(OutOfOrderSequenceError):
        store.append_batch("t", 0, ready(7, b"x", producer=3))
    assert is_sound(store) == []


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("name", ["01_none_basic", "02_gzip_basic", "03_snappy_basic", "07_null_value_tombstone"])
def test_older_formats(tmp_path, store, magic, name):
    golden = LOGDIR.parent / f"magic{magic}" / f"{name}.json"
    data = bytes.fromhex(json.loads(golden.read_text())["hex"])
    add(tmp_path / "logs", 0, suffix=".none")
    add(tmp_path / "logs" / "t-0", 0, data)
    end = Store.open(tmp_path / "logs").latest_offset("t", 0)
    add(tmp_path / "logs" / "t-0", 0, batch(end + 5, b"new"))
    source = Store.open(tmp_path / "logs")
    import_kafka(store, source, "t")
    assert rows(store) == rows(source)
    assert rows(store)[-1] == (end + 5, b"new")
    assert is_sound(store) == []


def test_damage_ends_the_import_and_changes_nothing(root, store):
    path = Path(store_file(root, 10))
    flip(path, -1)
    store.create_topic("other", 1)
    before = {path for path in tree(Path(store.path)) if "meta.properties" not in path.name}
    with pytest.raises(CorruptRecordError, match=rf"{path.name}.*CRC") as caught:
        import_kafka(store, Store.open(root), "t")
    assert (caught.value.topic, caught.value.partition, caught.value.position) == ("t", 0, len(batch(12, b"m")))
    assert store.topics() == ["other"]
    left = {path for path in tree(Path(store.path)) if "meta.properties" not in path.name}
    assert left - before <= {Path(store.path) / "data", Path(store.path) / "state"}


def store_file(root, base):
    return root / "t-0" / f"{base:020d}.log"


def test_all_topics_are_those_of_users(root, store):
    """Kafka's own are a list; two underscores in front make no topic one of them."""
    kafkas = (
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__cluster_metadata",
        "__remote_log_metadata",
    )
    for name in (*kafkas, "__mine", "__consumer_offsets.copy", "_schemas", "__pylog_publish"):
        add(root / f"{name}-0", 0, batch(0, b"x"))
    assert Store.open(root).topics() == ["__consumer_offsets.copy", "__mine", "_schemas", "t"]
    result = CliRunner().invoke(main, ["--store", store.path, "import-kafka", str(root)])
    assert result.exit_code == 0, result.output
    assert store.topics() == store.topics(internal=True) == ["__consumer_offsets.copy", "__mine", "_schemas", "t"]
    assert [rows(store, topic=name) for name in ("__mine", "_schemas")] == [[(0, b"x")]] * 2
    produce = [sys.executable, "-m", "pyspark_log.cli.main", "--store", store.path, "produce", "__mine"]
    subprocess.run(produce, input=b"more\n", check=True, timeout=120)
    assert rows(store, topic="__mine") == [(0, b"x"), (1, b"more")]
    for name in ("__consumer_offsets", "__pylog_publish"):
        assert CliRunner().invoke(main, ["--store", store.path, "produce", name], input="x\n").exit_code == 2


def test_what_is_refused(root, store, tmp_path):
    source = Store.open(root)
    add(root / "__consumer_offsets-0", 0, batch(0, b"x"))
    with pytest.raises(InvalidTopicError):
        import_kafka(store, source, "__consumer_offsets")
    with pytest.raises(UnknownTopicError):
        import_kafka(store, source, "u")
    with pytest.raises(InvalidConfigError, match=r"segment\.bytes"):
        import_kafka(store, source, "t", {"segment.bytes": "x"})
    with pytest.raises(InvalidConfigError, match="not a folder of a Kafka broker"):
        import_kafka(store, store, "t")
    with pytest.raises(ReadOnlyError):
        import_kafka(source, source, "t")
    import_kafka(store, source, "t")
    with pytest.raises(TopicExistsError):
        import_kafka(store, source, "t")
    assert rows(store) == ALL


@pytest.mark.slow
def test_a_topic_comes_whole_or_not_at_all(root, tmp_path):
    """Stopped before each change to files; the next import finds the topic or can import it."""
    add(root / "t-1", 0, batch(0, b"one"))
    stop, seen = 0, set()
    while True:
        store = Store.create(tmp_path / f"store-{stop}")
        configs = {"file.delete.delay.ms": "0"}
        if not run_until(partial(import_kafka, store, Store.open(root), "t", configs), StopBefore(stop)):
            break
        there = "t" in Store.open(store.path).topics()
        seen.add(there)
        fresh = Store.open(store.path)
        if there:
            fresh.clean()
        else:
            import_kafka(fresh, Store.open(root), "t")
        assert (rows(fresh), rows(fresh, 1)) == (ALL, [(0, b"one")])
        fresh.clean()
        assert (rows(Store.open(store.path)), rows(Store.open(store.path), 1)) == (ALL, [(0, b"one")])
        stop += 1
    assert seen == {True, False}
    assert stop > 30


def test_the_command(root, tmp_path):
    add(root / "u-0", 0, batch(0, b"x"))

    def run(*arguments):
        return CliRunner().invoke(main, ["--store", str(tmp_path / "new"), "import-kafka", str(root), *arguments])

    result = run("--topic", "t", "--config", "segment.bytes=1000000")
    assert result.exit_code == 0, result.output
    assert [line.split()[:4] for line in result.output.splitlines()[-1:]] == [["t-0", "0", "21", "5"]]
    assert run().exit_code == 1
    assert Store.open(tmp_path / "new").topics() == ["t"]
    # A missing name is seen before anything is copied; after a failed one, the topics that are there are listed.
    assert run("--topic", "u", "--topic", "nope").exit_code == 1
    assert Store.open(tmp_path / "new").topics() == ["t"]
    result = run("--topic", "u", "--topic", "t")
    assert (result.exit_code, "PYLOG_TOPIC_EXISTS" in result.stderr) == (1, True)
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["PARTITION", "u-0"]
    Store.open(tmp_path / "new").delete_topic("u")
    result = run("--topic", "u", "--topic", "t", "--json")
    (found,) = json.loads(result.stdout)
    assert found == {
        "topic": "u",
        "partition": 0,
        "log_start": 0,
        "log_end": 1,
        "last_stable_offset": 1,
        "batches": 1,
        "bytes": len(batch(0, b"x")),
    }
    assert (result.exit_code, "PYLOG_TOPIC_EXISTS" in result.stderr) == (1, True)
    assert rows(Store.open(tmp_path / "new"), topic="u") == [(0, b"x")]


def test_a_folder_that_is_missing(tmp_path):
    words = ["--store", str(tmp_path / "new"), "import-kafka", str(tmp_path / "none")]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.output) == (
        1,
        f"Error: there is no folder {tmp_path}/none: give a folder of a Kafka broker's log.dirs, or a copy of one\n",
    )
    assert not (tmp_path / "new").exists()


def merged(root):
    """A swap of the first two segments of `root`, as it is before the cleaner has put it in their place."""
    add(root / "t-0", 0, *(batch(offset, *values) for offset, *values in MERGED), suffix=".log.swap")


MERGED = [(0, b"a"), (2, b"c", b"d"), (12, b"m"), (15, b"p", b"q")]


def test_segments_that_the_cleaner_swaps_while_they_are_copied(root, store, monkeypatch):
    opened = LogReader.opened

    def swapped_behind_the_first(self, state):
        for number, segment in enumerate(opened(self, state)):
            yield segment
            if number == 0:
                merged(root)
                for base in (0, 10):
                    path = segment_path(str(root / "t-0"), base, LOG)
                    os.rename(path, path + ".deleted")
                os.rename(segment_path(str(root / "t-0"), 0, ".log.swap"), segment_path(str(root / "t-0"), 0, LOG))

    monkeypatch.setattr(LogReader, "opened", swapped_behind_the_first)
    import_kafka(store, Store.open(root), "t")
    assert rows(store) == ALL
    assert is_sound(store) == []


def test_a_swap_that_a_kill_has_left_halfway(root, store):
    merged(root)
    log = Path(segment_path(str(root / "t-0"), 0, LOG))
    log_gone = log.rename(f"{log}.deleted")
    source = Store.open(root)
    assert rows(source) == ALL
    assert source.size("t", 0) == sum(path.stat().st_size for path in (root / "t-0").glob("*.log*") if path != log_gone)
    import_kafka(store, source, "t")
    assert rows(store) == ALL
    assert is_sound(store) == []


def test_the_longest_name(root, store):
    name = "n" * 240
    (root / "t-0").rename(root / f"{name}-0")
    import_kafka(store, Store.open(root), name)
    assert rows(store, topic=name) == ALL
