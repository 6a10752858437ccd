"""Readers: what each member gives to consumers."""

from __future__ import annotations

import time

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.errors import ClusterError
from pyspark_log.kafka.fetcher import Fetcher, Position
from pyspark_log.storage.record.decoding.decoder import decode
from pyspark_log.types import TopicPartition
from tests.campaigns.cluster.acknowledged import taken
from tests.campaigns.cluster.topics import ALL, TOPICS, Client

# How long a reader waits for an answer, and between two looks at which member leads, in seconds.
_ANSWER, _LOOK = 3, 1


class Reader(Client):
    """Reads all partitions from one member, whether it leads them or not, as consumers do; a thread of its own.

    Attributes:
        number: the member's.
    """

    def __init__(self, number, address):
        super().__init__(f"reader of member {number}")
        self.number, self._read_of = number, {at: [] for at in ALL}
        self._address, self._next, self._highest = address, dict.fromkeys(ALL, 0), {}

    def take(self, at):
        """The offsets and values of the records of a partition that it has read since the last call."""
        return taken(self._read_of[at])

    def left(self, ends):
        """What it has not read yet of records before these offsets."""
        return [
            f"{at}: member {self.number} gives consumers what is before {self._next[at]} only, of {end}"
            for at, end in ends.items()
            if self._next[at] < end
        ]

    def _run(self):
        while not self._ending.is_set():
            try:
                with Connection(*self._address, ClientConfig(), timeout=_ANSWER) as connection:
                    self._read(connection)
            except (OSError, ClusterError):
                self._ending.wait(0.2)

    def _read(self, connection):
        fetcher = Fetcher(connection, max_wait_ms=100, max_bytes=1 << 20, partition_bytes=1 << 17)
        looked, known, is_asked = 0.0, {}, False
        while not self._ending.is_set():
            if time.monotonic() - looked > _LOOK or not is_asked:
                looked, known = time.monotonic(), _known(connection)
            wanted = {at: Position(topic_id, epoch, self._next[at], -1) for at, (topic_id, _, epoch) in known.items()}
            if not wanted:
                self._ending.wait(0.2)
                continue
            fetcher.send(wanted)
            is_asked = True
            for one in fetcher.receive():
                if one.error_code:
                    is_asked = False
                    self._ending.wait(0.02)
                    continue
                if known[one.at][1] == self.number:
                    self._see(one.at, one.position.leader_epoch, one.high_watermark)
                self._take(one)

    def _see(self, at, epoch, high_watermark):
        """While a leader leads, its high watermark never goes back.

        A new leader may give a lower one: it learns from its followers what is committed (KIP-207). But what was read
        below one stays, which is checked with the replicas' files.
        """
        highest = self._highest.get((at, epoch), 0)
        self._highest[at, epoch] = max(highest, high_watermark)
        if high_watermark < highest:
            self.faults.append(f"{at}: the high watermark went back from {highest} to {high_watermark}, epoch {epoch}")

    def _take(self, one):
        begin = self._next[one.at]
        chunk = decode(
            one.records, 0, len(one.records), from_offset=begin, until_offset=2**62, max_bytes=2**40, keys=False
        )
        offsets, values = chunk.columns["offset"].to_pylist(), chunk.columns["value"].to_pylist()
        self._read_of[one.at] += zip(offsets, values, strict=True)
        self._next[one.at] = max(begin, chunk.next_offset)


def _known(connection):
    """What a member says of partitions: the id of the topic, the leader, its epoch."""
    of = m.MetadataRequest
    answer = connection.ask(of([of.MetadataRequestTopic(name=name) for name in TOPICS], False))
    return {
        TopicPartition(topic.name, one.partition_index): (bytes(topic.topic_id), one.leader_id, one.leader_epoch)
        for topic in answer.topics
        if topic.error_code == 0
        for one in topic.partitions
    }
