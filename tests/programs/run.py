"""Makes random calls of random actors, and compares each answer with the model."""

from __future__ import annotations

import random
import time
from collections import Counter

from pyspark_log.config import INT_MAX
from pyspark_log.storage.store import Store
from pyspark_log.types import EARLIEST, LATEST, TopicPartition
from tests.programs.actor import Actor, Process
from tests.programs.model import Model, Partition
from tests.store_tools import damages

NOW = time.time_ns() // 1_000_000
PARTITIONS = 2
CONFIGS = {
    "plain": {"segment.bytes": "700", "retention.ms": "-1", "index.interval.bytes": "150"},
    "numbered": {"segment.bytes": "900", "retention.ms": "-1", "index.interval.bytes": "150"},
    "compacted": {
        "segment.bytes": "700",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "0",
    },
}
IDEMPOTENT, TRANSACTIONAL = (1, 2, 3), (4, 5)
#: How often each call is made, beside the others.
CALLS = {
    "append": 16, "produce": 16, "transact": 12, "end_transaction": 5, "publish": 6, "commit": 6, "delete_records": 3,
    "roll": 2, "clean": 1, "compact": 2, "flush": 1, "read": 14, "offsets": 10, "find_time": 5, "fetch": 5, "reopen": 2,
    "make_again": 0.3, "verify": 0.2,
}  # fmt: skip


class Program:
    """One store, its actors, and the model; `run` makes calls."""

    def __init__(self, path: str, seed: int, *, processes: int = 1, stale: int = 3) -> None:
        """`processes`: actors in processes of their own; `stale`: those in this one, each with a store of its own."""
        self._random = random.Random(seed)
        self._path = path
        self._model = Model()
        Store.create(path, {"offsets.topic.num.partitions": "1", "producer.id.expiration.ms": str(INT_MAX)})
        self._actors = [Actor(path) for _ in range(stale)] + [Process(path) for _ in range(processes)]
        self.made: Counter[str] = Counter()
        for topic, configs in CONFIGS.items():
            self._make(topic, configs)

    def close(self) -> None:
        for actor in self._actors:
            actor.end()

    def run(self, calls: int) -> None:
        names, weights = zip(*CALLS.items(), strict=True)
        for _ in range(calls):
            # Some actors are asked seldom, so that what they know is old.
            number = min(int(self._random.expovariate(1.2)), len(self._actors) - 1)
            self._actor = self._actors[(number + self.made.total() // 400) % len(self._actors)]
            (name,) = self._random.choices(names, weights)
            getattr(self, f"_{name}")()
            self.made[name] += 1
        self._verify()

    # ---- calls to actors

    def _call(self, name, *arguments):
        return self._actor.call(name, *arguments)

    def _pick(self, *topics):
        topic, number = self._random.choice(topics or tuple(CONFIGS)), self._random.randrange(PARTITIONS)
        return topic, number, self._model.topics[topic][number]

    def _records(self, most=6, *, keys=True):
        return [
            (
                b"k%d" % self._random.randrange(6) if keys else None,
                None if self._random.random() < 0.15 else b"v" * self._random.randrange(60),
                NOW - self._random.randrange(100_000),
            )
            for _ in range(self._random.randint(1, most))
        ]

    def _make(self, topic, configs):
        self._actors[0].call("create", topic, PARTITIONS, configs)
        self._model.topics[topic] = [Partition() for _ in range(PARTITIONS)]

    # ---- calls, and what must come of them

    def _append(self):
        topic, number, partition = self._pick()
        records = self._records()
        base, end = self._call("append", topic, number, records)
        assert (base, end) == partition.append(records), (topic, number)

    def _produce(self, producers=IDEMPOTENT, *, transactional=False):
        topic, number, partition = self._pick("numbered")
        producer = self._random.choice(producers)
        known = partition.producers.get(producer)
        epoch = known.epoch if known else 0
        sequence = known.next_sequence if known else self._random.choice((0, 7))
        values = [b"n" * self._random.randrange(40) for _ in range(self._random.randint(1, 3))]
        kind = self._random.random()
        if known and kind < 0.25:
            # Once more what came before, perhaps long ago.
            first, last, _ = self._random.choice(known.batches[-7:])
            sequence, values = first, [b"again"] * (last - first + 1)
        elif known and kind < 0.3:
            sequence += self._random.choice((1, 5))
        elif known and kind < 0.35 and producer not in partition.open:
            epoch, sequence = epoch + self._random.choice((1, -1)), 0
        if epoch < 0:
            return
        answer = self._call("produce", topic, number, producer, epoch, sequence, values, NOW, transactional)
        right = partition.judge(producer, epoch, sequence, len(values))
        where = (topic, number, producer, epoch, sequence, len(values), answer, right)
        if right == "append":
            records = [(b"k", value, NOW) for value in values]
            base, end = partition.produce(producer, epoch, sequence, records, transactional=transactional)
            assert answer == (base, end, False), where
        elif isinstance(right, set):
            assert answer in right, where
        else:
            offset, errors = right if isinstance(right, tuple) else (right, set())
            assert answer in errors or answer == (offset, offset + len(values), True), where

    def _transact(self):
        self._produce(TRANSACTIONAL, transactional=True)

    def _end_transaction(self):
        topic, number, partition = self._pick("numbered")
        if partition.open:
            producer = self._random.choice(sorted(partition.open))
            commit = self._random.random() < 0.6
            epoch = partition.producers[producer].epoch
            base = self._call("end_transaction", topic, number, producer, epoch, commit, NOW)
            assert base == partition.end
            partition.end_transaction(producer, commit=commit)

    def _publish(self):
        publisher, topic = self._random.choice("ab"), self._random.choice(["plain", "compacted"])
        last = self._model.publishers.get(publisher)
        number = 0 if last is None else last + self._random.choice((1, 1, 1, 0, 2))
        records = [(self._random.randrange(PARTITIONS), record) for record in self._records(8)]
        answer = self._call("publish", publisher, number, topic, records)
        if last is not None and number == last:
            assert answer is True, (publisher, number, answer)
        elif last is not None and number != last + 1:
            assert answer == "PublishNumberError", (publisher, number, last, answer)
        else:
            assert answer is False, (publisher, number, answer)
            self._model.publishers[publisher] = number
            for at, partition in enumerate(self._model.topics[topic]):
                partition.append([record for place, record in records if place == at])

    def _commit(self):
        group, at = self._random.choice("gh"), TopicPartition("plain", self._random.randrange(PARTITIONS))
        known = self._model.groups.setdefault(group, {})
        offset, expected, right = self._random.randrange(1000), None, None
        if self._random.random() < 0.5:
            guess = self._random.choice([known.get(str(at)), 5])
            expected, right = {at: guess}, None if guess == known.get(str(at)) else "OffsetConflictError"
        answer = self._call("commit", group, {at: offset}, expected)
        assert answer == right, (group, at, expected, answer)
        if right is None:
            known[str(at)] = offset

    def _fetch(self):
        group = self._random.choice("gh")
        assert self._call("fetch", group) == self._model.groups.get(group, {}), group

    def _delete_records(self):
        topic, number, partition = self._pick("plain", "numbered")
        before = self._random.choice([partition.end, self._random.randint(partition.start, partition.end)])
        asked = LATEST if before == partition.end and self._random.random() < 0.5 else before
        assert self._call("delete_records", topic, number, asked) == before
        partition.delete(before)

    def _roll(self):
        topic, number, _ = self._pick()
        self._call("roll", topic, number)

    def _clean(self):
        self._call("clean")

    def _compact(self):
        assert not any(self._call("compact", "compacted"))

    def _flush(self):
        self._call("flush")

    def _read(self):
        topic, number, partition = self._pick()
        level = self._random.choice(["read_committed", "read_uncommitted"])
        committed = level == "read_committed"
        last = partition.stable if committed else partition.end
        start = self._random.choice([EARLIEST, self._random.randint(partition.start, max(partition.start, last))])
        end = self._random.choice([None, last])
        if last < partition.start:
            return  # all that is stable was deleted
        found = self._call("read", topic, number, start, end, level)
        assert isinstance(found, list), (topic, number, start, end, level, found)
        right = partition.visible(max(start, 0), last, committed=committed)
        if topic != "compacted":
            assert found == right, (topic, number, start, end, level)
            return
        assert [row for row in found if row not in right] == []
        assert found == sorted(found)
        newest = {row[1]: row for row in right}
        assert [row for row in newest.values() if row[2] is not None and row not in found] == [], (number, start)

    def _offsets(self):
        topic, number, partition = self._pick()
        start, end, stable = self._call("offsets", topic, number)
        assert (start, end) == (partition.start, partition.end), (topic, number)
        assert stable == max(partition.stable, partition.start), (topic, number, stable, partition.open)

    def _find_time(self):
        topic, number, partition = self._pick("plain", "numbered")
        wanted = NOW - self._random.randrange(100_000)
        found = self._call("find_time", topic, number, wanted)
        right = next((offset for offset, record in partition.records.items() if record[2] >= wanted), None)
        assert found == right, (topic, number, wanted)

    def _reopen(self):
        self._actor.reopen()

    def _make_again(self):
        topic = self._random.choice(list(CONFIGS))
        self._call("delete", topic)
        if topic == "plain":
            # That is all that groups commit for.
            self._model.groups.clear()
        self._make(topic, CONFIGS[topic])

    def _verify(self):
        # Kafka's checkpoints are late by a second; they are the business of others.
        damage = damages(self._path)
        assert damage == [], damage
