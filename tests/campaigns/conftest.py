"""Campaigns as tests run them."""

import importlib
import os

import pytest

from tests.campaigns.__main__ import SCENARIOS
from tests.kafka.kafka_tools import NEWEST, OLDER, missing


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    """Makes a campaign, which has all the time that a busy machine needs."""

    def make(name, **options):
        versions = {"transactions": [NEWEST], "cluster": [NEWEST, OLDER]}.get(name, [])
        reason = next(filter(None, map(missing, versions)), "")
        if reason and "kafka" in os.environ.get("PYLOG_REQUIRE", "").split(","):
            pytest.fail(reason)
        module = importlib.import_module(f"tests.campaigns.{SCENARIOS[name]}")
        if name == "cluster":
            reason = reason or importlib.import_module("tests.campaigns.cluster.network").missing()
            for patience in ("_HEALED", "_FINISHED", "_ANSWERED"):
                monkeypatch.setattr(module, patience, 240)
        if reason:
            pytest.skip(reason)
        return module.Campaign(tmp_path / "campaign", **options)

    return make
