"""Kills a server and clients with transactions again and again, and checks what readers of committed records see.

    python -m tests.campaigns transactions --kills 100 --seed 1
    python -m tests.campaigns transactions --kills 60 --seed 1 --cluster objects --spark

Kafka's TransactionalMessageCopier and two copiers of librdkafka copy a topic, with its positions; two writers of
librdkafka write transactions of several values, and readers read those that are committed. Copiers and writers abort
now and then. Victims are any of them, the server most of all; each is started again. With `--cluster` there are three
servers of one store in a folder (`folder`), or in an object store, which is killed as well (`objects`), or misbehaves
all the time (`moto`); or, with min.insync.replicas=2, under a controller of Kafka: nodes (`ours`), or a node and two
brokers of Kafka (`mixed`). They are killed, ended in order, and frozen, for longer than their session, too; leaders of
the topics and of Kafka's own move with that, and by elections. With `--spark` a driver is one more victim; of its
queries one copies by files, and one by Spark's Kafka connector through the servers. At last

- the copy has each record once, in the order of its partition, as has Spark's by files; the one through the servers has
  each;
- of the written values, by the checks of Jepsen's workload for Kafka: none that was committed is lost, none that was
  aborted is seen, none is there twice, those of a writer are in order, a transaction is whole or not there at all, and
  an offset has the same value for each reader at each time;
- no transaction is open, and `pylog verify` finds no damage;
- of a cluster, all replicas are equal, and no transaction is decided that is not complete.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter, defaultdict

from tests.campaigns import harness
from tests.campaigns.clients import lines
from tests.campaigns.server.queries import COPIED, THROUGH
from tests.campaigns.transaction_systems import KINDS, PARTITIONS, system
from tests.kafka.kafka_tools import command

RECORDS = 400  # appended to each partition of `in` at a time
# After as long without a copied record a copier hangs, in seconds: longer than a transaction lasts.
_HANGS = 70
#: What Spark writes to.
SPARKS = (COPIED, THROUGH)
ACTORS = ("copier-0", "copy-1", "copy-2", "write-1", "write-2", "read-1")


class Campaign(harness.Campaign):
    """Clients with transactions, at a server or a cluster."""

    kills = 100

    @classmethod
    def arguments(cls, options):
        about = "servers over a folder or objects, nodes, or a node and brokers of Kafka, in place of a server"
        options.add_argument("--cluster", choices=[*KINDS], default="server", help=about)
        options.add_argument("--spark", action="store_true", help="also Spark, at servers of one store")

    def prepare(self):
        self.system, self.starts, self.appended = system(self.folder, self.options.cluster), Counter(), 0
        self.actors = (*ACTORS, *["spark-1"] * self.options.spark)

    def begin(self):
        self.system.start()
        self.tend()
        for actor in self.actors:
            self.start(actor)

    def start(self, actor):
        """Starts an actor; a writer or reader notes under a new name each time."""
        kind, _, number = actor.partition("-")
        self.starts[actor] += 1
        module, bootstrap = "transaction_clients", self.system.bootstrap
        if kind == "copier":
            words = ["--broker-list", bootstrap, "--input-topic", "in", "--input-partition", number]
            words += ["--output-topic", "out", "--transactional-id", actor, "--consumer-group", "copier"]
            words += ["--transaction-size", 50, "--enable-random-aborts", "--use-group-metadata"]
            self.launch(actor, command("org.apache.kafka.tools.TransactionalMessageCopier", *words))
        elif kind == "spark":
            self.launch_module(actor, "server.queries", self.system.path, bootstrap, self.folder / "checkpoints", "in")
        elif kind == "copy":
            self.launch_module(actor, module, kind, bootstrap, number)
        else:
            self.launch_module(actor, module, kind, bootstrap, self.folder, f"{actor}.{self.starts[actor]}")

    def tend(self):
        """Appends to the topic that is copied."""
        values = [b"%d" % number for number in range(self.appended, self.appended + RECORDS)]
        for partition in range(PARTITIONS):
            self.system.append(partition, values)
        self.appended += RECORDS

    def strike(self):
        victim = self.random.choice([None] * len(self.actors) + list(self.actors))
        if victim is None:
            return self.system.hit(self.random)
        self.kill(victim)
        self.start(victim)
        return f"kills of {victim.partition('-')[0]}"

    def look(self):
        """Begins the copier again that has come to the end; the other actors end by a signal only."""
        for actor, process in list(self.running.items()):
            code = process.poll()
            if code is not None:
                if code or not actor.startswith("copier"):
                    self.found.append(f"{actor} has ended with {code}: {self.log(actor)[-1500:]}")
                self.start(actor)

    def finish(self):
        # What was not copied or read in time is found by the checks.
        self.since, self.last = time.monotonic(), self.copied()
        self.wait(self.is_copied, every=0.5)
        self.terminate("write-1", "write-2")
        self.wait(self.is_read, every=0.5)
        # Java's knows no end in order.
        self.terminate("copier-0", sign=signal.SIGKILL)
        self.terminate(*self.running)
        self.found += self.system.finish()

    def is_copied(self):
        """Whether all is copied. Copiers that hang are killed: librdkafka may wait for ever, where leaders move."""
        now = self.copied()
        if now != self.last:
            self.since, self.last = time.monotonic(), now
        elif time.monotonic() - self.since > _HANGS:
            for actor in [f"copy-{number}" for number in (1, 2) if now[number] < self.appended]:
                self.counts["copiers that hung"] += 1
                self.kill(actor)
                self.start(actor)
            self.since = time.monotonic()
        topics = SPARKS if self.options.spark else ()
        ends = [self.system.end_of(topic, number) for topic in topics for number in range(PARTITIONS)]
        return min([*now, *ends]) >= self.appended

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
        names = [f"{actor}.{number}" for number in range(1, self.starts[actor] + 1)]
        return [line for name in names for line in lines(self.folder, name)]

    def figures(self):
        written = sum(len(self.committed("lists", number)) for number in range(PARTITIONS))
        return [f"{PARTITIONS * self.appended:,} records to copy, {written:,} values of transactions"]

    def end(self):
        self.system.close()

    # ---- checks

    def check(self):
        return [*self._copies(), *self._lists(), *self._sparks(), *self.system.check()]

    def _copies(self):
        for number in range(PARTITIONS):
            values = [int(value) for _, value in self.committed("out", number)]
            if values != list(range(self.appended)):
                wrong = next((place for place, value in enumerate(values) if place != value), len(values))
                yield f"out-{number}: {len(values)} records of {self.appended}, wrong from the {wrong}th on"

    def _sparks(self):
        for topic in SPARKS if self.options.spark else ():
            for number in range(PARTITIONS):
                values = [int(value) for _, value in self.committed(topic, number)]
                # Of those that it writes by Kafka's protocol, Spark repeats some after a failure.
                if (values if topic == COPIED else sorted(set(values))) != list(range(self.appended)):
                    yield f"{topic}-{number}: it is not what is in in-{number}"

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
        for number in range(1, self.starts[actor] + 1):
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
