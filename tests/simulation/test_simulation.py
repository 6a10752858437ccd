"""A simulated house lives the same life twice, and finds what is wrong in the product."""

import pytest

from tests.seeds import new_seed
from tests.simulation.house import simulate
from tests.simulation.planted import PLANTED

# How many houses of how many hours find a planted fault: the rarest was seen in the 22nd.
_HOUSES, _HOURS = 60, 4
_FOUND_IN_SECONDS = (
    "sequence numbers are not folded",
    "epochs of producers are not compared",
    "a staged offset is not applied",
    "parts of a transaction are shown before its commit",
)


def test_a_seed_is_a_life():
    seed = new_seed()
    first, second = (simulate(seed, 0.02) for _ in range(2))
    assert first.world.switches > 1000
    assert (first.world.trace, first.history.counts) == (second.world.trace, second.history.counts)
    assert simulate(seed + 1, 0.02).world.trace != first.world.trace


@pytest.mark.slow
def test_hours():
    seed = new_seed()
    counts = [simulate(seed + number, 1).history.counts for number in range(3)]
    assert sum(count["transactions there"] for count in counts) > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", [
    pytest.param(fault, marks=[] if fault in _FOUND_IN_SECONDS else pytest.mark.long) for fault in PLANTED
])  # fmt: skip
def test_planted_faults(fault):
    def find():
        for seed in range(1, _HOUSES + 1):
            simulate(seed, _HOURS, PLANTED[fault])

    with pytest.raises(AssertionError, match="seed"):
        find()
