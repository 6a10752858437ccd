"""Fetch sessions (KIP-227) at a real Kafka and at `pylog serve`: a consumer does the same by chance at both."""

import random
import time

import pytest

from pyspark_log.kafka import messages as m
from tests import requests as r
from tests.server_tools import Peer, served_anew
from tests.unit.record_tools import Record, build
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("kafka")

PARTITIONS = 6
ALL = [(number, 0) for number in range(PARTITIONS)]
STEPS = 400
_NOW = int(time.time() * 1000)


class Side:
    """A server, as one consumer with a session has it."""

    def __init__(self, peer, topic, version):
        self.peer, self.version = peer, version
        answer = peer.ask(r.metadata(topic), 12)
        self.name, self.topic_id = (topic, r.NO_ID) if version < 13 else ("", answer.topics[0].topic_id)
        self.session_id = 0

    def fetch(self, epoch, parts, forgotten=(), most=1 << 20, session_id=None):
        """`parts`: partitions and offsets. The answer without ids, its partitions in order."""
        rows = [m.FetchRequest.FetchPartition(number, -1, offset, -1, -1, 1 << 20) for number, offset in parts]
        request = m.FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=most, session_epoch=epoch,
            session_id=self.session_id if session_id is None else session_id,
            topics=[m.FetchRequest.FetchTopic(self.name, self.topic_id, rows)] if rows else [],
            forgotten_topics_data=[m.FetchRequest.ForgottenTopic(self.name, self.topic_id, list(forgotten))]
            if forgotten
            else [],
        )  # fmt: skip
        answer = self.peer.ask(request, self.version)
        if epoch == 0:
            self.session_id = answer.session_id
        return (
            answer.error_code,
            answer.session_id == self.session_id,
            [
                (part.partition_index, part.error_code, part.high_watermark, part.log_start_offset, bytes(part.records))
                for topic in answer.responses
                for part in topic.partitions
            ],
        )


class Both:
    """A Kafka and a server, at which one consumer does the same with a topic."""

    def __init__(self, peers, topic, version):
        self.topic, self._sides = topic, [Side(peer, topic, version) for peer in peers]

    def ask(self, request, version):
        """Asks both the same."""
        for side in self._sides:
            side.peer.ask(request, version)

    def fetch(self, *asked, **how):
        """The answer, which is the same."""
        kafkas, ours = (side.fetch(*asked, **how) for side in self._sides)
        assert ours == kafkas
        return ours


class Consumer:
    """Reads by chance, and notes what kinds of answers it has met."""

    def __init__(self, both, draw):
        self._both, self._draw = both, draw
        self._ends, self._position, self._epoch = [0] * PARTITIONS, dict[int, int](), 0
        self.met = set()

    def run(self):
        """A step."""
        draw = self._draw
        for _ in range(draw.choice([0, 0, 1, 3])):
            number, value = draw.randrange(PARTITIONS), b"v" * draw.choice([1, 500])
            self._both.ask(r.produce(self._both.topic, (number, build([Record(None, value, _NOW)]))), 9)
            self._ends[number] += 1
        if draw.random() < 0.05:
            self._both.ask(r.delete_records(self._both.topic, -1, draw.randrange(PARTITIONS)), 2)
        kinds = {self._more: 40, self._begin: 2, self._other_epoch: 1, self._end: 1, self._unknown: 1}
        [kind] = draw.choices([*kinds], [*kinds.values()])
        error, _, parts = kind() if self._epoch else self._begin()
        self.met |= {(error, bool(parts)), *(part[1] for part in parts)}
        for number, _, _, start, records in parts:
            # What a consumer does not take is sent to it again.
            if number in self._position and draw.random() < 0.8:
                self._position[number] = max(start, self._position[number] + bool(records))

    def _begin(self):
        some = self._draw.sample(range(PARTITIONS), 4)
        self._position = {number: self._draw.randint(0, self._ends[number]) for number in some}
        self._epoch = 1
        return self._both.fetch(0, self._position.items())

    def _end(self):
        self._epoch = 0
        return self._both.fetch(-1, self._position.items())

    def _other_epoch(self):
        return self._both.fetch(self._epoch + 1, [])

    def _unknown(self):
        return self._both.fetch(5, [], session_id=1)

    def _more(self):
        draw, epoch = self._draw, self._epoch
        gone = [number for number in self._position if draw.random() < 0.05]
        position = self._position = {at: offset for at, offset in self._position.items() if at not in gone}
        asked = {number: offset for number, offset in position.items() if draw.random() < 0.3}
        for number in range(PARTITIONS):
            if number not in position and number not in gone and draw.random() < 0.2:
                beyond = draw.random() < 0.1
                asked[number] = position[number] = draw.randint(0, self._ends[number]) + beyond
        self._epoch = self._epoch + 1 if position else 0
        return self._both.fetch(epoch, asked.items(), gone, draw.choice([1, 1 << 20]))


@pytest.mark.parametrize("version", [12, 17])
def test_what_is_answered_is_kafkas(broker, tmp_path, version):
    broker.prepare()
    with served_anew(tmp_path) as server, Peer(broker) as kafka, Peer(server) as ours:
        for peer in (kafka, ours):
            assert peer.ask(r.create_topic(f"sessions-{version}", PARTITIONS), 7).topics[0].error_code == 0
            # Kafka makes the partitions some time after its answer.
            place = Side(peer, f"sessions-{version}", version)
            wait_until(lambda side=place: {part[1] for part in side.fetch(-1, ALL)[2]} == {0}, "all can be read")
        consumer = Consumer(Both((kafka, ours), f"sessions-{version}", version), random.Random(version))
        for _ in range(STEPS):
            consumer.run()
        assert {(0, True), (0, False), (70, False), (71, False), 0, 1} <= consumer.met
