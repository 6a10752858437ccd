"""Publish: all of the staged output appears, once; and which publisher may publish what."""

import errno
import os
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_log.errors import (
    PublisherFencedError,
    PublishError,
    PublishPendingError,
    StagedOutputError,
    UnknownTopicError,
)
from pyspark_log.storage.catalog.topics import PUBLISH_TOPIC
from pyspark_log.storage.fs import files
from pyspark_log.storage.publish import applier
from pyspark_log.storage.publish.claims import last_number
from pyspark_log.storage.publish.pending import help_apply, tidy
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan, staged_writer
from pyspark_log.storage.store import Store
from tests.processes import run_at_once
from tests.store_tools import decided_only, new_store, overwrite, publish, store_with, visible_values

store = store_with(partitions=3)


def batch(*values, keys=None):
    keys = keys or [b"%d" % (number % 7) for number in range(len(values))]
    return pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


def stage(store, *values, topic="t", plan=None):
    writer = StagedWriter(store.logs, plan or StagingPlan.make(store.logs, [topic]))
    if values:
        writer.append(topic, batch(*values))
    return writer.finish()


def content(store, topic="t"):
    """All values, in the order of partitions and offsets; each read by a store that was opened afresh."""
    store = Store.open(store.path)
    partitions = range(store.describe_topic(topic).partitions)
    return [v for p in partitions for b in store.read(topic, p) for v in b["value"].to_pylist()]


def staged_files(store):
    try:
        return sorted(os.listdir(f"{store.path}/staging"))
    except FileNotFoundError:
        return []


def test_small_output_is_not_read_again_by_its_publisher(store, monkeypatch):
    parts = stage(store, b"one", b"two")
    read = []

    def noted(real):
        return lambda self, *given: (read.append(self.path), real(self, *given))[1]

    for name in ("pread", "pread_into"):
        monkeypatch.setattr(files.File, name, noted(getattr(files.File, name)))
    publish(store.decisions, "q", 0, parts)
    monkeypatch.undo()
    assert read, "the log's own files are read"
    assert not [path for path in read if "/staging/" in path]
    assert sorted(content(store)) == [b"one", b"two"]


def test_output_that_is_damaged_in_memory_reaches_no_log(store):
    (part,) = stage(store, b"one")
    damaged = part.data[:-3] + b"!" + part.data[-2:]
    with pytest.raises(PublishPendingError, match="CRC"):
        publish(store.decisions, "q", 0, [replace(part, data=damaged)])
    assert content(store) == []


def test_a_replay_with_other_counts_is_reported(store, caplog):
    publish(store.decisions, "q", 0, stage(store, b"a", b"b"))
    assert publish(store.decisions, "q", 0, stage(store, b"a")).records == 2
    assert "published before with 2 records; this attempt had 1" in caplog.text


def test_a_replaced_run_is_fenced(store):
    publish(store.decisions, "q", 0, stage(store, b"a"), run="r1")
    publish(store.decisions, "q", 1, stage(store, b"b"), run="r2")
    publish(store.decisions, "q", 2, stage(store, b"c"), run="r3")
    for number in (2, 3):
        for run in ("r1", "r2"):
            with pytest.raises(PublisherFencedError, match=f"run {run} was replaced by run r3"):
                publish(store.decisions, "q", number, stage(store, b"x"), run=run)
    assert sorted(content(store)) == [b"a", b"b", b"c"]


def test_a_run_that_only_replays_takes_over_too(store):
    publish(store.decisions, "q", 0, stage(store, b"a"), run="r1")
    publish(store.decisions, "q", 0, stage(store, b"a"), run="r2")
    with pytest.raises(PublisherFencedError):
        publish(store.decisions, "q", 1, stage(store, b"x"), run="r1")
    publish(store.decisions, "q", 1, stage(store, b"b"), run="r2")
    assert sorted(content(store)) == [b"a", b"b"]


def test_a_one_off_publisher_is_forgotten_when_it_is_done(store):
    publish(store.decisions, "once", 0, stage(store, b"a"), one_off=True)
    assert last_number(store.decisions, "once") is None
    assert staged_files(store) == []
    assert content(store) == [b"a"]


def test_large_output_goes_through_files_which_are_gone_afterwards(store):
    values = [b"%07d" % number + b"x" * 90 for number in range(30_000)]
    parts = stage(store, *values)
    assert all(part.file and not part.data for part in parts)
    assert len(staged_files(store)) > 0
    publish(store.decisions, "q", 0, parts)
    assert sorted(content(store)) == values
    publish(store.decisions, "q", 1, stage(store))
    assert staged_files(store) == []


def test_a_task_has_one_file_and_none_if_its_output_is_small(store):
    assert {part.file for part in stage(store, b"small")} == {""}
    parts = stage(store, *(b"%06d" % number + b"x" * 90 for number in range(6000)))
    assert len(parts) == 3
    assert len({part.file for part in parts}) == 1
    assert "" not in {part.file for part in parts}
    publish(store.decisions, "q", 0, parts)
    assert len(content(store)) == 6000


def test_memory_of_a_task_is_bounded_by_spilling(store, monkeypatch):
    monkeypatch.setattr(staged_writer, "_MEMORY", 50_000)
    store.create_topic("small", 2, {"max.message.bytes": "2000"})
    writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["small"]))
    values = [b"%06d" % number + b"x" * 90 for number in range(6000)]
    for at in range(0, 6000, 500):
        writer.append("small", batch(*values[at : at + 500], keys=[b"k"] * 500))
        assert writer._size <= 50_000
    parts = writer.finish()
    assert len(parts) > 5
    publish(store.decisions, "q", 0, parts)
    assert content(store, "small") == values


@pytest.mark.parametrize("segment_bytes", [3000, 20_000, 300_000])
def test_output_larger_than_a_segment_rolls_as_it_is_applied(tmp_path, segment_bytes):
    store = new_store(tmp_path, {"segment.bytes": str(segment_bytes), "index.interval.bytes": "500"})
    store.append("t", batch(b"before"))
    values = [b"%06d" % number + b"x" * 100 for number in range(5000)]
    publish(store.decisions, "q", 0, stage(store, *values))
    store.append("t", batch(b"after"))
    assert content(store) == [b"before", *values, b"after"]
    paths = store.segment_files("t", 0)
    assert len(paths) >= 2
    assert all(os.path.getsize(path) <= segment_bytes for path in paths)


def test_the_next_process_applies_what_was_decided(store):
    with decided_only():
        publish(store.decisions, "q", 0, stage(store, b"a", b"b"))
    assert visible_values(store) == []
    # A reader that checks for new records; a second check finds nothing to do.
    passer_by = Store.open(store.path)
    assert help_apply(passer_by.decisions) == 1
    assert sorted(content(store)) == [b"a", b"b"]
    assert help_apply(passer_by.decisions) == 0


@pytest.mark.parametrize(
    "look",
    [
        lambda store: sum(read.num_rows for partition in range(3) for read in store.read("t", partition)),
        lambda store: sum(store.latest_offset("t", partition) for partition in range(3)),
        lambda store: store.topic("t").read().to_table().num_rows,
    ],
    ids=["read", "latest_offset", "topic"],
)
def test_a_read_up_to_the_end_applies_what_was_decided(store, monkeypatch, look):
    with monkeypatch.context() as patched:
        patched.setattr(applier, "apply", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EIO, "stop")))
        with pytest.raises(PublishPendingError, match="stop"):
            publish(store.decisions, "q", 0, stage(store, b"a", b"b", b"c"))
        # What cannot be applied is no error of the reader.
        assert look(Store.open(store.path)) == 0
    assert look(Store.open(store.path)) == 3


def test_the_next_publish_and_a_replay_finish_the_one_before(store):
    real = applier.apply
    for number, finish in enumerate(["replay", "next"]):
        with decided_only():
            publish(store.decisions, "q", number, stage(store, b"%d" % number))
        assert applier.apply is real
        if finish == "replay":
            assert publish(Store.open(store.path).decisions, "q", number, stage(store, b"%d" % number)).replayed
        else:
            publish(Store.open(store.path).decisions, "q", number + 1, stage(store, b"%d" % (number + 1)))
    assert sorted(content(store)) == [b"0", b"1", b"2"]


def test_decisions_are_applied_in_order_in_each_partition(store):
    for number, publisher in enumerate("abc"):
        with decided_only():
            publish(store.decisions, publisher, 0, stage(store, b"%d" % number))
    publish(store.decisions, "d", 0, stage(store, b"3"))
    assert content(store) == [b"0", b"1", b"2", b"3"]


def test_tidy_ends_what_is_done_and_keeps_what_is_not(store):
    publish(store.decisions, "q", 0, stage(store, b"a"))
    fresh = Store.open(store.path)
    with decided_only():
        publish(fresh.decisions, "p", 0, stage(store, b"b"))
    assert len(staged_files(store)) == 2
    tidy(store.decisions)
    assert len(staged_files(store)) == 1
    decisions = store.decisions
    assert [d.publisher for d in decisions.undone.values()] == ["p"]
    assert store.logs.reader(PUBLISH_TOPIC, 0).state().first_undone == 1
    help_apply(store.decisions)
    tidy(store.decisions)
    assert staged_files(store) == []
    assert store.logs.reader(PUBLISH_TOPIC, 0).state().first_undone == store.latest_offset(PUBLISH_TOPIC, 0)
    assert sorted(content(store)) == [b"a", b"b"]
    publish(store.decisions, "q", 1, stage(store, b"c"))
    assert len(content(store)) == 3


def test_a_decision_also_says_what_else_is_done(store):
    """So that few decisions are ever read, however many publishers there were."""
    for number in range(20):
        publish(store.decisions, f"q{number}", 0, stage(store, b"%d" % number))
    assert len(store.decisions.undone) == 1
    assert len(staged_files(store)) == 1
    assert [last_number(Store.open(store.path).decisions, f"q{number}") for number in range(20)] == [0] * 20


def test_a_lost_manifest_holds_up_only_the_partitions_that_it_names(store):
    store.create_topic("other", 1)
    with decided_only():
        publish(store.decisions, "lost", 0, stage(store, b"a"))
    for name in staged_files(store):
        files.unlink(f"{store.path}/staging/{name}")
    fresh = Store.open(store.path)
    publish(fresh.decisions, "q", 0, stage(fresh, b"b", topic="other"))
    assert content(store, "other") == [b"b"]
    with pytest.raises(PublishPendingError, match=r"publisher 'lost'.*missing"):
        publish(fresh.decisions, "r", 0, stage(fresh, b"c"))


def test_more_pieces_than_a_manifest_can_describe_are_refused_before_the_decision(store, monkeypatch):
    monkeypatch.setattr("pyspark_log.storage.publish.staging.manifest._MAX_DESCRIPTION_BYTES", 500)
    parts = [part for task in range(10) for part in stage(store, b"%d" % task)]
    with pytest.raises(PublishError, match=r"in 10 pieces.*coalesce"):
        publish(store.decisions, "q", 0, parts)
    assert (last_number(store.decisions, "q"), staged_files(store)) == (None, [])
    publish(store.decisions, "q", 0, parts[:1])
    assert content(store) == [b"0"]


def test_a_refusal_is_reported_whatever_the_state_of_what_was_decided_before(store, monkeypatch):
    """Also where it is unknown which files the last decision names; then none is removed."""
    publish(store.decisions, "q", 0, [], run="older")
    with monkeypatch.context() as patched:
        patched.setattr("pyspark_log.storage.publish.publishing.apply_decision", lambda *_: None)
        publish(store.decisions, "q", 1, stage(store, b"1"), run="newer")
    (manifest,) = Path(store.path, "staging").glob("*.manifest")
    manifest.unlink()
    manifest.mkdir()
    with pytest.raises(PublisherFencedError):
        publish(store.decisions, "q", 1, stage(store, b"2"), run="older")


def test_a_one_off_publisher_can_ask_again_although_others_have_tidied_up(store):
    parts = stage(store, b"a")
    with decided_only():
        publish(store.decisions, "once", 0, parts, one_off=True)
    other = Store.open(store.path)
    help_apply(other.decisions)
    tidy(other.decisions)
    assert publish(store.decisions, "once", 0, parts, one_off=True).replayed
    assert content(store) == [b"a"]


def test_staged_output_that_is_gone_is_refused(store):
    parts = stage(store, *(b"x" * 100 for _ in range(10_000)))
    files.unlink(f"{store.path}/staging/{parts[0].file}")
    with pytest.raises(StagedOutputError, match="is missing"):
        publish(store.decisions, "q", 0, parts)
    assert last_number(store.decisions, "q") is None
    assert content(store) == []


def test_staged_output_that_was_changed_is_not_applied(store):
    parts = stage(store, *(b"x" * 100 for _ in range(10_000)))
    path = f"{store.path}/staging/{parts[0].file}"
    overwrite(path, 1000, b"?")
    with pytest.raises(PublishPendingError):
        publish(store.decisions, "q", 0, parts)
    overwrite(path, 1000, b"x")
    # Nothing of it was visible; once the bytes are restored, it is applied.
    assert publish(store.decisions, "q", 0, parts).replayed
    assert len(content(store)) == 10_000


def test_a_plan_fixes_topics_and_partitions(store):
    plan = StagingPlan.make(store.logs, ["t"])
    with pytest.raises(UnknownTopicError, match="when this write was planned"):
        stage(store, b"a", topic="other", plan=plan)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_writers_codec_is_used_where_the_topic_leaves_it_to_the_writer(store, codec):
    store.create_topic("fixed", 1, {"compression.type": "uncompressed"})
    sizes = {}
    for topic in ("t", "fixed"):
        writer = StagedWriter(store.logs, StagingPlan.make(store.logs, [topic], codec))
        writer.append(topic, batch(*[b"x" * 1000] * 100, keys=[b"k"] * 100))
        parts = writer.finish()
        sizes[topic] = sum(part.size for part in parts)
        publish(store.decisions, topic, 0, parts)
        assert content(store, topic) == [b"x" * 1000] * 100
    assert (sizes["t"] < 20_000) == (codec != "none")
    assert sizes["fixed"] > 100_000


def test_discard_removes_what_was_staged(store):
    writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["t"]))
    writer.append("t", batch(*(b"x" * 100 for _ in range(60_000))))
    writer.finish()
    assert staged_files(store)
    writer.discard()
    assert staged_files(store) == []


def test_many_publishers_and_writers_at_once(store):
    """Each keeps its order; no publish is mixed with another append."""

    def publishing_loop(name):
        mine = Store.open(store.path)
        for number in range(12):
            values = [b"%s/%d/%d" % (name, number, row) for row in range(20)]
            publish(mine.decisions, name.decode(), number, stage(mine, *values))

    def appending_loop(name):
        mine = Store.open(store.path)
        for number in range(60):
            mine.append("t", batch(b"%s/%d/0" % (name, number), keys=[b"0"]))

    threads = [threading.Thread(target=publishing_loop, args=(b"p%d" % n,)) for n in range(4)]
    threads += [threading.Thread(target=appending_loop, args=(b"a%d" % n,)) for n in range(2)]
    run_at_once(threads)
    assert len(content(store)) == 4 * 12 * 20 + 2 * 60
    for partition in range(3):
        values = [v for b in store.read("t", partition) for v in b["value"].to_pylist()]
        runs = [(name, int(number)) for name, number, _ in (value.split(b"/") for value in values)]
        changes = [run for before, run in zip([None, *runs], runs, strict=False) if run != before]
        assert len(changes) == len(set(changes)), "a publish was mixed with something else"
        for name in {name for name, _ in changes}:
            numbers = [number for n, number in changes if n == name]
            assert numbers == sorted(numbers)


def test_the_inline_limit_holds_for_a_whole_task(store, monkeypatch):
    monkeypatch.setattr(staged_writer, "INLINE_LIMIT", 1000)
    assert all(part.file for part in stage(store, *(b"x" * 100 for _ in range(21))))
    assert not any(part.file for part in stage(store, *(b"x" * 100 for _ in range(3))))
