"""The engine is stopped before each change to files that a workload makes, and then checked.

All that was acknowledged is there once and in order; what was under way is there whole or not at all, and
doing it again ends well; what was decided appears. The same with half of the write made that came next.
"""

import itertools

import pytest
from attacks import Undisturbed
from numbered import check_index
from sampling import SAMPLED
from workload import Workload, content

from pyspark_log.storage.store import Store
from tests.scratch import memory_folder
from tests.store_tools import damages

pytestmark = [pytest.mark.usefixtures("little_sizes"), *SAMPLED]
# How many steps are made after the one that was stopped.
FOLLOWING = 5


def by_step(values):
    """Groups values that follow each other and belong to one append, or one publish."""

    def step(value):
        name = value.split(":")[0].split(" ")
        return tuple(name[:2]) if name[0] in ("publish", "once") else tuple(name)

    return [(key, list(group)) for key, group in itertools.groupby(values, step)]


def check_between(seen, before, after):
    """Of the step that was under way a partition shows all or nothing; of those before it, all."""
    for place in {**before, **after, **seen}:
        found, old, new = (values.get(place, []) for values in (seen, before, after))
        # What the step deletes may be gone before its own values come.
        assert found in (old, new) or (place[0] == "short" and old[len(old) - len(found) :] == found), place


def check_healthy(path):
    """Once each partition was written to, `verify` finds no damage."""
    Store.open(path).flush()
    damage = damages(path)
    assert not damage, damage


@pytest.fixture(scope="module")
def undisturbed(little_sizes):
    """In memory where there is some: a stop loses nothing that was written, synced or not."""
    with memory_folder() as folder:
        yield Undisturbed(folder, Workload, content, {})


def has(name, seen):
    return name in {step[0] for values in seen.values() for step in by_step(values)}


def test_stops(undisturbed, capsys):
    def check(workload, path, _step):
        # An append that was stopped may be there or not, so it has a name.
        workload.resume(undisturbed.contents, content, check_between, has, FOLLOWING)
        assert content(path) == undisturbed.contents[workload.done]
        check_healthy(path)
        for partition in range(2):
            if ("small", partition) in undisturbed.contents[workload.done]:
                check_index(Store.open(path), "small", partition)

    undisturbed.try_stops(check, 301, 0.95, capsys)
