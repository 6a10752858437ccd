"""Where a session is recorded: a broker that was emptied, and the recorder before it."""

from __future__ import annotations

import time

from pyspark_log.kafka import messages as m
from tests.server_tools import PATIENCE, Peer
from tests.unit.record_tools import Record, build

_NO_REPLICA = -1
_START, _END = -2, -1
_TOPIC = 2


class Place:
    """What a session needs to run.

    Attributes:
        bootstrap: where the client finds the recorder.
        folder: for files.
    """

    def __init__(self, recorder, broker_at, folder):
        """`broker_at`: a broker's own address, past the recorder; with `host` and `port`."""
        self._recorder, self._broker_at = recorder, broker_at
        self.bootstrap, self.folder = recorder.bootstrap, folder

    def make(self, topic, partitions=1, values=0):
        """Makes a topic, with that many values in each partition. The recording holds these requests, too."""
        with Peer(self._recorder) as peer:
            made = m.CreateTopicsRequest.CreatableTopic(topic, partitions, 1)
            [answer] = peer.ask(m.CreateTopicsRequest([made], 60_000), 7).topics
            assert answer.error_code == 0, answer
            self.wait_for(topic, partitions)
            if values:
                rows = [Record(b"key %d" % number, b"value %d" % number) for number in range(values)]
                parts = [m.ProduceRequest.PartitionProduceData(one, build(rows)) for one in range(partitions)]
                data = m.ProduceRequest.TopicProduceData(topic, bytes(16), parts)
                [answer] = peer.ask(m.ProduceRequest(None, -1, 60_000, [data]), 9).responses
                assert not any(part.error_code for part in answer.partition_responses), answer

    def wait_for(self, topic, partitions=1):
        """Returns when the broker leads all partitions of a topic; an answer that it is made comes earlier."""
        wanted = [m.ListOffsetsRequest.ListOffsetsPartition(one, -1, _START) for one in range(partitions)]
        request = m.ListOffsetsRequest(_NO_REPLICA, 0, [m.ListOffsetsRequest.ListOffsetsTopic(topic, wanted)])
        self._until(lambda peer: not any(one.error_code for one in peer.ask(request, 7).topics[0].partitions))

    def wait_for_config(self, topic, name, value):
        """Returns when the broker knows of a config; an answer that it is changed comes earlier."""
        wanted = m.DescribeConfigsRequest.DescribeConfigsResource(_TOPIC, topic, [name])
        self._until(
            lambda peer: (
                [one.value for one in peer.ask(m.DescribeConfigsRequest([wanted]), 4).results[0].configs] == [value]
            )
        )

    def wait_for_records(self, topic, count):
        """Returns when the first partition of a topic has that many."""
        wanted = m.ListOffsetsRequest.ListOffsetsTopic(topic, [m.ListOffsetsRequest.ListOffsetsPartition(0, -1, _END)])
        request = m.ListOffsetsRequest(_NO_REPLICA, 0, [wanted])
        self._until(lambda peer: peer.ask(request, 7).topics[0].partitions[0].offset >= count)

    def wait_without(self, topic):
        """Returns when the broker has a topic no more."""
        request = m.MetadataRequest([m.MetadataRequest.MetadataRequestTopic(bytes(16), topic)], False)
        self._until(lambda peer: peer.ask(request, 12).topics[0].error_code)

    def empty(self):
        """Deletes all topics and groups. Nothing of this is recorded."""
        self._until(self._has_no_groups)
        with Peer(self._broker_at) as peer:
            topics = [one.name for one in peer.ask(m.MetadataRequest(None, False), 9).topics if not one.is_internal]
            peer.ask(m.DeleteTopicsRequest(topic_names=topics, timeout_ms=60_000), 5)
        for topic in topics:
            self.wait_without(topic)

    @staticmethod
    def _has_no_groups(peer):
        groups = [one.group_id for one in peer.ask(m.ListGroupsRequest(), 4).groups]
        # A member that has just left may still count.
        return not any(one.error_code for one in peer.ask(m.DeleteGroupsRequest(groups), 2).results)

    def _until(self, condition):
        end = time.monotonic() + PATIENCE
        with Peer(self._broker_at) as peer:
            while not condition(peer):
                assert time.monotonic() < end, "the broker does not get there"
                time.sleep(0.02)
