"""A coordinator with a clock, a log and clients that tests move by hand."""

from itertools import count

from pyspark_log.kafka import encode_response
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from pyspark_log.kafka.schemas import message
from pyspark_log.kafka.wire import encode
from pyspark_log.server.coordinator import Client, Coordinator, Settings

GROUP = "g"
RANGE = (("range", b"r"),)
SESSION, REBALANCE = 10_000, 60_000


class Call:
    """A request that waits. `answer`: its response, when it is there."""

    def __init__(self, version):
        self.version, self.answer = version, None

    @property
    def error(self):
        return None if self.answer is None else ErrorCode(self.answer.error_code)


class Rig:
    """Answers are written as bytes in the version of their request, so that they are known to fit into it.

    Attributes:
        coordinator: which `restart` replaces.
        now: in ms.
        log: the stored record of each group.
        unwritten: what `write` has yet to write. With `hold` nothing is written before `write` is called.
    """

    def __init__(self, **settings):
        self.settings = Settings(**settings)
        self.now, self.log, self.unwritten, self.hold = 1_000, {}, [], False
        self._numbers = count(1)
        self.coordinator = self._new_coordinator()

    def _new_coordinator(self):
        return Coordinator(self.settings, lambda: str(next(self._numbers)))

    # ---- requests

    def join(
        self, member_id="", version=9, *, instance=None, protocols=RANGE, session=SESSION, rebalance=REBALANCE,
        group=GROUP, protocol_type="consumer", client="c",
    ):  # fmt: skip
        call = Call(version)
        structs = [JoinGroupRequest.JoinGroupRequestProtocol(*one) for one in protocols]
        request = JoinGroupRequest(group, session, rebalance, member_id, instance, protocol_type, structs)
        self.take(self.coordinator.join(call, request, version, Client(client, "/127.0.0.1"), self.now))
        return call

    def sync(
        self, member_id, generation, assignments=(), version=5, *, instance=None, names=("consumer", "range"),
        group=GROUP,
    ):  # fmt: skip
        call = Call(version)
        structs = [SyncGroupRequest.SyncGroupRequestAssignment(*one) for one in dict(assignments).items()]
        request = SyncGroupRequest(group, generation, member_id, instance, *names, structs)
        self.take(self.coordinator.sync(call, request, version))
        return call

    def heartbeat(self, member_id, generation, *, instance=None, group=GROUP):
        request = HeartbeatRequest(group, generation, member_id, instance)
        return ErrorCode(self.coordinator.heartbeat(request, self.now).error_code)

    def leave(self, *members, version=5, group=GROUP):
        """Members are pairs of member id and instance id, or member ids."""
        call = Call(version)
        pairs = [(one, None) if isinstance(one, str) else one for one in members]
        named = [LeaveGroupRequest.MemberIdentity(*one) for one in pairs]
        request = LeaveGroupRequest(group, members=named) if version >= 3 else LeaveGroupRequest(group, *members)
        self.take(self.coordinator.leave(call, request, version, self.now))
        return call.answer

    def commit(self, generation=-1, member_id="", instance=None, *, version=9, group=GROUP, **how):
        return self.coordinator.check_commit(group, generation, member_id, instance, version, self.now, **how)

    def describe(self, version=6, group=GROUP):
        return self.coordinator.describe(group, version)

    @property
    def state(self):
        return self.describe().group_state

    # ---- what follows

    def take(self, effects):
        for call, response in effects.answers:
            assert call.answer is None, "answered twice"
            call.answer = response
            if not isinstance(response, ErrorCode):
                encode_response(response, call.version, 1)
        self.unwritten += effects.stores
        if not self.hold:
            self.write()

    def write(self, error=ErrorCode.NONE):
        """Writes what was to be stored, or fails to."""
        while self.unwritten:
            store = self.unwritten.pop(0)
            if not error:
                self.log[store.group_id] = store.record
            self.take(self.coordinator.stored(store.ticket, error, self.now))

    def pass_time(self, ms):
        """Lets time pass, and what is due happen when it is due."""
        end = self.now + ms
        while (deadline := self.coordinator.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.take(self.coordinator.expire(self.now))
        self.now = end

    def restart(self):
        """The coordinator dies, and another reads the log."""
        self.coordinator, self.unwritten = self._new_coordinator(), []
        for group, record in self.log.items():
            if record is not None:
                self.take(self.coordinator.load(group, record, self.now))

    # ---- whole groups

    def new_id(self, **how):
        """The id that a client is given for its first join."""
        call = self.join(**how)
        assert call.error is ErrorCode.MEMBER_ID_REQUIRED
        return call.answer.member_id

    def start(self, size, **how):
        """A stable group of dynamic members, of generation 1; their ids, that of the leader first."""
        members = [self.new_id(**how) for _ in range(size)]
        calls = [self.join(one, **how) for one in members]
        self.pass_time(self.settings.initial_rebalance_delay * 2)
        self.assign(calls, group=how.get("group", GROUP))
        return members

    def start_static(self, *instances, **how):
        """A stable group of static members, of generation 1; their member ids, that of the leader first."""
        calls = [self.join(instance=one, **how) for one in instances]
        self.pass_time(self.settings.initial_rebalance_delay * 2)
        self.assign(calls, instances)
        return [call.answer.member_id for call in calls]

    def assign(self, calls, instances=None, group=GROUP):
        """Has members sync whose joins are answered; each is assigned its own id."""
        answers = [call.answer for call in calls]
        assert {one.error_code for one in answers} == {ErrorCode.NONE}
        assignments = {one.member_id: one.member_id.encode() for one in answers}
        for answer, instance in zip(answers, instances or [None] * len(answers), strict=True):
            given = assignments if answer.leader == answer.member_id else {}
            names = answer.protocol_type, answer.protocol_name
            call = self.sync(answer.member_id, answer.generation_id, given, instance=instance, names=names, group=group)
            assert call.error in (None, ErrorCode.NONE)


def subscription(*topics, version=1):
    """What a consumer says that it reads, as its client writes it."""
    made = ConsumerProtocolSubscription(topics=list(topics))
    written = b"".join(encode(None, None, message("ConsumerProtocolSubscription").plan(version), made))
    return version.to_bytes(2, "big") + written[4:]  # without the length of a frame
