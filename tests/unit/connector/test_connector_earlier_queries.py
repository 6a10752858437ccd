"""A query whose first output goes where an earlier one has written is warned of: its checkpoint may be lost."""

import socket

import pytest

from pyspark_log.spark_connector.writing import query_run
from pyspark_log.spark_connector.writing.query_run import warn_of_earlier
from pyspark_log.storage.publish.decision import About
from pyspark_log.storage.store import Store
from tests.store_tools import rows, stage

EARLIER = About("delays", "/data/c", ("flights",), ("t", "u"))


@pytest.fixture
def store(place, monkeypatch):
    """`spark-1` has written to t, on another machine."""
    monkeypatch.setattr(query_run, "_seen", set())
    with Store.create(place) as store:
        store.create_topic("t")
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
            store.publishes.publish("spark-1", 0, stage(store, rows("v")), about=EARLIER)
        yield store


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (About(checkpoint="/data/c", writes=("t",)), "with the same checkpoint location"),
        (About("delays", "/data/new", writes=("t",)), "of the same name"),
        (About("", "/data/new", ("flights",), ("t", "v")), "that read the same topics"),
        (About("delays", "/data/c", ("flights",), ("v",)), ""),
        (About("other", "/data/new", ("others",), ("t",)), ""),
        (About(writes=("t",)), ""),
    ],
)
def test_what_makes_a_query_look_like_an_earlier_one(store, caplog, now, why):
    """Once, and before its output is out."""
    for _ in range(2):
        warn_of_earlier(store, "spark-2", now)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == bool(why)
    for line in said:
        assert f"writes to t for the first time, which another query {why} has written to before (spark-1, " in line


@pytest.mark.parametrize("known", ["itself", "alive"])
def test_a_query_that_is_known_or_beside_one_that_runs(store, caplog, known):
    publisher = "spark-1" if known == "itself" else "spark-2"
    if known == "alive":
        store.publishes.publish("spark-1", 1, stage(store, rows("v")), about=EARLIER)
    warn_of_earlier(store, publisher, About("", "/data/new", EARLIER.reads, EARLIER.writes))
    assert caplog.messages == []
