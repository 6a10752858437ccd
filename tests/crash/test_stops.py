"""The engine is stopped before each change to files that a workload makes, and then looked at.

All that was acknowledged is there once and in order; what was under way is there whole or not at all, and
doing it again ends well; what was decided appears. The same with half of the write made that came next.
"""

import contextlib
import itertools
import os
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from numbered import abort_transaction, batch, check_index
from stops import StopBefore, count_changes, run_until

from pyspark_log.storage import janitor, log_folder
from pyspark_log.storage.errors import StoreExistsError, TopicExistsError, UnknownTopicError
from pyspark_log.storage.publish import help_apply, publish
from pyspark_log.storage.staging import StagedWriter, StagingPlan
from pyspark_log.storage.store import Store
from pyspark_log.storage.types import LATEST

TOPICS = {"small": {"segment.bytes": "1500", "index.interval.bytes": "200"}, "plain": {}}
OTHERS = {
    # Old segments go.
    "short": {"segment.bytes": "1200", "retention.bytes": "1500", "file.delete.delay.ms": "0"},
    # It is deleted and made again.
    "temporary": {"segment.bytes": "1200", "file.delete.delay.ms": "0"},
}
CONFIGS = {**TOPICS, **OTHERS}


class Workload:
    """Steps with values that tell which step they are of; `begun` and `done` say how far it came.

    A step that may not be made again once it took place has a name, which its values bear.
    """

    def __init__(self, path):
        self.path = path
        self.begun = self.done = 0
        self.steps = [(None, self.create_store)]
        for topic in CONFIGS:
            self.add(self.create_topic, topic)
        for number in range(4):
            self.append("small", number)
            self.append("plain", number, sync=True)
            self.add(self.publish, number)
            self.append("short", 2 * number)
            self.append("small", number + 100)
            self.append("temporary", number)
            self.add(self.publish_once, number, name=("once", f"{number}"))
            self.append("short", 2 * number + 1)
            self.add(self.append_numbered, number)
            self.add(self.abort_transaction, number)
            if number % 2:
                self.add(self.delete_records)
                self.add(self.delete_topic, "temporary")
                self.add(self.create_topic, "temporary")
        self.add(lambda: janitor.clean(Store.open(self.path)))

    def add(self, action, *arguments, name=None):
        self.steps.append((name, lambda: action(*arguments)))

    def append(self, topic, number, sync=False):
        data = rows(b"append %s %d" % (topic.encode(), number))
        self.add(
            lambda: Store.open(self.path).append(topic, data, partition=0, sync=sync),
            name=("append", topic, f"{number}"),
        )

    def run(self, after=lambda: None):
        for _, step in self.steps[self.done :]:
            self.begun = self.done + 1
            step()
            self.done += 1
            after()

    def create_store(self):
        try:
            Store.create(self.path)
        except StoreExistsError:
            Store.open(self.path)

    def create_topic(self, topic):
        try:
            Store.open(self.path).create_topic(topic, 2, CONFIGS[topic])
        except TopicExistsError:
            assert Store.open(self.path).describe_topic(topic).partitions == 2

    def delete_records(self):
        Store.open(self.path).delete_records("short", 0, LATEST)

    def delete_topic(self, topic):
        with contextlib.suppress(UnknownTopicError):
            Store.open(self.path).delete_topic(topic)

    def append_numbered(self, number):
        values = [b"numbered %d: %d" % (number, row) + b"." * 80 for row in range(2)]
        Store.open(self.path).append_batch("small", 0, batch(2 * number, values, 7))

    def abort_transaction(self, number):
        store = Store.open(self.path)
        store.append_batch("small", 1, batch(number, [b"aborted %d: 0" % number], 8, transactional=True))
        abort_transaction(store, "small", 1, 8)

    def stage(self, name):
        store = Store.open(self.path)
        parts = []
        for task in range(2):
            writer = StagedWriter(store, StagingPlan.make(store, TOPICS))
            for topic in TOPICS:
                writer.append(topic, rows(b"%s %s %d" % (name, topic.encode(), task)))
            parts += writer.finish()
        return store, parts

    def publish(self, number):
        store, parts = self.stage(b"publish %d" % number)
        publish(store, "query", number, parts, run="run")

    def publish_once(self, number):
        store, parts = self.stage(b"once %d" % number)
        publish(store, f"batch {number}", 0, parts, one_off=True)


def rows(name):
    count = len(name) % 3 + 3
    return pa.record_batch({
        "key": [b"%d" % (row % 2) for row in range(count)],
        "value": [b"%s: %d" % (name, row) + b"." * 80 for row in range(count)],
        "partition": pa.array([row % 2 for row in range(count)], pa.int32()),
    })


def content(path):
    """What readers see: for each partition the values in order."""
    store = Store.open(path)
    return {
        (topic, partition): [
            value.decode() for batch in store.read(topic, partition) for value in batch["value"].to_pylist()
        ]
        for topic in store.topics()
        for partition in range(2)
    }


def by_step(values):
    """Groups values that follow each other and belong to one append, or one publish."""

    def step(value):
        name = value.split(":")[0].split(" ")
        return tuple(name[:2]) if name[0] in ("publish", "once") else tuple(name)

    return [(key, list(group)) for key, group in itertools.groupby(values, step)]


def check_between(seen, before, after):
    """Of the step that was under way a partition shows all or nothing; of those before it, all."""
    for place in {**before, **after, **seen}:
        found, old, new = (values.get(place, []) for values in (seen, before, after))
        # What the step lets go may be gone before its own values come.
        assert found in (old, new) or (place[0] == "short" and old[len(old) - len(found) :] == found), place


@pytest.fixture
def memory_path():
    """A folder in memory where there is one: a stop loses nothing that was written, synced or not."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module", autouse=True)
def checkpoints_always():
    """Kafka's checkpoints are written whenever they can be, not by the clock."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_folder, "INTERVAL", 0)
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """How many changes to files the workload makes, and what is there after each of its steps."""
    path = tmp_path_factory.mktemp("undisturbed") / "store"
    changes = count_changes(Workload(path).run)
    shutil.rmtree(path)
    contents = [{}]
    Workload(path).run(lambda: contents.append(content(path)))
    return changes, contents


# Every step without a name may be repeated; an append that was stopped may be there or not, so it is not.
def _go_on(workload, path, contents):
    seen = content(path) if (path / "store.json").exists() else {}
    expected = contents[workload.done], contents[workload.begun]
    check_between(seen, *expected)
    if seen:
        help_apply(Store.open(path))
        seen = content(path)
        check_between(seen, *expected)
    if workload.begun > workload.done:
        name, _ = workload.steps[workload.done]
        if name in {step[0] for values in seen.values() for step in by_step(values)}:
            workload.done += 1
    workload.run()


def _try_stop(path, changes, torn, contents):
    workload = Workload(path)
    stop = StopBefore(changes, torn)
    if not run_until(workload.run, stop):
        return False  # Threads that apply side by side do not always make the very same number of changes.
    acknowledged = workload.done
    _go_on(workload, path, contents)
    where = f"stopped before change {changes} ({stop.stopped_at}) in step {acknowledged}"
    assert content(path) == contents[-1], where
    assert [len(check_index(Store.open(path), "small", partition)) for partition in range(2)] == [0, 4], where
    return True


def _run(memory_path, undisturbed, every, capsys):
    changes, contents = undisturbed
    tried = 0
    for torn in (False, True):
        for number in range(0, changes, every):
            tried += _try_stop(memory_path / "store", number, torn, contents)
            shutil.rmtree(memory_path / "store", ignore_errors=True)
    with capsys.disabled():
        print(f"\n{tried} stops tried, of {2 * changes}")
    assert tried >= 0.95 * (2 * changes // every)


def test_some_stops(memory_path, undisturbed, capsys):
    _run(memory_path, undisturbed, 11, capsys)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_stops(memory_path, undisturbed, capsys):
    _run(memory_path, undisturbed, 1, capsys)
