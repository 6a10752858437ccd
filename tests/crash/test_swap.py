"""A swap of segments for a cleaned one is stopped before each of its changes to files, or the power fails there.

What readers find is the old log or the cleaned one, and the next process finishes what was begun.
"""

import errno
import os

import pytest
from attacks import Attacked
from counted import RECORDS, make_segments, numbers, rows

from pyspark_log.storage.fs import files
from pyspark_log.storage.log.recovery import swap
from pyspark_log.storage.log.state import partition_state
from pyspark_log.storage.record.empty_batch import empty_batch
from pyspark_log.storage.record.headers import scan
from pyspark_log.storage.segment.file_names import list_segments, segment_path
from pyspark_log.storage.segment.segment import SegmentWriter
from pyspark_log.storage.store import Store
from tests.stops import Stopped, run_until
from tests.store_tools import faults, observed

# The segments that are replaced: from the first on; one alone.
CASES = [(0, 18), (12, 18)]


def make(path, base, until):
    """Segments, and a cleaned segment of every other batch of some."""
    make_segments(path)
    folder = f"{path}/data/t-0"
    cleaned = bytearray()
    for one in range(base, until, 6):
        with open(segment_path(folder, one, ".log"), "rb") as file:
            log = file.read()
        first, second = scan(log, 0, len(log))
        cleaned += empty_batch(first.base_offset, first.next_offset, 0) + log[second.position : second.end]
    aside = f"{path}/aside"
    os.mkdir(aside)
    with open(segment_path(aside, base, ".log"), "wb") as file:
        file.write(cleaned)
    writer = SegmentWriter(aside, base, len(cleaned), Store.open(path).topic_config("t"))
    writer.finish()
    writer.close()
    for name in os.listdir(aside):
        os.rename(f"{aside}/{name}", f"{folder}/{name}.cleaned")
    os.rmdir(aside)


def replace(path, base, until):
    with Store.open(path).logs.writer("t", 0).hold() as writer:
        if list_segments(f"{path}/data/t-0") == [0, 6, 12, 18, 24]:
            swap.begin(writer.log, base, until)


def left(base, until):
    return [n for n in range(RECORDS) if not (base <= n < until and n % 6 < 3)]


def check(path, base, until):
    """Old or new to readers, both before and after another write; and then nothing is left over."""
    old, new = list(range(RECORDS)), left(base, until)
    found = numbers(path)
    assert all(number in old for number in found)
    assert set(new) <= set(found)
    assert faults(path) == [], found
    with Store.open(path) as store:
        store.append("t", rows(100))
    settled = numbers(path)
    assert settled in ([*old, *range(100, 103)], [*new, *range(100, 103)])
    assert faults(path) == []
    names = {name.name for name in (path / "data/t-0").iterdir()}
    assert not [name for name in names if name.endswith((".swap", ".linked"))], names
    if settled[: len(old)] != old:
        assert list_segments(f"{path}/data/t-0") == [b for b in (0, 6, 12, 18, 24, 30) if not base < b < until]


@pytest.mark.sampled
@pytest.mark.parametrize(("base", "until"), CASES)
class TestSwap(Attacked):
    parts = 3

    @pytest.fixture(autouse=True)
    def case(self, base, until):
        self.segments = base, until

    def make(self, path):
        make(path, *self.segments)

    def run(self, path):
        replace(path, *self.segments)

    def check_whole(self, path):
        assert numbers(path) == left(*self.segments)
        self.check(path)

    def check(self, path):
        check(path, *self.segments)


class TestSwapWithoutHardLinks(TestSwap):
    test_power_losses = None

    @pytest.fixture(autouse=True)
    def refuse_links(self, monkeypatch):
        def refuse(path, target, link=files.link):
            if ".log." in target:
                raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)
            link(path, target)

        monkeypatch.setattr(files, "link", refuse)


@pytest.mark.parametrize(("base", "until"), CASES)
def test_old_segments_stay_where_the_cleaned_one_goes_during_the_swap(memory_path, base, until):
    path = memory_path / "store"
    make(path, base, until)
    folder = path / "data/t-0"
    assert run_until(lambda: replace(path, base, until), stop_at_first_rename)
    for cleaned in folder.glob("*.cleaned"):
        cleaned.unlink()
    names = sorted(os.listdir(folder))
    with Store.open(path).logs.writer("t", 0).hold() as held:
        assert held.state.intent == partition_state.Intent.NONE
    assert numbers(path) == list(range(RECORDS))
    # With the indexes, also where it is one segment that has the offsets of the cleaned one.
    assert sorted(os.listdir(folder)) == names
    assert faults(path) == []


def test_old_segments_stay_where_the_first_has_as_many_bytes_as_the_cleaned_one_that_went(memory_path):
    path = memory_path / "store"
    make(path, 0, 18)
    folder = path / "data/t-0"
    (folder / f"{0:020d}.log.cleaned").write_bytes(bytes((folder / f"{0:020d}.log").stat().st_size))
    assert run_until(lambda: replace(path, 0, 18), stop_at_first_rename)
    for cleaned in folder.glob("*.cleaned"):
        cleaned.unlink()
    with Store.open(path).logs.writer("t", 0).hold():
        pass
    assert numbers(path) == list(range(RECORDS))


def stop_at_first_rename(change):
    if change.kind == "rename":
        raise Stopped


@pytest.mark.parametrize(("base", "until"), CASES)
def test_nothing_is_swapped_for_a_cleaned_segment_that_is_missing(memory_path, base, until):
    path = memory_path / "store"
    make(path, base, until)
    folder = path / "data/t-0"
    (folder / f"{base:020d}.log.cleaned").unlink()
    # What an index says of aborted transactions is true only of the log that it is of.
    aborted = folder / f"{base:020d}.txnindex"
    aborted.touch()
    names = sorted(os.listdir(folder))
    with pytest.raises(FileNotFoundError):
        replace(path, base, until)
    assert sorted(os.listdir(folder)) == names
    assert numbers(path) == list(range(RECORDS))
    assert faults(path) == []


def test_readers_that_are_at_work_find_a_log_that_was_true_at_some_moment(memory_path):
    path = memory_path / "store"
    make(path, 0, 24)
    store = Store.open(path)
    readers = [store.read("t", 0, max_bytes=1) for _ in range(8)]
    found = [[] for _ in readers]

    for number, reader in enumerate(readers):
        found[number] += [value for _ in range(number) for value in next(reader)["value"].to_pylist()]
    replace(path, 0, 24)
    for number, reader in enumerate(readers):
        found[number] += [value for batch in reader for value in batch["value"].to_pylist()]
    for number, values in enumerate(found):
        expected = [n for n in range(RECORDS) if n < 3 * number or n in left(0, 24)]
        assert [int(v.rstrip(b".")) for v in values] == expected, number


def test_a_process_that_knows_the_segments_learns_of_the_swap(memory_path):
    path = memory_path / "store"
    make(path, 0, 18)
    store = Store.open(path)
    before = store.size("t", 0)
    assert len(store.segment_files("t", 0)) == 5
    replace(path, 0, 18)
    now = store.segment_files("t", 0)
    assert now == [segment_path(f"{path}/data/t-0", base, ".log") for base in (0, 18, 24)]
    assert store.size("t", 0) == sum(map(os.path.getsize, now)) < before
    assert [int(v.rstrip(b".")) for b in store.read("t", 0) for v in b["value"].to_pylist()] == left(0, 18)


@pytest.mark.parametrize(("base", "until"), CASES)
def test_old_files_change_when_the_new_names_are_on_the_disk_and_the_indexes_go_first(memory_path, base, until):
    """A broker that believes in an index, or finds a part of the new names only, would lose records."""
    path = memory_path / "store"
    make(path, base, until)
    folder = f"{path}/data/t-0"
    log, *indexes = (segment_path(folder, base, suffix) for suffix in (".log", ".index", ".timeindex"))
    changes, left_over = [], []

    def observe(change):
        changes.append((change.kind, change.target or change.path))
        if (change.kind, change.target) == ("rename", log):
            left_over.append([index for index in indexes if os.path.exists(index)])

    assert all(map(os.path.exists, indexes))
    with observed(observe):
        replace(path, base, until)
    assert left_over == [[]]
    names = [change for change in changes if change[0] != "link" and change[1].startswith(folder)]
    last_new = max(at for at, (_, name) in enumerate(names) if name.endswith(".swap") and names[at][0] == "rename")
    assert names[last_new + 1] == ("sync_folder", folder)
    assert not {log, *indexes} & {name for _, name in names[:last_new]}
