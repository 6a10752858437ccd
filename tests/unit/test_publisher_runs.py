"""Which run of a publisher may publish, and which numbers are taken for replays."""

import pyarrow as pa
import pytest

from pyspark_log.storage.decision_log import DecisionLog
from pyspark_log.storage.errors import PublisherFencedError, PublishNumberError
from pyspark_log.storage.publish import claim, last_number, publish
from pyspark_log.storage.staging import StagedWriter, StagingPlan
from pyspark_log.storage.store import Store


@pytest.fixture
def store(tmp_path):
    store = Store.create(tmp_path / "store")
    store.create_topic("t", 1)
    return store


def put(store, number, value, **options):
    writer = StagedWriter(store, StagingPlan.make(store, ["t"]))
    writer.append("t", pa.record_batch({"value": [value]}))
    return publish(store, "q", number, writer.finish(), **options)


def content(store):
    return [value for batch in store.read("t", 0) for value in batch["value"].to_pylist()]


def test_a_run_that_claims_fences_the_one_that_is_about_to_decide(store):
    claim(store, "q", "older", 0)
    claim(store, "q", "newer", 0)
    with pytest.raises(PublisherFencedError, match=r"run older was replaced by run newer \(process \d+ on "):
        put(store, 0, b"x", run="older", claimed=True)
    put(store, 0, b"a", run="newer", claimed=True)
    with pytest.raises(PublisherFencedError):
        claim(store, "q", "older", 0)
    assert content(store) == [b"a"]


def test_a_run_with_a_number_that_is_refused_fences_nobody(store):
    put(store, 4, b"a", run="r1")
    for number in (3, 6):
        with pytest.raises(PublishNumberError, match=rf"number {number} after 4 \(process \d+ on .*, \d{{4}}-"):
            claim(store, "q", "r2", number)
    assert claim(store, "q", "r1", 5) == 4
    put(store, 5, b"b", run="r1", claimed=True)
    assert content(store) == [b"a", b"b"]


def test_a_publisher_that_comes_new_may_claim_any_number(store):
    claim(store, "q", "r1", 57)
    assert last_number(store, "q") is None
    put(store, 57, b"a", run="r1", claimed=True)
    assert last_number(store, "q") == 57


def test_a_run_that_has_the_publisher_claims_it_without_a_lock(store):
    claim(store, "q", "r1", 0)
    put(store, 0, b"a", run="r1", claimed=True)
    with DecisionLog.of(store).hold(store):
        assert claim(store, "q", "r1", 1) == 0


def test_the_last_number_with_another_plan_is_no_replay(store):
    put(store, 0, b"a", plan="one")
    with pytest.raises(PublishNumberError, match="number 0 was published with other input"):
        put(store, 0, b"b", plan="two")
    for plan in ("one", ""):
        assert put(store, 0, b"a", plan=plan).replayed
    put(store, 1, b"b", plan="two")
    assert content(store) == [b"a", b"b"]
