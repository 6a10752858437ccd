"""A truncation is stopped before each of its changes to files, or the power fails there: it takes place or does not."""

import pytest
from attacks import Attacked
from counted import RECORDS, make_segments, numbers, rows
from sampling import SAMPLED

from pyspark_log.storage.store import Store
from tests.store_tools import cut_log, faults

pytestmark = SAMPLED

# The log start, where the log is cut, and where it then ends; in an older segment, in the active one, with the batch
# in which the log starts, in either.
CASES = [(0, 15, 15), (0, 28, 27), (7, 20, 18), (7, 8, 7), (25, 26, 25)]


def make(path, start):
    make_segments(path).delete_records("t", 0, start)


def cut(path, offset):
    return cut_log(Store.open(path), offset)


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
class TestTruncation(Attacked):
    parts = 3

    @pytest.fixture(autouse=True)
    def case(self, start, offset, end):
        self.start, self.offset, self.end = start, offset, end

    def make(self, path):
        make(path, self.start)

    def run(self, path):
        cut(path, self.offset)

    def check_whole(self, path):
        assert numbers(path) == list(range(self.start, self.end))

    def check(self, path, *, at_ends=True):
        check(path, list(range(self.start, RECORDS)), list(range(self.start, self.end)), at_ends=at_ends)

    def check_left(self, path, count, number):
        self.check(path, at_ends=False)
