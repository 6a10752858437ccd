"""A coordinator with groups of KIP-848 whose clock, log, topics and clients tests move by hand."""

import re
from dataclasses import replace

from group_rig import Call, Rig

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import ConsumerGroupHeartbeatRequest
from pyspark_log.server.coordinator import Client, ModernStore, Topic, Topics

GROUP = "g"
REBALANCE = 60_000
Owned = ConsumerGroupHeartbeatRequest.TopicPartitions


def topic_id(name):
    return name.encode().rjust(16, b"\0")


def topics_of(version=1, **partitions):
    """Topics by name, with the numbers of their partitions."""
    topics = {name: Topic(topic_id(name), count) for name, count in partitions.items()}

    def matching(text):
        try:
            found = re.compile(text)
        except re.error as error:
            raise ValueError(str(error)) from error
        return [name for name in topics if found.fullmatch(name)]

    return Topics(version, topics, matching)


class ModernRig(Rig):
    """The same for modern groups.

    Attributes:
        topics: those that there are.
        records: by group, what the log has of it.
    """

    def __init__(self, topics=None, **settings):
        super().__init__(**{"assignment_interval": 0} | settings)
        self.topics, self.records = topics or topics_of(t=4), {}

    def beat(
        self, member_id, epoch, version=1, *, names=None, regex=None, owned=None, instance=None, rebalance=-1,
        assignor=None, group=GROUP, client="c", rack=None,
    ):  # fmt: skip
        """A heartbeat. `owned`: numbers of partitions by the names of their topics."""
        call = Call(version)
        has = None if owned is None else [Owned(topic_id(name), list(numbers)) for name, numbers in owned.items()]
        request = ConsumerGroupHeartbeatRequest(
            group, member_id, epoch, instance, rack, rebalance, names, regex, assignor, has
        )  # fmt: skip
        client = Client(client, "/127.0.0.1")
        self.take(self.coordinator.modern_heartbeat(call, request, version, client, self.topics, self.now))
        return call

    def enter(self, member_id, version=1, *, names=("t",), rebalance=REBALANCE, **how):
        """The first heartbeat of a member."""
        names = names if names is None else list(names)
        return self.beat(member_id, 0, version, names=names, owned={}, rebalance=rebalance, **how)

    def describe_modern(self, group=GROUP):
        return self.coordinator.describe_modern(group, self.topics)

    @property
    def modern_state(self):
        return self.describe_modern().group_state

    def write(self, error=ErrorCode.NONE):
        while self.unwritten:
            store = self.unwritten.pop(0)
            if not error:
                self.keep(store)
            self.take(self.coordinator.stored(store.ticket, error, self.now))

    def keep(self, store):
        """What is written, or may be."""
        if not isinstance(store, ModernStore):
            self.log[store.group_id] = store.record
            return
        if store.ends_classic:
            self.log.pop(store.group_id, None)
        kept = self.records.setdefault(store.group_id, {})
        kept |= store.records
        self.records[store.group_id] = {key: value for key, value in kept.items() if value is not None}

    def restart(self):
        super().restart()
        for group, records in self.records.items():
            if records:
                self.take(self.coordinator.load_modern(group, records, self.now))

    def change_topics(self, **partitions):
        self.topics = replace(topics_of(**partitions), version=self.topics.version + 1)

    def settle(self, *member_ids, group=GROUP):
        """Members beat and do what they are asked to until nothing changes; what each has."""
        owned = {one: {} for one in member_ids}
        for _ in range(10):
            for one in member_ids:
                call = self.beat(one, self.epoch(one, group), owned=owned[one], group=group)
                assert call.error is ErrorCode.NONE, call.answer
                if call.answer.assignment is not None:
                    owned[one] = has(call)
        return owned

    def epoch(self, member_id, group=GROUP):
        members = self.describe_modern(group).members
        return next(one.member_epoch for one in members if one.member_id == member_id)


def has(call):
    """The partitions of an answer, by topic; None: it has no assignment."""
    assignment = call.answer.assignment
    if assignment is None:
        return None
    return {one.topic_id.lstrip(b"\0").decode(): list(one.partitions) for one in assignment.topic_partitions}
