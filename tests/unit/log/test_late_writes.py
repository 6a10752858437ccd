"""Bytes after the last record of an inactive segment: written too late, by a writer that had lost the lock.

That can happen on a shared file system only. They are ignored, whatever they are.
"""

import os
from itertools import pairwise

import pyarrow as pa
import pytest
from producer_tools import end_transaction, ready

from pyspark_log.storage.compaction.cleaner import compact
from pyspark_log.storage.log.producers.snapshot import list_snapshots
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.maintenance.transfer.kafka_export import export_kafka
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.record.headers import assign_offsets
from pyspark_log.storage.record.layout import LENGTH_PREFIX
from pyspark_log.storage.segment.file_names import SNAPSHOT, list_segments, segment_path
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_COMMITTED, OffsetAndTimestamp
from tests.store_tools import faults, store_with

APPENDS = 12
LATER = 9_000_000


def whole(offset):
    """A batch as it would be there, of a producer that knows of the others' last records, and with a later time."""
    data = bytearray(ready(APPENDS, b"late", producer=7, timestamp=LATER))
    assign_offsets(data, 0, len(data), offset, 0)
    return bytes(data)


LATE = {
    "a batch": whole,
    "a batch and a half": lambda offset: whole(offset) + whole(offset + 1)[:70],
    "half a header": lambda offset: whole(offset)[:40],
    "half a batch": lambda offset: whole(offset)[:70],
    "the rest of a batch": lambda offset: bytes(LENGTH_PREFIX) + whole(offset)[LENGTH_PREFIX:],
    "nulls": lambda offset: bytes(4096),
    "no sense": lambda offset: b"\xff" * 100,
}


@pytest.fixture(params=LATE.values(), ids=LATE)
def late(request):
    """Writes beyond the end of each inactive segment of t-0."""

    def write(store):
        bases = list_segments(store.logs.reader("t", 0).place.folder)
        for base, following in pairwise(bases):
            with open(segment_path(store.logs.reader("t", 0).place.folder, base, ".log"), "ab") as file:
                file.write(request.param(following))

    return write


store = store_with(
    {
        "cleanup.policy": "compact",
        "segment.bytes": "600",
        "index.interval.bytes": "100",
        "delete.retention.ms": "1",
        "min.compaction.lag.ms": "1",
    }
)


def fill(store, first=0):
    """Each append replaces what the one before it wrote. Times rise from 1000 on."""
    for number in range(first, first + APPENDS):
        store.append("t", pa.record_batch({
            "key": [b"a", b"b"], "value": [b"%030d" % number] * 2,
            "timestamp": pa.array([1000 + 2 * number, 1001 + 2 * number], pa.int64()),
        }), partition=0)  # fmt: skip


def offsets(store, **options):
    return [offset for batch in store.read("t", 0, **options) for offset in batch["offset"].to_pylist()]


def test_reads_and_lookups_by_time_do_not_meet_them(store, late):
    fill(store)
    late(store)
    # With what is known of inactive segments, without, and by a writer that rebuilds that.
    known = store.logs.reader("t", 0).place.segments_path
    for remove in (False, True):
        if remove:
            os.unlink(known)
        fresh = Store.open(store.path)
        assert offsets(fresh) == list(range(2 * APPENDS))
        for offset in (0, 7, 2 * APPENDS - 1):
            assert fresh.offset_for_timestamp("t", 0, 1000 + offset) == OffsetAndTimestamp(offset, 1000 + offset)
        assert fresh.offset_for_timestamp("t", 0, 1000 + 2 * APPENDS) is None
        last = OffsetAndTimestamp(2 * APPENDS - 1, 999 + 2 * APPENDS)
        assert fresh.offset_of_max_timestamp("t", 0) == last
    fill(store, APPENDS)
    state = state_file.read(store.logs.reader("t", 0).place.state_path).state
    assert os.path.getsize(known) == 48 * (len(list_segments(store.logs.reader("t", 0).place.folder)) - 1)
    assert state.next_offset == 4 * APPENDS
    assert faults(store.path) == []


def test_the_cleaner_leaves_them_out(store, late):
    fill(store)
    late(store)
    (outcome,) = compact(store.logs)
    assert (outcome.problem, outcome.rounds[0].finished) == ("", True)
    active = list_segments(store.logs.reader("t", 0).place.folder)[-1]
    assert offsets(store) == [active - 2, active - 1, *range(active, 2 * APPENDS)]
    # There is nothing to be noted any more.
    assert verify(store.path).findings == []


def test_old_segments_go_all_the_same(store, late):
    fill(store)
    late(store)
    store.alter_configs("t", {"cleanup.policy": "delete", "retention.ms": "1000"})
    store.clean("t")
    assert store.earliest_offset("t", 0) == store.latest_offset("t", 0)


def test_an_export_has_no_trace_of_them(store, late, tmp_path):
    fill(store)
    before = {base: log(store, base) for base in list_segments(store.logs.reader("t", 0).place.folder)}
    late(store)
    export_kafka(store, "t", tmp_path / "kafka", "AAECAwQFBgcICQoLDA0ODw")
    for base, data in before.items():
        with open(segment_path(str(tmp_path / "kafka/t-0"), base, ".log"), "rb") as file:
            assert file.read() == data


def log(store, base):
    with open(segment_path(store.logs.reader("t", 0).place.folder, base, ".log"), "rb") as file:
        return file.read()


def test_what_is_known_of_producers_comes_from_the_others(store, late):
    for number in range(APPENDS):
        store.append_batch("t", 0, ready(number, b"%030d" % number, producer=7))
        store.append_batch("t", 0, ready(number, b"aborted" * 9, producer=8, transactional=True))
    end_transaction(store, False, producer=8)
    late(store)
    assert faults(store.path) == []
    folder = store.logs.reader("t", 0).place.folder
    for offset in list_snapshots(folder):
        os.unlink(segment_path(folder, offset, SNAPSHOT))
    fresh = Store.open(store.path)
    end = fresh.latest_offset("t", 0, isolation_level=READ_COMMITTED)
    assert end == 2 * APPENDS + 1
    assert offsets(fresh, isolation_level=READ_COMMITTED) == list(range(0, 2 * APPENDS, 2))
    # The late one was not taken; it is taken when it comes again, once.
    again = ready(APPENDS, b"late", producer=7, timestamp=LATER)
    assert [fresh.append_batch("t", 0, again).base_offset for _ in range(2)] == [end, end]
    assert fresh.latest_offset("t", 0) == end + 1
