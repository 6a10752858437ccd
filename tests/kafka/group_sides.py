"""A group of Kafka's and one of ours that are asked the same, and must answer the same."""

import select
import time
from itertools import count

from pyspark_log.kafka import decode_response, encode_response
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.schemas import message_of
from pyspark_log.server.coordinator import Client, Coordinator, Settings
from tests import requests as r
from tests.server_tools import Peer
from tests.waiting import wait_until

TOPIC = "of-groups"


class KafkaGroups:
    """Kafka's side: each request has a connection of its own, so that none waits for another."""

    def __init__(self, broker):
        self._broker, self._open = broker, {}

    def send(self, token, request, version, client):
        peer = self._open[token] = Peer(self._broker)
        peer.client_id = client
        peer.send(request, version)

    def answer(self, token, seconds):
        """The response, if it comes so soon; else None."""
        if not select.select([self._open[token].socket], [], [], seconds)[0]:
            return None
        with self._open.pop(token) as peer:
            return peer.response()

    def ask(self, request, version):
        """The answer to a request that does not wait."""
        self.send("asked", request, version, "c")
        return self.answer("asked", 20)

    def close(self):
        for peer in self._open.values():
            peer.close()


class OurGroups:
    """Our side, with a log that takes everything at once."""

    def __init__(self, **settings):
        numbers = count(1)
        self._coordinator = Coordinator(Settings(initial_rebalance_delay=0, **settings), lambda: str(next(numbers)))
        self._answers, self._versions = {}, {}

    def send(self, token, request, version, client):
        self.expire()
        self._versions[token] = version
        getattr(self, f"_{type(request).__name__}")(token, request, version, Client(client, "/127.0.0.1"))
        self.expire()

    def answer(self, token):
        """The response as its bytes say it, if it is there; else None."""
        response = self._answers.pop(token, None)
        if response is None:
            return None
        version = self._versions[token]
        written = b"".join(map(bytes, encode_response(response, version, 1)))
        return decode_response(message_of(response).api_key, version, written[4:])[1]

    def waits(self, token):
        return token not in self._answers

    def ask(self, request, version):
        """The answer to a request that does not wait."""
        self.send("asked", request, version, "c")
        return self.answer("asked")

    def expire(self):
        self._take(self._coordinator.expire(self._now))

    @property
    def _now(self):
        return int(time.monotonic() * 1000)

    def _take(self, effects):
        self._answers |= dict(effects.answers)
        for store in effects.stores:
            self._store(store)
            self._take(self._coordinator.stored(store.ticket, ErrorCode.NONE, self._now))

    def _store(self, store):
        """Takes what is to be stored."""

    def _JoinGroupRequest(self, token, request, version, client):  # noqa: N802
        self._take(self._coordinator.join(token, request, version, client, self._now))

    def _SyncGroupRequest(self, token, request, version, _):  # noqa: N802
        self._take(self._coordinator.sync(token, request, version))

    def _HeartbeatRequest(self, token, request, _, __):  # noqa: N802
        self._answers[token] = self._coordinator.heartbeat(request, self._now)

    def _LeaveGroupRequest(self, token, request, version, _):  # noqa: N802
        self._take(self._coordinator.leave(token, request, version, self._now))

    def _DescribeGroupsRequest(self, token, request, version, _):  # noqa: N802
        groups = [self._coordinator.describe(group, version) for group in request.groups]
        self._answers[token] = m.DescribeGroupsResponse(groups=groups)

    def _OffsetCommitRequest(self, token, request, version, _):  # noqa: N802
        partition = m.OffsetCommitResponse.OffsetCommitResponsePartition(0, self.commit_error(request, version))
        topic = m.OffsetCommitResponse.OffsetCommitResponseTopic(TOPIC, partitions=[partition])
        self._answers[token] = m.OffsetCommitResponse(topics=[topic])

    def _OffsetDeleteRequest(self, token, request, _, __):  # noqa: N802
        if error := self._coordinator.check_offset_delete(request.group_id):
            self._answers[token] = m.OffsetDeleteResponse(error_code=error)
            return
        partition = m.OffsetDeleteResponse.OffsetDeleteResponsePartition(0, self.offset_delete_error(request))
        topic = m.OffsetDeleteResponse.OffsetDeleteResponseTopic(TOPIC, [partition])
        self._answers[token] = m.OffsetDeleteResponse(topics=[topic])

    def _DeleteGroupsRequest(self, token, request, _, __):  # noqa: N802
        (group,) = request.groups_names
        self._take(self._coordinator.delete(token, group))
        result = m.DeleteGroupsResponse.DeletableGroupResult(group, self._answers[token])
        self._answers[token] = m.DeleteGroupsResponse(results=[result])

    # What follows is an error code; the rest of such a response is the handlers'.

    def commit_error(self, request, version, **what):
        return self._coordinator.check_commit(
            request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id,
            version, self._now, **what,
        )  # fmt: skip

    def offset_delete_error(self, request):
        (topic,) = request.topics
        if error := self._coordinator.check_offset_delete(request.group_id):
            return error
        is_read = self._coordinator.subscribes(request.group_id, topic.name)
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE


class BothGroups:
    """One group on both sides. Member ids have names here, which are the tokens of the joins that they are from.

    Attributes:
        answered: by token, the answer with names in place of ids.
        waiting: tokens without an answer.
    """

    def __init__(self, broker, group):
        self.group, self._kafka, self._ours = group, KafkaGroups(broker), OurGroups()
        self.answered, self.waiting, self._numbers = {}, [], count(1)
        self._ids = {"kafka": {"": ""}, "ours": {"": ""}}

    def close(self):
        self._kafka.close()

    # ---- requests; `member` is a name

    def join(
        self, version, *, member="", instance=None, protocols=(("range", b""),), rebalance=60_000, client="c",
        protocol_type="consumer",
    ):  # fmt: skip
        structs = [m.JoinGroupRequest.JoinGroupRequestProtocol(*one) for one in protocols]
        return self._send(version, client, lambda ids: m.JoinGroupRequest(
            self.group, 1_000_000, rebalance, ids.get(member, member), instance if version >= 5 else None,
            protocol_type, structs,
        ))  # fmt: skip

    def sync(self, version, member, generation, assignments=(), *, instance=None, names=("consumer", "range")):
        return self._send(version, "c", lambda ids: m.SyncGroupRequest(
            self.group, generation, ids.get(member, member), instance if version >= 3 else None,
            *(names if version >= 5 else (None, None)),
            [m.SyncGroupRequest.SyncGroupRequestAssignment(ids[one], what) for one, what in dict(assignments).items()],
        ))  # fmt: skip

    def heartbeat(self, member, generation, instance=None):
        return self._send(4, "c", lambda ids: m.HeartbeatRequest(
            self.group, generation, ids.get(member, member), instance
        ))  # fmt: skip

    def leave(self, *members):
        return self._send(5, "c", lambda ids: m.LeaveGroupRequest(
            self.group,
            members=[m.LeaveGroupRequest.MemberIdentity(ids.get(one, one), instance) for one, instance in members],
        ))  # fmt: skip

    def leave_alone(self, member):
        return self._send(2, "c", lambda ids: m.LeaveGroupRequest(self.group, ids.get(member, member)))

    def commit(self, version, generation=-1, member="", instance=None):
        instance = instance if version >= 7 else None
        request = r.commit(self.group, TOPIC, 1, generation=generation)._replace(group_instance_id=instance)
        return self._send(version, "c", lambda ids: request._replace(member_id=ids.get(member, member)))

    def delete_offsets(self):
        return self._send(0, "c", lambda _: r.delete_offsets(self.group, TOPIC))

    def describe(self, version=6):
        return self._send(version, "c", lambda _: m.DescribeGroupsRequest([self.group]))

    def delete(self):
        return self._send(2, "c", lambda _: m.DeleteGroupsRequest([self.group]))

    # ---- answers

    def _send(self, version, client, request):
        token = f"#{next(self._numbers)}"
        self._kafka.send(token, request(self._ids["kafka"]), version, client)
        self.waiting.append(token)
        # Only what arrives first decides if requests meet, so each is let arrive.
        first = self._kafka.answer(token, 0.03)
        self._ours.send(token, request(self._ids["ours"]), version, client)
        if first is None and self._ours.waits(token):
            # It has no answer that says that Kafka has taken it, but its group then has the members and state of ours.
            wait_until(lambda: self._state(self._kafka) == self._state(self._ours), "Kafka has taken what waits")
        self.compare({token: first} if first is not None else {})
        return token

    def _state(self, side):
        (group,) = side.ask(m.DescribeGroupsRequest([self.group]), 5).groups
        return group.group_state, len(group.members)

    def pass_time(self, seconds):
        """Lets time pass on both sides. What is due must not be near its end."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.01)
            self._ours.expire()
        self.compare({})

    def compare(self, of_kafka):
        """Answers that one side gives, the other gives too, and they are the same."""
        answers = {}
        for token in list(self.waiting):
            ours = self._ours.answer(token)
            theirs = of_kafka[token] if token in of_kafka else self._kafka.answer(token, 0 if ours is None else 10)
            if ours is None and theirs is None:
                continue
            assert theirs is not None, f"Kafka does not answer {token}, we do: {ours}"
            assert ours is not None, f"Kafka answers {token}, we do not: {theirs}"
            self.waiting.remove(token)
            if isinstance(ours, m.JoinGroupResponse) and ours.member_id not in self._ids["ours"].values():
                self._ids["ours"][token], self._ids["kafka"][token] = ours.member_id, theirs.member_id
            answers[token] = ours, theirs
        for token, (ours, theirs) in answers.items():
            answer, expected = self._plain(ours, "ours"), self._plain(theirs, "kafka")
            if self._is_chance(answer, expected):
                raise ChanceError
            assert answer == expected, f"{token}: we answer {answer}, Kafka {expected}"
            self.answered[token] = answer

    def _is_chance(self, ours, theirs):
        """Kafka takes any member for a leader that is gone, and any of the protocols with as many votes."""
        if not isinstance(ours, m.JoinGroupResponse) or ours.error_code != theirs.error_code:
            return False
        return (ours.leader, ours.protocol_name) != (theirs.leader, theirs.protocol_name)

    def _plain(self, response, side):
        """A response with names in place of ids, and its members in order."""
        names = {one: name for name, one in self._ids[side].items()}

        def name(member_id):
            # No client knows yet the id of a member whose join waits.
            return names.get(member_id, f"{member_id.split('-')[0]}-?" if "-" in member_id else member_id)

        def named(one):
            return one._replace(member_id=name(one.member_id))

        if isinstance(response, m.JoinGroupResponse):
            members = sorted(map(named, response.members))
            return named(response)._replace(leader=name(response.leader), members=members)
        if isinstance(response, m.LeaveGroupResponse):
            return response._replace(members=list(map(named, response.members)))
        if isinstance(response, m.DescribeGroupsResponse):
            (group,) = response.groups
            members = sorted(map(named, group.members))
            group = group._replace(members=members, authorized_operations=0)
            return response._replace(groups=[group])
        if isinstance(response, m.SyncGroupResponse):
            return response._replace(assignment=bytes(response.assignment))
        return _with_lists(response)


class ChanceError(Exception):
    """What follows is decided by the order of a hash table in Kafka."""


def _with_lists(value):
    """Arrays as lists, which those that were read are not."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_with_lists, value))
    return [_with_lists(one) for one in value] if isinstance(value, list | tuple) else value
