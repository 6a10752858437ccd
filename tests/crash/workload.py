"""A scripted workload in which everything happens that changes files, for tests that stop it somewhere.

Appends to several partitions, unsynced, synced and numbered; rolls, a flush, a close, retention, deleted records,
truncations; publishes whose output is copied, becomes segments, or is gathered first, synced and not; topics that are
deleted and recreated.
"""

import contextlib
from dataclasses import dataclass

import pyarrow as pa
from numbered import batch, end_transaction

from pyspark_log.errors import OffsetOutOfRangeError, StoreExistsError, TopicExistsError, UnknownTopicError
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan
from pyspark_log.storage.store import Store
from pyspark_log.types import LATEST
from tests.store_tools import cut_log, publish

PARTITIONS = 2
_SEGMENTS = {"index.interval.bytes": "200", "max.message.bytes": "1000"}
CONFIGS = {
    "small": {"segment.bytes": "1500"} | _SEGMENTS,
    # How many records are in each append that asks for no sync.
    "plain": {"flush.messages": "4"},
    # These get files that become segments; the second one has no record before.
    "large": {"segment.bytes": "6000"} | _SEGMENTS,
    "fresh": {"segment.bytes": "6000"} | _SEGMENTS,
    # Old segments go.
    "short": {"segment.bytes": "1200", "retention.bytes": "1500", "file.delete.delay.ms": "0"},
    # It is deleted and recreated.
    "temporary": {"segment.bytes": "1200", "file.delete.delay.ms": "0"},
}
PRODUCER = 7


class Steps:
    """Steps of a program; `begun` and `done` say how far it came.

    A step that must not be repeated once it took place has a name, which its values bear.

    Attributes:
        configs, partitions: of each topic.
        settings: of the store.
    """

    configs, partitions, settings = {}, {}, None

    def __init__(self, path, done=0):
        """`done`: the number of steps that were made already."""
        self.path = path
        self.begun = self.done = done
        self.steps = []
        self.syncs = set()  # numbers of steps whose records survive a power loss

    def add(self, action, *arguments, name=None, sync=False):
        self.steps.append((name, lambda: action(*arguments)))
        if sync:
            self.syncs.add(len(self.steps) - 1)
        return len(self.steps) - 1

    def run(self, until=None, after=lambda: None):
        for _, step in self.steps[self.done : until]:
            self.begun = self.done + 1
            step()
            self.done += 1
            after()

    def resume(self, contents, look, check_between, has, following):
        """What other processes do where this one was stopped: what was decided appears, and some more steps are made.

        Args:
            contents: what the store has before each step of an undisturbed run, and at last.
            look: finds that of a path.
            check_between: checks what was found, given what there was before the step under way, and is after it.
            has: whether a named step took place, by what was found; other steps may be repeated.
            following: how many steps are made then.
        """
        for finish in (lambda: help_apply(Store.open(self.path).decisions), lambda: None):
            exists = (self.path / "store.json").exists()
            seen = look(self.path) if exists else contents[0]
            check_between(seen, contents[self.done], contents[self.begun])
            if exists:
                finish()
        name, _ = self.steps[self.done]
        if name is not None and has(name, seen):
            self.done += 1
        self.run(until=self.done + following)

    # ---- steps

    def create_store(self):
        with contextlib.suppress(StoreExistsError):
            Store.create(self.path, self.settings)

    def create_topic(self, topic):
        store = Store.open(self.path)
        with contextlib.suppress(TopicExistsError):
            store.create_topic(topic, self.partitions[topic], self.configs[topic])
        assert store.describe_topic(topic).partitions == self.partitions[topic]

    def delete_records(self, topic, offset):
        Store.open(self.path).delete_records(topic, 0, offset)

    def truncate(self, topic, partition, offset):
        # A second time the log may end before it.
        with contextlib.suppress(OffsetOutOfRangeError):
            cut_log(Store.open(self.path), offset, topic, partition)

    def flush(self):
        Store.open(self.path).flush()

    def clean(self):
        janitor.clean(Store.open(self.path))


class Workload(Steps):
    """Steps with values that name the step they are of."""

    configs, partitions = CONFIGS, dict.fromkeys(CONFIGS, PARTITIONS)

    def __init__(self, path, done=0):
        super().__init__(path, done)
        self.add(self.create_store)
        for topic in CONFIGS:
            self.add(self.create_topic, topic)
        for number in range(4):
            self.append("small", number)
            self.append("plain", number, sync=True)
            self.append("large", number, close=number == 3)
            self.add(self.publish, number, sync=True)
            self.append("short", 2 * number)
            self.append("small", number + 100)
            self.append("temporary", number)
            self.add(self.publish_once, number, name=("once", f"{number}"), sync=True)
            self.append("short", 2 * number + 1)
            self.append("plain", number + 100)
            self.add(self.append_numbered, number)
            self.add(self.abort_transaction, number)
            if number % 2:
                self.add(self.delete_records, "short", LATEST)
                self.add(self.delete_topic, "temporary")
                self.add(self.create_topic, "temporary")
            if number == 2:
                self.flushed = self.add(self.flush)
            if number > 1:
                self.add(self.truncate, "plain", 1, 5 + number)
        self.add(self.clean)

    def append(self, topic, number, sync=False, close=False):
        data = rows(f"append {topic} {number}")

        def action():
            with Store.open(self.path) if close else contextlib.nullcontext(Store.open(self.path)) as store:
                # To one partition each: an append to several is several.
                store.append(topic, data, partition=number % PARTITIONS, sync=sync)

        durable = sync or close or "flush.messages" in CONFIGS[topic]
        self.add(action, name=("append", topic, f"{number}"), sync=durable)

    def delete_topic(self, topic):
        with contextlib.suppress(UnknownTopicError):
            Store.open(self.path).delete_topic(topic)

    def append_numbered(self, number):
        Store.open(self.path).append_batch("small", 0, numbered(number))

    def abort_transaction(self, number):
        store = Store.open(self.path)
        store.append_batch("small", 1, batch(number, [b"aborted %d: 0" % number], 8, transactional=True))
        end_transaction(store, "small", 1, 8)

    def stage(self, name, counts, tasks=2):
        """Output of some tasks, `counts` rows for each partition of some topics."""
        store, parts = Store.open(self.path), []
        for task in range(tasks):
            writer = StagedWriter(store.logs, StagingPlan.make(store.logs, counts))
            for topic, count in counts.items():
                writer.append(topic, rows(f"{name} {topic} {task}", PARTITIONS * count))
            parts += writer.finish()
        return store, parts

    def publish(self, number):
        """A query's batch; every second one is large."""
        large = {"large": 30, "fresh": 40} if number % 2 else {"large": 1}
        store, parts = self.stage(f"publish {number}", {"small": 2, "plain": 1} | large)
        publish(store.decisions, "query", number, parts, run="run")

    def publish_once(self, number):
        """A batch write; one of them has many little pieces."""
        counts, tasks = ({"small": 1, "large": 6}, 6) if number == 2 else ({"small": 2}, 2)
        store, parts = self.stage(f"once {number}", counts, tasks)
        publish(store.decisions, f"batch {number}", 0, parts, one_off=True)


def numbered(number):
    """Two records with the sequence numbers 2 * number and 2 * number + 1, part of a transaction."""
    values = [f"numbered {number}: {row}".encode() + b"." * 80 for row in range(2)]
    return batch(2 * number, values, PRODUCER, transactional=True)


def rows(name, count=None):
    """Rows for both partitions in turn."""
    count = len(name) % 3 + 3 if count is None else count
    return pa.record_batch(
        {
            "key": [b"%d" % (row % PARTITIONS) for row in range(count)],
            "value": [f"{name}: {row}".encode() + b"." * 80 for row in range(count)],
            "partition": pa.array([row % PARTITIONS for row in range(count)], pa.int32()),
        }
    )


@dataclass
class Seen:
    """What readers see of a partition: its topic's id, where it begins and ends, and the values by offset."""

    topic_id: str
    start: int
    end: int
    values: dict


def see(path):
    """What readers see, for each topic and partition."""
    store = Store.open(path)
    return {
        (topic, partition): Seen(
            store.describe_topic(topic).topic_id,
            store.earliest_offset(topic, partition),
            store.latest_offset(topic, partition),
            {
                row["offset"]: row["value"].decode().rstrip(".")
                for read in store.read(topic, partition)
                for row in read.select(["offset", "value"]).to_pylist()
            },
        )
        for topic in store.topics()
        for partition in range(PARTITIONS)
    }


def content(path):
    """The values that readers see, in order, for each topic and partition."""
    return {place: list(seen.values.values()) for place, seen in see(path).items()}
