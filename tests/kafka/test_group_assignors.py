"""Assignors of clients give what Kafka's own give, for groups drawn by chance.

`range` and `roundrobin` give the same. Where all members read the same topics, the sticky ones give members as much as
Kafka's, and move as few partitions. Where members read different topics, neither ours nor Kafka's always move the
fewest, and 1 in 800 of Kafka's is not quite balanced.
"""

import random
import shutil
from pathlib import Path

import pytest

from pyspark_log.storage.groups.members.assignors import ASSIGNORS, Subscriber
from pyspark_log.types import TopicPartition
from tests.kafka.kafka_tools import run

pytestmark = [
    pytest.mark.usefixtures("kafka"),
    pytest.mark.skipif(not shutil.which("javac"), reason="compiles a program: needs a JDK"),
]

PROGRAM = Path(__file__).with_name("Assignments.java")
CASES = 400
STICKY = ("sticky", "cooperative-sticky")


def drawn(chance, *, alike):
    """A group: the number of partitions of each topic, and members with what they own, some of it twice."""
    counts = {topic: chance.randrange(1, 9) for topic in chance.sample("uvwxyz", chance.randrange(1, 7))}
    names = chance.sample("abcdefghij", chance.randrange(1, 9))
    wanted = [*counts, "gone"]
    same = chance.sample(wanted, chance.randrange(1, len(wanted) + 1))
    topics = {
        name: same if alike else chance.sample(wanted, chance.randrange(1, len(wanted) + 1)) for name in names
    }  # fmt: skip
    owned = {name: [] for name in names}
    weights, is_owned = [chance.random() ** 3 for _ in names], chance.random()
    for topic, count in counts.items():
        for number in range(count):
            if chance.random() < is_owned:
                for name in {chance.choices(names, weights)[0] for _ in range(1 + (chance.random() < 0.05))}:
                    if topic in topics[name]:
                        owned[name].append(TopicPartition(topic, number))
    return counts, [
        Subscriber(name, f"i{chance.random()}" if chance.random() < 0.4 else None, topics[name], owned[name])
        for name in names
    ]


def kafkas(asked):
    """What Kafka's assignors give: of each question (an assignor, counts, members) the partitions of each member."""
    lines = []
    for assignor, counts, members in asked:
        lines += [f"topic\t{topic}\t{count}" for topic, count in counts.items()]
        for one in members:
            owned = ",".join(f"{partition.topic}:{partition.partition}" for partition in one.owned)
            lines.append("\t".join(["member", one.member_id, one.instance_id or "", ",".join(one.topics), owned]))
        lines.append(f"assign\t{assignor}")
    answers = iter(run(PROGRAM, text="\n".join(lines) + "\n", memory="512m").splitlines())
    found = []
    for _, _, members in asked:
        pairs = [next(answers).split("\t") for _ in members]
        found.append({name: sorted(map(partition_of, filter(None, text.split(",")))) for name, text in pairs})
    assert next(answers, None) is None
    return found


def partition_of(text):
    topic, number = text.split(":")
    return TopicPartition(topic, int(number))


def moves(members, found):
    """How many partitions lose the only member that owns them."""
    owners = {}
    for one in members:
        for partition in one.owned:
            owners[partition] = None if partition in owners else one.member_id
    return sum(
        name is not None and partition not in found[name] for partition, name in owners.items()
    )  # fmt: skip


def sizes(found):
    return sorted(map(len, found.values()))


def is_balanced(members, found):
    """Whether no partition can move to a member with two fewer."""
    return not any(
        partition.topic in one.topics and len(found[one.member_id]) <= len(of_member) - 2
        for of_member in found.values()
        for partition in of_member
        for one in members
    )


def test_they_give_the_same():
    chance = random.Random(1)
    asked = [
        (assignor, *drawn(chance, alike=alike))
        for assignor in ("range", "roundrobin")
        for alike in (True, False)
        for _ in range(CASES)
    ]
    for (assignor, counts, members), theirs in zip(asked, kafkas(asked), strict=True):
        assert ASSIGNORS[assignor](counts, members) == theirs, (assignor, counts, members)


def test_sticky_ones_are_as_balanced_and_move_as_few():
    chance = random.Random(2)
    asked = [(assignor, *drawn(chance, alike=True)) for assignor in STICKY for _ in range(CASES)]
    moved = 0
    for (assignor, counts, members), theirs in zip(asked, kafkas(asked), strict=True):
        ours = ASSIGNORS[assignor](counts, members)
        case = assignor, counts, members, ours, theirs
        assert sizes(ours) == sizes(theirs), case
        assert moves(members, ours) == moves(members, theirs), case
        moved += moves(members, ours) > 0
    assert moved > CASES // 3


@pytest.mark.long
def test_sticky_ones_where_members_read_different_topics():
    chance = random.Random(3)
    asked = [(assignor, *drawn(chance, alike=False)) for assignor in STICKY for _ in range(CASES)]
    more, fewer = 0, 0
    for (assignor, counts, members), theirs in zip(asked, kafkas(asked), strict=True):
        ours = ASSIGNORS[assignor](counts, members)
        assert is_balanced(members, ours), (assignor, counts, members, ours)
        more += max(moves(members, ours) - moves(members, theirs), 0)
        fewer += max(moves(members, theirs) - moves(members, ours), 0)
    assert more < fewer < len(asked) // 10
