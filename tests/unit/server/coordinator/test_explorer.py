"""Some thousands of events of the explorers of groups; PYLOG_EXPLORER_EVENTS says how many more."""

import os

import explorer
import modern_explorer
import pytest

from tests.exploring import explore

EVENTS = int(os.environ.get("PYLOG_EXPLORER_EVENTS", "20000"))


@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize(("kind", "seen"), [(explorer, "syncs"), (modern_explorer, "NONE")], ids=["classic", "modern"])
def test_no_rule_is_broken(kind, seen, part):
    for seed in range(part, EVENTS // kind.EVENTS_OF_A_WORLD, 10):
        world = explore(kind.World, seed, kind.EVENTS_OF_A_WORLD)
        assert world.rules.counts[seen] > 0
        assert world.rules.counts["commits"] > 0
