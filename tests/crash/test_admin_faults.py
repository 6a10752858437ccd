"""The disk fails while topics are made, changed, emptied, cut and deleted, and the same process continues.

A call that raises OSError has done all of it or nothing, as readers see it, and can be repeated; what was appended
and not deleted stays. In the end `verify` finds nothing wrong.
"""

import contextlib

import pyarrow as pa
import pytest
from faults import ATTEMPTS, FAULTS, again_until_done, try_faults
from sampling import SAMPLED

from pyspark_log.errors import (
    InvalidConfigError,
    OutcomeUnknownError,
    StoreExistsError,
    TopicExistsError,
    UnknownTopicError,
)
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.store_tools import cut_log

pytestmark = [pytest.mark.usefixtures("little_sizes"), *SAMPLED]

SEGMENTS = {"segment.bytes": "1200", "index.interval.bytes": "200", "file.delete.delay.ms": "0", "retention.ms": "-1"}
RETAINED = 2500


def rows(name, count=4):
    return pa.record_batch({"value": [f"{name}/{row}".encode() + b"." * 100 for row in range(count)]})


class Work:
    """Steps that are tried until they succeed, with what readers must see before and after each.

    `seen` is that: for each topic its values, of partition 0. Of "short" old segments go by themselves.
    """

    def __init__(self, path):
        self.path = path
        self.store = None
        self.seen = {}
        self.calm = None

    def run(self, calm):
        self.calm = calm
        self.create_store()
        for number in range(2):
            for topic in ("kept", "short"):
                if number == 0:
                    self.create(topic)
                for part in range(4):
                    self.append(topic, f"{number}.{part}", sync=part == 1)
            self.create("temporary")
            self.append("temporary", f"{number}", sync=False)
            self.alter(number)
            self.delete_records()
            self.truncate()
            self.step(lambda number=number: OffsetsLog(self.store).commit("group", {TopicPartition("kept", 0): number}))
            self.step(self.store.flush)
            self.step(self.store.clean)
            self.delete("temporary")
            self.step(self.store.close)
            self.check(self.seen)

    def create_store(self):
        def make():
            with contextlib.suppress(StoreExistsError):
                Store.create(self.path, {"offsets.topic.num.partitions": "1"})
            self.store = Store.open(self.path)

        again_until_done(make)

    # ---- one step

    def look(self):
        """What readers see; a store that was just opened sees the same as this one."""
        seen = {topic: list(values(self.store, topic)) for topic in self.store.topics()}
        opened = Store.open(self.path)
        assert {topic: list(values(opened, topic)) for topic in opened.topics()} == seen
        return seen

    def check(self, *allowed):
        with self.calm():
            found = self.look()
            short = found.get("short", [])
            for wanted in allowed:
                # Segments go from the front, and what stays has RETAINED bytes or more.
                whole = wanted.get("short", [])
                if {**found, "short": 0} == {**wanted, "short": 0} and whole[len(whole) - len(short) :] == short:
                    assert len(short) * 100 >= min(RETAINED, len(whole) * 100) * 0.6
                    return
            raise AssertionError(f"{found} where one of {allowed} should be")

    def step(self, action, after=None):
        """Repeats what may be repeated until it succeeds; until then all or nothing of it is there."""
        after = self.seen if after is None else after
        for _ in range(ATTEMPTS):
            try:
                action()
            except (OSError, OutcomeUnknownError):
                self.check(self.seen, after)
                continue
            self.seen = after
            return
        raise AssertionError("never succeeded")

    # ---- the steps

    def create(self, topic):
        def make():
            with contextlib.suppress(TopicExistsError):
                self.store.create_topic(
                    topic, 1, {**SEGMENTS, **({"retention.bytes": f"{RETAINED}"} if topic == "short" else {})}
                )

        self.step(make, {**self.seen, topic: []})

    def append(self, topic, name, sync):
        """An append must not be repeated if it took place."""
        after = {**self.seen, topic: [*self.seen[topic], *(f"{name}/{row}" for row in range(4))]}

        begun = []

        def add():
            if begun:
                with self.calm():
                    if self.look()[topic][-1:] == after[topic][-1:]:
                        return
            begun.append(True)
            self.store.append(topic, rows(name), partition=0, sync=sync)

        self.step(add, after)

    def alter(self, number):
        """Gives a topic more partitions and another setting."""
        wanted = str(10_000 + number)

        def more():
            # It has as many if the call took place that failed.
            with contextlib.suppress(InvalidConfigError):
                self.store.add_partitions("kept", number + 2)

        def change():
            self.store.alter_configs("kept", {"max.message.bytes": wanted})

        for action in (more, change):
            self.step(action)
        with self.calm():
            found = Store.open(self.path).describe_topic("kept")
            assert (found.partitions, found.configs) == (number + 2, {**SEGMENTS, "max.message.bytes": wanted})

    def delete_records(self):
        with self.calm():
            before = self.store.earliest_offset("kept", 0) + 5
        self.step(lambda: self.store.delete_records("kept", 0, before), {**self.seen, "kept": self.seen["kept"][5:]})

    def truncate(self):
        """The last batch is removed."""
        with self.calm():
            offset = self.store.latest_offset("kept", 0) - 4

        def cut():
            assert cut_log(self.store, offset, "kept") == offset

        self.step(cut, {**self.seen, "kept": self.seen["kept"][:-4]})

    def delete(self, topic):
        def remove():
            with contextlib.suppress(UnknownTopicError):
                self.store.delete_topic(topic)

        self.step(remove, {name: found for name, found in self.seen.items() if name != topic})

    # ---- the end

    def check_at_the_end(self):
        opened = Store.open(self.path)
        opened.clean()
        for topic in opened.topics():
            opened.append(topic, rows("end"), partition=0)
            assert list(values(opened, topic))[-4:] == [f"end/{row}" for row in range(4)]
        assert OffsetsLog(opened).fetch("group")[TopicPartition("kept", 0)].offset == 1
        findings = verify(self.path).findings
        assert [finding for finding in findings if finding.severity is not Severity.NOTE] == []


def values(store, topic):
    for batch in store.read(topic, 0):
        for value in batch["value"].to_pylist():
            yield value.rstrip(b".").decode()


@pytest.mark.parametrize("kind", FAULTS)
def test_faults(memory_path, kind, monkeypatch, capsys):
    try_faults(monkeypatch, capsys, Work, memory_path, kind, 20)
