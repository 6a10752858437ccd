"""What must hold of a group at all times, seen from its clients and from its log."""

from collections import Counter

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.coordinator.group import State

GROUP = "g"
PARTITIONS = 7
# A join may wait for two members of the slowest kind after one another, a sync for the log too, in ms.
LONGEST_WAIT = 60_000


class Rules:
    """Observes what is answered. Each rule fails the world that breaks it.

    Attributes:
        assignments: by generation, the number of the assignment that its members got. It is one, whatever fails.
        joined: by generation, the members that were let into it.
        fenced: member ids of static members that have a newer process.
    """

    def __init__(self, world):
        self.world = world
        self.numbers = 0
        self.counts = Counter()
        self.forget_group()
        self.is_deletion_open = False

    def forget_group(self):
        """It is deleted: another group begins, unless the server ends before that is in the log."""
        self.is_deletion_open = True
        self.assignments, self.joined, self.fenced, self.instances = {}, {}, set(), {}
        self.stored_generation = 0
        self.generation = (self.world.life, 0)

    # ---- assignments

    def new_assignment(self, joined):
        """What a leader assigns: each member's partitions, with the number of this assignment."""
        self.numbers += 1
        members = sorted(joined.members)
        return [
            (one.member_id, self.write(one, [p for p in range(PARTITIONS) if p % len(members) == index]))
            for index, one in enumerate(members)
        ]

    def write(self, member, partitions):
        name = member.group_instance_id or member.member_id
        return f"{self.numbers}|{name}|{','.join(map(str, partitions))}".encode()

    def assigned(self, client, assignment):
        """The partitions that a client got. They must be its own."""
        _, name, partitions = assignment.decode().split("|")
        if name not in (client.instance, client.member_id):
            self.world.fail(f"{client.member_id} got the partitions of {name}")
        return {int(one) for one in partitions.split(",") if one}

    # ---- answers

    def check_new_generation(self, responses):
        """The leader has joined, and so have all members but static ones that may be starting again."""
        for one in responses:
            expected = {one.leader, *(member.member_id for member in one.members if member.group_instance_id is None)}
            if absent := expected - self.joined[one.generation_id]:
                self.world.fail(f"{absent} have not joined generation {one.generation_id}: {one}")

    def check_answer(self, token, response):
        if token.kind == "join" and response.error_code == ErrorCode.NONE:
            self._check_joined(response)
        elif token.kind == "sync" and response.error_code == ErrorCode.NONE:
            self._check_synced(response)

    def _check_joined(self, response):
        generation = (self.world.life, response.generation_id)
        if generation < self.generation:
            self.world.fail(f"generation {response.generation_id} after {self.generation}")
        if response.generation_id < max(self.assignments, default=0):
            self.world.fail(f"generation {response.generation_id} after a later one was assigned")
        self.counts["generations"] += generation > self.generation
        self.generation = generation
        self.joined.setdefault(response.generation_id, set()).add(response.member_id)
        instance = self._instance_of(response.member_id)
        if instance is not None:
            self.fenced |= self.instances.setdefault(instance, set()) - {response.member_id}
            self.fenced.discard(response.member_id)
            self.instances[instance].add(response.member_id)

    def _instance_of(self, member_id):
        members = self.world.coordinator.describe(GROUP, 6).members
        return next((one.group_instance_id for one in members if one.member_id == member_id), None)

    def _check_synced(self, response):
        group = self.world.coordinator.describe(GROUP, 6)
        generation = self.world.coordinator._groups[GROUP].generation
        if not response.assignment:
            self.world.fail(f"no assignment in generation {generation} of {group}")
        number = int(response.assignment.split(b"|")[0])
        if self.assignments.setdefault(generation, number) != number:
            self.world.fail(f"assignments {self.assignments[generation]} and {number} in generation {generation}")
        if generation < max(self.assignments):
            self.world.fail(f"generation {generation} is assigned after {max(self.assignments)}")
        durable = self.world.record
        if durable is None or durable.generation != generation:
            self.world.fail(f"generation {generation} is assigned, but not stored")
        if response.assignment not in {one.assignment for one in durable.members}:
            self.world.fail("what is assigned is not stored")
        self.counts["syncs"] += 1

    # ---- commits and records

    def check_commit(self, generation, member_id, error):
        """A commit of an old generation, or of a stranger, is refused."""
        if error:
            self.counts["refused"] += 1
            return
        self.counts["commits"] += 1
        group = self.world.coordinator.describe(GROUP, 6)
        if generation < 0:
            if group.members:
                self.world.fail("a commit without a member is accepted in a group that has some")
            return
        if generation < max(self.assignments, default=0):
            self.world.fail(f"a commit of generation {generation} after {max(self.assignments)} is assigned")
        if member_id not in self.joined.get(generation, ()):
            self.world.fail(f"a commit of {member_id}, which is not in generation {generation}")
        if group.group_state == State.COMPLETING.value:
            self.world.fail("a commit is accepted while partitions are being assigned")
        if member_id in self.fenced:
            self.world.fail(f"a commit of {member_id}, which has a newer process")

    def check_loaded(self, record):
        """The server reads the log. What was not written is undone: the end of a group, or of a static process."""
        self.fenced -= {one.member_id for one in record.members} if record else set()
        if self.is_deletion_open and record is not None:
            self.forget_group()
            self.joined[record.generation] = {one.member_id for one in record.members}
        self.generation = (self.world.life, record.generation if record else 0)
        self.is_deletion_open = False

    def check_record(self, record):
        if record is None:
            self.is_deletion_open = False
            self.stored_generation = 0
            return
        if record.generation < self.stored_generation:
            self.world.fail(f"generation {record.generation} is stored after {self.stored_generation}")
        self.stored_generation = record.generation

    # ---- states

    def check_waiting(self):
        for token in self.world.waiting:
            if self.world.now - token.since > LONGEST_WAIT:
                self.world.fail(f"a {token.kind} waits since {token.since}")

    def check_group(self):
        """What the group has counted is so, and each member has a deadline unless it waits for one of the group's."""
        group = self.world.coordinator._groups.get(GROUP)
        if group is None:
            return
        deadlines = self.world.coordinator._timers._deadlines
        members = list(group.members.values())
        faults = {
            "joined": group.joined != sum(one.join is not None for one in members),
            "static": group.static != {one.instance_id: one.member_id for one in members if one.instance_id},
            "leader": (group.leader in group.members) != bool(members),
            "unsynced": not group.unsynced <= set(members),
            "protocol": bool(members) and group.choose_protocol() is None,
            "session": any(
                (group, one) not in deadlines and one.join is None and one.sync is None for one in members
            ),
            "stale": any(isinstance(one, str) and one not in ("join", "sync", *group.pending)
                         for its, one in deadlines if its is group),
            "pending": any((group, one) not in deadlines for one in group.pending),
            "empty": bool(members) == (group.state is State.EMPTY) and group.state is not State.PREPARING,
            "preparing": group.state is State.PREPARING and (group, "join") not in deadlines,
            "completing": group.state is State.COMPLETING
            and group.storing is None and (group, "sync") not in deadlines,
            "log": group.state is State.STABLE and not self.world.unwritten
            and sorted(one.assignment for one in members)
            != sorted(one.assignment for one in self.world.record.members),
            "stable": group.state is State.STABLE and bool(group.unsynced) and (group, "sync") not in deadlines,
        }  # fmt: skip
        if any(faults.values()):
            self.world.fail(f"{[name for name, fault in faults.items() if fault]} of {vars(group)}")

    def check_settled(self):
        """The clients that are left share the partitions, each of which one of them owns."""
        clients, group = self.world.clients, self.world.coordinator.describe(GROUP, 6)
        if self.world.waiting:
            self.world.fail("requests wait in a group that has settled")
        if not clients:
            self.check_ended()
            return
        owned = sorted(partition for client in clients for partition in client.owned or ())
        if owned != list(range(PARTITIONS)) or group.group_state != "Stable":
            self.world.fail(f"settled as {owned} of {[vars(one) for one in clients]}, {group}")
        if {one.member_id for one in group.members} != {client.member_id for client in clients}:
            self.world.fail(f"members that are no clients: {group.members}")
        self.counts["settled"] += 1

    def check_ended(self):
        group = self.world.coordinator._groups.get(GROUP)
        if self.world.waiting or (group is not None and (group.state is not State.EMPTY or group.pending)):
            self.world.fail(f"a group without clients is {vars(group) if group else None}")
        if self.world.coordinator.next_deadline() is not None:
            self.world.fail("a group without clients has deadlines")
