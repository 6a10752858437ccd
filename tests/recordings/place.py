"""Where a session is recorded: a broker that was emptied, and the recorder before it."""

from __future__ import annotations

from pyspark_log.kafka import messages as m
from tests import requests as r
from tests.server_tools import Peer
from tests.unit.record_tools import Record, build
from tests.waiting import wait_until

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
            [answer] = peer.ask(r.create_topic(topic, partitions), 7).topics
            assert answer.error_code == 0, answer
            self.wait_for(topic, partitions)
            if values:
                rows = [Record(b"key %d" % number, b"value %d" % number) for number in range(values)]
                parts = [(one, build(rows)) for one in range(partitions)]
                [answer] = peer.ask(r.produce(topic, *parts), 9).responses
                assert not any(part.error_code for part in answer.partition_responses), answer

    def wait_for(self, topic, partitions=1):
        """Returns when the broker leads all partitions of a topic; an answer that it is made comes earlier."""
        for number in range(partitions):
            request = r.list_offsets(topic, _START, partition=number)
            self._until(lambda peer, of=request: not peer.ask(of, 7).topics[0].partitions[0].error_code)

    def wait_for_config(self, topic, name, value):
        """Returns when the broker knows of a config; an answer that it is changed comes earlier."""
        wanted = r.describe_configs(_TOPIC, topic, name)
        self._until(lambda peer: [one.value for one in peer.ask(wanted, 4).results[0].configs] == [value])

    def wait_for_records(self, topic, count):
        """Returns when the first partition of a topic has that many."""
        request = r.list_offsets(topic, _END)
        self._until(lambda peer: peer.ask(request, 7).topics[0].partitions[0].offset >= count)

    def wait_without(self, topic):
        """Returns when the broker has a topic no more."""
        self._until(lambda peer: peer.ask(r.metadata(topic), 12).topics[0].error_code)

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
        with Peer(self._broker_at) as peer:
            wait_until(lambda: condition(peer), "the broker gets there")
