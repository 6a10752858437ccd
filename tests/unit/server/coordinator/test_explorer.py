"""Some thousands of events of the explorer; PYLOG_EXPLORER_EVENTS says how many more."""

import os

import pytest
from explorer import EVENTS_OF_A_WORLD, World

from tests.exploring import explore

WORLDS = int(os.environ.get("PYLOG_EXPLORER_EVENTS", "20000")) // EVENTS_OF_A_WORLD


@pytest.mark.parametrize("part", range(10))
def test_no_rule_is_broken(part):
    for seed in range(part, WORLDS, 10):
        world = explore(World, seed, EVENTS_OF_A_WORLD)
        assert world.rules.counts["syncs"] > 0
        assert world.rules.counts["commits"] > 0
