"""Idempotent producers that never give up a record, and never begin a new epoch: each record must be there once.

librdkafka begins a new epoch, and may write records twice by that, when it has sent to a new leader what follows on
records to which the old one has not answered.
"""

from __future__ import annotations

import random
import time

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.error_codes import ErrorCode, name_of
from pyspark_log.kafka.errors import ClusterError
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from tests.campaigns.cluster.topics import Client

#: How the values of all of them begin.
NAME = "sure"
_PAUSE = 0.12  # between two batches, in seconds
_MOST = 3  # records of a batch
# How often a batch is sent once more that is acknowledged.
_AGAIN = 0.1
# How long an answer may take, and how long the leader may wait for the others: in seconds and ms.
_ANSWER, _REPLICATED_MS = 3, 1500
# After these the same batch is sent again.
_PASSING = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_ID,
})  # fmt: skip


class ExactProducer(Client):
    """Writes numbered records to one partition, one batch at a time, in a thread of its own."""

    def __init__(self, at, addresses, acknowledged, seed):
        """`addresses`: hosts and ports of the members, by their ids; `acknowledged`: where it notes records."""
        super().__init__(f"producer of {at}")
        self._at, self._addresses, self._acknowledged = at, addresses, acknowledged
        self._random, self._connections, self._leader = random.Random(f"{seed} {at}"), {}, None
        self._topic_id, self._producer, self._sent, self._epoch = bytes(16), None, 0, -1
        self._deadline = None

    def __exit__(self, *_):
        self.finish(0)

    def finish(self, seconds):
        """Begins no other batch; waits that long for the last one to be acknowledged."""
        if self._deadline is None:
            self._deadline = time.monotonic() + seconds
        self._ending.set()
        self._thread.join()

    def _run(self):
        try:
            self._producer = self._begin()
            while not self._ending.wait(_PAUSE) and self._write():
                pass
        finally:
            for one in self._connections.values():
                one.close()

    def _begin(self):
        """An id and an epoch."""
        while True:
            answer = self._asked(m.InitProducerIdRequest(None, 60_000), None)
            if answer is not None and not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            if self._is_over():
                raise TimeoutError("no member gives an id to a producer")

    def _write(self):
        """Writes a batch; False: it cannot continue."""
        count = self._random.randint(1, _MOST)
        values = [
            f"{NAME}-{self._at}:{number}:".encode() + b"x" * self._random.randrange(100)
            for number in range(self._sent, self._sent + count)
        ]
        data = self._batch(values)
        answer = self._stored(data, len(values))
        if answer is None:
            return False
        self._sent += count
        offset = answer.base_offset if answer.error_code == ErrorCode.NONE else None
        self._acknowledged.note(
            self._at, [(None if offset is None else offset + place, value) for place, value in enumerate(values)]
        )
        if self._random.random() < _AGAIN:
            again = self._stored(data, len(values))
            if again is not None and again.error_code == ErrorCode.NONE and offset not in (None, again.base_offset):
                self.faults.append(f"{self._at}: offset {offset} is {again.base_offset} for the batch sent once more")
        return True

    def _batch(self, values):
        builder = BatchBuilder(1 << 20, 1 << 20)
        columns = RecordColumns.of_pairs([None] * len(values), values, time.time_ns() // 1_000_000)
        builder.append(columns, None, 0, len(values))
        producer, epoch = self._producer
        return builder.seal(producer_id=producer, producer_epoch=epoch, base_sequence=self._sent)

    def _stored(self, data, count):
        """Sends a batch until the leader says that it is there; None: it does not in time, or refuses it."""
        of = m.ProduceRequest
        while True:
            if self._leader is None:
                self._find()
            if self._leader is not None:
                part = of.PartitionProduceData(self._at.partition, data)
                topic = of.TopicProduceData(self._at.topic, self._topic_id, [part])
                answer = self._asked(of(None, -1, _REPLICATED_MS, [topic]), self._leader)
                if answer is None:
                    self._leader = None
                else:
                    [part] = answer.responses[0].partition_responses
                    if part.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                        return part
                    self._leader = None
                    if part.error_code not in _PASSING:
                        self.faults.append(
                            f"{self._at}: {count} records from {NAME}-{self._at}:{self._sent} on are refused: "
                            f"{name_of(part.error_code)}"
                        )
                        return None
            if self._is_over():
                self.faults.append(f"{self._at}: {NAME}-{self._at}:{self._sent} was never acknowledged")
                return None
            time.sleep(0.05)

    def _is_over(self):
        return self._deadline is not None and time.monotonic() > self._deadline

    def _find(self):
        """Asks a member which one leads; one that does not know of the newest epoch may name a leader of the past."""
        of = m.MetadataRequest
        answer = self._asked(of([of.MetadataRequestTopic(name=self._at.topic)], False), None)
        for topic in () if answer is None else answer.topics:
            self._topic_id = bytes(topic.topic_id)
            for one in topic.partitions:
                is_new = one.partition_index == self._at.partition and one.leader_epoch >= self._epoch
                if is_new and one.leader_id in self._addresses:
                    self._leader, self._epoch = one.leader_id, one.leader_epoch

    def _asked(self, request, number):
        """The answer of a member, or of any one if the number is None; None: it gives none."""
        if number is None:
            number = self._random.choice([*self._addresses])
        connection = self._connections.pop(number, None)
        try:
            if connection is None:
                connection = Connection(*self._addresses[number], ClientConfig(), timeout=_ANSWER)
            answer = connection.ask(request)
        except (OSError, ClusterError):
            if connection is not None:
                connection.close()
            return None
        self._connections[number] = connection
        return answer
