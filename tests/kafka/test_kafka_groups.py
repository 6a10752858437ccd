"""Our groups answer as Kafka's do: scripts drawn by chance, and what happens when time passes."""

import random

import pytest
from group_sides import TOPIC, BothGroups, ChanceError

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import ConsumerProtocolSubscription, JoinGroupResponse
from pyspark_log.kafka.schemas import message
from pyspark_log.kafka.wire import encode

SCRIPTS, STEPS = 20, 40


@pytest.fixture(scope="module")
def prepared(broker):
    """A broker that has the topic, and a coordinator."""
    broker.run("org.apache.kafka.tools.TopicCommand", "--create", "--topic", TOPIC)
    broker.prepare()
    return broker


def subscription(*topics):
    struct = ConsumerProtocolSubscription(topics=list(topics))
    written = encode(None, None, message("ConsumerProtocolSubscription").plan(1), struct)
    return b"\0\1" + b"".join(map(bytes, written))[4:]


class Process:
    """A client, and what it believes to be."""

    def __init__(self, instance):
        self.instance, self.member, self.generation, self.joined, self.token = instance, "", -1, None, None


class Script:
    """Requests drawn by chance, most of which make sense."""

    def __init__(self, broker, seed):
        self.chance = random.Random(seed)
        self.both = BothGroups(broker, f"script{seed}")
        self.processes = [Process(None), Process(None), Process(None), Process("i1"), Process("i2"), Process("i1")]
        self.topics = [(), (TOPIC,), ("other",)]

    def run(self):
        self.both.commit(9)  # makes the group on both sides
        for _ in range(STEPS):
            for process in self.processes:
                self.read(process)
            kinds = [self.join, self.sync, self.heartbeat, self.commit, self.leave, self.look, self.wrong]
            (kind,) = self.chance.choices(kinds, [24, 24, 4, 6, 2, 6, 5])
            kind(self.chance.choice(self.processes))

    def read(self, process):
        answer = self.both.answered.get(process.token)
        if answer is None:
            return
        process.token = None
        if isinstance(answer, JoinGroupResponse):
            if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                process.member = answer.member_id
            if answer.error_code == ErrorCode.NONE:
                process.joined, process.generation = answer, answer.generation_id
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            process.member = ""

    def join(self, process):
        if process.token is None:
            data = subscription(*self.chance.choices(self.topics, [8, 1, 1])[0])
            (names,) = self.chance.choices([["range"], ["range", "sticky"], ["sticky", "range"]], [2, 6, 1])
            protocols = [(name, data) for name in names]
            version = self.chance.choice([5, 6, 7, 8, 9] if process.instance else [0, 1, 3, 4, 6, 9])
            process.token = self.both.join(
                version, member=process.member, instance=process.instance, protocols=protocols
            )

    def sync(self, process):
        if process.token is None and process.joined is not None:
            given = {}
            if process.joined.leader == process.joined.member_id:
                given = {one.member_id: f"{index}".encode() for index, one in enumerate(process.joined.members)}
            names = "consumer", process.joined.protocol_name
            process.token = self.both.sync(
                self.chance.choice([3, 5]), process.member, process.generation, given, instance=process.instance,
                names=names,
            )  # fmt: skip

    def heartbeat(self, process):
        self.both.heartbeat(process.member, process.generation, process.instance)

    def commit(self, process):
        version, kind = self.chance.choice([7, 8, 9]), self.chance.random()
        if kind < 0.6:
            self.both.commit(version, process.generation, process.member, process.instance)
        elif kind < 0.8:
            self.both.commit(version)
        else:
            self.both.commit(version, self.chance.randrange(-1, 4), process.member)

    def leave(self, process):
        # Kafka forgets the waiting sync of a member that is removed.
        if process.token is None and all(one.token is None for one in self.processes if one.instance):
            instance = self.chance.choice(["i1", "i2"])
            self.chance.choice([
                lambda: self.both.leave((process.member, process.instance)),
                lambda: self.both.leave(("", instance), (process.member, None)),
                lambda: self.both.leave_alone(process.member),
            ])()  # fmt: skip

    def look(self, _):
        self.chance.choice([self.both.describe, lambda: self.both.describe(5), self.both.delete_offsets])()

    def wrong(self, process):
        names = [("consumer", "other"), ("other", "range"), ("consumer", None)]
        self.chance.choice([
            lambda: self.both.join(9, member="stranger"),
            lambda: self.both.join(3, protocols=[("other", b"")]),
            lambda: self.both.join(3, protocol_type="other"),
            lambda: self.both.join(9, protocols=[]),
            lambda: self.both.sync(5, process.member, process.generation, names=self.chance.choice(names)),
            lambda: self.both.sync(5, "stranger", 1),
            lambda: self.both.heartbeat("stranger", process.generation),
            lambda: self.both.heartbeat(process.member, process.generation, "i9"),
            self.both.delete,
        ])() if process.token is None else None  # fmt: skip


def test_scripts(prepared):
    """Some end early, where Kafka's choice is chance."""
    answers = chances = 0
    for seed in range(SCRIPTS):
        script = Script(prepared, seed)
        try:
            script.run()
        except ChanceError:
            chances += 1
        except AssertionError as error:
            raise AssertionError(f"script {seed}: {error}") from error
        finally:
            script.both.close()
        answers += len(script.both.answered)
    assert answers > SCRIPTS * STEPS // 2
    assert chances < SCRIPTS // 4


# ---- when time passes

# After how many ms a member is late. What is due in a test is so a second before or after it is looked at.
LATE = 2100


@pytest.fixture
def both(prepared, request):
    both = BothGroups(prepared, request.node.name)
    yield both
    both.close()


def stable(both, instances, rebalance=LATE):
    """A stable group; the name of its leader, those of the others, and its generation."""
    joins = [
        both.join(5 if one else 3, instance=one, rebalance=rebalance if index else 60_000)
        for index, one in enumerate(instances)
    ]
    if len(joins) > 1:  # those after the first wait for it to join again
        joins[0] = both.join(5, member=joins[0], instance=instances[0], rebalance=rebalance)
    answers = [both.answered[one] for one in joins]
    names, leader, generation = [one.member_id for one in answers], answers[0].leader, answers[0].generation_id
    for name, instance in sorted(zip(names, instances, strict=True), key=lambda one: one[0] != leader):
        both.sync(3, name, generation, {one: one.encode() for one in names if name == leader}, instance=instance)
    both.describe()
    return leader, [name for name in names if name != leader], generation


@pytest.mark.long
def test_members_that_do_not_join_in_time(both):
    """A dynamic one is removed, a static one when it has not synced either."""
    leader, (static, dynamic), generation = stable(both, ["i1", "i2", None])
    first = both.join(5, member=leader, instance="i1", rebalance=LATE)
    both.pass_time(3)
    assert both.answered[first].generation_id == generation + 1
    both.describe()
    both.heartbeat(static, generation, "i2")
    both.heartbeat(dynamic, generation)
    both.sync(3, leader, generation + 1, {leader: b"x", static: b"y"}, instance="i1")
    both.describe()
    both.pass_time(2.1)
    both.describe()
    both.heartbeat(static, generation + 1, "i2")
    both.heartbeat(leader, generation + 1, "i1")


@pytest.mark.long
def test_a_static_member_that_is_back_in_time(both):
    """With its id; Kafka still waits for the sync of the old id of a member that comes back without it."""
    leader, (static,), generation = stable(both, ["i1", "i2"])
    both.join(5, member=leader, instance="i1", rebalance=LATE)
    both.pass_time(3)
    both.sync(3, leader, generation + 1, {leader: b"x", static: b"y"}, instance="i1")
    both.join(9, member=static, instance="i2", rebalance=LATE)
    both.sync(5, static, generation + 1, instance="i2")
    both.pass_time(3)
    both.describe()
    both.commit(9, generation + 1, static, "i2")


@pytest.mark.long
def test_a_leader_that_does_not_sync_in_time(both):
    leader, (other,), generation = stable(both, ["i1", None])
    both.join(5, member=leader, instance="i1", rebalance=LATE)
    both.join(3, member=other, rebalance=LATE)
    waiting = both.sync(3, other, generation + 1)
    both.pass_time(3)
    assert both.answered[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    both.describe()
    both.heartbeat(leader, generation + 1, "i1")
    both.join(3, member=other, rebalance=LATE)


@pytest.mark.long
def test_a_leader_that_does_not_join_in_time(both):
    leader, (other,), _ = stable(both, ["i1", "i2"])
    changed = [("range", subscription("changed"))]
    waiting = both.join(9, member=other, instance="i2", rebalance=LATE, protocols=changed)
    both.pass_time(3)
    assert both.answered[waiting].leader == other
    both.join(9, member=leader, instance="i1", rebalance=LATE)
    both.describe()


@pytest.mark.long
def test_a_rebalance_that_no_static_member_joins(both):
    leader, (other,), generation = stable(both, ["i1", "i2"])
    dynamic = both.join(3, rebalance=LATE)
    both.leave((dynamic, None))
    both.pass_time(3)
    both.describe()
    both.heartbeat(leader, generation, "i1")
    both.join(9, member=other, instance="i2", rebalance=LATE)
    both.pass_time(3)
    both.describe()


def test_groups_that_are_deleted(both):
    both.delete()
    both.commit(9, 3, "stranger")
    both.commit(8, 3, "stranger")
    both.describe()
    both.commit(9)
    both.describe()
    both.delete()
    both.describe()
    leader, _, generation = stable(both, [None])
    both.delete()
    both.commit(9)
    both.leave((leader, None))
    both.commit(9, generation, leader)
    both.commit(9)
    both.delete()
    both.delete_offsets()


def test_groups_that_are_not_of_consumers(both):
    token = both.join(3, protocol_type="connect")
    both.delete_offsets()
    both.describe()
    both.leave((token, None))
    both.delete_offsets()
    both.join(3, protocols=[("range", b"")])
    both.delete_offsets()
