"""Compaction of a store's partitions: what is selected, what stays, and which processes are not disturbed."""

import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from cleaning_tools import nothing_more_mapped
from click.testing import CliRunner
from producer_tools import end_transaction, ending, ready

from pyspark_log.cli.main import main
from pyspark_log.errors import InvalidConfigError, LockTimeoutError, ReadOnlyError, UnknownTopicError
from pyspark_log.storage.compaction import cleaner, partition_cleaner
from pyspark_log.storage.compaction.cleaner import IoRate, LogCleaner, compact, compact_if_due, compact_partition, due
from pyspark_log.storage.compaction.offset_map import OffsetMap
from pyspark_log.storage.compaction.plan import InactiveSegment, segment_groups
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.log import cleaner_checkpoint
from pyspark_log.storage.log.appending.replica import truncate
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.segment.file_names import list_segments
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_COMMITTED, TopicPartition
from tests.processes import held_by_another
from tests.store_tools import faults, flip, new_store, roll_log, store_with

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1000", "index.interval.bytes": "200"}
T = TopicPartition("t", 0)


store = store_with(COMPACT)


def put(store, keys, topic="t", value=b"v" * 40, timestamps=None, partition=0):
    """A record for each key; its value ends with its number. A key None is a tombstone of key 0."""
    columns = {
        "key": [b"%d" % key for key in keys],
        "value": pa.array(
            [value + b"%d" % number if value is not None else None for number in range(len(keys))], pa.binary()
        ),
    }
    if timestamps is not None:
        columns["timestamp"] = pa.array(timestamps, pa.int64())
    return store.append(topic, pa.record_batch(columns), partition=partition)


def fill(store, appends=20, keys=5, topic="t", partition=0):
    """Appends of three records each, which go round the keys."""
    for number in range(appends):
        put(store, [(3 * number + n) % keys for n in range(3)], topic, partition=partition)


def records(store, topic="t", partition=0):
    return [
        row
        for batch in store.read(topic, partition)
        for row in zip(batch["offset"].to_pylist(), batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    ]


def compacted(before, cleaned_to):
    """What compaction leaves, as the simplest program says it (without tombstones)."""
    last = {key: offset for offset, key, _ in before if offset < cleaned_to}
    return [row for row in before if row[0] >= cleaned_to or last[row[1]] == row[0]]


def test_of_each_key_the_last_record_stays(store):
    fill(store)
    before, end = records(store), store.latest_offset("t", 0)
    active = state_file.read(store.logs.reader("t", 0).place.state_path).state.active_base
    (outcome,) = compact(store.logs, "t")
    assert not outcome.problem
    (done,) = outcome.rounds
    assert (done.cleaned_to, done.finished) == (active, True)
    assert records(store) == compacted(before, active)
    assert len(records(store)) == done.records_after + end - active
    assert store.latest_offset("t", 0) == end
    assert faults(store.path) == []
    # Another process that opens it finds the same; and there is nothing to be done.
    assert records(Store.open(store.path)) == records(store)
    assert list(compact(store.logs, "t")) == []
    put(store, [1, 2, 3])
    assert [row[0] for row in records(store)[-3:]] == [end, end + 1, end + 2]


def test_small_segments_become_one(store):
    fill(store, 40)
    before = list_segments(store.logs.reader("t", 0).place.folder)
    list(compact(store.logs, "t"))
    fill(store, 6)
    list(compact(store.logs, "t"))
    after = list_segments(store.logs.reader("t", 0).place.folder)
    assert len(before) > 8
    assert len(set(before) & set(after)) == 2
    assert faults(store.path) == []


@pytest.mark.parametrize(("limit", "sizes"), [(10_000, [6]), (450, [3, 3]), (100, [1] * 6), (250, [2, 2, 2])])
def test_segments_are_grouped_up_to_the_size_of_one(limit, sizes):
    store_config = type("C", (), {"segment_bytes": limit, "segment_index_bytes": 1000, "index_interval_bytes": 4096})
    inactive = [InactiveSegment(10 * n, 10 * n + 10, 120 if limit < 10_000 else 1000) for n in range(6)]
    assert [len(group) for group in segment_groups(inactive, 60, store_config)] == sizes
    assert sum(len(group) for group in segment_groups(inactive, 31, store_config)) == 4


def test_a_group_has_no_more_offsets_than_a_segment_may(store):
    far = 2**31
    inactive = [InactiveSegment(0, 10, 10), InactiveSegment(10, far - 5, 10), InactiveSegment(far - 5, far + 10, 10)]
    config = store.topic_config("t")
    assert [len(group) for group in segment_groups(inactive, far + 10, config)] == [2, 1]


def test_a_group_has_no_more_index_entries_than_a_segment_may(tmp_path):
    store = new_store(tmp_path, COMPACT | {"segment.bytes": "400", "index.interval.bytes": "100"})
    for number in range(24):
        put(store, [number], timestamps=[1_700_000_000_000 + number])
    # More entries than these have room in an index of offsets, but not in one of times; and an index may be missing.
    store.alter_configs("t", {"segment.bytes": "100000", "segment.index.bytes": "120"})
    os.unlink(f"{store.logs.place('t', 0).folder}/{0:020}.index")
    before = records(store)
    (outcome,) = compact(store.logs, "t")
    assert not outcome.problem
    assert records(store) == before
    segments = store.segment_files("t", 0)
    assert 2 < len(segments) < 8, segments
    assert not faults(store.path)


def test_it_is_time_by_the_dirty_ratio(clock, store):
    store.alter_configs("t", {"min.cleanable.dirty.ratio": "0.5"})
    fill(store)
    assert [one.at for one in due(store.logs)] == [T]
    (outcome,) = compact(store.logs)
    assert outcome.rounds[0].finished
    assert due(store.logs) == []
    # Unique keys stay, so what is clean grows to be more than what is dirty.
    for number in range(100, 190, 3):
        put(store, range(number, number + 3))
    list(compact(store.logs, "t"))
    fill(store, 6)
    assert due(store.logs) == []
    (named,) = due(store.logs, "t")
    assert 0 < named.ratio < 0.5
    store.alter_configs("t", {"max.compaction.lag.ms": "1"})
    clock.ms += 60_000
    assert [one.at for one in due(store.logs)] == [T]
    store.alter_configs("t", {"min.cleanable.dirty.ratio": "1"}, delete=["max.compaction.lag.ms"])
    assert due(store.logs) == []


def test_the_dirtiest_comes_first(store):
    store.create_topic("u", 2, COMPACT)
    fill(store)
    list(compact(store.logs))
    fill(store, 40)
    fill(store, topic="u", partition=1)
    assert [one.at for one in due(store.logs)] == [TopicPartition("u", 1), T]
    assert due(store.logs)[0].ratio == 1.0


def test_young_records_stay(clock, store):
    hour = 3_600_000
    now = store.logs.writer("t", 0).log.clock()
    for age in range(20, 0, -1):
        put(store, [1, 2, 3], timestamps=[now - age * hour] * 3)
    store.alter_configs("t", {"min.compaction.lag.ms": str(5 * hour + 1000)})
    before = records(store)
    (outcome,) = compact(store.logs, "t")
    done = outcome.rounds[0].cleaned_to
    # Segments hold some appends each; the one with the first young record is left alone.
    assert 3 * 9 <= done <= 3 * 15
    assert records(store) == compacted(before, done)
    assert list(compact(store.logs, "t")) == []


def test_tombstones_stay_for_their_time(clock, store):
    fill(store)
    put(store, [0], value=None)
    fill(store, 10, keys=2)
    put(store, [4], value=None)
    fill(store, 10, keys=1)
    store.alter_configs("t", {"delete.retention.ms": "100000"})
    writer = store.logs.writer("t", 0)
    now = writer.log.clock()
    list(compact(store.logs, "t"))
    (tombstone,) = [row for row in records(store) if row[1] == b"4" and row[2] is None]
    for later, stays in ((99_000, True), (101_000, False)):
        writer.log.clock = lambda later=later: now + later
        fill(store, 6, keys=1)
        assert list(compact(store.logs, "t"))
        assert (tombstone in records(store)) is stays
    assert b"4" not in {key for _, key, _ in records(store)}
    assert faults(store.path) == []


def test_more_keys_than_there_is_memory_for_take_several_rounds(tmp_path):
    store = new_store(tmp_path, COMPACT, settings={"log.cleaner.dedupe.buffer.size": "1024"})
    for number in range(0, 240, 3):
        put(store, [(number + n) % 70 for n in range(3)])
    before = records(store)
    (outcome,) = compact(store.logs, "t")
    assert len(outcome.rounds) > 3
    assert outcome.rounds[-1].finished
    end = outcome.rounds[-1].cleaned_to
    assert records(store) == compacted(before, end)
    # Each round but the last has gone over a part only.
    total = outcome.total
    assert (total.records_before, total.records_after) == (end, len([row for row in records(store) if row[0] < end]))
    assert total.bytes_before == total.bytes_after + sum(one.bytes_before - one.bytes_after for one in outcome.rounds)
    assert faults(store.path) == []


def test_readers_at_work_and_writers_continue(store):
    fill(store, 60, keys=7)
    before = records(store)
    readers = [Store.open(store.path).read("t", 0, max_bytes=1) for _ in range(10)]
    found = [[next(reader)["offset"].to_pylist() for _ in range(2 * n)] for n, reader in enumerate(readers)]
    stop = threading.Event()

    def write():
        own = Store.open(store.path)
        while not stop.wait(0.001):  # With keys of its own, so all that is last now stays that.
            put(own, [100, 101, 102])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        outcomes = [outcome for _ in range(5) for outcome in compact(store.logs, "t")]
    finally:
        stop.set()
        writer.join()
    assert all(not outcome.problem for outcome in outcomes)
    last = {key: offset for offset, key, _ in before}
    for reader, seen in zip(readers, found, strict=True):
        offsets = [offset for batch in seen for offset in batch]
        offsets += [offset for batch in reader for offset in batch["offset"].to_pylist()]
        assert offsets == sorted(set(offsets))
        # What is last of its key among what was there is found by every reader.
        assert set(last.values()) <= set(offsets)
    now = {key: offset for offset, key, _ in records(store)}
    assert {key: now[key] for key in last} == last
    assert faults(store.path) == []


def test_a_reader_comes_to_a_segment_that_was_appended_to_and_is_closed_and_compacted_by_then(store):
    put(store, [1], value=b"v" * 900)  # too large for the two to become one
    roll_log(store)
    # Cleaned they take more bytes: their times count from when they may go.
    put(store, range(20), value=None)
    reader = store.read("t", 0, max_bytes=1)
    assert next(reader)["offset"].to_pylist() == [0]
    roll_log(store)
    list(compact(store.logs, "t"))
    assert [offset for batch in reader for offset in batch["offset"].to_pylist()] == list(range(1, 21))


def test_a_partition_that_is_damaged_is_marked_and_the_others_are_compacted(store):
    store.create_topic("u", 1, COMPACT)
    fill(store)
    fill(store, topic="u")
    place = store.logs.reader("t", 0).place
    path = f"{place.folder}/{list_segments(place.folder)[2]:020d}.log"
    flip(path, 200)
    outcomes = {outcome.at: outcome for outcome in compact(store.logs)}
    assert os.path.basename(path) in outcomes[T].problem
    assert outcomes[TopicPartition("u", 0)].rounds[0].finished
    assert os.path.basename(path) in cleaner_checkpoint.read(place).reason
    # It is not selected any more, unless its topic is named.
    assert due(store.logs) == []
    assert [one.at for one in due(store.logs, "t")] == [T]
    flip(path, 200)
    (outcome,) = compact(store.logs, "t")
    assert outcome.rounds[0].finished
    assert cleaner_checkpoint.read(place).reason == ""


def test_where_there_is_no_memory_for_keys_the_partition_is_not_marked_and_the_others_are_compacted(store, monkeypatch):
    store.create_topic("u", 1, COMPACT)
    fill(store)
    fill(store, topic="u")
    made = iter([False, True])
    place = store.logs.reader("t", 0).place
    files = {name: Path(place.folder, name).read_bytes() for name in os.listdir(place.folder)}

    def small_map(size):
        if next(made):
            return OffsetMap(size)
        with nothing_more_mapped():
            return OffsetMap(size)

    monkeypatch.setattr(partition_cleaner, "OffsetMap", small_map)
    poor, rich = (compact_partition(store.logs, TopicPartition(topic, 0)) for topic in ("t", "u"))
    assert (poor.rounds, "log.cleaner.dedupe.buffer.size" in poor.problem, "t-0" in poor.problem) == ((), True, True)
    assert rich.rounds[0].finished
    assert {name: Path(place.folder, name).read_bytes() for name in os.listdir(place.folder)} == files
    assert [one.at for one in due(store.logs)] == [T]


def test_two_cleaners_exclude_each_other(store):
    fill(store)
    with cleaner_checkpoint.cleaning(store.logs.reader("t", 0).place):
        outcome = compact_partition(store.logs, T)
    assert (outcome.rounds, outcome.problem) == ((), "")
    assert compact_partition(store.logs, T).rounds


def test_segments_that_go_meanwhile_are_left_alone(store, monkeypatch):
    store.alter_configs("t", {"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    fill(store)
    end, rewrite = store.latest_offset("t", 0), partition_cleaner.rewrite

    def deleted_meanwhile(*arguments):
        result = rewrite(*arguments)
        Store.open(store.path).delete_records("t", 0, end - 6)
        return result

    monkeypatch.setattr(partition_cleaner, "rewrite", deleted_meanwhile)
    done = partition_cleaner.run(store.logs.writer("t", 0), store.logs.reader("t", 0), 1 << 20, lambda _: None)
    assert done is not None
    assert not done.finished
    assert [row[0] for row in records(store)] == list(range(end - 6, end))
    assert faults(store.path) == []
    assert not [name for name in os.listdir(store.logs.reader("t", 0).place.folder) if "cleaned" in name]


def test_what_is_truncated_meanwhile_is_left_alone(store, monkeypatch):
    fill(store)
    rewrite = partition_cleaner.rewrite

    def truncated_meanwhile(*arguments):
        result = rewrite(*arguments)
        with Store.open(store.path).logs.writer("t", 0).hold() as held:
            if held.state.next_offset > 9:
                truncate(held.log, 9)
        fill(Store.open(store.path), 10, keys=30)
        return result

    monkeypatch.setattr(partition_cleaner, "rewrite", truncated_meanwhile)
    before = records(store)[:9]
    done = partition_cleaner.run(store.logs.writer("t", 0), store.logs.reader("t", 0), 1 << 20, lambda _: None)
    assert not done.finished
    assert records(store)[:9] == before
    monkeypatch.undo()
    # And what was cleaned before counts up to the truncation only.
    before = records(store)
    (outcome,) = compact(store.logs, "t")
    assert records(store) == compacted(before, outcome.rounds[0].cleaned_to)


def test_offsets_that_were_given_again_are_dirty(store):
    fill(store, 30)
    list(compact(store.logs, "t"))
    place = store.logs.reader("t", 0).place
    known = cleaner_checkpoint.read(place)
    with store.logs.writer("t", 0).hold() as held:
        end = truncate(held.log, 40)
        assert end < known.cleaned_to
    fill(store, 30)
    with store.logs.writer("t", 0).hold() as held:
        assert end < known.cleaned_to < held.state.next_offset
        assert cleaner_checkpoint.first_dirty(known, held.state) == 0
    before = records(store)
    (outcome,) = compact(store.logs, "t")
    assert records(store) == compacted(before, outcome.rounds[0].cleaned_to)


def test_how_far_a_log_is_compacted_may_be_lost_or_torn(store):
    fill(store)
    list(compact(store.logs, "t"))
    place = store.logs.reader("t", 0).place
    before = records(store)
    for damage in (b"", b"x" * 512, Path(place.cleaner_path).read_bytes()[:100]):
        Path(place.cleaner_path).write_bytes(damage)
        assert cleaner_checkpoint.read(place)._replace(touched_to=0) == cleaner_checkpoint.CleanerCheckpoint()
        list(compact(store.logs, "t"))
        assert records(store) == before
        assert cleaner_checkpoint.read(place).cleaned_to > 0
    long = cleaner_checkpoint.CleanerCheckpoint(1, 2, 3, 4, "ü" * 400)
    with cleaner_checkpoint.cleaning(place):
        cleaner_checkpoint.write(place, long)
    assert cleaner_checkpoint.read(place)._replace(reason="") == long._replace(reason="")
    assert set(cleaner_checkpoint.read(place).reason) == {"ü"}


def test_topics_that_are_not_compacted_and_brokers_folders_are_left_alone(store, tmp_path):
    store.create_topic("d", 1, COMPACT | {"cleanup.policy": "delete"})
    fill(store, topic="d")
    with pytest.raises(InvalidConfigError, match="topic 'd' is not compacted"):
        due(store.logs, "d")
    assert due(store.logs) == []
    with pytest.raises(UnknownTopicError):
        due(store.logs, "nobody")
    broker = tmp_path / "broker"
    (broker / "t-0").mkdir(parents=True)
    (broker / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    with pytest.raises(ReadOnlyError):
        due(Store.open(broker).logs)


def test_the_command(store):
    fill(store)
    before = records(store)

    def run(*words):
        return CliRunner().invoke(main, ["--store", store.path, "compact", *words], catch_exceptions=False)

    result = run("--json")
    (document,) = json.loads(result.stdout)
    assert (document["topic"], document["partition"], document["problem"]) == ("t", 0, "")
    assert document["records_after"] < document["records_before"] <= len(before)
    assert document["bytes_after"] < document["bytes_before"]
    assert run().output == "nothing to compact\n"
    fill(store, 10)
    assert "t-0" in run("t").output
    place = store.logs.reader("t", 0).place
    fill(store, 10)
    with open(f"{place.folder}/{list_segments(place.folder)[0]:020d}.log", "r+b") as file:
        file.seek(40)  # in the batch that replaces all that has gone
        file.write(b"damage")
    result = run("t")
    assert result.exit_code == 1
    assert "00000000000000000000.log" in result.output
    assert result.output.splitlines()[1].split()[:6] == ["t-0", *"-----"]
    # From now on it is left out, but not in silence.
    result = run()
    assert (result.exit_code, result.stdout) == (0, "nothing to compact\n")
    assert result.stderr.startswith("Warning: t-0 is skipped, because it could not be compacted: ")
    assert "00000000000000000000.log" in result.stderr
    assert result.stderr.endswith("(`pylog compact t` tries again)\n")


def test_a_cleaner_in_the_background(store):
    fill(store)
    before, asked = records(store), []
    # When it is asked for the first time it is not its turn.
    with LogCleaner(store.logs, backoff=0.05, is_turn=lambda: asked.append(records(store) == before) or asked[1:]):
        deadline = time.monotonic() + 120
        while len(records(store)) == len(before):
            assert time.monotonic() < deadline, "the cleaner does not run"
            time.sleep(0.05)
    assert records(store) == compacted(before, cleaner_checkpoint.read(store.logs.reader("t", 0).place).cleaned_to)
    assert asked[:2] == [True, True]
    assert not [thread for thread in threading.enumerate() if thread.name == "pylog-cleaner"]


def test_a_helper_waits_for_no_lock_and_is_not_held_back(tmp_path):
    """While others clean, are suspended with the lock, or bound the cleaner's rate."""
    store = new_store(tmp_path, COMPACT, settings={"log.cleaner.io.max.bytes.per.second": "1"})
    fill(store)
    before = records(store)
    with cleaner_checkpoint.cleaning(store.logs.reader("t", 0).place):
        assert compact_if_due(store.logs, T).rounds == ()
    with held_by_another(store, "t"):
        began = time.monotonic()
        assert compact_if_due(store.logs, T) is None
        assert time.monotonic() - began < DEFAULT_TIMEOUT / 2
    assert records(store) == before
    # At that rate it would take an hour.
    assert compact_if_due(store.logs, T).rounds[0].finished
    assert records(store) == compacted(before, cleaner_checkpoint.read(store.logs.reader("t", 0).place).cleaned_to)
    assert compact_if_due(store.logs, T) is None


def test_a_helper_leaves_a_log_alone_that_is_too_large(store, monkeypatch, caplog):
    fill(store)
    monkeypatch.setattr(cleaner, "_HELP_BYTES", 1000)
    assert compact_if_due(store.logs, T) is None
    assert "pylog compact" in caplog.text
    assert [outcome.rounds[0].finished for outcome in compact(store.logs)] == [True]


def test_the_rate_of_io_is_bounded(monkeypatch):
    slept, now = [], [100.0]
    monkeypatch.setattr(cleaner, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=slept.append))
    rate = IoRate(1000)
    rate(500)
    assert slept == [0.5]
    now[0] += 2
    rate(500)
    assert slept == [0.5]
    rate(3000)
    assert slept == [0.5, 2.0]


def test_a_partition_is_not_moved_while_it_is_compacted(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    disk = f"{tmp_path}/disk/logs"
    store = new_store(tmp_path, COMPACT, settings={"log.dirs": f"data,{disk}"})
    fill(store)
    before, rewrite, refused = records(store), partition_cleaner.rewrite, []

    def moved_meanwhile(*arguments):
        with pytest.raises(LockTimeoutError) as error:
            Store.open(store.path).move_partition("t", 0, disk)
        refused.append(error.value)
        return rewrite(*arguments)

    monkeypatch.setattr(partition_cleaner, "rewrite", moved_meanwhile)
    monkeypatch.setattr("pyspark_log.storage.log_manager.partition_move.DEFAULT_TIMEOUT", 0.01)
    done = partition_cleaner.run(store.logs.writer("t", 0), store.logs.reader("t", 0), 1 << 20, lambda _: None)
    assert refused
    assert done is not None
    assert records(store) == compacted(before, done.cleaned_to)
    store.move_partition("t", 0, disk)
    fill(store, 10)
    before = records(store)
    # It continues where it was, in the other folder.
    done = partition_cleaner.run(store.logs.writer("t", 0), store.logs.reader("t", 0), 1 << 20, lambda _: None)
    assert done is not None
    assert records(store) == compacted(before, done.cleaned_to)
    assert faults(store.path) == []


def test_old_segments_go_and_the_rest_is_compacted(clock, store):
    now, hour = store.logs.writer("t", 0).log.clock(), 3_600_000
    store.alter_configs("t", {"cleanup.policy": "compact,delete", "retention.ms": str(hour)})
    for age in [*range(150, 50, -10), *range(50, 0, -5)]:
        put(store, [age, 1, 2], timestamps=[now - age * 60_000] * 3)
    store.clean("t")
    (outcome,) = compact(store.logs, "t")
    left = records(store)
    ages = [int(key) for _, key, _ in left]
    assert store.earliest_offset("t", 0) > 0
    # Of the keys that were written once those of the last hour are there, and few before: segments go whole.
    assert set(range(5, 51, 5)) <= set(ages) - {1, 2} <= {*range(5, 51, 5), 60, 70, 80, 90}
    assert len([row for row in left if row[1] == b"1" and row[0] < outcome.rounds[0].cleaned_to]) == 1
    assert faults(store.path) == []


def test_an_aborted_transaction_after_an_open_one_in_the_same_segment_stays_aborted(store):
    """What follows the open one is not cleaned yet, but its segment is rewritten, with its index."""
    put(store, [0, 0])
    store.append_batch("t", 0, ready(0, b"open", producer=1, transactional=True))
    store.append_batch("t", 0, ready(0, b"aborted", producer=2, transactional=True))
    with store.logs.writer("t", 0).hold() as writer:
        writer.append(bytearray(ending(False, producer=2)), sync=False)
        writer.log.roll()
    (outcome,) = compact(store.logs, "t")
    assert outcome.rounds[0].cleaned_to == 2
    end_transaction(store, True, producer=1)
    committed = [
        value for batch in store.read("t", 0, isolation_level=READ_COMMITTED) for value in batch["value"].to_pylist()
    ]
    assert committed == [b"v" * 40 + b"1", b"open"]
    assert faults(store.path) == []
