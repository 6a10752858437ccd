"""Kills a server, its clients and a publisher again and again, and checks what was acknowledged.

    python -m tests.campaign.server --kills 200 --seed 1

Idempotent and other producers write to a topic through `pylog serve`, a process publishes to it as queries of Spark
do, a compacted topic is written and compacted meanwhile, and a group of consumers reads. Victims are any of them, the
server most of all; each is started again. At last all come to an end undisturbed. Then

- every acknowledged record of an idempotent producer is there exactly once, and in order,
- every acknowledged record of other producers is there once or more,
- each publish is there as a whole, once,
- the group has read each record, and no committed offset has ever gone back,
- the last acknowledged value of each key is in the compacted topic,
- `pylog verify` finds no damage.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import confluent_kafka
import pyarrow as pa

from pyspark_log import Store
from pyspark_log.admin import compact
from pyspark_log.types import TopicPartition
from tests.server_tools import Server
from tests.store_tools import faults

PARTITIONS = 4
PUBLISHED = 50  # records of a publish
KEYS = 20
# How long a client may take for what the server did not answer before it was killed, in seconds.
PATIENCE = 300


# ---- the actors, each a process


def produce(bootstrap, folder, name, idempotent, topic, keyed):
    """Sends numbered values until it gets SIGTERM; notes those that are acknowledged, in the order of the answers."""
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    producer = confluent_kafka.Producer({
        "bootstrap.servers": bootstrap, "enable.idempotence": idempotent == "1", "acks": "all", "linger.ms": 2,
        "message.timeout.ms": PATIENCE * 1000, "socket.timeout.ms": 10_000, "reconnect.backoff.max.ms": 500,
        "log_level": 0, "compression.type": random.choice(["none", "lz4", "zstd"]),
    })  # fmt: skip
    noted = (Path(folder) / name).open("w", buffering=1)

    def acknowledged(error, message):
        if error is None:
            noted.write(f"{message.value().decode()}\n")

    number = 0
    while not ended:
        value = f"{name}:{number}"
        # Each key has a partition, and so has each producer without keys: its order can be seen there.
        key = f"{name.partition('.')[0]}-{number % KEYS}" if keyed == "1" else name
        producer.produce(topic, value, key, on_delivery=acknowledged)
        number += 1
        producer.poll(0)
        if number % 20 == 0:
            time.sleep(0.005)
    assert producer.flush(PATIENCE) == 0, "not all is acknowledged"


def publish(path, folder, topic):
    """Publishes numbered outputs until it gets SIGTERM, as a query does: after a kill it repeats the last one."""
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    store = Store.open(path)
    last = next((one.number for one in store.publishes.publishers() if one.publisher == "query"), -1)
    number = max(last, 0)  # the last one once more: it is not known whether its end was seen
    while not ended:
        writer = store.publishes.writer(store.publishes.plan([topic]))
        writer.append(topic, pa.record_batch({"value": [b"query:%d:%d" % (number, one) for one in range(PUBLISHED)]}))
        store.publishes.publish("query", number, writer.finish())
        number += 1
        time.sleep(0.05)


def consume(bootstrap, folder, name, topic):
    """Reads as a member of the group, notes what it reads, and then commits."""
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest", "log_level": 0,
        "enable.auto.commit": False, "session.timeout.ms": 6000, "reconnect.backoff.max.ms": 500,
    })  # fmt: skip
    consumer.subscribe([topic])
    noted = (Path(folder) / name).open("w", buffering=1)
    while not ended:
        messages = [one for one in consumer.consume(500, 0.2) if one.error() is None]
        noted.writelines(f"{one.partition()} {one.offset()}\n" for one in messages)
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except confluent_kafka.KafkaException:
                continue  # The group has changed, or the server was killed: another member reads it again.
    consumer.close()


ACTORS = {"produce": produce, "publish": publish, "consume": consume}


# ---- the campaign


class Campaign:
    """The processes, and what is killed."""

    def __init__(self, folder, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.path = folder / "store"
        with Store.create(self.path) as store:
            store.create_topic("t", PARTITIONS, {"retention.ms": "-1", "segment.bytes": "400000"})
            store.create_topic("c", 1, {"cleanup.policy": "compact", "segment.bytes": "100000",
                                        "min.cleanable.dirty.ratio": "0.01"})  # fmt: skip
        self.server = Server(self.path, folder)
        self.incarnations = Counter()
        self.actors = {}
        self.kills = Counter()
        self.committed = {}
        self.stopped_wrong = []

    def begin(self, name):
        """Starts an actor by its name; a producer or a consumer gets a new one each time."""
        kind = name.partition("-")[0]
        self.incarnations[name] += 1
        me = f"{name}.{self.incarnations[name]}"
        where = [self.server.bootstrap, str(self.folder)]
        words = {
            "idempotent": ["produce", *where, me, "1", "t", "0"],
            "plain": ["produce", *where, me, "0", "t", "0"],
            "keyed": ["produce", *where, me, "1", "c", "1"],
            "consumer": ["consume", *where, me, "t"],
            "query": ["publish", str(self.path), str(self.folder), "t"],
        }[kind]
        output = (self.folder / "actors").open("ab")
        command = [sys.executable, "-m", "tests.campaign.server", *words]
        self.actors[name] = subprocess.Popen(command, stdout=output, stderr=output)

    def run(self, kills):
        """Kills one after the other."""
        self.server.start()
        for name in ("idempotent-1", "idempotent-2", "plain-1", "keyed-1", "query-1", "consumer-1", "consumer-2"):
            self.begin(name)
        self.begin("consumer-3")
        for number in range(kills):
            time.sleep(self.random.uniform(0.2, 1.5))
            self.look()
            victim = self.random.choice(["server"] * 8 + sorted(self.actors))
            self.kills[victim.partition("-")[0]] += 1
            if victim == "server":
                self.server.kill()
                time.sleep(self.random.uniform(0, 0.3))
                self.server.start()
            else:
                self.actors[victim].kill()
                self.actors[victim].wait()
                self.begin(victim)
            if number % 10 == 9:
                with Store.open(self.path) as store:
                    list(compact(store, "c"))
                print(f"{number + 1} of {kills} kills", flush=True)

    def look(self):
        """Notes how far the group has committed, which never goes back; and that no actor has ended by itself."""
        with Store.open(self.path) as store:
            for at, one in store.groups["readers"].committed().items():
                if one.offset < self.committed.get(at, 0):
                    self.stopped_wrong.append(f"{at} went back from {self.committed[at]} to {one.offset}")
                self.committed[at] = one.offset
        for name, actor in self.actors.items():
            if actor.poll() is not None:
                self.stopped_wrong.append(f"{name} has ended with {actor.returncode}")

    def finish(self):
        """Lets all come to an end: first those that write."""
        self._end([name for name in self.actors if not name.startswith("consumer")])
        with Store.open(self.path) as store:
            ends = {TopicPartition("t", number): store.latest_offset("t", number) for number in range(PARTITIONS)}
        deadline = time.monotonic() + PATIENCE
        while any(self.committed.get(at, 0) < end for at, end in ends.items()) and time.monotonic() < deadline:
            time.sleep(0.2)
            self.look()
        self._end(list(self.actors))
        if self.server.stop():
            self.stopped_wrong.append("the server has ended with an error")
        return ends

    def _end(self, names):
        for name in names:
            self.actors[name].send_signal(signal.SIGTERM)
        for name in names:
            if self.actors.pop(name).wait(PATIENCE):
                self.stopped_wrong.append(f"{name} has ended with an error")


# ---- what must be true


def check(campaign, ends):
    """What is wrong."""
    found = list(campaign.stopped_wrong)
    with Store.open(campaign.path) as store:
        log = [_values(store, "t", number) for number in range(PARTITIONS)]
        compacted = {row["key"]: row["value"].decode() for row in _rows(store, "c", 0)}
    times = Counter(value for values in log for value in values)
    for name, count in campaign.incarnations.items():
        kind = name.partition("-")[0]
        for incarnation in range(1, count + 1):
            me = f"{name}.{incarnation}"
            noted = _noted(campaign, me)
            if kind in ("idempotent", "plain"):
                found += _producer_faults(me, noted, times, log, once=kind == "idempotent")
    found += _keyed_faults(campaign, compacted)
    found += _publish_faults(times)
    read = defaultdict(set)
    for incarnation in range(1, 1 + max(campaign.incarnations.values())):
        for name in ("consumer-1", "consumer-2", "consumer-3"):
            for line in _noted(campaign, f"{name}.{incarnation}"):
                partition, offset = line.split()
                read[int(partition)].add(int(offset))
    for at, end in ends.items():
        with Store.open(campaign.path) as store:
            offsets = {row["offset"] for row in _rows(store, "t", at.partition)}
        if missing := offsets - read[at.partition]:
            found.append(f"{at}: the group has not read {len(missing)} of {end} records, e.g. {min(missing)}")
    found += [str(one) for one in faults(str(campaign.path))]
    return found, sum(times.values())


def _rows(store, topic, partition):
    return [row for rows in store.read(topic, partition) for row in rows.to_pylist()]


def _values(store, topic, partition):
    return [row["value"].decode() for row in _rows(store, topic, partition)]


def _noted(campaign, name):
    path = campaign.folder / name
    # The last line may be cut off by a kill; then it was not noted.
    return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []


def _producer_faults(name, noted, times, log, *, once):
    lost = [value for value in noted if not times[value]]
    doubled = [value for value in times if once and value.startswith(f"{name}:") and times[value] > 1]
    found = [f"{value} was acknowledged, and is lost" for value in lost[:3]]
    found += [f"{value} is there {times[value]} times" for value in doubled[:3]]
    for values in log:
        mine = [int(value.rpartition(":")[2]) for value in values if value.startswith(f"{name}:")]
        if once and mine != sorted(mine):
            found.append(f"{name}: its records are not in order")
    return found


def _keyed_faults(campaign, compacted):
    """The compacted topic has for each key the last acknowledged value, or a later one."""
    last = {}
    for incarnation in range(1, 1 + campaign.incarnations["keyed-1"]):
        for value in _noted(campaign, f"keyed-1.{incarnation}"):
            number = int(value.rpartition(":")[2])
            last[number % KEYS] = (incarnation, number)
    found = []
    for key, expected in last.items():
        name, _, number = compacted.get(f"keyed-1-{key}".encode(), "keyed-1.0:-1").rpartition(":")
        if (int(name.rpartition(".")[2]), int(number)) < expected:
            found.append(f"key {key}: {expected} was acknowledged, and {name}:{number} is there")
    return found


def _publish_faults(times):
    published = Counter(value.split(":")[1] for value in times if value.startswith("query:"))
    found = [
        f"publish {number} has {count} of {PUBLISHED} records"
        for number, count in published.items()
        if count != PUBLISHED
    ]
    found += [f"{value} is there twice" for value in times if value.startswith("query:") and times[value] > 1]
    if sorted(map(int, published)) != list(range(len(published))):
        found.append("a publish is missing")
    return found


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
        for actor in campaign.actors.values():
            actor.kill()
        campaign.server.kill()
    found, records = check(campaign, ends)
    print(f"{sum(campaign.kills.values())} kills {dict(campaign.kills)}, {records} records, {len(found)} faults")
    for one in found[:20]:
        print(one)
    return 1 if found else 0


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ACTORS:
        os.environ.setdefault("PYTHONUNBUFFERED", "1")
        sys.exit(ACTORS[sys.argv[1]](*sys.argv[2:]))
    sys.exit(main())
