"""Some thousands of events of the explorer of nodes; PYLOG_EXPLORER_EVENTS says how many more."""

import os
from collections import Counter

import pytest
from cluster_explorer import EVENTS_OF_A_WORLD, World

from tests.exploring import explore

WORLDS = int(os.environ.get("PYLOG_EXPLORER_EVENTS", "20000")) * 10 // EVENTS_OF_A_WORLD


@pytest.mark.parametrize("part", range(8))
def test_no_rule_of_nodes_is_broken(part):
    counts = Counter()
    for seed in range(part, WORLDS, 8):
        counts += explore(World, seed, EVENTS_OF_A_WORLD).rules.counts
    assert {name for name in counts if counts[name] > 10} >= {
        "asked a leader that was replaced", "changes", "elections", "heartbeats", "registrations", "snapshot parts",
        "unfencing",
    }  # fmt: skip
