"""The engine is stopped before each change to files of a workload in which compaction meets all else.

What was acknowledged is there in order and at its offset, less what a cleaner may remove; what was under way is there
whole or not at all, but for a cleaner, which works segment by segment; and doing it again leads to the same end.
"""

from functools import partial

import pytest
from attacks import Undisturbed
from compacted import CompactedWorkload, Seen, check_committed, check_dense, numbered, see
from sampling import SAMPLED

from pyspark_log.storage.store import Store
from tests.scratch import memory_folder
from tests.store_tools import faults

pytestmark = [pytest.mark.usefixtures("little_logs"), *SAMPLED]
# How many steps are made after the one that was stopped.
FOLLOWING = 6


@pytest.fixture(scope="module")
def undisturbed(little_logs):
    """In memory where there is some: a stop loses nothing that was written, synced or not."""
    with memory_folder() as folder:
        yield Undisturbed(folder, CompactedWorkload, see, ({}, {}))


def from_start(records, start):
    return {offset: record for offset, record in records.items() if offset >= start}


def check_between(found, before, after, cleaning):
    """Before a step that was under way there was one thing, and there will be the other when it is done again."""
    (seen, groups), (old_seen, old_groups), (new_seen, new_groups) = found, before, after
    for at in {**old_seen, **new_seen, **seen}:
        one, old, new = (which.get(at, Seen()) for which in (seen, old_seen, new_seen))
        check_committed(at, one)
        # What the step deletes may be gone before its own records come.
        assert old.start <= one.start <= new.start, at
        records, earlier, later = one.records, from_start(old.records, one.start), from_start(new.records, one.start)
        if cleaning:
            assert later.items() <= records.items() <= earlier.items(), at
        else:
            assert records in (earlier, later), at
    assert groups in (old_groups, new_groups)


def check_same(found, expected):
    """The end is that of the run that was not stopped."""
    (seen, groups), (expected_seen, expected_groups) = found, expected
    for at, expected_one in expected_seen.items():
        one = seen[at]
        check_committed(at, one)
        assert one.end == expected_one.end, at
        start = max(one.start, expected_one.start)
        records, wanted = from_start(one.records, start), from_start(expected_one.records, start)
        if at[0] == "mixed":
            # Retention uses the size that cleaners have left. Two segments stay at least.
            assert one.start <= max(expected_one.start, expected_one.end - 8), at
        else:
            assert one.start == expected_one.start, at
        if at[0] == "brief":
            # A cleaner that went over them once more has removed more of them.
            gone = [offset for offset, (_, value) in wanted.items() if value is None and offset not in records]
            wanted = {offset: record for offset, record in wanted.items() if offset not in gone}
        assert records == wanted, at
    assert groups == expected_groups


def has(name, seen):
    values = [value for one in seen[0].values() for _, value in one.records.values()]
    return any((value or "").startswith(f"{name}:") for value in values)


def check_healthy(path):
    """Once each partition was written to, nothing is wrong; and the numbers of a producer are known."""
    store = Store.open(path)
    store.flush()
    found = faults(path)
    assert not found, found
    check_dense(path)
    last = [
        int(value.split(":")[0].removeprefix("numbered "))
        for batch in (store.read("keyed", 1) if "keyed" in store.topics() else ())
        for value in batch["value"].drop_null().cast("string").to_pylist()
        if value.startswith("numbered")
    ]
    for number in last[-1:]:
        assert store.append_batch("keyed", 1, numbered(number)).duplicate
        assert not store.append_batch("keyed", 1, numbered(number + 1)).duplicate


def test_the_workload_compacts(undisturbed):
    """Each of its cleanings removes records."""
    workload = CompactedWorkload("unused")
    for step in workload.cleanings:
        (before, _), (after, _) = undisturbed.contents[step : step + 2]
        assert any(len(after[at].records) < len(before[at].records) for at in before), step


def test_stops(undisturbed, capsys):
    def check(workload, path, step):
        check_step = partial(check_between, cleaning=step in workload.cleanings)
        workload.resume(undisturbed.contents, see, check_step, has, FOLLOWING)
        check_same(see(path), undisturbed.contents[workload.done])
        check_healthy(path)

    undisturbed.try_stops(check, 60, 0.9, capsys)
