"""Processes of the jobs that maintain a store are killed; they are started again, while records come."""

import itertools
import random
from pathlib import Path

import job_kills
import pyarrow as pa
from job_kills import kill_at_random
from job_tools import Job, fill, rows_of

from pyspark_log import Store
from tests.store_tools import faults

PARTITIONS = 12

pytestmark = job_kills.MARKS


def test_the_last_value_of_each_key_stays(cluster, tmp_path):
    """Slowed down, so that a kill finds a cleaner at work. Some keys are deleted."""
    store = Store.create(tmp_path / "store", {"log.cleaner.io.max.bytes.per.second": "200000"})
    store.create_topic("t", PARTITIONS, {
        "cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    })  # fmt: skip
    last, rounds, chance = [{} for _ in range(PARTITIONS)], itertools.count(), random.Random(7)

    def feed(_):
        number = next(rounds)
        for partition, known in enumerate(last):
            for part in range(20):
                keys = [b"%d" % chance.randrange(300) for _ in range(40)]
                values = [None if chance.random() < 0.1 else b"%d %d " % (number, part) * 12 for _ in keys]
                batch = pa.record_batch({"key": keys, "value": pa.array(values, pa.binary())})
                store.append("t", batch, partition=partition)
                known.update(zip(keys, values, strict=True))

    kill_at_random(cluster, tmp_path / "log", ("compact", store.path), feed, seed=7)
    for partition, known in enumerate(last):
        rows = [row for batch in store.read("t", partition) for row in batch.to_pylist()]
        found = {row["key"]: row["value"] for row in rows}
        assert {key: value for key, value in found.items() if value is not None} == {
            key: value for key, value in known.items() if value is not None
        }
        active = store.segment_files("t", partition)[-1]
        cleaned = [row["key"] for row in rows if row["offset"] < int(Path(active).stem)]
        assert len(cleaned) == len(set(cleaned))
    assert faults(store.path) == []


def test_only_what_retention_keeps_stays(cluster, store, tmp_path):
    """A segment has one record, of which retention keeps the last two. Topics are deleted, too."""
    configs = {"segment.bytes": "1000", "retention.ms": "-1", "retention.bytes": "1000", "file.delete.delay.ms": "0"}
    store.create_topic("t", PARTITIONS, configs)
    store.create_topic("all", PARTITIONS, {"segment.bytes": "1000", "retention.ms": "-1"})
    written, rounds = [[] for _ in range(PARTITIONS)], itertools.count()

    def feed(_):
        number = next(rounds)
        store.create_topic(f"gone{number}", 1, configs)
        for partition, values in enumerate(written):
            for part in range(15):
                value = (b"%d %d " % (number, part)).ljust(900, b".")
                for topic in ("t", "all"):
                    store.append(topic, pa.record_batch({"value": [value]}), partition=partition)
                values.append(value)
        store.append(f"gone{number}", pa.record_batch({"value": [b"x" * 900] * 3}))
        store.delete_topic(f"gone{number}")

    kill_at_random(cluster, tmp_path / "log", ("retention", store.path), feed, seed=8)
    for partition, values in enumerate(written):
        end = len(values)
        assert (store.earliest_offset("t", partition), store.latest_offset("t", partition)) == (end - 2, end)
        assert values_of(store, "t", partition) == values[-2:]
        assert (store.earliest_offset("all", partition), store.latest_offset("all", partition)) == (0, end)
        assert values_of(store, "all", partition) == values
    assert list(Path(store.path).glob("topics/deleted/*")) == []
    assert list(Path(store.path).glob("data/gone*")) == []
    assert faults(store.path) == []


def values_of(store, topic, partition):
    return [value for batch in store.read(topic, partition) for value in batch["value"].to_pylist()]


def test_verify_finds_what_there_is(cluster, store, tmp_path):
    """No damage; and then that in one partition. It changes nothing."""

    def feed(_):
        fill(store, "t", 4 * PARTITIONS, 3000)

    kill_at_random(cluster, tmp_path / "log", ("verify", store.path), feed, seed=9)
    rows, ends = rows_of(store, "t"), store.topic("t").latest_offsets()
    assert [row[1:3] for row in rows] == [(number, at) for number, end in ends.items() for at in range(end)]
    assert verified(cluster, store, tmp_path / "whole") == (0, False)
    first = Path(store.segment_files("t", 5)[0])
    first.write_bytes(first.read_bytes()[:100] + b"damage" + first.read_bytes()[106:])
    assert verified(cluster, store, tmp_path / "damaged") == (1, True)


def verified(cluster, store, log):
    """Its exit code, and whether it says that there is damage."""
    with Job(log, cluster.master, "verify", store.path) as job:
        code = job.wait()
    return code, "DAMAGED: " in log.read_text()
