"""Quotas count, and make clients wait, as Kafka's own managers of quotas do, for cases drawn by chance."""

import random
import shutil
from pathlib import Path

import pytest

from pyspark_log.server.quotas import DEFAULT, Entity
from pyspark_log.server.quotas.entities import FETCH, MUTATION
from pyspark_log.server.quotas.rates import BURST_S, Rate, TokenBucket
from pyspark_log.server.quotas.table import Table
from tests.kafka.kafka_tools import run

pytestmark = [
    pytest.mark.usefixtures("kafka"),
    pytest.mark.skipif(not shutil.which("javac"), reason="compiles a program: needs a JDK"),
]

PROGRAM = Path(__file__).with_name("QuotaDecisions.java")
USERS, CLIENTS = ("anna", "ben", "carl"), ("app", "tool", "")
#: Any time of day, as Kafka's buckets are full by then.
START = 1_800_000_000_000


def asked(lines):
    """Kafka's answers."""
    return run(PROGRAM, text="\n".join(lines) + "\n", memory="512m").splitlines()


def line(*fields):
    return "\t".join(map(str, fields))


def drawn(chance):
    """Some quotas, each with a value of its own."""
    users, clients = (None, DEFAULT, *USERS[:2]), (None, DEFAULT, *CLIENTS[:2])
    every = [Entity(user, client) for user in users for client in clients if (user, client) != (None, None)]
    return {
        entity: float(chance.randrange(1, 1000)) for entity in chance.sample(every, chance.randrange(len(every) + 1))
    }


def set_lines(quotas):
    yield "clear"
    for entity, value in quotas.items():
        yield line("set", *("-" if part is None else part or "*" for part in entity[:2]), value)


def test_which_quota_counts():
    chance, lines, ours = random.Random(1), [], []
    for _ in range(500):
        quotas = drawn(chance)
        table = Table({entity: {FETCH: value, MUTATION: value} for entity, value in quotas.items()})
        lines += set_lines(quotas)
        for user in USERS:
            for client in CLIENTS:
                bound = table.bounds(user, client).get(FETCH)
                lines += [line("bound", user, client), line("window", user, client)]
                ours += ["none"] * 2 if bound is None else [line(*bound), str(bound.value * BURST_S)]
    kafkas = asked(lines)
    assert len(kafkas) == len(ours)
    questions = [one for one in lines if one.startswith(("bound", "window"))]
    assert [row for row in zip(questions, ours, kafkas, strict=True) if row[1] != row[2]] == []
    # There are some without, and of the others each level is frequent.
    assert 0.05 < ours.count("none") / len(ours) < 0.5


def steps(chance):
    """Times and amounts: bursts, a steady flow, and pauses of any length."""
    now = START
    for _ in range(chance.randrange(200)):
        now += chance.choice([0, 0, 1, 7, 100, 999, 1000, 1001, chance.randrange(3000), chance.randrange(30_000)])
        yield now, chance.choice([0, 1, chance.randrange(100), chance.randrange(5000)])


def test_how_long_bytes_make_a_client_wait():
    chance, lines, ours = random.Random(2), [], []
    for _ in range(300):
        bound, rate = chance.choice([0.5, 10.0, 100.0, 333.3]), Rate()
        lines += set_lines({Entity("anna"): bound})
        for now, amount in steps(chance):
            lines.append(line("bytes", "anna", "app", now, amount))
            rate.add(amount, now)
            ours.append(rate.excess_ms(bound, now))
    assert [int(one) for one in asked(lines)] == ours
    assert 0.2 < sum(one > 0 for one in ours) / len(ours) < 0.95


@pytest.mark.parametrize("how", ["strict", "permissive"])
def test_how_long_permits_make_a_client_wait(how):
    chance, lines, ours = random.Random(3), [], []
    for _ in range(300):
        bound, bucket = chance.choice([0.5, 33.3, 5000.0, 20_000.0]), TokenBucket(START)
        lines += set_lines({Entity(DEFAULT): bound})
        for now, amount in steps(chance):
            lines.append(line(how, "anna", "app", now, amount))
            wait = bucket.take(amount, bound, now, strict=how == "strict")
            ours.append((wait, how == "strict" and wait > 0))
    kafkas = [(int(wait), refused == "true") for wait, refused in (one.split("\t") for one in asked(lines))]
    assert kafkas == ours
    assert 0.2 < sum(wait > 0 for wait, _ in ours) / len(ours) < 0.95
