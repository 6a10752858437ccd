"""A short campaign; tests/kafka has Kafka's classes that it needs."""

import os

import pytest

from tests.kafka.kafka_tools import missing
from tests.server_campaign.run import kill
from tests.transaction_campaign.run import Campaign

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["server", "mixed", pytest.param("ours", marks=pytest.mark.long)])
def test_a_short_campaign(tmp_path, kind):
    reason = missing()
    if reason and "kafka" in os.environ.get("PYLOG_REQUIRE", "").split(","):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    campaign = Campaign(tmp_path, 5, kind)
    try:
        campaign.run(6)
        campaign.finish()
    finally:
        for process in campaign.running.values():
            kill(process)
        campaign.system.kill()
    assert campaign.check() == []
