"""What replicas have lost is found by the campaign of clusters."""

import re

import pytest

from pyspark_log.storage.record import headers_in
from tests.campaigns.cluster import faults
from tests.campaigns.members import segments_of

pytestmark = pytest.mark.slow


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
def test_what_replicas_have_lost_is_found(campaign, monkeypatch, kind, expected):
    for name in [*faults.KINDS]:
        monkeypatch.delitem(faults.KINDS, name)
    monkeypatch.setitem(faults.KINDS, "lost", kind)
    of = campaign("cluster", members=["kafka", "kafka", "kafka"], seed=5, kills=3)
    found = of.run()
    assert any(re.match(expected, one) for one in found), found
    assert (of.folder / "kept2" / "t-0").is_dir()
