"""More partitions and other settings for a topic, and deleted records, while others read and write."""

import threading

from pyspark_log.errors import OffsetOutOfRangeError
from pyspark_log.storage.store import Store
from tests.store_tools import new_store, rows, store_with

store = store_with(partitions=2, configs={"retention.ms": "-1"})


def values(store, partition=0, topic="t"):
    store = Store.open(store.path)
    return [value for batch in store.read(topic, partition) for value in batch["value"].to_pylist()]


# ---- partitions


# ---- settings


def test_settings_are_changed_and_go_back_to_the_stores(tmp_path):
    store = Store.create(tmp_path / "other", {"log.segment.bytes": "2000", "log.retention.ms": "-1"})
    store.create_topic("t", 1)
    other = Store.open(store.path)
    for number in range(10):
        other.append("t", rows(b"%d" % number + b"." * 300))
    assert len(other.segment_files("t", 0)) == 2
    assert store.alter_configs("t", {"segment.bytes": "500", "index.interval.bytes": "1"}).configs == {
        "segment.bytes": "500",
        "index.interval.bytes": "1",
    }
    other.append("t", rows(b"x" * 300))
    other.append("t", rows(b"x" * 300))
    assert len(other.segment_files("t", 0)) == 4
    store.alter_configs("t", {"retention.bytes": "9"}, delete=["segment.bytes", "segment.ms"])
    assert other.topic_config("t").segment_bytes == 2000
    assert dict(other.describe_topic("t").configs) == {"index.interval.bytes": "1", "retention.bytes": "9"}


# ---- deletion


def test_readers_and_a_cleaner_at_the_same_time(tmp_path):
    """A reader that follows the log while segments go sees dense offsets, or learns where the log starts."""
    store = new_store(tmp_path, {"segment.bytes": "600", "retention.bytes": "2000", "file.delete.delay.ms": "0"})
    stop = threading.Event()

    def follow():
        mine, position = Store.open(store.path), 0
        while not stop.is_set():
            try:
                for batch in mine.read("t", 0, position, max_bytes=100):
                    offsets = batch["offset"].to_pylist()
                    assert offsets == list(range(position, position + len(offsets)))
                    position += len(offsets)
                assert mine.size("t", 0) >= 0
                mine.offset_for_timestamp("t", 0, 0)
            except OffsetOutOfRangeError as error:
                position = max(error.log_start, position + 1)

    readers = [threading.Thread(target=follow) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(400):
        store.append("t", rows(b"%d" % number + b"." * 50))
    stop.set()
    for reader in readers:
        reader.join()
    assert store.earliest_offset("t", 0) > 300
