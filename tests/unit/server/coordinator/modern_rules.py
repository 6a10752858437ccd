"""What must hold of a group of KIP-848 at all times, seen from its clients and from its log."""

from collections import Counter

from pyspark_log.group_records import Kind, MemberState, RecordKey
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import ConsumerGroupHeartbeatResponse

GROUP = "g"
# A heartbeat may wait for some writes, in ms.
LONGEST_WAIT = 60_000


class ModernRules:
    """Observes what is answered. Each rule fails the world that breaks it."""

    def __init__(self, world):
        self.world, self.counts = world, Counter()

    @property
    def group(self):
        return self.world.coordinator._modern.get(GROUP)

    # ---- answers

    def check_answer(self, response):
        """What is answered is in the log, and no other member has a partition that is given."""
        if not isinstance(response, ConsumerGroupHeartbeatResponse):
            return
        self.counts[ErrorCode(response.error_code).name] += 1
        members = self.group.members if self.group else {}
        if response.error_code or response.member_epoch < 0 or response.member_id not in members:
            return  # or it was removed while its answer waited
        durable = self.world.records.get(RecordKey(Kind.CURRENT, response.member_id))
        if durable is not None and durable.epoch < 0:
            return  # it has left meanwhile
        if durable is None or durable.epoch < response.member_epoch:
            self.world.fail(f"{response} is answered, but the log has {durable}")
        if response.assignment is not None:
            given = {(one.topic_id, p) for one in response.assignment.topic_partitions for p in one.partitions}
            owned = durable.assigned, durable.revoking
            stored = {(topic, p) for one in owned for topic, numbers in one.items() for p in numbers}
            if durable.epoch == response.member_epoch and not given <= stored:
                self.world.fail(f"{given} is given, but the log has {stored}")
            self.check_owners(response.member_id, given)

    def check_owners(self, member_id, given):
        members = self.group.members if self.group else {}
        for client in self.world.clients:
            has = client.owned | (client.next or set())
            if client.member_id != member_id and client.member_id in members and given & has:
                self.world.fail(f"{member_id} is given {given & has}, which {client.member_id} has")

    def check_epoch(self, client, response):
        """A member's epoch never goes back."""
        if response.member_epoch < client.epoch:
            self.world.fail(f"{client.member_id} had epoch {client.epoch}, and gets {response.member_epoch}")

    def check_commit(self, client, at, error):
        """An accepted commit is of the only member that has the partition."""
        self.counts["refused" if error else "commits"] += 1
        members = self.group.members if self.group else {}
        having = [one.member_id for one in self.world.clients if one is not client and at in one.owned]
        others = [one for one in having if one in members]
        if not error and others:
            self.world.fail(f"{client.member_id} commits {at}, which {others} have")
        if error and self.world.calm:
            self.world.fail(f"{client.member_id} may not commit {at}: {error!r}")

    # ---- states

    def check_waiting(self):
        for since, _ in self.world.waiting.values():
            if self.world.now - since > LONGEST_WAIT:
                self.world.fail(f"a heartbeat waits since {since}")

    def check_group(self):
        """What the group has counted is so, and each member has its deadlines."""
        group = self.group
        if group is None:
            return
        deadlines = self.world.coordinator._timers._deadlines
        places = [
            (topic, p) for one in group.current.values() for owned in (one.assigned, one.revoking)
            for topic, numbers in owned.items() for p in numbers
        ]  # fmt: skip
        revoking = {one for one, current in group.current.items() if current.state is MemberState.UNREVOKED}
        timed = {key[1] for owner, key in deadlines if owner is group and isinstance(key, tuple)}
        sessions = {key for owner, key in deadlines if owner is group and isinstance(key, str)}
        statics = {one.instance_id: name for name, one in group.members.items() if one.instance_id}
        faults = {
            "twice": len(places) != len(set(places)),
            "owners": set(group.owners) != set(places),
            "strangers": not set(group.current) | set(group.target) <= set(group.members),
            "sessions": not set(group.members) <= sessions,
            "revocations": not revoking - {one for one in revoking if group.current[one].epoch < 0} <= timed,
            "static": group.static != statics,
            "regexes": group.topics is not None
            and set(group.regexes) != {one.regex for one in group.members.values() if one.regex},
            "epoch": group.target_epoch.epoch > group.epoch,
        }
        if any(faults.values()):
            self.world.fail(f"{[name for name, fault in faults.items() if fault]} of {vars(group)}")

    def check_settled(self):
        """The clients that are left share the partitions that they read, each of which one of them has."""
        world, clients, group = self.world, self.world.clients, self.group
        if not clients:
            self.check_ended()
            return
        known = world.topics.topics
        if len(clients) > world.coordinator._settings.modern_max_size:
            return  # some are refused, for ever
        read = {name for one in group.members.values() for name in group.topics_of(one) if name in known}
        expected = sorted((known[name].topic_id, p) for name in read for p in range(known[name].partitions))
        owned = sorted(at for client in clients for at in client.owned)
        if owned != expected or group.state.value != "Stable":
            world.fail(f"settled as {owned}, not {expected}, in {group.state} of {group.current}")
        if set(group.members) != {client.member_id for client in clients}:
            world.fail(f"members that are no clients: {set(group.members)}")
        if group.records != world.records:
            world.fail(f"the log has {world.records}, the group is {group.records}")
        for client in clients:
            client.commit()
        self.counts["settled"] += 1

    def check_ended(self):
        if self.group is not None and self.group.members:
            self.world.fail(f"a group without clients is {vars(self.group)}")
        if self.world.coordinator.next_deadline() is not None:
            self.world.fail("a group without clients has deadlines")
