"""Jobs made for Kafka run on a store with two words changed, and make the same rows."""

import pytest
from strangers_jobs import JOBS, TOPICS, At, rows_of


@pytest.fixture(scope="module")
def filled(sides):
    """Both sides, with the topics that the jobs read."""
    for side in sides:
        for topic, partitions in TOPICS.items():
            side.create(topic, len(partitions))
            for number, values in enumerate(partitions):
                side.send(topic, rows_of(values), number)
    return sides


@pytest.fixture
def places(broker, filled, tmp_path, request):
    """Where a job runs: with the words for Kafka, then with those for a store."""
    kafkas, ours = filled
    words = (
        ("kafka", ("kafka.bootstrap.servers", broker.bootstrap), kafkas), ("pylog", ("path", ours.store.path), ours),
    )  # fmt: skip
    name = request.node.name.partition("[")[2].rstrip("]")
    return [At(*word, tmp_path / word[0], name) for word in words]


@pytest.mark.parametrize("name", JOBS)
def test_both_make_the_same_rows(spark, places, name):
    expected, found = (sorted(map(repr, JOBS[name].function(spark, at))) for at in places)
    assert found == expected
    assert len(found) == JOBS[name].rows
