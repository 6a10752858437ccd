"""What a server does for its store in the background."""

import pyarrow as pa
import pytest

from pyspark_log.server.network import Loop, Workers
from pyspark_log.server.served.folder import FolderLogs
from pyspark_log.server.served.servers import OnlyServer
from pyspark_log.server.upkeep import Upkeep
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.types import TopicPartition


@pytest.fixture
def store(tmp_path):
    return FolderStore.create(tmp_path / "store", {"offsets.retention.minutes": "1"})


@pytest.fixture
def upkeep(store):
    loop = Loop()
    workers = Workers(loop, 1)
    yield Upkeep(loop, workers, store, FolderLogs(store, workers, OnlyServer(1)))
    workers.close()
    loop.close()


def test_what_exceeds_retention_is_deleted(clock, store, upkeep, monkeypatch):
    store.create_topic("t", 1, {"retention.ms": "1000", "segment.ms": "1"})
    for _ in range(3):
        store.append("t", pa.record_batch({"value": [b"x"]}))
        clock.ms += 10
    store.groups["g"].commit({TopicPartition("t", 0): 1})
    upkeep.clean()
    assert (store.earliest_offset("t", 0), len(store.groups)) == (0, 1)
    clock.ms += 3_600_000
    # Of several servers the one that coordinates does it.
    monkeypatch.setattr(OnlyServer, "coordinates", False)
    upkeep.clean()
    assert store.earliest_offset("t", 0) == 0
    monkeypatch.setattr(OnlyServer, "coordinates", True)
    upkeep.clean()
    assert (store.earliest_offset("t", 0), len(store.groups)) == (3, 0)


def test_a_problem_of_one_does_not_stop_the_other(clock, store, upkeep, monkeypatch, caplog):
    def full():
        raise OSError("the disk is full")

    monkeypatch.setattr(store, "clean", full)
    store.create_topic("t", 1)
    store.groups["g"].commit({TopicPartition("t", 0): 1})
    clock.ms += 3_600_000
    upkeep.clean()
    assert len(store.groups) == 0
    assert "the disk is full" in caplog.text
