"""Publishers are listed, and forgotten only when nothing of theirs is open; `pylog publishers` shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from cli_tools import output, pylog

from pyspark_log.errors import CorruptRecordError, InvalidConfigError, PublisherFencedError, PublishError
from pyspark_log.storage.catalog.topics import OFFSETS_TOPIC, PUBLISH_TOPIC
from pyspark_log.storage.groups.committed_offsets import OffsetMoves
from pyspark_log.storage.groups.log.records import partition_for
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.publish import claims, pending, publisher_admin, publishing
from pyspark_log.storage.publish.decision import About
from pyspark_log.storage.publish.publisher_admin import delete_publisher
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition
from tests.store_tools import publish, rows, stage


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(path):
    store = Store.create(path)
    store.create_topic("t", 1)
    return store


def published(store, publisher, number, **options):
    return publish(store.decisions, publisher, number, stage(store, rows("v")), **options)


@pytest.fixture
def undone(store, monkeypatch):
    """Publisher "stuck" has a decision that is not applied."""
    with monkeypatch.context() as killed:
        killed.setattr(publishing, "apply_decision", lambda *_: None)
        published(store, "stuck", 0)


def records(store) -> list[tuple[str, bool]]:
    """Key, and whether the value is null, of each record of the decision log."""
    rows = pa.Table.from_batches(list(store.read(PUBLISH_TOPIC, 0))).select(["key", "value"]).to_pylist()
    return [(row["key"].decode(), row["value"] is None) for row in rows]


def test_a_publisher_that_is_deleted_goes_from_the_log_and_starts_over(store):
    published(store, "q", 0)
    published(store, "q", 1)
    published(store, "other", 7)
    assert delete_publisher(store.decisions, "q").number == 1
    assert records(store)[-1] == ("q", True)
    fresh = Store.open(store.path)
    assert [one.publisher for one in publisher_admin.publishers(fresh.decisions)] == ["other"]
    assert not published(fresh, "q", 1).replayed
    with pytest.raises(InvalidConfigError, match="no publisher 'nobody'"):
        delete_publisher(store.decisions, "nobody")


def test_nothing_is_made_where_nothing_was_published(store):
    with pytest.raises(InvalidConfigError):
        delete_publisher(store.decisions, "q")
    assert publisher_admin.publishers(store.decisions) == []
    assert publisher_admin.forget_one_offs(store.decisions) == 0
    assert store.topics(internal=True) == ["t"]


def test_a_run_whose_publisher_was_deleted_must_stop(store):
    claims.claim(store.decisions, "q", "run-1")
    delete_publisher(store.decisions, "q")
    with pytest.raises(PublisherFencedError, match="deleted"):
        published(store, "q", 0, run="run-1", claimed=True)


def test_a_publisher_with_an_open_decision_is_refused(store, undone):
    fresh = Store.open(store.path)
    with pytest.raises(PublishError, match=r"decision 0 \(number 0\) is not applied everywhere; `pylog recover`"):
        delete_publisher(fresh.decisions, "stuck")
    pending.help_apply(fresh.decisions)
    assert delete_publisher(fresh.decisions, "stuck").done


def test_a_batch_write_without_a_name_goes_with_a_record_when_it_is_done(store):
    published(store, "one", 0, one_off=True)
    assert records(store) == [("one", False), ("one", True)]


def test_a_publisher_without_a_name_is_remembered_like_others(store):
    published(store, "", 0)
    janitor.clean(store)
    assert published(store, "", 0).replayed
    assert store.latest_offset("t", 0) == 1


def test_a_failure_after_the_publish_does_not_ask_for_the_call_again(store, monkeypatch):
    looks, look = [], publishing._active_bases

    def fails_at_the_end(*args):
        looks.append(args)
        if len(looks) > 1:
            raise OSError(24, "Too many open files")
        return look(*args)

    monkeypatch.setattr(publishing, "_active_bases", fails_at_the_end)
    assert not published(store, "once", 0, one_off=True).replayed
    assert len(looks) == 2


def test_one_whose_call_was_killed_goes_when_the_store_is_cleaned_a_week_later(store, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr(publishing, "tidy", lambda *_, **__: None)
        published(store, "one", 0, one_off=True)
    published(store, "named", 0)
    janitor.clean(store)
    assert [one.publisher for one in publisher_admin.publishers(store.decisions)] == ["named", "one"]
    later = store.logs.clock() + publisher_admin.ONE_OFF_LIFETIME_MS + 60_000
    store.logs.clock.read = lambda: later
    janitor.clean(store)
    assert [one.publisher for one in publisher_admin.publishers(Store.open(store.path).decisions)] == ["named"]
    assert records(store)[-1] == ("one", True)


def test_a_log_that_was_not_followed_for_long_is_read_again(clock, store):
    """Compaction can have removed the record that says that a publisher was forgotten."""
    published(store, "q", 0)
    sleeper = Store.open(store.path)
    decisions = sleeper.decisions
    decisions.follow()
    decisions.last["ghost"] = decisions.last["q"]
    now = sleeper.logs.clock()
    half_a_day = 12 * 3600 * 1000
    for later, known in ((half_a_day - 60_000, {"q", "ghost"}), (2 * half_a_day, {"q"})):
        sleeper.logs.clock.read = lambda later=later: now + later
        decisions.follow()
        assert decisions.last.keys() == known


def test_decisions_that_could_not_be_read_were_not_followed(clock, store):
    published(store, "q", 0)
    sleeper = Store.open(store.path)
    decisions = sleeper.decisions
    decisions.follow()
    decisions.last["ghost"] = decisions.last["q"]
    published(store, "r", 0)
    name = Path(store.segment_files(PUBLISH_TOPIC, 0)[0])
    now, ten_hours, whole = sleeper.logs.clock(), 10 * 3600 * 1000, name.read_bytes()
    name.write_bytes(whole[:-1] + b"?")
    sleeper.logs.clock.read = lambda: now + ten_hours
    with pytest.raises(CorruptRecordError):
        decisions.follow()
    name.write_bytes(whole)
    sleeper.logs.clock.read = lambda: now + 2 * ten_hours
    decisions.follow()
    assert decisions.last.keys() == {"q", "r"}


def test_more_records_than_a_segment_holds_are_taken_at_once(store, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr(publishing, "apply_decision", lambda *_: None)
        for number in range(45):
            published(store, f"q{number}", 0, location="/a/checkpoint" * 2_000)
    fresh = Store.open(store.path)
    pending.help_apply(fresh.decisions)
    pending.tidy(fresh.decisions)
    assert len(store.segment_files(PUBLISH_TOPIC, 0)) >= 3
    assert all(one.done for one in publisher_admin.publishers(Store.open(store.path).decisions))
    assert store.logs.reader(PUBLISH_TOPIC, 0).state().first_undone == store.latest_offset(PUBLISH_TOPIC, 0) == 90


def test_the_decisions_are_compacted_as_they_are_made(store):
    """Of one publisher's forty records of 52 KB, and of what it has moved, the last ones are left."""
    location, group = "/a/checkpoint" * 4_000, "g" * 30_000
    partition = partition_for(group, 50)
    for number in range(40):
        step = OffsetStep(group, TopicPartition("t", 0), number or None, number + 1)
        published(store, "q", number, location=location, participants=[OffsetMoves(store.committed_offsets, [step])])
    assert store.size(PUBLISH_TOPIC, 0) < 1.5 * (1 << 20)
    assert store.size(OFFSETS_TOPIC, partition) < 400_000
    fresh = Store.open(store.path)
    assert published(fresh, "q", 39, location=location).replayed
    assert OffsetsLog(fresh).fetch(group)[TopicPartition("t", 0)].offset == 40


# --- the command


def test_publishers_are_listed(store, path, monkeypatch):
    published(store, "query", 4, run="run-1", location="/data/checkpoint")
    claims.claim(store.decisions, "waiting", "run-9")
    for module in (publishing, pending):
        monkeypatch.setattr(module, "apply_decision", lambda *_: None)
    published(store, "stuck", 0)
    rows = [line.split() for line in output(path, "publishers", "list").splitlines()]
    assert [row[:4] for row in rows] == [
        ["PUBLISHER", "NUMBER", "QUERY", "RUN"],
        ["query", "4", "-", "run-1"],
        ["stuck", "0", "-", "-"],
        ["waiting", "-", "-", "run-9"],
    ]
    assert [row[4] for row in rows] == ["STATUS", "done", "decided", "done"]
    found = json.loads(output(path, "publishers", "list", "--json"))
    assert [(one["publisher"], one["number"], one["status"]) for one in found] == [
        ("query", 4, "done"),
        ("stuck", 0, "decided"),
        ("waiting", None, "done"),
    ]


def test_a_publisher_is_described(store, path):
    published(store, "query", 4, run="run-1", location="/data/checkpoint")
    claims.claim(store.decisions, "query", "run-2")
    lines = output(path, "publishers", "describe", "query").splitlines()
    for line in (
        "publisher: query", "number: 4", "decision: 0", "records: 1", "partitions: t-0", "run: run-2",
        "checkpoint: /data/checkpoint", "replaced runs: run-1", "set aside: -", "single publish: false",
    ):  # fmt: skip
        assert line in lines
    (found,) = json.loads(output(path, "publishers", "describe", "query", "--json"))
    assert (found["held_by"]["process"], found["replaced_runs"]) == (found["decided_by"]["process"], ["run-1"])
    for words in (["describe", "nobody"], ["delete", "nobody"], ["delete", "nobody", "--yes"]):
        missing = pylog(path, "publishers", *words)
        assert (missing.exit_code, missing.stderr) == (1, f"Error: there is no publisher 'nobody' in {path}\n")


def test_what_is_known_of_a_query_stays_when_it_publishes_nothing(place):
    """As the last micro-batch of a query that is idle."""
    known = About("delays", "/data/c", ("flights",), ("t",))
    with Store.create(place) as store:
        store.create_topic("t")
        store.publishes.publish("q", 0, stage(store, rows("v")), about=known)
        store.publishes.publish("q", 1, [], about=known._replace(writes=()))
    with Store.open(place) as store:
        (found,) = store.publishes.publishers()
        assert (found.number, found.records, found.done, found.about) == (1, 0, True, known)
        lines = output(store.path, "publishers", "describe", "q").splitlines()
        for line in ("query: delays", "checkpoint: /data/c", "reads: flights", "writes: t", "status: done"):
            assert line in lines


def test_a_publisher_is_deleted_only_with_the_assurance_that_it_never_comes_back(store, path):
    published(store, "query", 4)
    refused = pylog(path, "publishers", "delete", "query")
    assert (refused.exit_code, "Delete the publisher? There is no terminal" in refused.stderr) == (2, True)
    assert len(publisher_admin.publishers(store.decisions)) == 1
    assert output(path, "publishers", "delete", "query", "--yes") == (
        "Deleted publisher query; its last number was 4.\n"
    )
    assert publisher_admin.publishers(store.decisions) == []
