"""Leaders and followers under elections, crashes, power losses and cut networks: nothing acknowledged is lost."""

import pytest
from leading_explorer import explore


def test_nothing_acknowledged_is_lost():
    found = explore(1, 400_000)
    assert min(found[what] for what in ("acknowledged", "elections", "power losses", "truncations")) > 40, found
    assert found["acknowledged in a later epoch"], found


@pytest.mark.slow
@pytest.mark.long
def test_nothing_is_lost_in_many_more_worlds():
    explore(1_000_000, 20_000_000)
