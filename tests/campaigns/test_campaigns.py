"""Short campaigns; tests/kafka has Kafka's classes that some of them need."""

import pytest

from tests.campaigns.object_actors import hurried
from tests.spark.java import java_version

pytestmark = pytest.mark.slow

_SPARK = [
    pytest.mark.long, pytest.mark.timeout(1400),
    pytest.mark.skipif(java_version() < 17, reason="Spark needs Java 17 or later"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("transactions", {"kills": 6, "seed": 5}),
        ("transactions", {"kills": 6, "seed": 5, "cluster": "mixed"}),
        pytest.param("transactions", {"kills": 6, "seed": 5, "cluster": "ours"}, marks=pytest.mark.long),
        ("cluster", {"kills": 6, "seed": 178, "members": ["kafka", "kafka39", "ours"]}),
        pytest.param("cluster", {"kills": 6, "seed": 178, "members": ["ours"] * 3}, marks=pytest.mark.long),
        ("objects", {"kills": 6, "stops": 3, "publishes": 100, "seed": 7}),
        pytest.param("queries", {"kills": 4}, marks=_SPARK),
    ],
)
def test_nothing_is_wrong(campaign, monkeypatch, name, options):
    # A campaign of objects makes days of seconds, which no later test of this process may have.
    for module, constant in hurried():
        monkeypatch.setattr(module, constant, getattr(module, constant))
    assert campaign(name, **options).run() == []


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_partitions_move(campaign, assignor):
    of = campaign("groups", kills=25, seed=7, assignor=assignor)
    assert of.run() == []
    assert of.counts["tenures"] > 6
    assert of.counts["kills"] > 0
