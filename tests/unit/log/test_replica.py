"""What a replica needs: batches as they are, where its log agrees with the leader's, records that are taken back."""

import time

import pyarrow as pa
import pytest

from pyspark_log.errors import InvalidRecordError, OffsetOutOfRangeError
from pyspark_log.storage.log import leader_epochs
from pyspark_log.storage.log.appending.replica import append_copied, raise_high_watermark, restart_at, truncate
from pyspark_log.storage.log.retention import delete_before
from pyspark_log.storage.log.state import EMPTY
from pyspark_log.storage.record import scan
from pyspark_log.storage.segment.file_names import list_segments
from pyspark_log.storage.segment.segment import SegmentReader, read_headers
from pyspark_log.storage.store import Store
from tests.store_tools import cut_log, faults, new_store, rows


@pytest.fixture
def cut(tmp_path):
    """A partition of 10 batches of 3 records, two batches a segment; `cut(offset)` truncates it."""
    store = Store.create(tmp_path / "cut")
    store.create_topic("t", 1, {"segment.bytes": "400", "index.interval.bytes": "1", "retention.ms": "-1"})
    for number in range(10):
        store.append("t", rows(*[b"%d" % (3 * number + row) + b"." * 30 for row in range(3)]))
    assert list_segments(f"{store.path}/data/t-0") == [0, 6, 12, 18, 24]

    def cut_at(offset):
        return cut_log(store, offset)

    cut_at.store = store
    return cut_at


def numbers(store, **options):
    return [int(v.rstrip(b".")) for b in Store.open(store.path).read("t", 0, **options) for v in b["value"].to_pylist()]


@pytest.mark.parametrize(
    ("offset", "end"), [(30, 30), (29, 27), (28, 27), (27, 27), (24, 24), (19, 18), (6, 6), (2, 0), (0, 0)]
)
def test_truncation_keeps_whole_batches_before_the_offset(cut, offset, end):
    store = cut.store
    generation = store.logs.reader("t", 0).state().generation
    assert cut(offset) == end
    assert store.latest_offset("t", 0) == end
    assert numbers(store) == list(range(end))
    if end < 30:
        assert store.logs.reader("t", 0).state().generation > generation
    # What comes then takes the same offsets, and finds no trace of what was there.
    for _ in range(4):
        Store.open(store.path).append("t", rows(*[b"%d" % row + b"." * 30 for row in range(100, 103)]))
    assert numbers(store) == [*range(end), *([100, 101, 102] * 4)]
    for path in store.segment_files("t", 0):
        with open(path, "rb") as log:
            size = len(log.read())
        reader = SegmentReader(f"{store.path}/data/t-0", int(path[-24:-4]))
        assert sum(header.size for header in read_headers(reader.log, 0, size)) == size
        reader.close()


def test_truncation_outside_of_the_log_is_refused(cut):
    cut.store.delete_records("t", 0, 7)
    for offset in (6, 31):
        with pytest.raises(OffsetOutOfRangeError):
            cut(offset)
    assert numbers(cut.store) == list(range(7, 30))


def test_truncation_into_the_batch_of_the_log_start_leaves_an_empty_log_there(cut):
    """Kafka starts over at the offset; here there is never a hole, and the log start does not move."""
    cut.store.delete_records("t", 0, 7)
    assert cut(8) == 7
    assert list_segments(f"{cut.store.path}/data/t-0") == [7], "the segment before holds what was taken back"
    assert (cut.store.earliest_offset("t", 0), cut.store.latest_offset("t", 0)) == (7, 7)
    cut.store.append("t", rows(b"7"))
    assert numbers(cut.store) == [7]


def test_a_reader_learns_that_what_it_reads_was_taken_back(cut):
    reader = cut.store.read("t", 0, max_bytes=1)
    seen = next(reader)["offset"].to_pylist()
    cut(12)
    with pytest.raises(OffsetOutOfRangeError, match="0 to 12"):
        seen.extend(offset for batch in reader for offset in batch["offset"].to_pylist())
    assert seen == list(range(len(seen)))
    assert len(seen) <= 12


def test_times_are_looked_up_in_what_came_after_a_truncation(cut):
    store = cut.store
    later = time.time_ns() // 1_000_000 + 60_000
    assert store.offset_for_timestamp("t", 0, later) is None
    cut(6)
    for number in range(6):
        times = pa.array([later + number], pa.int64())
        store.append("t", pa.record_batch({"value": [b"." * 100], "timestamp": times}))
    assert len(store.segment_files("t", 0)) > 3
    assert [store.offset_for_timestamp("t", 0, later + number).offset for number in range(6)] == list(range(6, 12))


def test_append_and_truncate_thirty_times(tmp_path):
    """Kafka's testTruncate."""
    store = new_store(tmp_path)
    for end in range(30):
        store.append("t", rows(b"stays"))
        store.append("t", rows(b"goes"))
        assert cut_log(store, end + 1) == end + 1
        found = [value for batch in store.read("t", 0) for value in batch["value"].to_pylist()]
        assert found[-1] == b"stays"
    assert len(found) == 30


# ---- the copy of a node


@pytest.fixture
def node(tmp_path):
    """A store with an empty copy that node 7 owns."""
    with Store.create(tmp_path / "node") as store:
        store.create_topic("t", 1, {"segment.bytes": "400", "index.interval.bytes": "1", "retention.ms": "-1"})
        store.logs.make_state(store.logs.topic("t"), 0, begins=EMPTY._replace(owner_node=8))
        yield store


def copied(source, target, start=0):
    """Copies all batches of a log from an offset on, one by one."""
    with target.logs.writer("t", 0).hold() as writer:
        for path in source.segment_files("t", 0):
            with open(path, "rb") as file:
                data = file.read()
            for header in scan(data, 0, len(data)):
                if header.base_offset >= start:
                    append_copied(writer.log, memoryview(data), [header])


def test_readers_see_a_copy_up_to_its_high_watermark(cut, node):
    copied(cut.store, node)
    assert numbers(node) == []
    with node.logs.writer("t", 0).hold() as writer:
        raise_high_watermark(writer.log, 12)
        raise_high_watermark(writer.log, 9)
        assert (writer.state.high_watermark, writer.state.next_offset) == (12, 30)
    assert numbers(node) == list(range(12))
    assert node.latest_offset("t", 0) == 12
    with node.logs.writer("t", 0).hold() as writer:
        raise_high_watermark(writer.log, 99)
        assert writer.state.high_watermark == 30
        # A truncation takes it back, and what comes then is not visible either.
        truncate(writer.log, 21)
        assert writer.state.high_watermark == 21
    copied(cut.store, node, 21)
    assert numbers(node) == list(range(21))
    assert faults(node.path) == []


@pytest.mark.parametrize(("at", "end"), [(18, None), (6, 30), (6, 18)], ids=["later", "earlier", "after a truncation"])
def test_a_copy_can_begin_again_at_another_offset(cut, node, at, end):
    copied(cut.store, node)
    with node.logs.writer("t", 0).hold() as writer:
        if end is not None:
            raise_high_watermark(writer.log, 30)
            delete_before(writer.log, 18)
            truncate(writer.log, end)
        restart_at(writer.log, at)
        assert (writer.state.log_start, writer.state.next_offset, writer.state.high_watermark) == (at, at, at)
    assert list_segments(f"{node.path}/data/t-0") == [at]
    copied(cut.store, node, at)
    with node.logs.writer("t", 0).hold() as writer:
        raise_high_watermark(writer.log, 30)
    assert numbers(node) == list(range(at, 30))
    assert faults(node.path) == []


def test_a_batch_that_does_not_follow_is_refused(cut, node):
    copied(cut.store, node)
    with pytest.raises(InvalidRecordError, match="a batch with offset 27 and leader epoch 0, after offset 29"):
        copied(cut.store, node, 27)
    with node.logs.writer("t", 0).hold() as writer:
        assert writer.state.next_offset == 30


def test_an_epoch_that_was_noted_without_a_batch_is_forgotten(cut, node):
    copied(cut.store, node)
    with node.logs.writer("t", 0).hold() as writer:
        leader_epochs.begin(writer.log.place.folder, 1, 30)
        writer.log.lease.save(writer.state._replace(leader_epoch=1), durable=True)
    cut.store.append("t", rows(b"30"))
    copied(cut.store, node, 30)
    with node.logs.writer("t", 0).hold() as writer:
        assert writer.state.next_offset == 31
        assert leader_epochs.read(writer.log.place.folder).entries == [(0, 0)]
    assert faults(node.path) == []


def test_retention_keeps_what_a_copys_readers_have_not_seen(cut, node):
    """As in Kafka; and a log start beyond the high watermark would be damage at the next start."""
    copied(cut.store, node)
    node.alter_configs("t", {"retention.bytes": "0", "segment.bytes": "400"})
    with node.logs.writer("t", 0).hold() as writer:
        raise_high_watermark(writer.log, 14)
    node.clean("t")
    with node.logs.writer("t", 0).hold() as writer:
        assert (writer.state.log_start, writer.state.high_watermark, writer.state.next_offset) == (12, 14, 30)
        truncate(writer.log, 21)
        raise_high_watermark(writer.log, 21)
    assert numbers(node) == list(range(12, 21))
    assert faults(node.path) == []
