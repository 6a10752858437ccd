"""Kills a server and clients with transactions again and again, and checks what readers of committed records see.

    python -m tests.transaction_campaign.run --kills 100 --seed 1

Kafka's TransactionalMessageCopier and two copiers of librdkafka copy a topic, with its positions; two writers of
librdkafka write transactions of several values, and readers read those that are committed. Copiers and writers abort
now and then. Victims are any of them, the server most of all; each is started again. At last

- the copy has each record once, in the order of its partition;
- of the written values, by the checks of Jepsen's workload for Kafka: none that was committed is lost, none that was
  aborted is seen, none is there twice, those of a writer are in order, a transaction is whole or not there at all, and
  an offset has the same value for each reader at each time;
- no transaction is open, and `pylog verify` finds no damage.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa

from pyspark_log import Store
from tests.kafka.kafka_tools import command
from tests.server_campaign.actors import lines, start, started
from tests.server_campaign.run import kill
from tests.server_tools import Server
from tests.store_tools import faults
from tests.transaction_campaign.actors import PATIENCE

PARTITIONS = 3
RECORDS = 400  # appended to each partition of `in` at a time
ACTORS = ("copier-0", "copy-1", "copy-2", "write-1", "write-2", "read-1")


class Campaign:
    """The processes, and what is killed."""

    def __init__(self, folder, seed):
        self.folder, self.random, self.path = folder, random.Random(seed), folder / "store"
        self.store = Store.create(self.path)
        for topic in ("in", "out", "lists"):
            self.store.create_topic(topic, PARTITIONS, {"retention.ms": "-1", "segment.bytes": "100000"})
        self.server = Server(self.path, folder)
        self.running, self.kills, self.begun, self.appended = {}, Counter(), Counter(), 0
        self.stopped_wrong = []

    def begin(self, actor):
        """Starts an actor; a writer or reader notes under a new name each time."""
        kind, _, number = actor.partition("-")
        self.begun[actor] += 1
        name, module = f"{actor}.{self.begun[actor]}", "tests.transaction_campaign.actors"
        if kind == "copier":
            words = ["--broker-list", self.server.bootstrap, "--input-topic", "in", "--input-partition", number]
            words += ["--output-topic", "out", "--transactional-id", actor, "--consumer-group", "copier"]
            words += ["--transaction-size", 50, "--enable-random-aborts", "--use-group-metadata"]
            main = "org.apache.kafka.tools.TransactionalMessageCopier"
            self.running[actor] = started(self.folder / name, self.folder, command(main, *words))
        elif kind == "copy":
            self.running[actor] = start(self.folder, module, kind, self.server.bootstrap, number)
        else:
            self.running[actor] = start(self.folder, module, kind, self.server.bootstrap, self.folder, name)

    def append(self):
        """Appends to the topic that is copied, as a publish of Spark does."""
        for partition in range(PARTITIONS):
            values = [b"%d" % number for number in range(self.appended, self.appended + RECORDS)]
            rows = pa.record_batch({"value": values, "partition": pa.array([partition] * RECORDS, pa.int32())})
            self.store.append("in", rows)
        self.appended += RECORDS

    def run(self, kills):
        """Kills one after the other."""
        self.server.start()
        self.append()
        for actor in ACTORS:
            self.begin(actor)
        for number in range(kills):
            time.sleep(self.random.uniform(0.2, 1.5))
            self.look()
            victim = self.random.choice(["server"] * len(ACTORS) + list(ACTORS))
            self.kills[victim.partition("-")[0]] += 1
            if victim == "server":
                self.server.kill()
                self.server.start()
            else:
                kill(self.running[victim])
                self.begin(victim)
            if number % 10 == 9:
                self.append()
                print(f"{number + 1} of {kills} kills", flush=True)

    def look(self):
        """Begins the copier again that has come to the end; the other actors end by a signal only."""
        for actor, process in list(self.running.items()):
            code = process.poll()
            if code == 0 and actor.startswith("copier"):
                self.begin(actor)
            elif code is not None:
                self.stopped_wrong.append(f"{actor} has ended with {code}")
                self.begin(actor)

    def finish(self):
        """Lets all come to an end."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not self.is_copied():
            time.sleep(0.5)
            self.look()
        self.end("write-1", "write-2")
        while time.monotonic() < deadline and not self.is_read():
            time.sleep(0.5)
            self.look()
        self.end(*self.running)
        if self.server.stop():
            self.stopped_wrong.append("the server has ended with an error")

    def end(self, *actors):
        """Ends actors in order, but for Java's, which knows no such end."""
        for actor in actors:
            self.running[actor].send_signal(signal.SIGKILL if actor.startswith("copier") else signal.SIGTERM)
        for actor in actors:
            code = self.running.pop(actor).wait(PATIENCE)
            if code and not actor.startswith("copier"):
                self.stopped_wrong.append(f"{actor} has ended with {code}")

    def committed(self, topic, partition):
        """Its records that are committed: offsets and values."""
        found = self.store.read(topic, partition, isolation_level="read_committed")
        return [(row["offset"], row["value"].decode()) for rows in found for row in rows.to_pylist()]

    def is_copied(self):
        return all(len(self.committed("out", number)) >= self.appended for number in range(PARTITIONS))

    def is_read(self):
        """Whether the reader has come to the end of what is committed."""
        read = {tuple(map(int, line.split()[:2])) for line in self.noted("read-1")}
        ends = [self.committed("lists", number)[-1:] for number in range(PARTITIONS)]
        return all((number, last[0][0]) in read for number, last in enumerate(ends) if last)

    def noted(self, actor):
        """The lines that all processes of an actor have noted."""
        names = [f"{actor}.{number}" for number in range(1, self.begun[actor] + 1)]
        return [line for name in names for line in lines(self.folder, name)]

    # ---- checks

    def check(self):
        """What is wrong."""
        return [*self.stopped_wrong, *self._copies(), *self._lists(), *self._open(), *map(str, faults(str(self.path)))]

    def _copies(self):
        for number in range(PARTITIONS):
            values = [int(value) for _, value in self.committed("out", number)]
            if values != list(range(self.appended)):
                wrong = next((place for place, value in enumerate(values) if place != value), len(values))
                yield f"out-{number}: {len(values)} records of {self.appended}, wrong from the {wrong}th on"

    def _lists(self):
        seen = [self.committed("lists", number) for number in range(PARTITIONS)]
        where = defaultdict(list)
        for partition, records in enumerate(seen):
            for offset, value in records:
                where[value].append((partition, offset))
            yield from _out_of_order(partition, records)
        yield from (f"{value} is there {len(places)} times" for value, places in where.items() if len(places) > 1)
        for actor in ("write-1", "write-2"):
            yield from self._written(actor, where)
        known = {(partition, offset): value for partition, one in enumerate(seen) for offset, value in one}
        for line in self.noted("read-1"):
            partition, offset, value = line.split()
            if known.get((int(partition), int(offset))) != value:
                yield f"lists-{partition}, offset {offset}: {value} was read, and is not what is there"

    def _written(self, actor, where):
        for number in range(1, self.begun[actor] + 1):
            begun, ended = {}, {}
            for line in map(json.loads, lines(self.folder, f"{actor}.{number}")):
                if "begins" in line:
                    begun[line["begins"]] = line["values"]
                else:
                    ended[line["ends"]] = line["committed"]
            for transaction, values in begun.items():
                there = [
                    value for partition, value in values if [one[0] for one in where.get(value, ())] == [partition]
                ]
                committed = ended.get(transaction)
                if len(there) not in (0, len(values)):
                    yield f"{actor}.{number}, transaction {transaction}: {len(there)} of {len(values)} values"
                elif committed is not None and bool(there) != committed:
                    yield f"{actor}.{number}, transaction {transaction}: committed {committed}, and seen {bool(there)}"

    def _open(self):
        for topic in ("out", "lists"):
            for number in range(PARTITIONS):
                end = self.store.latest_offset(topic, number)
                stable = self.store.latest_offset(topic, number, isolation_level="read_committed")
                if stable != end:
                    yield f"{topic}-{number}: a transaction is open from {stable} on; the end is {end}"


def _out_of_order(partition, records):
    """A writer's values come in the order in which it has written them."""
    last = {}
    for _, value in records:
        name, transaction, number = value.split(":")
        order = int(name.partition(".")[2]), int(transaction), int(number)
        if last.get(name.partition(".")[0], order) > order:
            yield f"lists-{partition}: {value} comes too late"
        last[name.partition(".")[0]] = order


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="transaction-campaign-"))
    print(f"seed {options.seed}, in {folder}", flush=True)
    campaign = Campaign(folder, options.seed)
    try:
        campaign.run(options.kills)
        campaign.finish()
    finally:
        for process in campaign.running.values():
            kill(process)
        campaign.server.kill()
    found = campaign.check()
    written = sum(len(campaign.committed("lists", number)) for number in range(PARTITIONS))
    print(
        f"{sum(campaign.kills.values())} kills {dict(campaign.kills)}, {PARTITIONS * campaign.appended} copied, "
        f"{written} values of transactions, {len(found)} faults"
    )
    for one in found[:20]:
        print(one)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
