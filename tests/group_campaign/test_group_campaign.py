"""A short campaign."""

import pytest

from tests.group_campaign import run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_short_campaign(tmp_path, assignor):
    campaign = run.Campaign(tmp_path, 7, assignor)
    try:
        campaign.disturb(25)
        campaign.finish()
        found = campaign.check()
    finally:
        campaign.end()
    assert found["tenures"] > run.PARTITIONS
    assert campaign.counts["kill"] > 0
