"""How large topics are and how fast they change: `du`, `topics describe --partitions`, `log-dirs describe`, `top`."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from cli_tools import output, pylog, records

from pyspark_log.cli.topics import top
from pyspark_log.cli.topics.top import GroupSnapshot, Snapshot, TopicSnapshot, document, take_snapshot, text
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition


@pytest.fixture
def store(tmp_path):
    """`big` has three segments in partition 1 and nothing in the others; `small` one record; `none` nothing."""
    store = Store.create(tmp_path / "store")
    store.create_topic("small", 1, {"retention.ms": "-1"})
    store.append("small", records(["k"], [b"v"]))
    store.create_topic("big", 3, {"segment.bytes": "300", "retention.ms": "-1"})
    for _ in range(3):
        store.append("big", records(["k"] * 2, [b"x" * 100] * 2), partition=1)
    store.create_topic("none", 2)
    return store


def rows(table):
    return [line.split() for line in table.splitlines()]


def size_of(store, topic):
    return sum(os.path.getsize(file) for n in store.written_partitions(topic) for file in store.segment_files(topic, n))


# --- du


def test_du_has_the_largest_first_and_a_total(store):
    big, small = size_of(store, "big"), size_of(store, "small")
    assert rows(output(store, "du")) == [
        ["TOPIC", "PARTITIONS", "WRITTEN", "SEGMENTS", "RECORDS", "SIZE"],
        ["big", "3", "1", "3", "6", str(big), "B"],
        ["small", "1", "1", "1", "1", str(small), "B"],
        ["none", "2", "0", "0", "0", "0", "B"],
        ["total", "6", "2", "4", "7", str(big + small), "B"],
    ]
    assert [row[0] for row in rows(output(store, "du", "--sort", "name"))[1:]] == ["big", "none", "small", "total"]
    assert json.loads(output(store, "du", "small", "none", "--json")) == {
        "topics": [
            {"topic": "small", "partitions": 1, "written": 1, "segments": 1, "records": 1, "bytes": small},
            {"topic": "none", "partitions": 2, "written": 0, "segments": 0, "records": 0, "bytes": 0},
        ],
        "segments": 1,
        "records": 1,
        "bytes": small,
    }


def test_du_of_partitions(store):
    store.append("big", records(["k"] * 20, [b""] * 20), partition=0)
    found = json.loads(output(store, "du", "big", "--partitions", "--json"))["topics"]
    assert {(row["partition"], row["records"]) for row in found} == {(0, 20), (1, 6)}
    assert [row["bytes"] for row in found] == sorted((row["bytes"] for row in found), reverse=True)
    by_records = output(store, "du", "big", "--partitions", "--sort", "records")
    assert [row[:2] for row in rows(by_records)] == [["TOPIC", "PARTITION"], ["big", "0"], ["big", "1"], ["total", "-"]]


def test_du_of_a_topic_that_is_not_there(store):
    assert pylog(store, "du", "nothing").exit_code == 1


def test_du_of_the_stores_own_topics(store):
    OffsetsLog(store).commit("g", {TopicPartition("small", 0): 1})
    assert "__consumer_offsets" not in output(store, "du")
    assert "__consumer_offsets" in output(store, "du", "--internal")


# --- partitions and log dirs


def test_the_partitions_of_a_topic(store):
    store.delete_records("big", 1, 2)
    table = rows(output(store, "topics", "describe", "big", "--partitions"))
    assert table[0] == [
        "TOPIC", "PARTITION", "LEADER-EPOCH", "LOG-START", "LOG-END", "HIGH-WATERMARK", "LAST-STABLE", "SEGMENTS",
        "SIZE", "LOG-DIR", "STATE",
    ]  # fmt: skip
    size = store.size("big", 1)
    assert table[1] == ["big", "0", "0", "0", "0", "0", "0", "0", "0", "B", "-", "empty"]
    segments = 2  # The first of three is below the log start.
    assert table[2] == [
        "big", "1", "0", "2", "6", "6", "6", str(segments), str(size), "B", f"{store.path}/data", "online",
    ]  # fmt: skip
    found = json.loads(output(store, "topics", "describe", "big", "--partitions", "--json"))
    assert found[1] == {
        "topic": "big", "partition": 1, "problem": None, "log_dir": f"{store.path}/data", "leader_epoch": 0,
        "log_start": 2, "log_end": 6, "high_watermark": 6, "last_stable_offset": 6, "segments": segments, "size": size,
        "state": "online",
    }  # fmt: skip


def test_a_partition_that_cannot_be_looked_at(store):
    """The others are shown all the same."""
    shutil.rmtree(f"{store.path}/data/small-0")
    (small,) = json.loads(output(store, "topics", "describe", "small", "--partitions", "--json"))
    assert (small["state"], small["log_end"], "small-0" in small["problem"]) == ("offline", None, True)
    assert output(store, "topics", "describe", "--partitions").count(" online") == 1
    result = pylog(store, "du")
    assert (result.exit_code, result.stderr.startswith("Warning: small-0 is left out: ")) == (0, True)
    assert rows(result.stdout)[-1][:5] == ["total", "6", "1", "3", "6"]


def test_the_partitions_of_log_dirs(store):
    folder = f"{store.path}/data"
    assert rows(output(store, "log-dirs", "describe")) == [
        ["FOLDER", "TOPIC", "PARTITION", "SIZE"],
        [folder, "big", "1", str(store.size("big", 1)), "B"],
        [folder, "small", "0", str(store.size("small", 0)), "B"],
    ]
    assert json.loads(output(store, "log-dirs", "describe", "small", "--json")) == [
        {"path": folder, "topic": "small", "partition": 0, "size": store.size("small", 0)}
    ]
    assert pylog(store, "log-dirs", "describe", "nothing").exit_code == 1


# --- top


def test_the_rates_between_two_snapshots():
    before = Snapshot(
        10.0,
        {"t": TopicSnapshot(2, 0, 100, 1000)},
        {("g", "t"): GroupSnapshot(20, 80), ("h", "t"): GroupSnapshot(0, 0)},
    )
    now = Snapshot(
        12.0,
        {"t": TopicSnapshot(2, 50, 200, 500), "new": TopicSnapshot(1, 0, 7, 70)},
        {("g", "t"): GroupSnapshot(140, 60), ("h", "t"): GroupSnapshot(50, 150), ("i", "t"): GroupSnapshot(200, 0)},
    )
    found = document(before, now)
    assert found["topics"] == [
        # Retention has deleted more than was written.
        {"topic": "t", "partitions": 2, "records": 150, "bytes": 500, "records_per_second": 50.0,
         "bytes_per_second": 0.0},
        {"topic": "new", "partitions": 1, "records": 7, "bytes": 70, "records_per_second": 0.0,
         "bytes_per_second": 0.0},
    ]  # fmt: skip
    assert found["groups"] == [
        {"group": "g", "topic": "t", "lag": 60, "records_per_second": 60.0, "seconds_to_end": 6.0},
        {"group": "h", "topic": "t", "lag": 150, "records_per_second": 25.0, "seconds_to_end": None},
        {"group": "i", "topic": "t", "lag": 0, "records_per_second": 0.0, "seconds_to_end": 0.0},
    ]
    shown = rows(text(found))
    assert shown[1] == ["t", "2", "150", "500", "B", "50", "0", "B"]
    assert shown[-3:-1] == [["g", "t", "60", "60", "6", "s"], ["h", "t", "150", "25", "-"]]


def test_a_look_at_a_store(store):
    log = OffsetsLog(store)
    log.commit("g", {TopicPartition("big", 1): 4, TopicPartition("small", 0): 1, TopicPartition("gone", 0): 9})
    found = take_snapshot(store, log, [])
    assert found.topics == {
        "big": TopicSnapshot(3, 0, 6, store.size("big", 1)),
        "none": TopicSnapshot(2, 0, 0, 0),
        "small": TopicSnapshot(1, 0, 1, store.size("small", 0)),
    }
    assert found.groups == {("g", "big"): GroupSnapshot(4, 2), ("g", "small"): GroupSnapshot(1, 0)}
    assert take_snapshot(store, log, ["small"]).groups == {("g", "small"): GroupSnapshot(1, 0)}


def test_top_looks_twice(store, monkeypatch):
    """What is written between the two snapshots is the rate."""
    monkeypatch.setattr(top.time, "sleep", lambda _: store.append("small", records(["a"] * 5, [b"v"] * 5)))
    found = json.loads(output(store, "top", "small", "--json"))
    assert [one["topic"] for one in found["topics"]] == ["small"]
    assert found["topics"][0]["records"] == 6
    assert found["topics"][0]["records_per_second"] > 0
    assert rows(output(store, "top", "--once"))[0][:2] == ["TOPIC", "PARTITIONS"]


def test_top_needs_a_terminal_and_topics(store):
    result = pylog(store, "top")
    assert (result.exit_code, "needs a terminal" in result.stderr) == (2, True)
    assert pylog(store, "top", "nothing", "--once").exit_code == 1
