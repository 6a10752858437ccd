"""The power goes before any change to files; of what was not synced any part may stay.

Afterwards everything that was acknowledged as durable is there, once; an offset that readers may have seen never
has another record; the partition can be read and written; and a producer that numbers its records can go on
where the log ends for it.
"""

import random
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from numbered import abort_transaction, batch, check_index
from power import Trace

from pyspark_log.storage import log_folder, state_file
from pyspark_log.storage.errors import UnknownTopicError
from pyspark_log.storage.publish import help_apply, publish
from pyspark_log.storage.staging import StagedWriter, StagingPlan
from pyspark_log.storage.store import Store

TOPIC = "t"
CONFIG = {"segment.bytes": "3000", "index.interval.bytes": "200"}
PRODUCER = 7


class Workload:
    """Appends, synced and not, numbered and not, publishes, a flush; each tells the trace what it acknowledges."""

    def __init__(self, path, trace):
        self.path, self.trace = str(path), trace

    def run(self):
        store = Store.create(self.path)
        store.create_topic(TOPIC, 2, CONFIG)
        self.trace.mark({"store": True})
        for number in range(8):
            self.append(store, f"unsynced {number}", sync=False)
            self.append_numbered(store, number)
            if number == 4:
                abort_transaction(store, TOPIC, 0, PRODUCER)
            if number % 3 == 1:
                self.append(store, f"synced {number}", sync=True)
            if number % 2 == 0:
                self.publish(store, number // 2)
            if number == 5:
                store.flush()
                self.trace.mark({"flushed": True})

    def append(self, store, name, sync):
        results = store.append(TOPIC, rows(name), sync=sync)
        ends = {result.partition: result.next_offset for result in results}
        self.trace.mark({"name": name, "ends": ends, "durable": sync})

    def append_numbered(self, store, number):
        result = store.append_batch(TOPIC, 0, numbered(number), sync=number % 3 == 2)
        self.trace.mark({"name": f"numbered {number}", "ends": {0: result.next_offset}, "durable": number % 3 == 2})

    def publish(self, store, number):
        publish(store, "query", number, stage(store, number), run="run")
        ends = {partition: store.latest_offset(TOPIC, partition) for partition in range(2)}
        self.trace.mark({"name": f"publish {number}", "ends": ends, "durable": True})


def rows(name):
    return pa.record_batch({
        "key": [b"%d" % row for row in range(6)],
        "value": [f"{name}: {row}".encode() + b"." * 100 for row in range(6)],
        "partition": pa.array([row % 2 for row in range(6)], pa.int32()),
    })


def numbered(number):
    """Two records with the sequence numbers 2 * number and 2 * number + 1, part of a transaction."""
    values = [f"numbered {number}: {row}".encode() + b"." * 100 for row in range(2)]
    return batch(2 * number, values, PRODUCER, transactional=True)


def stage(store, number):
    writer = StagedWriter(store, StagingPlan.make(store, [TOPIC]))
    writer.append(TOPIC, rows(f"publish {number}"))
    return writer.finish()


def content(store):
    """Offset to value, for each partition; every offset below the end is accounted for by the reader."""
    return [
        {
            row["offset"]: row["value"].rstrip(b".").decode()
            for batch in store.read(TOPIC, partition)
            for row in batch.select(["offset", "value"]).to_pylist()
        }
        for partition in range(2)
    ]


@pytest.fixture(scope="module", autouse=True)
def checkpoints_always():
    """Kafka's checkpoints are written whenever they can be, not by the clock."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_folder, "INTERVAL", 0)
        yield


@pytest.fixture(scope="module")
def recorded():
    """The trace of an undisturbed run, and what it left."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        trace = Trace(Path(folder) / "store")
        workload = Workload(trace.root, trace)
        trace.record(workload.run)
        yield trace, content(Store.open(trace.root)), Path(folder)


def check(trace, full, count, folder, mode, choices, monkeypatch):
    target = folder / "after"
    trace.leave(count, target, choices, mode)
    marks = [mark for at, mark in trace.marks if at <= count]
    with monkeypatch.context() as patched:
        patched.setattr(state_file, "this_boot", lambda: b"rebooted")
        if not marks:
            shutil.rmtree(target, ignore_errors=True)
            return
        store = Store.open(target)
        try:
            store.describe_topic(TOPIC)
        except UnknownTopicError:
            raise AssertionError("the topic was acknowledged") from None
        help_apply(store)
        # Whoever writes next puts the partition right.
        for partition in range(2):
            store.append(TOPIC, pa.record_batch({"value": [b"after"]}), partition=partition)
        found = content(Store.open(target))
        shown = [max([mark["ends"].get(p, 0) for mark in marks if "ends" in mark] or [0]) for p in range(2)]
        flushed = max((number for number, mark in enumerate(marks) if "flushed" in mark), default=-1)
        durable = {m["name"] for n, m in enumerate(marks) if "name" in m and (m["durable"] or n < flushed)}
        for partition in range(2):
            values = list(found[partition].values())
            assert len(values) == len(set(values)), "a record is there twice"
            for offset, value in found[partition].items():
                assert offset >= shown[partition] or full[partition][offset] == value, "an offset was used again"
            missing = {v for v in full[partition].values() if v.split(":")[0] in durable} - set(values)
            assert not missing, f"lost: {missing}"
            assert values[-1] == "after"
        check_numbered(store, found[0].values())
        # A publish that was under way is decided or not; publishing it again leaves it there once.
        number = sum(name.startswith("publish") for name in (m.get("name", "") for m in marks))
        publish(store, "query", number, stage(store, number), run="run")
        again = [v for values in content(Store.open(target)) for v in values.values()]
        wanted = [f"publish {number}: {row}" for row in range(6)]
        assert sorted(value for value in again if value.startswith(f"publish {number}:")) == wanted
        # The second time nothing has to be put right.
        ends = [store.latest_offset(TOPIC, partition) for partition in range(2)]
        Store.open(target).append(TOPIC, rows("last"))
        assert [e - s for e, s in zip((store.latest_offset(TOPIC, p) for p in range(2)), ends, strict=True)] == [3, 3]
    shutil.rmtree(target)


def check_numbered(store, values):
    """The producer sends its last batch again, and goes on."""
    there = [value for value in values if value.startswith("numbered")]
    following = len(there) // 2
    assert there == [f"numbered {number}: {row}" for number in range(following) for row in range(2)]
    for number in range(max(following - 1, 0), following + 2):
        result = store.append_batch(TOPIC, 0, numbered(number))
        assert result.duplicate is (number < following)
    check_index(store, TOPIC, 0)
    abort_transaction(store, TOPIC, 0, PRODUCER)
    check_index(Store.open(store.path), TOPIC, 0)


def run(recorded, every, rounds, capsys, monkeypatch):
    trace, full, folder = recorded
    seed, tried = random.randrange(2**32), 0
    for count in range(1, len(trace.changes) + 1, every):
        for number, mode in enumerate(["nothing", "everything", *["any"] * rounds]):
            choices = random.Random(f"{seed} {count} {number}")
            try:
                check(trace, full, count, folder, mode, choices, monkeypatch)
            except Exception as error:
                place = f"power lost before change {count}, keeping {mode} of the rest, seed {seed}, {number}"
                raise AssertionError(place) from error
            tried += 1
    with capsys.disabled():
        print(f"\n{tried} power losses tried, at {len(trace.changes) // every} of {len(trace.changes)} changes")
    assert tried >= (2 + rounds) * (len(trace.changes) // every)


def test_some_power_losses(recorded, capsys, monkeypatch):
    run(recorded, 7, 1, capsys, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_power_losses(recorded, capsys, monkeypatch):
    run(recorded, 1, 4, capsys, monkeypatch)
