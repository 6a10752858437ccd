"""Kills a server, its clients, a publisher and Spark again and again, and checks what was acknowledged.

    python -m tests.server_campaign.run --kills 200 --seed 1

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

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from pyspark_log import Store
from pyspark_log.admin import compact
from pyspark_log.types import TopicPartition
from tests.campaign import processes
from tests.server_campaign import actors
from tests.server_campaign.checks import check
from tests.server_campaign.queries import COPIED, THROUGH
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


class Campaign:
    """The processes, and what is killed."""

    def __init__(self, folder, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.path = folder / "store"
        with Store.create(self.path) as store:
            for topic in ("t", COPIED, THROUGH):
                store.create_topic(topic, PARTITIONS, {"retention.ms": "-1", "segment.bytes": "400000"})
            for topic, configs in TOPICS.items():
                store.create_topic(topic, 1, configs)
        self.server = Server(self.path, folder)
        self.names = defaultdict(list)
        self.running = {}
        self.kills = Counter()
        self.committed = {}
        self.stopped_wrong = []

    def begin(self, actor):
        """Starts an actor; a producer or a consumer gets a new name each time."""
        kind, bootstrap, folder = actor.partition("-")[0], self.server.bootstrap, self.folder
        # One that is Java's own has a number in the place of a name.
        name = f"{kind}-{len(self.names[kind])}" if kind == "java" else f"{actor}.{len(self.names[kind])}"
        self.names[kind].append(name)
        if kind == "java":
            begun = actors.start_java_producer(folder, name, bootstrap, "t", name.rpartition("-")[2])
        elif kind.startswith("java"):
            group = {"javareader": ("readers", "classic"), "javamodern": ("modern", "consumer")}[kind]
            begun = actors.start_java_consumer(folder, name, bootstrap, "t", *group)
        elif kind == "spark":
            begun = actors.start(folder, "tests.server_campaign.queries", self.path, bootstrap, folder / "checkpoints")
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
            begun = actors.start(folder, "tests.server_campaign.actors", *words)
        self.running[actor] = begun

    def run(self, kills):
        """Kills one after the other."""
        self.server.start()
        for actor in ACTORS:
            self.begin(actor)
        for number in range(kills):
            time.sleep(self.random.uniform(0.2, 1.5))
            self.look()
            victim = self.random.choice(["server"] * len(ACTORS) + list(ACTORS))
            self.kills[victim.partition("-")[0]] += 1
            if victim == "server":
                self.server.kill()
                time.sleep(self.random.uniform(0, 0.3))
                self.server.start()
            else:
                kill(self.running[victim])
                self.begin(victim)
            if number % 10 == 9:
                with Store.open(self.path) as store:
                    list(compact(store, "c"))
                    store.clean("short")
                print(f"{number + 1} of {kills} kills", flush=True)

    def look(self):
        """Notes how far the groups have committed, which never goes back; and that no actor has ended by itself."""
        with Store.open(self.path) as store:
            known = set(store.groups)
            for group in GROUPS:
                for at, one in store.groups[group].committed().items() if group in known else ():
                    if one.offset < self.committed.get((group, at), 0):
                        before = self.committed[group, at]
                        self.stopped_wrong.append(f"{group}, {at}: went back from {before} to {one.offset}")
                    self.committed[group, at] = one.offset
        for actor, process in self.running.items():
            if process.poll() is not None:
                self.stopped_wrong.append(f"{actor} has ended with {process.returncode}")

    def finish(self):
        """Lets all come to an end: first those that write; then those that read, when they have read all."""
        self._end([actor for actor in self.running if actor.partition("-")[0] not in READERS])
        with Store.open(self.path) as store:
            ends = {TopicPartition("t", number): store.latest_offset("t", number) for number in range(PARTITIONS)}
            deadline = time.monotonic() + actors.PATIENCE
            while time.monotonic() < deadline and not self._is_read(store, ends):
                time.sleep(0.5)
                self.look()
        self._end(list(self.running))
        if self.server.stop():
            self.stopped_wrong.append("the server has ended with an error")
        return ends

    def _is_read(self, store, ends):
        """Whether the groups and the queries have come to the end."""
        read = all(self.committed.get((group, at), 0) >= end for at, end in ends.items() for group in GROUPS)
        return read and all(
            store.latest_offset(topic, at.partition) >= end for at, end in ends.items() for topic in (COPIED, THROUGH)
        )

    def _end(self, names):
        for name in names:
            self.running[name].send_signal(signal.SIGTERM)
        for name in names:
            code = self.running.pop(name).wait(actors.PATIENCE)
            # Java's code says that a signal has ended it, in order or before it had started.
            if code and not (name.startswith("java") and code in (128 + signal.SIGTERM, -signal.SIGTERM)):
                self.stopped_wrong.append(f"{name} has ended with {code}")


def kill(process):
    """Ends a process with all that it has started."""
    processes.send(processes.session(process.pid), signal.SIGKILL)
    process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="server-campaign-"))
    print(f"seed {options.seed}, in {folder}", flush=True)
    campaign = Campaign(folder, options.seed)
    try:
        campaign.run(options.kills)
        ends = campaign.finish()
    finally:
        for process in campaign.running.values():
            kill(process)
        campaign.server.kill()
    found, records = check(campaign.path, folder, campaign.names, ends)
    found = campaign.stopped_wrong + found
    print(f"{sum(campaign.kills.values())} kills {dict(campaign.kills)}, {records} records, {len(found)} faults")
    for one in found[:20]:
        print(one)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
