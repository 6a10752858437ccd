"""A publish is stopped before each of its changes to files, or the power is lost there; then another process comes by,
and is stopped too, before each change that it makes; then a third.

The other processes: the publisher with its replay, another publisher, an append, a reader that helps, `pylog recover`.
In the end the publish is there once: as a whole in each partition, with the committed offset that moves with it.
One of the partitions is in a log dir of its own, on another device than what is staged.
"""

import itertools
import os
import random
import shutil

import pyarrow as pa
import pytest
from attacks import naming, restarted
from power import Trace
from sampling import EVERYTHING, SAMPLED, SEED, TIMES, sample, spread
from workload import CONFIGS

from pyspark_log.storage.groups.committed_offsets import OffsetMoves
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.log.appending import new_segment
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.publish.recovery import recover
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan, staged_file
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition
from tests.scratch import memory_folder
from tests.stops import StopBefore, copy_folder, count_changes, run_until
from tests.store_tools import damages, publish

pytestmark = [pytest.mark.usefixtures("little_sizes"), *SAMPLED]

# Copied into a log with records, copied so that segments are rolled, installed after records, and in place of nothing,
# the last one as a copy that is made before the lock is taken.
COUNTS = {"plain": 2, "small": 12, "large": 45, "fresh": 40}
AT = TopicPartition("plain", 0)


def rows(name, count):
    return pa.record_batch({"value": [f"{name}/{row}".encode() + b"." * 80 for row in range(count)]})


def publish_as(path, publisher, number, run, counts=None, steps=()):
    store, parts = Store.open(path), []
    counts = counts or dict.fromkeys(COUNTS, 1)
    for task in range(2):
        writer = StagedWriter(store.logs, StagingPlan.make(store.logs, counts))
        for topic, count in counts.items():
            writer.append(topic, rows(f"{publisher} {number} {task}", count))
        parts += writer.finish()
    moves = [OffsetMoves(store.committed_offsets, steps)] if steps else []
    publish(store.decisions, publisher, number, parts, run=run, participants=moves)


def query(path, run="run 1"):
    """The publish that is tested, and its replay."""
    publish_as(path, "query", 1, run, COUNTS, [OffsetStep("group", AT, None, 5)])


def append(path):
    store = Store.open(path)
    for topic in COUNTS:
        store.append(topic, rows("append", 1))


COMERS = {
    "replay": lambda path: query(path, "run 2"),
    "other publisher": lambda path: publish_as(path, "other", 0, ""),
    "writer": append,
    "reader": lambda path: help_apply(Store.open(path).decisions),
    "recover": lambda path: recover(Store.open(path).decisions),
}


def content(path):
    store = Store.open(path)
    return {
        topic: [value.decode().rstrip(".") for read in store.read(topic, 0) for value in read["value"].to_pylist()]
        for topic in COUNTS
    }


def begun(path):
    """A store in which all is on the disk."""
    store = Store.create(path, {"offsets.topic.num.partitions": "1", "log.dirs": "data,second"})
    for topic in COUNTS:
        store.create_topic(topic, 1, CONFIGS[topic])
        if topic != "fresh":
            store.move_partition(topic, 0, "data")
    publish_as(path, "query", 0, "run 1", {"plain": 1, "small": 3, "large": 3})
    for topic in COUNTS.keys() - {"fresh"}:
        store.append(topic, rows("before", 3))
    store.flush()
    # No file is deleted that is still read.
    OffsetsLog(store).commit("another group", {AT: 1})
    store.flush()


def published(count):
    return [f"query 1 {task}/{row}" for task in range(2) for row in range(count)]


def check_whole(path, before):
    """What was there is there; the publish is in each partition as a whole, or not at all."""
    for topic, values in content(path).items():
        assert values[: len(before[topic])] == before[topic], topic
        assert len(values) == len(set(values)) or "append/0" in values, topic
        mine = [number for number, value in enumerate(values) if value.startswith("query 1")]
        assert mine in ([], list(range(mine[0], mine[0] + len(mine))) if mine else []), (topic, "not together")
        assert [values[number] for number in mine] in ([], published(COUNTS[topic])), topic


def check_published(path, before):
    """After every process has run its recovery, all of the output is there once."""
    for comer in COMERS.values():
        comer(path)
    check_whole(path, before)
    for topic, values in content(path).items():
        assert "query 1 0/0" in values, topic
        assert [value for value in values if value.startswith("other")] == ["other 0 0/0", "other 0 1/0"], topic
    assert OffsetsLog(Store.open(path)).fetch("group")[AT].offset == 5
    # Where the fewest partitions were when it was begun.
    assert os.path.dirname(Store.open(path).logs.place("fresh", 0).folder) == f"{path}/second"
    Store.open(path).flush()
    damage = damages(path)
    assert not damage, "\n".join(map(str, damage))


def comer_of(number):
    """Each in turn: its name, and what it does."""
    return list(COMERS.items())[number % len(COMERS)]


class Base:
    """The store before the publish, and what it has."""

    def __init__(self, folder):
        self.folder, self.path = folder, folder / "base"
        begun(self.path)
        self.before = content(self.path)

    def fresh(self, name):
        """A folder for a store, which may have been used before."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        return self.folder / name

    def copy(self, source, name):
        """A copy of a store under a name."""
        path = self.fresh(name)
        copy_folder(source, path)
        return path

    def trace(self):
        """The changes of a publish, and before how many of them the power fails."""
        trace = Trace(self.copy(self.path, "store"))
        trace.record(lambda: query(trace.root))
        return trace, range(1, len(trace.changes) + 1)


@pytest.fixture
def base(little_sizes, monkeypatch):
    for module in (staged_file, new_segment):
        monkeypatch.setattr(module, "on_one_device", lambda _, folder: not folder.endswith("/second"))
    with memory_folder() as folder:
        yield Base(folder)


def test_stops_of_a_publish_and_of_its_recovery(base, capsys):
    changes = count_changes(lambda: query(base.copy(base.path, "counted")))
    chosen, tried, changing = sample(range(changes), 14), 0, 0
    for change in chosen:
        stopped = base.copy(base.path, "stopped")
        run_until(lambda path=stopped: query(path), StopBefore(change, torn=change % 2 == 1))
        check_whole(stopped, base.before)
        for name, comer in COMERS.items():
            counted = base.copy(stopped, "counted")
            changes_of_comer = count_changes(lambda comer=comer, path=counted: comer(path))
            changing += changes_of_comer > 0  # a reader may find nothing to finish
            for second in spread(range(changes_of_comer), 5):
                path = base.copy(stopped, "again")
                run_until(lambda comer=comer, path=path: comer(path), StopBefore(second, torn=second % 2 == 1))
                finisher, finish = comer_of(change + second)
                with naming(f"stopped before change {change}, {name} before change {second}, then {finisher}"):
                    check_whole(path, base.before)
                    finish(path)
                    check_published(path, base.before)
                tried += 1
    with capsys.disabled():
        print(f"\n{tried} times two stops tried, at {len(chosen)} of a publish's {changes} changes")
    assert tried >= changing > 0


def test_power_losses_in_a_publish(base, capsys):
    """Each subset of what was not synced stays where there are up to 1,024; else 1,024 of them by chance."""
    (trace, points), tried, subsets, whole = base.trace(), 0, 0, 0
    limit = 1024 if EVERYTHING else max(2, int(12 * TIMES))
    chosen = sample(points, 40)
    with restarted():
        for count, disk in trace.disks(chosen):
            total, fates = disk.subsets(limit, random.Random(f"{SEED} {count}"))
            subsets, whole = subsets + total, whole + (total <= limit)
            for number, fate in enumerate(fates):
                path = base.fresh("after")
                disk.write(path, fate)
                name, comer = comer_of(count + number)
                with naming(f"power lost before change {count}, subset {number} of {total}, seed {SEED}, then {name}"):
                    comer(path)
                    check_published(path, base.before)
                tried += 1
    with capsys.disabled():
        print(
            f"\n{tried} power losses tried at {len(chosen)} of a publish's {len(trace.changes)} changes, of {subsets} "
            f"subsets of what was not synced: all of them at {whole} changes, {limit} at each other"
        )
    assert tried >= len(chosen)


def test_power_losses_during_recovery_from_a_power_loss(base, capsys):
    (trace, points), tried, boots = base.trace(), 0, itertools.count()
    chosen = sample(points, 20)
    for count, disk in trace.disks(chosen):
        choices = random.Random(f"{SEED} {count}")
        for name, comer in COMERS.items() if EVERYTHING else [comer_of(count)]:
            first = base.fresh("first")
            disk.write(first, disk.any_part(choices))
            second = Trace(first)
            with restarted(next(boots)):
                second.record(lambda comer=comer, path=first: comer(path))
            with restarted(next(boots)):
                for at, left in second.disks(spread(range(1, len(second.changes) + 1), 8)):
                    path = base.fresh("after")
                    left.write(path, left.any_part(choices))
                    with naming(f"power lost before change {count}, and before change {at} of {name}, seed {SEED}"):
                        comer_of(count + at)[1](path)
                        check_published(path, base.before)
                    tried += 1
    with capsys.disabled():
        print(f"\n{tried} times two power losses tried")
    assert tried >= len(chosen)
