"""Our groups of KIP-848 answer as Kafka's do: rules one by one, and scripts drawn by chance."""

import random
import re
import time
from dataclasses import replace

import pytest
from group_sides import KafkaGroups
from modern_sides import BothSides, make_topics

from pyspark_log import Store
from pyspark_log.group_records import GroupEpoch, Target, TargetEpoch
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from pyspark_log.storage.groups.log.modern_group import decoded
from pyspark_log.storage.groups.log.modern_records import decode_key, decode_value, encode_key, encode_value
from tests.waiting import PATIENCE, wait_until

SCRIPTS, STEPS = 50, 80
# A hash table of Java's has these in their order, and so gives them out as we do.
MEMBERS = "abcdef"


@pytest.fixture(scope="module")
def topics(broker):
    """Three topics of a broker that coordinates groups."""
    broker.prepare()
    made = make_topics(KafkaGroups(broker), [4, 3, 1])
    # The coordinator may see them a little later.
    probe = BothSides(broker, made, "probe")
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            probe.enter("p", made)
            break
        except AssertionError:
            assert time.monotonic() < deadline
            probe = BothSides(broker, made, f"probe{time.monotonic()}")
    return made


@pytest.fixture
def both(broker, topics, request):
    both = BothSides(broker, topics, f"modern-{request.node.name}")
    yield both
    both.close()


def has(answer):
    return {bytes(one.topic_id): set(one.partitions) for one in answer.assignment.topic_partitions}


def test_partitions_move(both):
    one, two, three = both.topics
    owned = has(both.enter("a", [one, two]))
    both.look()
    both.enter("b", [one, two])
    both.look()
    kept = has(both.beat("a", 2, owned=owned))
    both.look()
    both.beat("b", 3, owned={})
    both.beat("a", 2, owned=owned)
    both.beat("a", 2)
    both.beat("a", 2, owned=kept)
    both.look()
    both.beat("b", 3, owned={})
    both.look()
    both.beat("b", 3, names=[three], owned={})
    both.look()
    both.beat("a", -1)
    both.look()
    both.beat("b", 4, owned={})
    both.beat("b", -1)
    both.look()
    both.delete()
    both.look()


def test_first_heartbeats(both):
    names = list(both.topics)
    both.beat("a", 0, names=names, owned={})
    both.beat("a", 0, names=names, rebalance=1)
    both.beat("a", 0, owned={}, rebalance=1)
    both.beat("a", 0, names=names, owned={bytes(16): [1]}, rebalance=1)
    both.beat("", 0, names=names, owned={}, rebalance=1)
    both.beat("", 1, version=0)
    both.beat("", -2, version=0, instance="i")
    both.beat("a", -2)
    both.beat("a", -3)
    both.beat("a", 2)
    both.beat("a", 0, names=names, owned={}, rebalance=1, instance="")
    both.enter("a", names, assignor="sticky")
    both.enter("a", names, assignor="range")
    both.look()
    both.beat("a", 0, names=[], owned={}, rebalance=60_000)
    both.look()
    both.enter("b", ["unknown"])
    both.enter("c", [])
    both.look()


def test_a_first_member_that_reads_nothing(both):
    both.enter("a", [])
    both.look()
    both.beat("a", 0, owned={})
    both.enter("a", list(both.topics))
    both.look()


def test_epochs(both):
    names = list(both.topics)
    owned = has(both.enter("a", names))
    both.enter("b", names)
    both.beat("a", 7, owned={})
    both.beat("b", 2, owned={})
    kept = has(both.beat("a", 2, owned=owned))
    both.beat("a", 2, owned=kept)
    both.beat("a", 2, owned=kept)
    both.beat("a", 2, owned=owned)
    both.beat("a", 2)
    both.beat("b", 0, owned={})
    both.enter("b", names)
    both.enter("a", names)
    both.look()
    both.old_requests("a", 3)
    both.look()


def test_static_members(both):
    names = list(both.topics)
    both.enter("a", names, instance="i")
    both.enter("b", names, instance="i")
    both.enter("a", names, instance="i")
    both.beat("b", 2, instance="i")
    both.beat("b", -1, instance="i")
    both.beat("a", 2, instance="j")
    both.beat("a", -2, instance="i")
    both.look()
    both.beat("a", 2, instance="i")
    both.enter("b", names, instance="i")
    both.look()
    both.beat("a", 2, instance="i")
    both.beat("a", 2)
    both.beat("b", -2, instance="i")
    both.enter("b", names[:1], instance="i")
    both.look()
    both.remove_instance("j")
    both.remove_instance("i")
    both.look()


def test_offsets(both):
    one, two, _ = names = list(both.topics)
    both.commit(9, "", -1, one, 0)
    owned = has(both.enter("a", names))
    both.look()
    both.commit(9, "", -1, one, 0)
    both.commit(8, "a", 2, one, 0)
    both.enter("b", names)
    kept = has(both.beat("a", 2, owned=owned))
    both.beat("a", 2, owned=kept)
    for number in range(4):
        for version in (9, 10):
            for epoch in (0, 1, 2, 3, 4):
                both.commit(version, "a", epoch, one, number)
    both.beat("b", 3, owned={})
    both.commit(9, "c", 1, one, 0)
    for member, epoch in ((None, -1), ("a", 3), ("a", 2), ("a", -1), ("c", 2), ("", 2)):
        both.fetch(member, epoch)
    both.delete_offsets(two)
    both.delete()
    both.beat("a", -1)
    both.beat("b", -1)
    both.delete_offsets(two)
    both.fetch("a", 2)
    both.commit(9, "", -1, one, 0)
    both.commit(9, "a", 3, one, 0)
    both.delete()


def test_a_member_that_does_not_give_up_in_time(both):
    names = list(both.topics)
    owned = has(both.enter("a", names, rebalance=1200))
    both.enter("b", names)
    both.beat("a", 2, owned=owned)
    members = ConsumerGroupDescribeRequest([both.group])
    for side in (both.kafka, both.ours):
        wait_until(lambda side=side: len(side.ask(members, 1).groups[0].members) == 1, "a is removed")
    both.look()
    both.beat("a", 2, owned=owned)
    both.beat("b", 3, owned={})


def test_groups_that_change_their_kind(both):
    one, *_ = names = list(both.topics)
    both.commit(9, "", -1, one, 0)
    both.enter("a", names)
    both.look()
    both.beat("a", -1)
    both.look()
    ids = both.join(9)
    assert both.join(9, ids) == ids
    both.remove(ids)
    both.enter("a", names)
    both.look()
    both.beat("a", -1)
    both.remove(both.join(3))
    both.look()
    both.delete()
    both.look()


def test_regular_expressions(both):
    """Kafka matches them beside, so its member gets the topics with a later heartbeat."""
    one, two, _ = both.topics
    both.ours.topics = replace(both.ours.topics, matching=lambda text: [one, two] if _is_regex(text) else ())
    both.beat("a", 0, names=[], owned={}, rebalance=60_000, regex="(")
    both.look()
    first = ConsumerGroupHeartbeatRequest(both.group, "a", 0, None, None, 60_000, [], f"{one}|{two}", None, [])
    ours, theirs = both.ours.ask(first, 1), both.kafka.ask(first, 1)
    deadline = time.monotonic() + PATIENCE
    while not theirs.assignment or not theirs.assignment.topic_partitions:
        assert time.monotonic() < deadline
        theirs = both.kafka.ask(first._replace(member_epoch=theirs.member_epoch), 1)
    assert has(ours) == has(theirs)
    found = [
        side.ask(ConsumerGroupDescribeRequest([both.group]), 1).groups[0].members[0].subscribed_topic_regex
        for side in (both.kafka, both.ours)
    ]
    assert found == [f"{one}|{two}"] * 2


def _is_regex(text):
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(str(error)) from error
    return True


# ---- scripts


class Process:
    """A client: what it believes to be and to have."""

    def __init__(self, member, instance):
        self.member, self.instance, self.epoch, self.owned = member, instance, 0, {}


class Script:
    """Requests drawn by chance, most of which make sense."""

    def __init__(self, both, seed):
        self.chance, self.both = random.Random(seed), both
        self.names = list(both.topics)
        self.alike = self.chance.random() < 0.5
        # Of two that are preferred by as many members Kafka takes any.
        self.assignors = [None, self.chance.choice(["uniform", "range"])]
        instances = {"e": "i1", "f": "i2"}
        self.processes = [Process(one, instances.get(one)) for one in MEMBERS]
        self.processes.append(Process("g", "i1"))

    def run(self):
        kinds = [self.enter, self.beat, self.full, self.leave, self.away, self.change, self.commit, self.fetch,
                 self.look, self.wrong, self.administer]  # fmt: skip
        for _ in range(STEPS):
            process = self.chance.choice(self.processes)
            (kind,) = self.chance.choices(kinds, [10, 40, 8, 3, 3, 3, 10, 3, 8, 6, 3])
            kind(process)

    def topics(self):
        if self.alike:
            return self.names
        return self.chance.sample([*self.names, "unknown"], self.chance.randrange(5))

    def read(self, process, answer):
        if answer.error_code:
            if answer.error_code != ErrorCode.INVALID_REQUEST:
                process.epoch, process.owned = 0, {}
            return
        process.epoch = answer.member_epoch
        # A client may be slow in giving partitions up, and say so.
        if answer.assignment is not None:
            process.next = has(answer)
            if self.chance.random() < 0.7:
                process.owned = process.next

    def enter(self, process):
        assignor = self.chance.choice(self.assignors)
        answer = self.both.enter(process.member, self.topics(), instance=process.instance, assignor=assignor)
        self.read(process, answer)

    def beat(self, process):
        if process.epoch == 0:
            self.enter(process)
            return
        owned = self.chance.choice([None, process.owned, process.owned, process.owned])
        self.read(process, self.both.beat(process.member, process.epoch, owned=owned, instance=process.instance))
        if self.chance.random() < 0.5:
            process.owned = getattr(process, "next", process.owned)

    def full(self, process):
        answer = self.both.beat(
            process.member, process.epoch, names=self.topics(), owned=process.owned if process.epoch else {},
            rebalance=500_000, instance=process.instance,
        )  # fmt: skip
        self.read(process, answer)

    def leave(self, process):
        self.both.beat(process.member, -1, instance=process.instance)
        process.epoch, process.owned = 0, {}

    def away(self, process):
        self.both.beat(process.member, -2, instance=process.instance or "i1")
        process.epoch, process.owned = 0, {}

    def change(self, process):
        if process.epoch:
            answer = self.both.beat(
                process.member, process.epoch, names=self.topics(), owned=process.owned, instance=process.instance
            )
            self.read(process, answer)

    def commit(self, process):
        epoch = self.chance.choice([process.epoch, process.epoch, process.epoch - 1, process.epoch + 1, -1])
        name = self.chance.choice(self.names)
        number = self.chance.randrange(self.both.topics[name].partitions)
        self.both.commit(self.chance.choice([8, 9, 10, 10]), process.member, epoch, name, number, process.instance)

    def fetch(self, process):
        self.both.fetch(process.member, self.chance.choice([process.epoch, process.epoch + 1]))

    def look(self, _):
        self.both.look()

    def wrong(self, process):
        self.chance.choice([
            lambda: self.both.beat("stranger", 3),
            lambda: self.both.beat("stranger", -1),
            lambda: self.both.beat(process.member, self.chance.randrange(-3, 12), owned={}),
            lambda: self.both.beat(process.member, process.epoch, instance="i3"),
            lambda: self.both.beat(process.member, process.epoch, assignor="other"),
            lambda: self.both.beat("", process.epoch, version=0),
            lambda: self.both.commit(9, "", -1, self.names[0], 0),
            lambda: self.both.delete_offsets(self.chance.choice(self.names)),
        ])()  # fmt: skip

    def administer(self, process):
        self.chance.choice([
            self.both.delete,
            lambda: self.both.remove_instance(self.chance.choice(["i1", "i2", "i3"])),
            lambda: self.both.old_requests(process.member, process.epoch),
        ])()  # fmt: skip


def test_scripts(broker, topics):
    """Answers are the same, and so is what is in the log at the end."""
    answers, ours = 0, {}
    for seed in range(SCRIPTS):
        both = BothSides(broker, topics, f"modern-script{seed}")
        try:
            Script(both, seed).run()
        except AssertionError as error:
            raise AssertionError(f"script {seed}: {error}") from error
        finally:
            both.close()
        answers += both.answers
        ours |= both.ours.records
    assert answers > SCRIPTS * STEPS
    log = Store.open(broker.log_dir).committed_offsets
    expected = {group: masked(records) for group, records in ours.items()}

    def wrong():
        return [group for group, records in expected.items() if stored(log, group) != records]

    # What may be read is noted from time to time.
    wait_until(lambda: not wrong(), lambda: f"they are stored as by Kafka: {wrong()}")


def stored(log, group):
    """Kafka's records of a group, which are written here as there."""
    found = log.records(group).modern
    for data, value in found.items():
        name, key = decode_key(data)
        assert (encode_key(name, key), encode_value(decode_value(key.kind, value))) == (data, value)
    return masked(decoded(found))


def masked(records):
    """Without times, and hashes that are Kafka's alone."""
    found = {}
    for key, value in records.items():
        if isinstance(value, (GroupEpoch, TargetEpoch)):
            found[key] = value.epoch
        elif isinstance(value, Target):
            found[key] = {topic: sorted(numbers) for topic, numbers in value.partitions.items()}
        else:
            found[key] = value
    return found
