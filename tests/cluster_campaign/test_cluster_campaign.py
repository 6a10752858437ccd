"""Short campaigns; tests/kafka has Kafka's classes that they need."""

import os
import re

import pytest

from pyspark_log.storage.record import headers_in
from tests.cluster_campaign import faults, network, run
from tests.cluster_campaign.cluster import segments_of
from tests.cluster_campaign.run import Campaign
from tests.kafka.kafka_tools import OLDER, missing

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def network_and_kafka():
    reason = missing() or missing(OLDER)
    if reason and "kafka" in os.environ.get("PYLOG_REQUIRE", "").split(","):
        pytest.fail(reason)
    if reason := reason or network.missing():
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """The machine may have much else to do."""
    for name in ("_HEALED", "_FINISHED", "_ANSWERED"):
        monkeypatch.setattr(run, name, 240)


@pytest.mark.parametrize("members", ["kafka,kafka39,ours", pytest.param("ours,ours,ours", marks=pytest.mark.long)])
def test_a_short_campaign(tmp_path, members):
    assert Campaign(tmp_path, members.split(","), 178).run(6) == []


class Lost(faults.Torn):
    """A byte of a committed record is another one, in the files of some members that run."""

    members_of, lasts = (2,), (0.5, 1)

    def begin(self):
        at = faults.ALL[0]
        for number in self.members_of:
            with segments_of(self.cluster.members[number].folder_of(at))[0].open("r+b") as file:
                [header, *_] = headers_in(file.read(), 0, 1 << 20)
                file.seek(header.end - 1)
                file.write(b"?")


class LostByAll(Lost):
    members_of = (1, 2, 3)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Lost, "t-0: members 1 and 2 differ"),
        pytest.param(LostByAll, "t-0: (what was committed before|all replicas have damaged)", marks=pytest.mark.long),
    ],
)
def test_what_replicas_have_lost_is_found(tmp_path, monkeypatch, kind, expected):
    for name in [*faults.KINDS]:
        monkeypatch.delitem(faults.KINDS, name)
    monkeypatch.setitem(faults.KINDS, "lost", kind)
    found = Campaign(tmp_path, ["kafka", "kafka", "kafka"], 5).run(3)
    assert any(re.match(expected, one) for one in found), found
    assert (tmp_path / "kept2" / "t-0").is_dir()
