"""Kills a server and clients with transactions again and again, and checks what readers of committed records see.

    python -m tests.transaction_campaign.run --kills 100 --seed 1
    python -m tests.transaction_campaign.run --kills 60 --seed 1 --cluster ours

Kafka's TransactionalMessageCopier and two copiers of librdkafka copy a topic, with its positions; two writers of
librdkafka write transactions of several values, and readers read those that are committed. Copiers and writers abort
now and then. Victims are any of them, the server most of all; each is started again. With `--cluster` there are three
members in place of a server, with min.insync.replicas=2, under a controller of Kafka: nodes (`ours`), or a node and two
brokers of Kafka (`mixed`). They are killed, ended in order, and frozen, for longer than their session, too; leaders of
the topics and of Kafka's own move with that, and by elections. At last

- the copy has each record once, in the order of its partition;
- of the written values, by the checks of Jepsen's workload for Kafka: none that was committed is lost, none that was
  aborted is seen, none is there twice, those of a writer are in order, a transaction is whole or not there at all, and
  an offset has the same value for each reader at each time;
- no transaction is open, and `pylog verify` finds no damage;
- of a cluster, all replicas are equal, and no transaction is decided that is not complete.
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

from tests.kafka.kafka_tools import command
from tests.server_campaign.actors import lines, start, started
from tests.server_campaign.run import kill
from tests.transaction_campaign.actors import PATIENCE
from tests.transaction_campaign.systems import KINDS, PARTITIONS, system

RECORDS = 400  # appended to each partition of `in` at a time
# After as long without a copied record a copier hangs, in seconds: longer than a transaction lasts.
_HANGS = 70
ACTORS = ("copier-0", "copy-1", "copy-2", "write-1", "write-2", "read-1")


class Campaign:
    """The processes, and what is killed."""

    def __init__(self, folder, seed, kind="server"):
        """`kind`: one of systems.KINDS."""
        self.folder, self.random, self.system = folder, random.Random(seed), system(folder, kind)
        self.running, self.kills, self.begun, self.appended = {}, Counter(), Counter(), 0
        self.stopped_wrong, self.hung = [], 0

    def begin(self, actor):
        """Starts an actor; a writer or reader notes under a new name each time."""
        kind, _, number = actor.partition("-")
        self.begun[actor] += 1
        name, module = f"{actor}.{self.begun[actor]}", "tests.transaction_campaign.actors"
        if kind == "copier":
            words = ["--broker-list", self.system.bootstrap, "--input-topic", "in", "--input-partition", number]
            words += ["--output-topic", "out", "--transactional-id", actor, "--consumer-group", "copier"]
            words += ["--transaction-size", 50, "--enable-random-aborts", "--use-group-metadata"]
            main = "org.apache.kafka.tools.TransactionalMessageCopier"
            self.running[actor] = started(self.folder / name, self.folder, command(main, *words))
        elif kind == "copy":
            self.running[actor] = start(self.folder, module, kind, self.system.bootstrap, number)
        else:
            self.running[actor] = start(self.folder, module, kind, self.system.bootstrap, self.folder, name)

    def append(self):
        """Appends to the topic that is copied."""
        values = [b"%d" % number for number in range(self.appended, self.appended + RECORDS)]
        for partition in range(PARTITIONS):
            self.system.append(partition, values)
        self.appended += RECORDS

    def run(self, kills):
        """Kills one after the other."""
        self.system.start()
        self.append()
        for actor in ACTORS:
            self.begin(actor)
        for number in range(kills):
            time.sleep(self.random.uniform(0.2, 1.5))
            self.look()
            victim = self.random.choice([None] * len(ACTORS) + list(ACTORS))
            if victim is None:
                what = self.system.hit(self.random)
            else:
                what = victim.partition("-")[0]
                kill(self.running[victim])
                self.begin(victim)
            self.kills[what] += 1
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
        copied, since = self.copied(), time.monotonic()
        while time.monotonic() < deadline and min(copied) < self.appended:
            time.sleep(0.5)
            self.look()
            before, copied = copied, self.copied()
            if copied != before:
                since = time.monotonic()
            elif time.monotonic() - since > _HANGS:
                self.replace([f"copy-{number}" for number in (1, 2) if copied[number] < self.appended])
                since = time.monotonic()
        self.end("write-1", "write-2")
        while time.monotonic() < deadline and not self.is_read():
            time.sleep(0.5)
            self.look()
        self.end(*self.running)
        self.stopped_wrong += self.system.finish()

    def replace(self, actors):
        """Kills copiers of librdkafka that hang: where leaders move, it may wait for ever for what it has sent."""
        for actor in actors:
            self.hung += 1
            kill(self.running[actor])
            self.begin(actor)

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
        return self.system.committed(topic, partition)

    def copied(self):
        """How many records are copied, of each partition."""
        return [len(self.committed("out", number)) for number in range(PARTITIONS)]

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
        return [*self.stopped_wrong, *self._copies(), *self._lists(), *self.system.check()]

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
    parser.add_argument("--cluster", choices=KINDS[1:], help="a cluster of nodes, or of a node and brokers of Kafka")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="transaction-campaign-"))
    print(f"seed {options.seed}, in {folder}", flush=True)
    campaign = Campaign(folder, options.seed, options.cluster or KINDS[0])
    try:
        campaign.run(options.kills)
        campaign.finish()
    finally:
        for process in campaign.running.values():
            kill(process)
        campaign.system.kill()
    found = campaign.check()
    written = sum(len(campaign.committed("lists", number)) for number in range(PARTITIONS))
    print(
        f"{sum(campaign.kills.values())} kills {dict(campaign.kills)}, {PARTITIONS * campaign.appended} copied, "
        f"{written} values of transactions, {campaign.hung} copiers hung, {len(found)} faults"
    )
    for one in found[:20]:
        print(one)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
