"""A truncation is stopped before each of its changes to files, or the power fails there: it takes place or does not."""

import random

import pyarrow as pa
import pytest
from power import Trace
from sampling import SAMPLED, sample
from stops import StopBefore, copy_folder, count_changes, run_until

from pyspark_log.storage.log.replica import truncate
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.segment.file_names import list_segments
from pyspark_log.storage.store import Store
from tests.scratch import memory_folder
from tests.store_tools import faults

pytestmark = SAMPLED

RECORDS = 30
# The log start, where the log is cut, and where it then ends; in an older segment, in the active one, with the batch
# in which the log starts, in either.
CASES = [(0, 15, 15), (0, 28, 27), (7, 20, 18), (7, 8, 7), (25, 26, 25)]


@pytest.fixture
def folder():
    with memory_folder() as made:
        yield made


def rows(first, count=3):
    return pa.record_batch({"value": [b"%d" % (first + row) + b"." * 30 for row in range(count)]})


def make(path, start):
    """Ten batches of three records, two batches a segment."""
    with Store.create(path) as store:
        store.create_topic("t", 1, {"segment.bytes": "400", "index.interval.bytes": "1", "retention.ms": "-1"})
        for first in range(0, RECORDS, 3):
            store.append("t", rows(first))
        assert list_segments(f"{path}/data/t-0") == [0, 6, 12, 18, 24]
        store.delete_records("t", 0, start)


def cut(path, offset):
    with Store.open(path).logs.writer("t", 0).hold() as writer:
        return truncate(writer.log, offset)


def numbers(path):
    return [int(v.rstrip(b".")) for b in Store.open(path).read("t", 0) for v in b["value"].to_pylist()]


def check(path, before, after, *, at_ends):
    """The log has all records, or those before the cut; `at_ends`: nothing between. Then others append."""
    found = numbers(path)
    assert found in (before, after) or (not at_ends and before[: len(found)] == found and len(found) > len(after))
    assert faults(path) == [], f"{found} are there"
    for number in range(100, 109, 3):
        Store.open(path).append("t", rows(number))
    assert numbers(path) == [*found, *range(100, 109)]
    assert faults(path) == [], f"{found} are there, and others were appended"
    end = Store.open(path).latest_offset("t", 0)
    assert cut(path, end - 9) == end - 9
    assert numbers(path) == found


@pytest.mark.parametrize(("start", "offset", "end"), CASES)
def test_a_truncation_that_is_stopped(folder, start, offset, end):
    make(folder / "store", start)
    copy_folder(folder / "store", folder / "whole")
    changes = count_changes(lambda: cut(folder / "whole", offset))
    assert numbers(folder / "whole") == list(range(start, end))
    assert changes >= 10
    for change in sample(range(changes), changes):
        path = folder / f"{change}"
        copy_folder(folder / "store", path)
        stop = StopBefore(change)
        assert run_until(lambda path=path: cut(path, offset), stop)
        try:
            check(path, list(range(start, RECORDS)), list(range(start, end)), at_ends=True)
        except Exception as error:
            raise AssertionError(f"stopped before change {change} ({stop.stopped_at})") from error


@pytest.mark.parametrize(("start", "offset", "end"), CASES)
def test_a_truncation_in_which_the_power_goes(folder, start, offset, end, monkeypatch):
    make(folder / "store", start)
    trace = Trace(folder / "store")
    trace.record(lambda: cut(folder / "store", offset))
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    for count, disk in trace.disks(sample(range(1, len(trace.changes) + 1), len(trace.changes))):
        fates = [disk.nothing(), disk.everything(), *(disk.any_part(random.Random(f"{count} {n}")) for n in range(3))]
        for number, fate in enumerate(fates):
            path = folder / f"{count} {number}"
            disk.write(path, fate)
            try:
                check(path, list(range(start, RECORDS)), list(range(start, end)), at_ends=False)
            except Exception as error:
                raise AssertionError(f"power lost before change {count}, fate {number}") from error
    assert len(trace.changes) >= 10
