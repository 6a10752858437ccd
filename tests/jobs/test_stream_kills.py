"""Processes of streaming programs in examples/ are killed, and started again. In the end each record has counted once.

Before each run there come records of the next hour, for several micro-batches. Nothing is late.
"""

import itertools
import json
from collections import Counter, defaultdict
from datetime import UTC, datetime

import job_kills
import pyarrow as pa
import pytest
from job_kills import kill_at_random
from job_tools import HOUR, T0

from tests.paths import ROOT
from tests.store_tools import faults

PARTITIONS = 2
#: How many records of a partition come at once.
COUNT = 600
KEYS = 100
#: More than an hour, as a micro-batch can end in another hour in one partition than in the other one.
LATE = "90 minutes"

pytestmark = job_kills.MARKS


@pytest.fixture
def kill(cluster, store, tmp_path):
    """Makes the topics; runs an example that writes `out`, whose processes are killed; returns the rows of `out`."""

    def run(example, topics, feed, *arguments, seed):
        for topic in (*topics, "out"):
            store.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        call = (
            ROOT / "examples" / example, store.path, "--to", "out", "--checkpoint", tmp_path / "checkpoint",
            "--max-offsets", "400", *arguments,
        )  # fmt: skip
        hours, few = itertools.count(), ("--conf", "spark.sql.shuffle.partitions=2")
        kill_at_random(cluster, tmp_path / "log", call, lambda _: feed(next(hours)), seed=seed, within=8, options=few)
        assert faults(store.path) == []
        table = store.topic("out").read().to_table()
        return table.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()

    return run


def put(store, topic, hour, value):
    """Appends records of an hour's first ten minutes; returns their keys, values and times (ms).

    `value`: makes that of a record from its partition and number.
    """
    found = []
    for partition in range(PARTITIONS):
        rows = [
            (b"%d" % (number % KEYS), value(partition, number), T0 + hour * HOUR + number * 1000)
            for number in range(COUNT)
        ]
        columns = dict(zip(("key", "value", "timestamp"), zip(*rows, strict=True), strict=True))
        store.append(topic, pa.RecordBatch.from_pydict(columns), partition=partition)
        found += rows
    return found


def test_words_are_counted_once(kill, store):
    words = Counter()

    def feed(hour):
        for _, value, _ in put(store, "lines", hour, lambda partition, n: f"word{n % 7} word{n % 31} p{partition}"):
            words.update(value.split())

    rows = kill("word_count.py", ["lines"], feed, "--from", "lines", seed=4)
    counts = defaultdict(list)
    for row in rows:
        counts[row["key"].decode()].append(int(row["value"]))
    assert {word: found[-1] for word, found in counts.items()} == words
    # No micro-batch has written twice.
    assert all(earlier < later for found in counts.values() for earlier, later in itertools.pairwise(found))


def test_records_are_counted_in_windows_once(kill, store):
    by_hour = []

    def feed(hour):
        records = put(store, "clicks", hour, lambda *_: b"")
        by_hour.append(Counter((key, time // 60_000 * 60_000) for key, _, time in records))

    rows = kill("window_counts.py", ["clicks"], feed, "--from", "clicks", "--late", LATE, seed=5)
    found = Counter()
    for row in rows:
        window = json.loads(row["value"])
        start, end = (datetime.strptime(window[edge], "%Y-%m-%dT%H:%M:%SZ") for edge in ("start", "end"))
        assert (end - start).total_seconds() == 60
        found[row["key"], int(start.replace(tzinfo=UTC).timestamp()) * 1000, window["count"]] += 1
    # The windows of the last two hours are open yet.
    assert found == Counter((key, start, count) for hour in by_hour[:-2] for (key, start), count in hour.items())


def test_pairs_are_joined_once(kill, store):
    wanted = Counter()

    def feed(hour):
        sides = []
        for topic in ("orders", "payments"):
            by_key = defaultdict(list)
            for key, value, _ in put(store, topic, hour, lambda partition, n: f"{hour} {partition} {n}"):
                by_key[key].append(value)
            sides.append(by_key)
        left, right = sides
        wanted.update(pair for key in left for pair in itertools.product([key], left[key], right[key]))

    rows = kill(
        "stream_join.py", ["orders", "payments"], feed, "--left", "orders", "--right", "payments", "--late", LATE,
        "--within", "10 minutes", seed=6,
    )  # fmt: skip
    pairs = ((row["key"], json.loads(row["value"])) for row in rows)
    assert Counter((key, pair["left"], pair["right"]) for key, pair in pairs) == wanted
