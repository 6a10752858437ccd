"""More partitions and other settings for a topic, and deleted records, while others read and write."""

import threading

import pytest

from pyspark_log.errors import InvalidConfigError, InvalidTopicError, OffsetOutOfRangeError, UnknownTopicError
from pyspark_log.storage.store import Store
from tests.processes import PROCESSES
from tests.store_tools import new_store, rows, store_with

store = store_with(partitions=2, configs={"retention.ms": "-1"})


def values(store, partition=0, topic="t"):
    store = Store.open(store.path)
    return [value for batch in store.read(topic, partition) for value in batch["value"].to_pylist()]


# ---- partitions


def test_added_partitions_are_seen_by_processes_that_have_the_store_open(store):
    other = Store.open(store.path)
    other.append("t", rows(b"before"), partition=1)
    with pytest.raises(UnknownTopicError, match="no partition 4; it has 2"):
        other.append("t", rows(b"x"), partition=4)
    assert store.add_partitions("t", 5).partitions == 5
    other.append("t", rows(b"after"), partition=4)
    assert values(store, 1) == [b"before"]
    assert values(store, 4) == [b"after"]
    assert store.describe_topic("t").topic_id == other.describe_topic("t").topic_id


@pytest.mark.parametrize("total", [2, 1, 0])
def test_partitions_are_never_taken_away(store, total):
    with pytest.raises(InvalidConfigError, match=r"has 2 partitions; it can get more, not \d+"):
        store.add_partitions("t", total)
    assert store.describe_topic("t").partitions == 2


def _add(path, start, end):
    store = Store.open(path)
    for total in range(start, end):
        try:
            store.add_partitions("t", total)
        except InvalidConfigError:
            assert store.describe_topic("t").partitions >= total
        store.alter_configs("t", {f"segment.{name}": str(total * 1000) for name in ("ms", "jitter.ms")})


def test_many_processes_change_a_topic_and_no_change_is_lost(store):
    processes = [PROCESSES.Process(target=_add, args=(store.path, 3, 20), daemon=True) for _ in range(3)]
    for process in processes:
        process.start()
    written = 0
    while any(process.is_alive() for process in processes):
        store.append("t", rows(b"%d" % written), partition=store.describe_topic("t").partitions - 1)
        written += 1
    for process in processes:
        process.join()
        assert process.exitcode == 0
    topic = store.describe_topic("t")
    assert (topic.partitions, set(topic.configs)) == (19, {"retention.ms", "segment.ms", "segment.jitter.ms"})
    assert sum(len(values(store, partition)) for partition in range(19)) == written


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


def test_a_bad_setting_changes_nothing(store):
    before = store.describe_topic("t")
    for configs, delete, message in [
        ({"segment.bytes": "100", "retention.ms": "x"}, [], r"retention\.ms = 'x'"),
        ({"segment.bytes": "100", "segmnt.ms": "1"}, [], "no topic config 'segmnt.ms'; did you mean 'segment.ms'"),
        ({"segment.bytes": "100"}, ["segmnt.ms"], "no topic config 'segmnt.ms'; did you mean 'segment.ms'"),
    ]:
        with pytest.raises(InvalidConfigError, match=message):
            store.alter_configs("t", configs, delete)
    assert Store.open(store.path).describe_topic("t") == before


@pytest.mark.parametrize(
    "change",
    [
        lambda store, name: store.add_partitions(name, 60),
        lambda store, name: store.alter_configs(name, {"segment.ms": "1"}),
        lambda store, name: store.delete_topic(name),
    ],
)
def test_what_cannot_be_changed(store, change):
    with pytest.raises(UnknownTopicError):
        change(store, "missing")
    for name in ("__consumer_offsets", "__pylog_publish", "../t"):
        with pytest.raises(InvalidTopicError):
            change(store, name)


# ---- deletion


def test_readers_and_a_cleaner_at_the_same_time(tmp_path):
    """A reader that follows the log while segments go sees dense offsets, or learns where the log starts."""
    store = new_store(tmp_path, {"segment.bytes": "600", "retention.bytes": "2000", "file.delete.delay.ms": "0"})
    stop, failures = threading.Event(), []

    def follow():
        mine, position = Store.open(store.path), 0
        try:
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
        except BaseException as error:  # noqa: BLE001 - it is raised in the test's thread
            failures.append(error)

    readers = [threading.Thread(target=follow) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(400):
        store.append("t", rows(b"%d" % number + b"." * 50))
    stop.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert store.earliest_offset("t", 0) > 300
