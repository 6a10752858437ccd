"""librdkafka's producers, which give up a record after some time: then it is not known whether it is there."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter

import confluent_kafka

from pyspark_log.types import TopicPartition
from tests.campaigns.cluster.topics import ALL, Client

_CLIENT = {
    "acks": "all", "linger.ms": 5, "debug": "eos,broker,metadata,topic", "socket.timeout.ms": 3000,
    "request.timeout.ms": 2000, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 1000,
    "message.timeout.ms": 5000, "allow.auto.create.topics": False,
}  # fmt: skip
#: The names of those that are idempotent, and of those that are not, with which the values begin.
IDEMPOTENT, PLAIN = "hasty", "plain"
_PRODUCERS = {
    IDEMPOTENT: {"enable.idempotence": True, "compression.type": "lz4"},
    PLAIN: {"enable.idempotence": False, "retries": 1},
}
_PAUSE = 0.03  # between two sends, in seconds
_MOST = 3  # records of one send


class Load(Client):
    """The producers, in a thread of their own.

    Attributes:
        unknown: how many records were given up, by producer and error.
    """

    def __init__(self, bootstrap, acknowledged, seed, path):
        """`acknowledged`: where it notes records; `path`: of a file for what librdkafka says of sequences."""
        super().__init__("producers")
        self.unknown = Counter()
        self._acknowledged, self._random = acknowledged, random.Random(seed)
        self._log = logging.Logger("librdkafka")
        self._log.addHandler(logging.FileHandler(path))
        self._log.handlers[0].setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self._config = {"bootstrap.servers": bootstrap, **_CLIENT, "logger": self._log}
        self._producers = {name: self._make(name) for name in _PRODUCERS}
        self._sent, self._last = dict.fromkeys(_PRODUCERS, 0), dict.fromkeys(_PRODUCERS, 0.0)

    def __exit__(self, *_):
        super().__exit__()
        for producer in self._producers.values():
            producer.purge()
            producer.close()
        self._log.handlers[0].close()

    def stuck(self, seconds):
        """The producers that get no acknowledgement within that time."""
        deadline, begun = time.monotonic() + seconds, time.monotonic()
        while (names := [name for name, at in self._last.items() if at < begun]) and time.monotonic() < deadline:
            time.sleep(0.05)
        return names

    def finish(self, seconds):
        """Sends no more; returns when all outcomes are known that can be."""
        self._ending.set()
        self._thread.join()
        for name, producer in self._producers.items():
            if left := producer.flush(seconds):
                self.faults.append(f"producer {name}: {left} records have no outcome after {seconds} s")

    def _make(self, name):
        return confluent_kafka.Producer({**self._config, **_PRODUCERS[name]})

    def _run(self):
        while not self._ending.wait(_PAUSE):
            for producer in self._producers.values():
                producer.poll(0)
            self._send(self._random.choice([*_PRODUCERS]))

    def _send(self, name):
        at = self._random.choice(ALL)
        for _ in range(self._random.randint(1, _MOST)):
            value = f"{name}:{self._sent[name]}:".encode() + b"x" * self._random.randrange(100)
            try:
                self._producers[name].produce(at.topic, value, partition=at.partition, on_delivery=self._note)
            except confluent_kafka.KafkaException as error:
                # One that has lost its sequence says so; with min.insync.replicas it does not lose it.
                self.faults.append(f"producer {name}: {error}")
                self._producers[name] = self._make(name)
                return
            self._sent[name] += 1

    def _note(self, error, message):
        name = message.value().partition(b":")[0].decode()
        if error is not None:
            self.unknown[f"{name}, {error.name()}"] += 1
        else:
            self._last[name] = time.monotonic()
            at = TopicPartition(message.topic(), message.partition())
            self._acknowledged.note(at, [(message.offset(), message.value())])
