"""The streaming jobs: from topic to topic, in several runs; and killed and started again."""

import json
import re
import time
from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest
from job_tools import Job

from pyspark_log.jobs import stream_join, window_counts, word_count
from tests.store_tools import faults

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def call(store, tmp_path, to, *arguments):
    return [store.path, "--to", to, "--checkpoint", str(tmp_path / "checkpoint"), "--available-now", *arguments]


def last_values(store, topic):
    """The last value of each key."""
    table = store.topic(topic).read().to_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
    pairs = zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)
    return {key.decode(): int(value) for key, value in pairs}


def at(seconds, key, value):
    return {"key": key, "value": value, "timestamp": NOON + timedelta(seconds=seconds)}


def test_words_are_counted(spark, store, tmp_path, capsys):
    lines = ["To be, or not to be", "that is the question", "be"]
    store.create_topic("lines", 2)
    store.create_topic("words", 2, {"cleanup.policy": "compact"})
    store.topic("lines").append([{"value": line} for line in lines])
    arguments = call(store, tmp_path, "words", "--from", "lines")
    assert word_count.main(arguments) == 0
    store.topic("lines").append([{"value": "the end"}])
    capsys.readouterr()
    assert word_count.main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["last_batch"] == 1
    wanted = Counter(re.findall(r"\w+", " ".join([*lines, "the end"]).lower()))
    assert last_values(store, "words") == wanted
    # The second run wrote only what had changed: "the", which was there before, and "end".
    assert sum(store.topic("words").latest_offsets().values()) == len(wanted) + 1
    committed = {place.partition: kept.offset for place, kept in store.groups["word-count"].committed().items()}
    assert committed == store.topic("lines").latest_offsets()


@pytest.mark.long
def test_a_count_that_is_killed_counts_each_line_once(store, tmp_path):
    store.create_topic("lines", 2)
    store.create_topic("words", 2)
    store.topic("lines").append([{"value": f"word{number % 7} word{number % 3}"} for number in range(3000)])
    arguments = call(store, tmp_path, "words", "--from", "lines", "--max-offsets", "500")
    for batches in (1, 3):
        with Job(tmp_path / "log", "local[2]", "word_count", *arguments) as job:
            while job.is_running() and sum(store.topic("words").latest_offsets().values()) < batches * 7:
                time.sleep(0.01)
            assert job.is_running(), job.log.read_text()[-3000:]
    with Job(tmp_path / "log", "local[2]", "word_count", *arguments) as job:
        assert job.wait() == 0, job.log.read_text()[-3000:]
    assert last_values(store, "words") == Counter(
        word for number in range(3000) for word in (f"word{number % 7}", f"word{number % 3}")
    )
    assert faults(store.path) == []


def test_records_are_counted_in_windows(spark, store, tmp_path):
    store.create_topic("clicks", 1, {"retention.ms": "-1"})
    store.create_topic("counts", 1)
    arguments = call(store, tmp_path, "counts", "--from", "clicks", "--window", "1 minute", "--late", "2 minutes")
    for clicks in ([5, 10, 70, 400], [30, 430], [900]):  # 30 comes too late
        store.topic("clicks").append([at(seconds, "/", None) for seconds in clicks])
        assert window_counts.main(arguments) == 0
    found = [json.loads(value) for value in store.topic("counts").read().to_table()["value"].to_pylist()]
    assert sorted((one["start"], one["end"], one["count"]) for one in found) == [
        ("2026-01-01T12:00:00Z", "2026-01-01T12:01:00Z", 2),
        ("2026-01-01T12:01:00Z", "2026-01-01T12:02:00Z", 1),
        ("2026-01-01T12:06:00Z", "2026-01-01T12:07:00Z", 1),
        ("2026-01-01T12:07:00Z", "2026-01-01T12:08:00Z", 1),
    ]


def test_two_topics_are_joined(spark, store, tmp_path):
    for topic in ("orders", "payments"):
        store.create_topic(topic, 2, {"retention.ms": "-1"})
    store.create_topic("paid", 1)
    store.topic("orders").append([at(0, "1", "tea"), at(10, "2", "milk"), at(20, "3", "jam")])
    arguments = call(store, tmp_path, "paid", "--left", "orders", "--right", "payments", "--late", "1 minute")
    assert stream_join.main(arguments) == 0
    # One in time, one for nothing that was ordered, one too long after the order.
    store.topic("payments").append([at(60, "1", "5 EUR"), at(61, "9", "1 EUR"), at(3 * 3600, "3", "2 EUR")])
    assert stream_join.main(arguments) == 0
    (pair,) = store.topic("paid").read().to_table().to_pylist()
    assert pair["key"] == b"1"
    assert json.loads(pair["value"]) == {
        "left": "tea", "right": "5 EUR", "left_time": "2026-01-01T12:00:00.000Z",
        "right_time": "2026-01-01T12:01:00.000Z",
    }  # fmt: skip


@pytest.mark.parametrize(("argument", "value"), [("--window", "a while"), ("--late", "often"), ("--from", "nothing")])
def test_what_cannot_be_done_is_said_in_a_line(spark, store, tmp_path, capsys, argument, value):
    store.create_topic("clicks", 1)
    store.create_topic("counts", 1)
    assert window_counts.main([*call(store, tmp_path, "counts", "--from", "clicks"), argument, value]) == 1
    said = capsys.readouterr().err
    (line,) = [line for line in said.splitlines() if line.startswith("Error: ")]
    assert value in line
    assert "Traceback" not in said


def test_a_second_job_under_the_same_group_is_shown_the_way_out(spark, store, tmp_path, capsys):
    store.create_topic("lines", 1)
    store.topic("lines").append([{"value": "to be"}])
    assert word_count.main(call(store, tmp_path, "words", "--from", "lines")) == 0
    second = call(store, tmp_path / "second", "words2", "--from", "lines")
    capsys.readouterr()
    assert word_count.main(second) == 1
    assert "another job has the group 'word-count': give this one a group of its own with --group" in (
        capsys.readouterr().err
    )
    assert word_count.main([*second, "--group", "word-count-2"]) == 0
    assert last_values(store, "words2") == {"to": 1, "be": 1}
