"""The engine is stopped before each change to files that a workload makes, and then looked at.

All that was acknowledged is there once and in order; what was under way is there whole or not at all, and
doing it again ends well; what was decided appears. The same with half of the write made that came next.
"""

import itertools
import os
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from stops import StopBefore, count_changes, run_until

from pyspark_log.storage.errors import StoreExistsError, TopicExistsError
from pyspark_log.storage.publish import help_apply, publish, tidy
from pyspark_log.storage.staging import StagedWriter, StagingPlan
from pyspark_log.storage.store import Store

TOPICS = {"small": {"segment.bytes": "1500", "index.interval.bytes": "200"}, "plain": {}}


class Workload:
    """Steps with values that tell which step they are of; `begun` and `done` say how far it came."""

    def __init__(self, path):
        self.path = path
        self.begun = self.done = 0
        self.steps = [self.create_store, *(lambda t=t: self.create_topic(t) for t in TOPICS)]
        for number in range(4):
            self.steps += [
                lambda n=number: self.append("small", n),
                lambda n=number: self.append("plain", n, sync=True),
                lambda n=number: self.publish(n),
                lambda n=number: self.append("small", n + 100),
                lambda n=number: self.publish_once(n),
            ]
        self.steps += [lambda: tidy(Store.open(self.path))]

    def run(self):
        for step in self.steps[self.done :]:
            self.begun = self.done + 1
            step()
            self.done += 1

    def create_store(self):
        try:
            Store.create(self.path)
        except StoreExistsError:
            Store.open(self.path)

    def create_topic(self, topic):
        try:
            Store.open(self.path).create_topic(topic, 2, TOPICS[topic])
        except TopicExistsError:
            assert Store.open(self.path).describe_topic(topic).partitions == 2

    def append(self, topic, number, sync=False):
        Store.open(self.path).append(topic, rows(b"append %s %d" % (topic.encode(), number)), partition=0, sync=sync)

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


def check_whole(seen, full):
    """Each step is there whole or not at all, in the order of the steps."""
    for place, values in seen.items():
        wanted = by_step(full[place])
        found = by_step(values)
        assert found == [step for step in wanted if step[0] in dict(found)], place


@pytest.fixture
def memory_path():
    """A folder in memory where there is one: a stop loses nothing that was written, synced or not."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    path = tmp_path_factory.mktemp("undisturbed") / "store"
    workload = Workload(path)
    changes = count_changes(workload.run)
    return changes, content(path)


# Every step with a publish in it may be repeated; an append that was stopped may be there or not, so it is not.
def _go_on(workload, path, full):
    seen = content(path) if (path / "store.json").exists() else {}
    check_whole(seen, full)
    if seen:
        help_apply(Store.open(path))
        seen = content(path)
        check_whole(seen, full)
    if workload.begun > workload.done and 3 <= workload.done < len(workload.steps) - 1:
        under_way = workload.done
        kind = (under_way - 3) % 5
        number = (under_way - 3) // 5
        found = {step[0] for values in seen.values() for step in by_step(values)}
        appended = {0: ("append", "small", f"{number}"), 1: ("append", "plain", f"{number}"),
                    3: ("append", "small", f"{number + 100}")}  # fmt: skip
        if appended.get(kind) in found or (kind == 4 and ("once", f"{number}") in found):
            workload.done += 1
    workload.run()


def _try_stop(path, changes, torn, full):
    workload = Workload(path)
    stop = StopBefore(changes, torn)
    if not run_until(workload.run, stop):
        return False  # Threads that apply side by side do not always make the very same number of changes.
    acknowledged = workload.done
    _go_on(workload, path, full)
    assert content(path) == full, f"stopped before change {changes} ({stop.stopped_at}) in step {acknowledged}"
    return True


def _run(memory_path, undisturbed, every, capsys):
    changes, full = undisturbed
    tried = 0
    for torn in (False, True):
        for number in range(0, changes, every):
            tried += _try_stop(memory_path / "store", number, torn, full)
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
