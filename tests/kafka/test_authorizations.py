"""Access control lists decide as Kafka's own authorizer does, for lists and questions drawn by chance."""

import random
import shutil
from pathlib import Path

import pytest

from pyspark_log.server.security.acls import Acl, Operation, Pattern, Permission, Resource, Rules
from tests.kafka.kafka_tools import run

pytestmark = pytest.mark.usefixtures("kafka")

PROGRAM = Path(__file__).with_name("Authorizations.java")
LISTS, QUESTIONS = 300, 60
NAMES = ("a", "ab", "abc", "b", "*")
USERS, HOSTS = ("User:anna", "User:ben", "User:super"), ("127.0.0.1", "10.0.0.7")
KINDS = (Resource.TOPIC, Resource.GROUP)
OPERATIONS = (
    Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER, Operation.ALTER_CONFIGS,
    Operation.DESCRIBE_CONFIGS,
)  # fmt: skip


def drawn(chance):
    """A list of some entries, each once."""
    return {
        Acl(
            chance.choice(KINDS),
            chance.choice(NAMES),
            chance.choice(list(Pattern)),
            chance.choice([*USERS[:2], "User:*"]),
            chance.choice([*HOSTS, "*"]),
            chance.choice([*OPERATIONS, Operation.ALL]),
            chance.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
        )
        for _ in range(chance.randrange(8))
    }


@pytest.mark.skipif(not shutil.which("javac"), reason="compiles a program: needs a JDK")
def test_they_are_kafkas():
    chance, lines, ours, asked = random.Random(1), [], [], []
    for _ in range(LISTS):
        acls = drawn(chance)
        rules = Rules(acls, {"User:super"})
        lines.append("clear")
        lines += ["\t".join(["acl", *(str(int(x)) if isinstance(x, int) else x for x in one)]) for one in acls]
        for _ in range(QUESTIONS):
            user, host, operation = chance.choice(USERS), chance.choice(HOSTS), chance.choice(OPERATIONS)
            kind, name = chance.choice(KINDS), chance.choice(NAMES[:4])
            question = [user, host, str(int(operation)), str(int(kind))]
            if chance.random() < 0.2:
                lines.append("\t".join(["any", *question]))
                ours.append(rules.allow_any(user, host, operation, kind))
            else:
                lines.append("\t".join(["one", *question, name]))
                ours.append(rules.allow(user, host, operation, kind, name))
            asked.append((lines[-1], acls))
    kafkas = [line == "true" for line in run(PROGRAM, text="\n".join(lines) + "\n", memory="512m").split()]
    assert len(kafkas) == len(ours)
    wrong = [(question, theirs) for question, one, theirs in zip(asked, ours, kafkas, strict=True) if one != theirs]
    assert wrong == []
    # Both answers are frequent.
    assert 0.1 < sum(ours) / len(ours) < 0.9
