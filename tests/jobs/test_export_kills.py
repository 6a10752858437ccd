"""Processes of an export to JSON lines are killed; it is started again. In the end each record is there once."""

import json
from pathlib import Path

import job_kills
from job_kills import kill_at_random
from job_tools import files_in, fill, left_over, rows_of

from tests.store_tools import faults

pytestmark = job_kills.MARKS


def test_drivers_executors_and_workers_are_killed_at_random(cluster, store, tmp_path):
    """Records come all the time, and topics too; their files are in folders by topic and day."""
    target = tmp_path / "files"

    def feed(kills):
        for topic in ("t0", f"t{kills // 5}"):
            fill(store, topic, 3, 8000)

    arguments = ("export_files", store.path, target, "--pattern", "^t", "--max-records-per-task", "2000",
                 "--columns", "topic,partition,offset,value")  # fmt: skip
    kill_at_random(cluster, tmp_path / "log", arguments, feed, seed=3)
    assert lines_in(target) == rows_of(store, *store.topics())
    assert left_over(target) == []
    assert faults(store.path) == []


def lines_in(target):
    """Topic, partition, offset and value of each line, sorted; with nothing left out that is there twice."""
    texts = [(Path(target) / name).read_text() for name in files_in(target, ".jsonl")]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    return sorted((line["topic"], line["partition"], line["offset"], line["value"].encode()) for line in lines)
