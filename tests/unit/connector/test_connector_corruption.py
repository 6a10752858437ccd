"""A read that continues after damage: `onCorruption`."""

import json
import os
import random
import re
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_log import DefaultSource
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.storage.store import Store
from tests.seeds import new_seed

BATCHES, IN_BATCH = 80, 3


def log_file(store, base=0):
    return f"{store.path}/data/t-0/{base:020d}.log"


@pytest.fixture
def store(tmp_path):
    """A log of several segments, in batches of three records."""
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1, {"segment.bytes": "1500", "index.interval.bytes": "200"})
        for number in range(BATCHES):
            first = number * IN_BATCH
            store.append("t", pa.record_batch({"value": [b"%d" % (first + n) for n in range(IN_BATCH)]}))
    return store


def bases(store):
    return sorted(int(name[:20]) for name in os.listdir(f"{store.path}/data/t-0") if name.endswith(".log"))


def spoil(path, position, bytes_=b"\xff\xfe"):
    with open(path, "r+b") as file:
        file.seek(position)
        before = file.read(len(bytes_))
        file.seek(position)
        file.write(bytes_ if before != bytes_ else b"\0\0")


def read(store, **options):
    """The offsets that a read yields, and that its values agree."""
    source = DefaultSource({"path": store.path, "subscribe": "t", **options})
    reader = source.reader(source.schema())
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert all(row["value"] == b"%d" % row["offset"] for row in rows)
    return [row["offset"] for row in rows]


def without(first, end):
    return [offset for offset in range(BATCHES * IN_BATCH) if not first <= offset < end]


def test_damage_ends_a_read_unless_it_may_be_passed_over(store, caplog):
    spoil(log_file(store), 150)
    with pytest.raises(ConnectorError, match=r"PYLOG_CORRUPT_RECORD.*t-0"):
        read(store)
    assert read(store, onCorruption="skip") == without(3, 6)
    assert "[PYLOG_CORRUPT_RECORD] t-0: records in offset [3, 6) are damaged and skipped" in caplog.text


def test_what_is_passed_over_is_kept_with_a_report(store, tmp_path):
    spoil(log_file(store), 150)
    kept = tmp_path / "kept"
    for _ in range(2):  # a task that runs again
        assert read(store, onCorruption="quarantine", quarantinePath=str(kept)) == without(3, 6)
    assert sorted(os.listdir(kept)) == ["t-0-3-6.bytes", "t-0-3-6.json"]
    report = json.loads((kept / "t-0-3-6.json").read_text())
    assert (report["topic"], report["partition"], report["first_offset"], report["next_offset"]) == ("t", 0, 3, 6)
    with open(report["file"], "rb") as file:
        assert (kept / "t-0-3-6.bytes").read_bytes() == file.read()[report["position"] : report["end"]] != b""


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "second", "active"])
def test_a_segment_that_is_missing_is_passed_over(store, which, tmp_path):
    found = bases(store)
    assert len(found) > 3
    first = found[which]
    end = found[found.index(first) + 1] if which >= 0 else BATCHES * IN_BATCH
    os.remove(log_file(store, first))
    with pytest.raises(ConnectorError, match="PYLOG_LOG_DAMAGED"):
        read(Store.open(store.path))
    assert read(store, onCorruption="quarantine", quarantinePath=str(tmp_path / "kept")) == without(first, end)
    assert sorted(os.listdir(tmp_path / "kept")) == [f"t-0-{first}-{end}.bytes", f"t-0-{first}-{end}.json"]


def test_a_segment_that_was_cut_loses_its_end(store):
    base, following = bases(store)[1:3]
    os.truncate(log_file(store, base), os.path.getsize(log_file(store, base)) - 10)
    assert read(store, onCorruption="skip") == without(following - IN_BATCH, following)


def test_any_damage_loses_what_is_reported_and_nothing_else(store, caplog):
    seed = new_seed()
    chance = random.Random(seed)
    files = [log_file(store, base) for base in bases(store)]
    whole = {path: Path(path).read_bytes() for path in files}
    for _ in range(60):
        caplog.clear()
        for path in chance.sample(files, chance.randint(1, 2)):
            spoil(path, chance.randrange(len(whole[path]) - 2), chance.randbytes(2))
        lost = set()
        offsets = read(store, onCorruption="skip")
        for first, end in re.findall(r"in offset \[(\d+), (\d+)\)", caplog.text):
            lost.update(range(int(first), int(end)))
        assert offsets == [one for one in range(BATCHES * IN_BATCH) if one not in lost], f"seed {seed}"
        for path, data in whole.items():
            Path(path).write_bytes(data)


def test_a_range_within_the_damage_has_no_rows(store):
    spoil(log_file(store), 150)
    bounds = {"startingOffsets": '{"t":{"0":4}}', "endingOffsets": '{"t":{"0":5}}'}
    assert read(store, onCorruption="skip", **bounds) == []
    assert read(store, onCorruption="skip", **{**bounds, "endingOffsets": '{"t":{"0":8}}'}) == [6, 7]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"onCorruption": "ignore"}, "onCorruption must be fail, skip or quarantine, got ignore"),
        ({"onCorruption": "quarantine"}, "onCorruption=quarantine and quarantinePath go together"),
        ({"quarantinePath": "/x"}, "onCorruption=quarantine and quarantinePath go together"),
    ],
)
def test_refused(store, options, message):
    with pytest.raises(ConnectorError, match=message):
        read(store, **options)
