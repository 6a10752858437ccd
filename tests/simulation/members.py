"""Members of groups in the simulation, of both protocols, which commit offsets of the partitions that they have."""

import uuid

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from tests import requests as r
from tests.simulation.clients import PARTITIONS, TOPIC, Client, OverError

# The group continues without the member, or in another generation.
_REMOVED = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_MEMBER_EPOCH}
_REBALANCES = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH}


class Member(Client):
    """Joins its group, works for a while, and dies, leaves, or hangs.

    Attributes:
        group: its name, and which protocol it has; rest: how long it waits between heartbeats.
        member: its id; "": it has none.
        generation: or epoch; partitions: those that it has in it.
    """

    group, rest = "classic", 8

    def work(self):
        self.member, self.generation, self.partitions = "", 0, []
        self.pause(self.house.pace)
        while not self.house.is_over:
            self.join()
            while not self.house.is_over and self.is_current():
                for partition in self.partitions:
                    if not self._commit(partition):
                        break
                self.pause(self.rest * self.house.pace)
                self._go_wrong()

    def _go_wrong(self):
        fate = self.chance.random()
        if fate < 0.02:
            self.leave()
        if fate < 0.05:
            raise OverError  # It dies, and another one comes.
        if fate < 0.07:
            self.world.sleep(self.chance.uniform(1, 90))

    def checked(self, request, version, code_of=lambda answer: answer.error_code, removed=_REMOVED):
        """The answer, and whether the member is in its group, and the group at rest."""
        answer, code, _ = self.ask(request, version, code_of)
        if code in removed:
            self.history.counts[f"members removed from {self.group}"] += 1
            raise OverError
        if code and code not in _REBALANCES | {ErrorCode.MEMBER_ID_REQUIRED}:
            self.refused(type(request).__name__, code)
        return answer, not code

    def _commit(self, partition):
        """Whether the member may commit offsets still."""
        began, place = self.world.now, f"{self.group}/{partition}"
        offset = self.house.next_offset(place)
        request = r.commit(self.group, TOPIC, offset, partition, generation=self.generation, member=self.member)
        # A group without members and offsets is gone, as after a night of its coordinator.
        removed = _REMOVED | {ErrorCode.GROUP_ID_NOT_FOUND}
        _, is_current = self.checked(request, 9, lambda answer: answer.topics[0].partitions[0].error_code, removed)
        if is_current:
            self.history.committed(place, offset, self.answered_by)
            self.history.commit_of(place, self.generation, began)
        return is_current

    def join(self):
        of = m.JoinGroupRequest
        # What it subscribes to, and gets, is for members alone: a byte a partition.
        request = of(
            self.group, 10_000, 20_000, self.member, None, "simulated", [of.JoinGroupRequestProtocol("a", b"")]
        )
        is_in = False
        while not is_in:
            answer, is_in = self.checked(request, 5)
            # The first time it gets its id, with which it is to ask.
            request = request._replace(member_id=answer.member_id)
        self.member, self.generation = answer.member_id, answer.generation_id
        of = m.SyncGroupRequest
        members = sorted(member.member_id for member in answer.members)
        shares = [
            of.SyncGroupRequestAssignment(member, bytes(range(number, PARTITIONS, len(members))))
            for number, member in enumerate(members)
        ]
        answer, is_in = self.checked(of(self.group, self.generation, self.member, assignments=shares), 3)
        self.partitions = list(answer.assignment) if is_in else []

    def is_current(self):
        return self.checked(m.HeartbeatRequest(self.group, self.generation, self.member), 3)[1]

    def leave(self):
        leaving = [m.LeaveGroupRequest.MemberIdentity(self.member)]
        self.checked(m.LeaveGroupRequest(self.group, members=leaving), 4)


class ModernMember(Member):
    """The same with KIP-848: the server assigns, and the member says what it has."""

    group, rest = "modern", 2

    def join(self):
        self.member = self.member or str(uuid.UUID(int=self.chance.getrandbits(128)))
        self._beat(self.generation, subscribed=[TOPIC])

    def is_current(self):
        self._beat(self.generation)
        return True

    def leave(self):
        self._beat(-1)

    def _beat(self, epoch, subscribed=None):
        of = m.ConsumerGroupHeartbeatRequest
        known = [] if epoch == 0 else None
        while True:
            request = of(
                self.group, self.member, epoch, rebalance_timeout_ms=20_000, subscribed_topic_names=subscribed,
                topic_partitions=known,
            )  # fmt: skip
            answer, _ = self.checked(request, 1)
            self.generation = epoch = answer.member_epoch
            if answer.assignment is None or epoch < 0:
                return
            # Those that it loses it gives back by saying what it has.
            parts = answer.assignment.topic_partitions
            self.partitions = sorted(number for part in parts for number in part.partitions)
            known = [of.TopicPartitions(part.topic_id, part.partitions) for part in parts]
            subscribed = None
