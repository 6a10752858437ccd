"""A client of the simulation whose topics come and go: what is in one is never seen in the next one of its name."""

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from tests import requests as r
from tests.simulation.batches import decode, encode
from tests.simulation.clients import AGAIN, Client, OverError, ask

_GONE = {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class Keeper(Client):
    """Makes a topic, writes to it, reads all of it, and deletes it."""

    lives, topic_id = 0, None

    def work(self):
        self.lives += 1
        self.topic_id = self._create()
        acknowledged = [self._append() for _ in range(self.chance.randint(0, 4))]
        self._read(max(acknowledged, default=-1))
        self.host = self.chance.choice(self.house.hosts)
        self._delete()
        self.history.counts["topics deleted"] += 1
        self.pause(20 * self.house.pace)

    def _create(self):
        """The new topic's id."""
        request = r.create_topic(self.name, 1, **{"retention_ms": "-1", "message_timestamp_after_max_ms": str(2**62)})
        answer, code, _ = self.ask(request, 7, lambda answer: answer.topics[0].error_code)
        if code == ErrorCode.TOPIC_ALREADY_EXISTS:
            request = r.metadata(self.name)
            answer, code, _ = self.ask(request, 12, lambda answer: answer.topics[0].error_code, again=AGAIN | _GONE)
            if answer.topics[0].topic_id == self.topic_id:
                # A server that did not know of the topic has said that it is gone.
                self._delete()
                raise OverError
            # Else an earlier request has made it, which was late.
        if code:
            self.refused("a new topic", code)
        return answer.topics[0].topic_id

    def _append(self):
        """The offset after what was appended."""
        write = self.history.begin(f"{self.name}.{self.lives}")
        values = [self.history.value(write, self.topic_id) for _ in range(self.chance.choice([1, 3]))]
        answer, _, _ = self.ask(m.InitProducerIdRequest(None, 60_000), 4, lambda answer: answer.error_code)
        data = encode(values, (answer.producer_id, answer.producer_epoch), 0, self.house.time_ms())
        request = r.produce("", (0, data), topic_id=self.topic_id)
        # A server that was cut off may not know the topic yet.
        answer, code, _ = self.ask(
            request, 13, lambda answer: answer.responses[0].partition_responses[0].error_code, again=AGAIN | _GONE
        )
        if code:
            self.refused("a batch", code)
        offset = answer.responses[0].partition_responses[0].base_offset
        for number, value in enumerate(values):
            self.history.place(self.topic_id, offset + number, value)
        self.history.end(write, "there")
        return offset + len(values)

    def _read(self, end):
        """Reads up to an offset at least."""
        of, position = m.FetchRequest, 0
        while position < end and not self.house.has_given_up:
            self.host = self.chance.choice(self.house.hosts)
            part = of.FetchPartition(0, -1, position, -1, -1, 1 << 20)
            request = of(
                max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[of.FetchTopic("", self.topic_id, [part])]
            )
            answer = ask(self.world, self.host, request, 13)
            if answer is None or answer.error_code or answer.responses[0].partitions[0].error_code:
                self.pause(1)
                continue
            for offset, value in decode(answer.responses[0].partitions[0].records or b""):
                self.history.place(self.topic_id, offset, value)
                position = offset + 1

    def _delete(self):
        topics = [m.DeleteTopicsRequest.DeleteTopicState(None, self.topic_id)]
        request = m.DeleteTopicsRequest(topics, timeout_ms=30_000)
        for _ in range(20):
            _, code, unknown = self.ask(request, 6, lambda answer: answer.responses[0].error_code)
            if code not in _GONE or unknown:
                break
            self.pause(1)  # It was asked of a server that has not heard of the topic.
        if code and code not in _GONE:
            self.refused("a deletion", code)
