"""A group of KIP-848 of Kafka's and one of ours that are asked the same, and must answer the same."""

from itertools import count, product

from group_sides import KafkaGroups, OurGroups

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.coordinator import ModernStore, Topic, Topics
from tests import requests as r

Owned = m.ConsumerGroupHeartbeatRequest.TopicPartitions


def make_topics(kafka, counts):
    """Topics with the numbers of partitions, by name, whose ids a hash table of Java's keeps in order."""
    names = count()
    while True:
        wanted = [r.new_topic(f"modern{next(names)}", partitions) for partitions in counts for _ in range(12)]
        answers = kafka.ask(r.create_topics(*wanted), 7).topics
        assert {one.error_code for one in answers} == {ErrorCode.NONE}
        ids = {one.name: bytes(one.topic_id) for one in answers}
        made = [(one.name, Topic(ids[one.name], one.num_partitions)) for one in wanted]
        for some in product(*(made[index : index + 12] for index in range(0, len(made), 12))):
            order = [(one.topic_id, _bucket(one.topic_id)) for _, one in some]
            buckets = [bucket for _, bucket in sorted(order)]
            # Tables of four places or more have these in one order.
            if buckets == sorted(set(buckets)) and max(buckets) < 4 and max(order)[0][0] < 128:
                return dict(some)


def _bucket(topic_id):
    code = int.from_bytes(topic_id[:8], "big") ^ int.from_bytes(topic_id[8:], "big")
    code = (code >> 32 ^ code) & 0xFFFFFFFF
    return (code ^ code >> 16) & 15


class OurModernGroups(OurGroups):
    """Our side.

    Attributes:
        records: what the log has of each group.
    """

    def __init__(self, topics):
        super().__init__(assignment_interval=0)
        self.topics, self.records = topics, {}

    def _store(self, store):
        if isinstance(store, ModernStore):
            kept = self.records.get(store.group_id, {}) | store.records
            self.records[store.group_id] = {key: value for key, value in kept.items() if value is not None}

    def _ConsumerGroupHeartbeatRequest(self, token, request, version, client):  # noqa: N802
        self._take(self._coordinator.modern_heartbeat(token, request, version, client, self.topics, self._now))

    def _ConsumerGroupDescribeRequest(self, token, request, _, __):  # noqa: N802
        groups = [self._coordinator.describe_modern(group, self.topics) for group in request.group_ids]
        self._answers[token] = m.ConsumerGroupDescribeResponse(groups=groups)

    def _ListGroupsRequest(self, token, request, _, __):  # noqa: N802
        self._answers[token] = m.ListGroupsResponse(groups=self._coordinator.list_groups(request))

    def commit_error(self, request, version):
        names = {topic.topic_id: name for name, topic in self.topics.topics.items()}
        partitions = [
            (names[one.topic_id] if version >= 10 else one.name, part.partition_index)
            for one in request.topics for part in one.partitions
        ]  # fmt: skip
        return super().commit_error(request, version, partitions=partitions)

    def fetch_error(self, request):
        (group,) = request.groups
        return self._coordinator.check_fetch(group.group_id, group.member_id, group.member_epoch)


class BothSides:
    """One group on both sides.

    Attributes:
        answers: how many were compared.
    """

    def __init__(self, broker, topics, group):
        self.group, self.kafka = group, KafkaGroups(broker)
        self.ours = OurModernGroups(Topics(1, topics, lambda _: ()))
        self.topics, self.answers = topics, 0

    def ask(self, request, version):
        """The answer of both."""
        theirs, ours = _plain(self.kafka.ask(request, version)), _plain(self.ours.ask(request, version))
        found = list(_differences(ours, theirs))
        assert not found, f"answers to {request} of version {version}, ours and Kafka's: {found}"
        self.answers += 1
        return ours

    def beat(
        self, member, epoch, version=1, *, names=None, owned=None, instance=None, rebalance=-1, assignor=None,
        regex=None,
    ):  # fmt: skip
        """A heartbeat. `owned`: numbers of partitions by the ids of their topics."""
        has = None if owned is None else [Owned(topic_id, sorted(numbers)) for topic_id, numbers in owned.items()]
        return self.ask(
            m.ConsumerGroupHeartbeatRequest(
                self.group, member, epoch, instance, None, rebalance, names, regex if version else None, assignor, has
            ),
            version,
        )

    def enter(self, member, names, *, rebalance=600_000, **how):
        return self.beat(member, 0, names=list(names), owned={}, rebalance=rebalance, **how)

    def look(self):
        """Everything that is to be seen of it."""
        found = self.ask(m.ConsumerGroupDescribeRequest([self.group]), 1)
        self.ask(m.DescribeGroupsRequest([self.group]), 6)
        self.ask(m.DescribeGroupsRequest([self.group]), 5)
        for kind in ("consumer", "classic"):
            request = m.ListGroupsRequest(types_filter=[kind])
            listed = [
                [one for one in side.ask(request, 5).groups if one.group_id == self.group]
                for side in (self.kafka, self.ours)
            ]
            assert listed[0] == listed[1], f"Kafka lists {listed[0]}, we list {listed[1]}"
        return found

    def delete(self):
        return self.ask(m.DeleteGroupsRequest([self.group]), 2)

    def join(self, version, members=("", "")):
        """A member of the old protocol joins, by its ids on both sides; returns those that it has then."""
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol("range", b"\0\1\0\0\0\0\xff\xff\xff\xff\0\0\0\0")
        answers = [
            side.ask(m.JoinGroupRequest(self.group, 10_000, 10_000, member, None, "consumer", [protocol]), version)
            for side, member in zip((self.kafka, self.ours), members, strict=True)
        ]
        first, second = ((one.error_code, one.generation_id, one.protocol_name) for one in answers)
        assert first == second, answers
        self.answers += 1
        return [one.member_id for one in answers]

    def remove(self, members):
        """A member of the old protocol leaves, by its ids on both sides."""
        for side, member in zip((self.kafka, self.ours), members, strict=True):
            request = m.LeaveGroupRequest(self.group, members=[m.LeaveGroupRequest.MemberIdentity(member)])
            assert [one.error_code for one in side.ask(request, 5).members] == [ErrorCode.NONE]

    def old_requests(self, member, epoch):
        """Requests of the old protocol, of a member of the new one."""
        self.ask(m.HeartbeatRequest(self.group, epoch, member), 4)
        self.ask(m.SyncGroupRequest(self.group, epoch, member, None, "consumer", "range"), 5)
        self.ask(m.LeaveGroupRequest(self.group, members=[m.LeaveGroupRequest.MemberIdentity(member)]), 5)

    def remove_instance(self, instance):
        members = [m.LeaveGroupRequest.MemberIdentity("", instance)]
        return self.ask(m.LeaveGroupRequest(self.group, members=members), 5)

    def commit(self, version, member, epoch, name, number, instance=None):
        by_id = {"topic_id": self.topics[name].topic_id} if version >= 10 else {}
        request = r.commit(self.group, "" if by_id else name, 1, number, generation=epoch, member=member, **by_id)
        request = request._replace(group_instance_id=instance)
        theirs = self.kafka.ask(request, version).topics[0].partitions[0].error_code
        return self._same_error(theirs, self.ours.commit_error(request, version), request)

    def fetch(self, member, epoch):
        request = r.committed_of(self.group, None, member=member, epoch=epoch)
        theirs = self.kafka.ask(request, 9).groups[0].error_code
        return self._same_error(theirs, self.ours.fetch_error(request), request)

    def delete_offsets(self, name):
        request = r.delete_offsets(self.group, name)
        answer = self.kafka.ask(request, 0)
        theirs = answer.error_code or answer.topics[0].partitions[0].error_code
        return self._same_error(theirs, self.ours.offset_delete_error(request), request)

    def _same_error(self, theirs, ours, request):
        assert ours == theirs, f"to {request} we answer {ErrorCode(ours)!r}, Kafka {ErrorCode(theirs)!r}"
        self.answers += 1
        return ours

    def close(self):
        self.kafka.close()


def _differences(ours, theirs):
    """The parts of answers that differ."""
    is_struct = type(ours) is type(theirs) and hasattr(ours, "_fields")
    are_lists = isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs)
    if is_struct or are_lists:
        for one, other in zip(ours, theirs, strict=True):
            yield from _differences(one, other)
    elif ours != theirs:
        yield ours, theirs


def _plain(value):
    """Lists in one order, without explanations and operations."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        value = type(value)(*map(_plain, value))
        if "error_message" in value._fields:
            value = value._replace(error_message=None)
        return value._replace(authorized_operations=0) if "authorized_operations" in value._fields else value
    if isinstance(value, list | tuple) or type(value).__name__ in ("array", "ndarray"):
        return sorted(map(_plain, value))
    return bytes(value) if isinstance(value, memoryview) else value
