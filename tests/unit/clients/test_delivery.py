"""examples/delivery.py: members of a group are killed at random, and what they have done is what each promises."""

import random
import subprocess
import sys
import time
from collections import Counter

import pytest

from pyspark_log import Store
from tests.amounts import few_or_many
from tests.paths import ROOT

PARTITIONS = 3
PATIENCE = 120
PROMISED = {
    "at-most-once": lambda times: times <= 1,
    "at-least-once": lambda times: times >= 1,
    "exactly-once": lambda times: times == 1,
}


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store") as store:
        for topic in ("orders", "invoices"):
            store.create_topic(topic, PARTITIONS)
        yield store


def begin(store, promise, folder):
    command = [sys.executable, ROOT / "examples/delivery.py", store.path, promise, "--patience-ms", "3000"]
    with open(folder / "output", "ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output)


def are_done(store):
    """Whether the group has committed the ends of all orders."""
    committed = store.groups["invoicing"].committed()
    ends = store.topic("orders").latest_offsets()
    return {at.partition: one.offset for at, one in committed.items()} == ends


@pytest.mark.parametrize(("count", "kills"), few_or_many((900, 3), (3000, 8)))
@pytest.mark.parametrize("promise", PROMISED)
def test_what_is_killed_keeps_its_promise(store, promise, tmp_path, count, kills):
    chance = random.Random(promise)
    orders = [f"order {number}" for number in range(count)]
    members, killed = [begin(store, promise, tmp_path) for _ in range(2)], 0
    try:
        for number in range(0, count, 50):
            store.append("orders", [{"key": one, "value": one} for one in orders[number : number + 50]])
            time.sleep(chance.uniform(0, 0.1))
            if killed < kills and number * kills >= killed * count:
                one = members.pop(chance.randrange(2))
                one.kill()
                one.wait()
                killed += 1
                members.append(begin(store, promise, tmp_path))
        until = time.monotonic() + PATIENCE
        assert [one.wait(PATIENCE) for one in members] == [0, 0], (tmp_path / "output").read_text()
        while not are_done(store):
            # On a slow machine both may have ended while no order came.
            assert time.monotonic() < until, (tmp_path / "output").read_text()
            members.append(begin(store, promise, tmp_path))
            assert members[-1].wait(PATIENCE) == 0, (tmp_path / "output").read_text()
    finally:
        for one in members:
            one.kill()
            one.wait()
    made = Counter(value.decode() for batch in store.topic("invoices").read() for value in batch["value"].to_pylist())
    assert set(made) <= {f"invoice for {one}" for one in orders}
    assert all(PROMISED[promise](made[f"invoice for {one}"]) for one in orders)
    # Kills that meet no work would show nothing.
    assert len(made) > count / 2
