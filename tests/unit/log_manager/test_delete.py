"""Topics that are deleted, perhaps under readers and writers and perhaps recreated; and the work of the janitor."""

import base64
import os
import shutil
import threading
import time

import pytest

from pyspark_log.errors import LockTimeoutError, StagedOutputError, TopicExistsError, UnknownTopicError
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.locking.locks import lock_for
from pyspark_log.storage.log.state.state_file import FILE_SIZE
from pyspark_log.storage.log_manager import deletion
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.publish import applier, publishing
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.publish.staging import StagingPlan
from pyspark_log.storage.store import Store
from tests.store_tools import Stopped, new_store, observed, publish, rows, stage, store_with

DAY = 86_400
KAFKAS = ("-checkpoint", "meta.properties")


store = store_with(partitions=3, configs={"segment.bytes": "400"})


def fill(store, count=6, topic="t", partition=0):
    for number in range(count):
        store.append(topic, rows(b"%d" % number + b"." * 100), partition=partition)


def values(store, topic="t", partition=0):
    return [v.rstrip(b".") for b in store.read(topic, partition) for v in b["value"].to_pylist()]


def entries(store, folder):
    """What is in a folder of the store, but for the store's own locks and what Kafka keeps beside the partitions."""
    try:
        names = os.listdir(f"{store.path}/{folder}")
    except FileNotFoundError:
        return []
    return sorted(name for name in names if ".lock" not in name and not name.endswith(KAFKAS))


def hex_of(topic_id):
    return base64.urlsafe_b64decode(topic_id + "==").hex()


# ---- topics


def test_a_deleted_topic_is_gone_at_once_and_its_files_after_the_delay(clock, store):
    fill(store)
    fill(store, partition=2)
    topic_id = store.describe_topic("t").topic_id
    store.delete_topic("t")
    assert (store.topics(), Store.open(store.path).topics()) == ([], [])
    for use in (store.describe_topic, store.delete_topic, lambda name: store.append(name, rows(b"x"))):
        with pytest.raises(UnknownTopicError):
            use("t")
    # Partition 1 never had files. A broker deletes folders of that name when it starts.
    assert entries(store, "data") == [f"t-{number}.{hex_of(topic_id)}-delete" for number in (0, 2)]
    store.clean()
    assert len(entries(store, "data")) == 2
    clean_after_delay(store)
    assert [entries(store, folder) for folder in ("data", "state", "topics/deleted")] == [[], [], []]


def clean_after_delay(store):
    """The delay counts from the deletion, a time that a test cannot set back; it may be long after the clock's."""
    now, store.logs.clock.read = store.logs.clock.read, lambda: now() + 3_600_000
    store.clean()
    store.logs.clock.read = now


def test_a_deletion_reports_how_far_it_is(store):
    for partition in (0, 2):
        fill(store, partition=partition)
    reported = []
    store.delete_topic("t", lambda *counts: reported.append(counts))
    assert reported == [(0, 2), (1, 2)]


def test_without_a_delay_nothing_is_left(tmp_path):
    store = new_store(tmp_path, partitions=2, settings={"log.segment.delete.delay.ms": "0"})
    fill(store)
    store.delete_topic("t")
    assert [entries(store, folder) for folder in ("data", "state", "topics/deleted")] == [[], [], []]


def test_the_longest_names_are_cut_as_kafka_cuts_them(clock, store):
    name = "n" * 245
    store.create_topic(name, 1)
    fill(store, topic=name)
    store.delete_topic(name)
    (folder,) = entries(store, "data")
    assert len(folder) == 255
    assert folder.startswith("nnn")
    clean_after_delay(store)
    assert entries(store, "data") == []


def test_a_recreated_topic_is_another_one(store):
    fill(store)
    other = Store.open(store.path)
    assert len(values(other)) == 6
    before = store.describe_topic("t")
    old_writer, old_reader = other.logs.writer("t", 0), other.logs.reader("t", 0)
    old_reader.state()
    store.delete_topic("t")
    store.create_topic("t", 1)
    assert store.describe_topic("t").topic_id != before.topic_id
    store.append("t", rows(b"new"))
    with pytest.raises(UnknownTopicError, match="was deleted"), old_writer.hold():
        pass
    with pytest.raises(UnknownTopicError, match="was deleted"):
        old_reader.state()
    assert values(other) == [b"new"]
    other.append("t", rows(b"newer"))
    clean_after_delay(store)
    # Now without a state file, they still know.
    with pytest.raises(UnknownTopicError, match="was deleted"), old_writer.hold():
        pass
    with pytest.raises(UnknownTopicError, match="was deleted"):
        old_reader.state()
    assert values(store) == values(other) == [b"new", b"newer"]
    assert entries(store, "data") == ["t-0"]


def test_a_reader_at_work_never_sees_the_records_of_the_next_topic(store):
    fill(store)
    reader = store.read("t", 0, max_bytes=1)
    seen = [next(reader)["value"][0].as_py()]
    other = Store.open(store.path)
    other.delete_topic("t")
    other.create_topic("t", 1, {"segment.bytes": "400"})
    for _ in range(6):
        other.append("t", rows(b"new" + b"." * 98))
    with pytest.raises(UnknownTopicError, match="was deleted"):
        seen.extend(batch["value"][0].as_py() for batch in reader)
    assert {value.rstrip(b".") for value in seen} <= {b"%d" % number for number in range(6)}
    assert len(seen) == 2, "it had the first segment open, which holds two"


def test_a_writer_that_waited_for_the_lock_learns_of_the_deletion(store):
    fill(store)
    waiting, outcome = Store.open(store.path).logs.writer("t", 0), []

    def write():
        try:
            with waiting.hold():
                outcome.append("written")
        except UnknownTopicError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=write)
    with store.logs.writer("t", 0).hold():
        thread.start()
        time.sleep(0.05)
        deleter = threading.Thread(target=Store.open(store.path).delete_topic, args=("t",))
        deleter.start()
        time.sleep(0.05)
    thread.join()
    deleter.join()
    assert outcome in (["written"], ["t-0: the topic was deleted"])
    assert store.topics() == []


def test_a_first_write_and_a_deletion_at_once_leave_no_leftovers(store):
    """No state file is made for a topic that is gone."""
    stale = Store.open(store.path)
    runtime = stale.logs.topic("t")
    store.delete_topic("t")
    store.create_topic("t", 3)
    stale.logs._topics["t"] = runtime
    with pytest.raises(UnknownTopicError, match="was deleted"):
        stale.logs.make_state(runtime, 0)
    assert entries(store, "state") == []


def test_the_next_process_finishes_a_killed_deletion(store, monkeypatch):
    fill(store)
    fill(store, partition=1)
    with monkeypatch.context() as patched:
        patched.setattr(deletion, "schedule_delete", _fail)
        store.delete_topic("t")
    assert store.topics() == []
    assert entries(store, "data") == ["t-0", "t-1"]
    store.create_topic("t", 1)
    assert [name[-7:] for name in entries(store, "data")] == ["-delete", "-delete"]
    store.append("t", rows(b"new"))
    assert values(store) == [b"new"]
    clean_after_delay(store)
    assert entries(store, "data") == ["t-0"]
    assert values(Store.open(store.path)) == [b"new"]


def _fail(*_arguments):
    raise LockTimeoutError("another process holds it")


def test_a_damaged_topic_can_be_deleted(store):
    fill(store)
    place = store.logs.reader("t", 0).place
    with open(place.state_path, "r+b") as file:
        file.write(b"\xff" * FILE_SIZE)
    os.unlink(store.segment_files("t", 0)[-1])
    Store.open(store.path).delete_topic("t")
    clean_after_delay(store)
    assert [entries(store, folder) for folder in ("data", "state")] == [[], []]


def test_a_publish_to_a_deleted_topic_is_refused_or_void(store):
    store.create_topic("other", 1)
    parts = stage(store, rows(b"a"))
    store.delete_topic("t")
    store.create_topic("t", 3)
    with pytest.raises(StagedOutputError, match="was deleted"):
        publish(store.decisions, "q", 0, parts)
    # Decided, and deleted before it is applied: that part of it is void.
    both = [*stage(store, rows(b"b")), *stage(store, rows(b"c"), topic="other")]
    apply = applier.apply

    def apply_late(writer, *arguments, **options):
        if writer.place.topic == "t":
            Store.open(store.path).delete_topic("t")
        return apply(writer, *arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(applier, "apply", apply_late)
        assert publish(store.decisions, "q", 0, both).records == 2
    store.create_topic("t", 3)
    assert help_apply(store.decisions) == 0
    assert [values(store, "t", number) for number in range(3)] == [[], [], []]
    assert values(store, "other") == [b"c"]


# ---- the janitor


def staged(store):
    return entries(store, "staging")


def age(store, folder, days):
    for name in entries(store, folder):
        path = f"{store.path}/{folder}/{name}"
        if os.path.isfile(path):
            os.utime(path, (time.time() - days * DAY,) * 2)


@pytest.fixture
def files_only(monkeypatch):
    monkeypatch.setattr("pyspark_log.storage.publish.staging.staged_writer.INLINE_LIMIT", 0)


@pytest.mark.usefixtures("files_only")
def test_staged_output_of_dead_jobs_goes_after_a_week(store):
    stage(store, rows(b"never published"))
    assert len(staged(store)) == 1
    age(store, "staging", 6.9)
    assert (janitor.sweep_staging(store), len(staged(store))) == (0, 1)
    assert store.topics(internal=True) == ["t"], "no log of decisions is made for that"
    age(store, "staging", 7.1)
    fresh = stage(store, rows(b"under way"))
    janitor.clean(store)
    assert staged(store) == [fresh[0].file]
    publish(store.decisions, "q", 0, fresh)


@pytest.mark.usefixtures("files_only")
def test_a_job_that_still_writes_keeps_what_it_wrote_long_ago(store):
    plan = StagingPlan.make(store.logs, ["t"])
    first = stage(store, rows(b"a"), plan=plan)
    stage(store, rows(b"of another job"))
    age(store, "staging", 30)
    second = stage(store, rows(b"b"), plan=plan)
    assert janitor.sweep_staging(store) == 1
    publish(store.decisions, "q", 0, [*first, *second])
    assert sorted(v for p in range(3) for v in values(store, "t", p)) == [b"a", b"b"]


@pytest.mark.usefixtures("files_only")
def test_what_an_undone_decision_names_stays_however_old(store):
    parts = stage(store, rows(b"decided"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publishing, "apply_decision", lambda *_: None)
        publish(store.decisions, "q", 0, parts)
    stage(store, rows(b"never published"))
    age(store, "staging", 30)
    assert len(staged(store)) == 3
    assert janitor.sweep_staging(store) == 1
    assert len(staged(store)) == 2
    help_apply(store.decisions)
    assert sorted(v for p in range(3) for v in values(store, "t", p)) == [b"decided"]
    # Done by now, which the janitor records before it checks.
    assert janitor.sweep_staging(store) == 0
    assert staged(store) == []


@pytest.mark.usefixtures("files_only")
def test_the_janitor_removes_nothing_if_it_cannot_know_what_is_needed(store):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publishing, "apply_decision", lambda *_: None)
        publish(store.decisions, "q", 0, stage(store, rows(b"decided")))
    stage(store, rows(b"never published"))
    (manifest,) = [name for name in staged(store) if name.endswith(".manifest")]
    with open(f"{store.path}/staging/{manifest}", "r+b") as file:
        file.write(b"XX")
    age(store, "staging", 30)
    before = staged(store)
    with pytest.raises(StagedOutputError):
        janitor.sweep_staging(Store.open(store.path))
    assert staged(store) == before


@pytest.mark.usefixtures("files_only")
def test_trash_is_removed_outside_of_the_lock_and_by_the_next_janitor(store, monkeypatch):
    publish(store.decisions, "q", 0, stage(store, rows(b"a")))
    stage(store, rows(b"never published"))
    age(store, "staging", 8)
    lock = lock_for(store.logs.reader("__pylog_publish", 0).place.state_path)

    def stopped(path):
        if path.endswith(".trash"):
            lock.acquire(0)  # It can be had.
            lock.release()
            raise OSError(5, "Input/output error", path)
        unlink(path)

    unlink = files.unlink
    with monkeypatch.context() as patched:
        patched.setattr(files, "unlink", stopped)
        with pytest.raises(OSError, match="Input/output"):
            janitor.sweep_staging(store)
    assert [name[-6:] for name in staged(store)] == [".trash"]
    assert janitor.sweep_staging(store) == 1
    assert staged(store) == []


def test_files_that_were_never_finished_go(store):
    for folder in (".", "topics", "state"):
        with open(f"{store.path}/{folder}/0123456789abcdef.tmp", "wb"):
            pass
    janitor.clean(store)
    assert "0123456789abcdef.tmp" in entries(store, "topics")
    for folder in (".", "topics", "state"):
        os.utime(f"{store.path}/{folder}/0123456789abcdef.tmp", (time.time() - 8 * DAY,) * 2)
    janitor.clean(store)
    for folder in (".", "topics", "state"):
        assert not [name for name in entries(store, folder) if name.endswith(".tmp")]
    assert store.topics() == ["t"]


def test_one_partition_that_cannot_be_cleaned_does_not_keep_the_others(store, caplog):
    store.alter_configs("t", {"retention.bytes": "0"})
    for partition in range(3):
        store.append("t", rows(b"x"), partition=partition)
    os.unlink(store.segment_files("t", 1)[0])
    fresh = Store.open(store.path)
    with pytest.raises(Exception, match="is missing"):
        fresh.clean()
    assert "t-1 could not be cleaned" in caplog.text
    assert [fresh.earliest_offset("t", partition) for partition in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("written", [True, False])
def test_a_topic_that_is_made_once_more_beside_its_first_write(store, written):
    """Of the name there was another topic, what is left of which is still there."""
    if written:
        fill(store)
    store.delete_topic("t")
    store.create_topic("t", 3)
    refused = []

    def make(change):
        # The folder is there, and does not say yet whose it is.
        if change.target.endswith("/t-0/partition.metadata"):
            with pytest.raises(TopicExistsError):
                Store.open(store.path).create_topic("t", 3)
            refused.append(change)

    with observed(make):
        store.append("t", rows(b"first"), partition=0)
    assert refused
    assert values(store) == [b"first"]


def test_a_folder_that_a_killed_writer_of_another_topic_has_left_is_in_nobodys_way(store, monkeypatch):
    fill(store)
    before = store.describe_topic("t").topic_id
    store.delete_topic("t")
    # What is deleted is ended in the order of ids.
    while store.create_topic("t", 3).topic_id < before:
        store.delete_topic("t")

    def kill(change):
        if change.target.endswith("/t-0/partition.metadata"):
            raise Stopped

    with observed(kill), pytest.raises(Stopped):
        store.append("t", rows(b"first"), partition=0)
    assert os.path.isdir(f"{store.path}/data/t-0")
    with monkeypatch.context() as patched:
        patched.setattr(deletion, "schedule_delete", lambda place: (_ for _ in ()).throw(LockTimeoutError("held")))
        store.delete_topic("t")
    store.create_topic("t", 3)
    store.append("t", rows(b"new"), partition=0)
    assert values(store) == [b"new"]
    clean_after_delay(store)
    assert entries(store, "data") == ["t-0"]


def test_a_copy_that_has_a_folder_by_both_names(clock, store):
    fill(store)
    store.delete_topic("t")
    (grave,) = entries(store, "data")
    shutil.copytree(f"{store.path}/data/{grave}", f"{store.path}/data/t-0")
    store.create_topic("t", 3)
    assert entries(store, "data") == [grave]


def test_a_folder_of_an_earlier_topic_is_named(tmp_path):
    """As where the description of a topic was lost, and it is created again."""
    store = Store.create(tmp_path / "store")
    old = store.create_topic("t", 1).topic_id
    store.append("t", rows(b"a"))
    (tmp_path / "store/topics/t.json").unlink()
    again = Store.open(store.path)
    again.create_topic("t", 1)
    for call in (lambda: again.append("t", rows(b"b")), lambda: again.latest_offset("t", 0)):
        with pytest.raises(UnknownTopicError, match=rf"data/t-0 is of an earlier one .* topic id {old}: see"):
            call()
