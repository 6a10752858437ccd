"""Kills a server, its clients, a publisher and Spark again and again, and checks what was acknowledged.

    python -m tests.campaigns server --kills 200 --seed 1

Idempotent and other producers, of librdkafka and of Java, write to a topic through `pylog serve`; a process publishes
to it as queries of Spark do. A group of librdkafka's and Java's consumers reads it, and so does one of the new protocol
(KIP-848). Spark copies it twice: by `format("pylog")` from files to files, and by its own Kafka connector through the
server. A compacted topic and one with retention are written, compacted and cleaned meanwhile. Victims are any of them,
the server most of all; each is started again. At last all come to an end undisturbed. Then

- every acknowledged record of an idempotent producer is there exactly once, and in order,
- every acknowledged record of other producers is there once or more,
- each publish is there as a whole, once,
- the copy by files has each record exactly once and in order, the one through the server has each,
- each group has read each record, and no committed offset has ever gone back,
- the last acknowledged value of each key is in the compacted topic, and the last ones of the topic with retention,
- `pylog verify` finds no damage.
"""

from __future__ import annotations

import time
from collections import defaultdict

from pyspark_log import Store
from pyspark_log.admin import compact
from pyspark_log.types import TopicPartition
from tests.campaigns import clients, harness
from tests.campaigns.server.checks import check
from tests.campaigns.server.queries import COPIED, THROUGH
from tests.server_tools import Server

PARTITIONS = 4
#: What runs, by name: the kind and a number.
ACTORS = (
    "idempotent-1", "idempotent-2", "plain-1", "java-1", "keyed-1", "short-1", "query-1", "spark-1",
    "consumer-1", "consumer-2", "javareader-1", "javamodern-1", "javamodern-2",
)  # fmt: skip
GROUPS = ("readers", "modern")
READERS = ("consumer", "javareader", "javamodern", "spark")
TOPICS = {
    "c": {"cleanup.policy": "compact", "segment.bytes": "100000", "min.cleanable.dirty.ratio": "0.01"},
    "short": {"segment.bytes": "20000", "retention.bytes": "50000"},
}


class Campaign(harness.Campaign):
    """A server with all that uses it."""

    def prepare(self):
        self.path = self.folder / "store"
        with Store.create(self.path) as store:
            for topic in ("t", COPIED, THROUGH):
                store.create_topic(topic, PARTITIONS, {"retention.ms": "-1", "segment.bytes": "400000"})
            for topic, configs in TOPICS.items():
                store.create_topic(topic, 1, configs)
        self.server = Server(self.path, self.folder)
        self.names, self.committed, self.records = defaultdict(list), {}, 0

    def begin(self):
        self.server.start()
        for actor in ACTORS:
            self.start(actor)

    def start(self, actor):
        """Starts an actor; a producer or a consumer gets a new name each time."""
        kind, bootstrap, folder = actor.partition("-")[0], self.server.bootstrap, self.folder
        # One that is Java's own has a number in the place of a name.
        name = f"{kind}-{len(self.names[kind])}" if kind == "java" else f"{actor}.{len(self.names[kind])}"
        self.names[kind].append(name)
        if kind == "java":
            words = clients.java_producer(folder, bootstrap, "t", name.rpartition("-")[2])
            self.launch(actor, words, name)
        elif kind.startswith("java"):
            group = {"javareader": ("readers", "classic"), "javamodern": ("modern", "consumer")}[kind]
            self.launch(actor, clients.java_consumer(bootstrap, "t", *group), name)
        elif kind == "spark":
            self.launch_module(actor, "server.queries", self.path, bootstrap, folder / "checkpoints")
        else:
            where = [bootstrap, folder, name]
            words = {
                "idempotent": ["produce", *where, 1, "t", 0],
                "plain": ["produce", *where, 0, "t", 0],
                "keyed": ["produce", *where, 1, "c", 1],
                "short": ["produce", *where, 1, "short", 0],
                "consumer": ["consume", *where, "t"],
                "query": ["publish", self.path, "t"],
            }[kind]
            self.launch_module(actor, "clients", *words)

    def strike(self):
        victim = self.random.choice(["server"] * len(ACTORS) + list(ACTORS))
        if victim == "server":
            self.server.kill()
            time.sleep(self.random.uniform(0, 0.3))
            self.server.start()
        else:
            self.kill(victim)
            self.start(victim)
        return f"kills of {victim.partition('-')[0]}"

    def tend(self):
        with Store.open(self.path) as store:
            list(compact(store, "c"))
            store.clean("short")

    def look(self):
        """Notes how far the groups have committed, which never goes back; and that no actor has ended by itself."""
        with Store.open(self.path) as store:
            known = set(store.groups)
            for group in GROUPS:
                for at, one in store.groups[group].committed().items() if group in known else ():
                    if one.offset < self.committed.get((group, at), 0):
                        before = self.committed[group, at]
                        self.found.append(f"{group}, {at}: went back from {before} to {one.offset}")
                    self.committed[group, at] = one.offset
        for actor, process in self.running.items():
            if process.poll() is not None:
                self.found.append(f"{actor} has ended with {process.returncode}")

    def finish(self):
        """First those that write come to an end; then those that read, when they have read all."""
        # In few kills too little is written for retention.
        self.wait(self._is_cleaned, every=0.5)
        self.terminate(*(actor for actor in self.running if actor.partition("-")[0] not in READERS))
        with Store.open(self.path) as store:
            self.ends = {TopicPartition("t", number): store.latest_offset("t", number) for number in range(PARTITIONS)}
            self._await_readers(store)
        self.terminate(*self.running)
        if self.server.stop():
            self.found.append("the server has ended with an error")

    def _await_readers(self, store):
        """Waits until all is read, as long as any of it is; what is not read then is found by the checks."""
        position, before = 0, -1
        while position > before and not self.wait(lambda: self._is_read(store), every=0.5):
            copied = sum(store.latest_offset(topic, at.partition) for at in self.ends for topic in (COPIED, THROUGH))
            position, before = copied + sum(self.committed.values()), position

    def _is_cleaned(self):
        """Cleans; whether retention has removed records."""
        self.tend()
        with Store.open(self.path) as store:
            return store.earliest_offset("short", 0) > 0

    def _is_read(self, store):
        """Whether the groups and the queries have come to the end."""
        read = all(self.committed.get((group, at), 0) >= end for at, end in self.ends.items() for group in GROUPS)
        return read and all(
            store.latest_offset(topic, at.partition) >= end
            for at, end in self.ends.items()
            for topic in (COPIED, THROUGH)
        )

    def check(self):
        found, self.records = check(self.path, self.folder, self.names, self.ends)
        return found

    def figures(self):
        return [f"{self.records:,} records"]

    def end(self):
        self.server.kill()
