"""Large appends, whose batches are encoded while those before them are written."""

import errno
import os
import random
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_log.errors import InvalidRecordError, RecordTooLargeError
from pyspark_log.storage.fs import files
from pyspark_log.storage.ingest import PIECE_SIZE
from pyspark_log.storage.store import Store
from tests.stops import StopBefore, run_until
from tests.store_tools import all_values, faults, new_store, observed, store_with, values

store = store_with(partitions=2)


def large(pieces, *, size=1000, seed=7, **columns):
    """Rows that take about `pieces` pieces in each of two partitions."""
    count = pieces * PIECE_SIZE // size
    noise = random.Random(seed).randbytes(size)
    numbers = range(2 * count)
    return pa.record_batch(
        {
            "value": pa.array([b"%08d" % number + noise[8:] for number in numbers], pa.binary()),
            "partition": pa.array([number % 2 for number in numbers], pa.int32()),
            **columns,
        }
    )


def logs(store):
    """The segments of the first partition."""
    return sorted(Path(store.path).rglob("t-0/*.log"))


def test_a_large_append_is_what_small_ones_are(store):
    data = large(3)
    store.append("t", data.slice(0, 11))
    results = store.append("t", data)
    half = data.num_rows // 2
    assert [(result.base_offset, result.next_offset) for result in results] == [(6, 6 + half), (5, 5 + half)]
    written = data["value"].to_pylist()
    for partition in range(2):
        assert values(store, partition)[-half:] == written[partition::2]
    assert not faults(store.path)


def test_all_columns_are_written_and_nulls_kept(store):
    plain = large(1)
    count = plain.num_rows
    data = pa.record_batch(
        {
            "value": pa.array([None if n % 5 == 0 else b"v" * 3000 for n in range(count)], pa.binary()),
            "key": pa.array([None if n % 3 == 0 else f"k{n}" for n in range(count)]),
            "timestamp": pa.array([1000 + n for n in range(count)]),
            "headers": pa.array(
                [[{"key": "h", "value": b"%d" % n}] * (n % 3) or None for n in range(count)],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    store.append("t", data, partition=1)
    read = pa.Table.from_batches(store.read("t", 1, headers=True))
    for name in ("key", "value", "headers"):
        expected = [None if one is None else one.encode() if name == "key" else one for one in data[name].to_pylist()]
        assert read[name].to_pylist() == expected
    assert read["timestamp"].cast(pa.int64()).to_pylist() == [(1000 + n) * 1000 for n in range(count)]
    assert not faults(store.path)


def test_one_bad_record_and_nothing_is_appended(store):
    data = large(2)
    last = data.num_rows - 1
    too_large = pa.array([*data["value"].to_pylist()[:last], b"x" * 2_000_000], pa.binary())
    with pytest.raises(RecordTooLargeError, match=r"t-1: .*max\.message\.bytes"):
        store.append("t", data.set_column(0, "value", too_large))
    times = pa.array([0] * last + [-2])
    with pytest.raises(InvalidRecordError, match=f"row {last}"):
        store.append("t", data.append_column("timestamp", times))
    assert [store.latest_offset("t", partition) for partition in range(2)] == [0, 0]


def test_a_record_larger_than_a_batch_is_appended_with_the_others(store):
    data = large(2)
    written = [*data["value"].to_pylist()[:-1], b"x" * 900_000]
    store.append("t", data.set_column(0, "value", pa.array(written, pa.binary())))
    assert values(store, 1) == written[1::2]


def test_records_of_many_days_are_rolled_by_their_times(tmp_path):
    day = 86_400_000
    store = new_store(tmp_path, {"retention.ms": "-1"})
    for number in range(20):
        data = large(1, seed=number)
        store.append("t", data.append_column("timestamp", pa.array([number * day] * data.num_rows)), partition=0)
    assert len(logs(store)) == 3  # segment.ms is seven days
    assert not faults(store.path)


def test_a_topic_with_the_time_of_the_append_is_rolled_by_that(tmp_path):
    store = new_store(tmp_path, {"message.timestamp.type": "LogAppendTime", "segment.ms": "3600000"})
    data = large(1)
    data = data.append_column("timestamp", pa.array([0] * data.num_rows))
    for hour in range(3):
        store.logs.clock.read = lambda hour=hour: 1_800_000_000_000 + hour * 3_600_001
        store.append("t", data, partition=0)
    assert len(logs(store)) == 3


@pytest.mark.parametrize(("segment_bytes", "appends"), [(128 << 20, 1), (48 << 20, 3)])
def test_an_append_takes_one_turn_where_there_is_room_else_some(tmp_path, segment_bytes, appends):
    """Of 38 MB: all in one turn if the segment has room for 64 MiB, else 16 MiB at a time."""
    store = Store.create(tmp_path / "s")
    store.create_topic("t", 1, {"segment.bytes": str(segment_bytes)})
    data = large(9, size=4000)
    store.append("t", data.slice(0, 1), partition=0)
    ends = {1}
    reader = Store.open(store.path)

    def look(change):
        if change.kind == "write" and change.path.endswith("-0"):
            ends.add(reader.latest_offset("t", 0))

    with observed(look):
        store.append("t", data, partition=0)
    ends.add(store.latest_offset("t", 0))
    assert len(ends) == 1 + appends
    assert values(store)[1:] == data["value"].to_pylist()
    assert not faults(store.path)


def test_no_segment_gets_more_than_its_size(tmp_path):
    store = Store.create(tmp_path / "s")
    store.create_topic("t", 1, {"segment.bytes": str(18 << 20)})
    store.append("t", large(9, size=4000), partition=0)
    sizes = [os.path.getsize(path) for path in logs(store)]
    assert len(sizes) == 3
    assert max(sizes) <= 18 << 20


def test_it_goes_into_a_new_segment_as_a_whole(tmp_path):
    store = Store.create(tmp_path / "s")
    store.create_topic("t", 1, {"segment.bytes": str(20 << 20)})
    for _ in range(3):
        store.append("t", large(3), partition=0)
    segments = logs(store)
    assert len(segments) == 3
    assert min(os.path.getsize(path) for path in segments) > 6_000_000


def test_a_full_disk_leaves_what_was_there(store):
    data = large(3)
    store.append("t", data)
    written = all_values(store)
    found = []

    def full(change):
        if change.kind == "write" and change.path.endswith(".log"):
            found.append(change)
        if found and found[-1] is change and len(found) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", change.path)

    with observed(full), pytest.raises(OSError, match="No space"):
        store.append("t", data)
    assert all_values(store) == written
    store.append("t", data)
    assert len(all_values(store)) == 2 * len(written)
    assert not faults(store.path)


def test_a_failed_write_in_the_background_is_reported(store, monkeypatch):
    data = large(3)
    store.append("t", data.slice(0, 10))
    real, calls = files.File.write_all, []

    def full(self, given, position):
        if len(given) > 100_000:
            calls.append(position)
            if len(calls) == 2:
                raise OSError(errno.ENOSPC, "No space left on device", self.path)
        real(self, given, position)

    monkeypatch.setattr(files.File, "write_all", full)
    with pytest.raises(OSError, match="No space"):
        store.append("t", data)
    monkeypatch.undo()
    assert [store.latest_offset("t", partition) for partition in range(2)] == [5, 5]
    store.append("t", data)
    assert not faults(store.path)


def test_wherever_it_stops_all_of_a_partition_is_there_or_nothing(tmp_path):
    data = large(2)
    stop, stopped = 0, True
    while stopped:
        (tmp_path / str(stop)).mkdir()
        store = new_store(tmp_path / str(stop), partitions=2)
        store.append("t", data.slice(0, 4))
        stopped = run_until(lambda: store.append("t", data), StopBefore(stop))  # noqa: B023
        again = Store.open(store.path)
        ends = [again.latest_offset("t", partition) for partition in range(2)]
        half = data.num_rows // 2
        assert set(ends) <= {2, 2 + half}
        again.append("t", data.slice(0, 2))
        assert [len(values(again, partition)) for partition in range(2)] == [end + 1 for end in ends]
        assert not faults(again.path)
        assert stopped or ends == [2 + half] * 2
        stop += 1
    assert stop >= 12
