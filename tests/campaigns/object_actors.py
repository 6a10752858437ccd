"""What runs in a campaign, each as a process: `python -m tests.campaigns.object_actors KIND NAME URL SEED`.

Each ends with code 0 when its work is done, with FENCED when another run has its publisher, and is started again after
any other end. Times are short here, so that all that takes days happens within the campaign.
"""

from __future__ import annotations

import os
import random
import sys
import time
from types import ModuleType

import pyarrow as pa

from pyspark_log import Store
from pyspark_log.errors import (
    LogDamagedError,
    ObjectStoreError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    PublisherFencedError,
    StagedOutputError,
)
from pyspark_log.storage.publish_log import checkpoint, floors
from pyspark_log.storage.publish_log.maintenance import cleaning, merging
from pyspark_log.types import OffsetStep, TopicPartition

#: The topics: one with all records, one that is compacted; and how many partitions each has.
TOPIC, KEYED, PARTITIONS = "t", "keyed", 3
#: The exit code of a run that was replaced.
FENCED = 3
#: How many keys each publisher has.
KEYS = 20
# A process that has slept for longer looks for a floor; entries stay for longer than that, as they do by days.
_AWAKE, _DELAY, _ENTRIES = 1000, 3000, 6000
# The server of the objects may be down. What was read may be deleted meanwhile, as a day has three seconds here.
_AGAIN = (ObjectStoreError, OutcomeUnknownError, LogDamagedError)


def hurried() -> dict[tuple[ModuleType, str], int]:
    """What is less than it is elsewhere where days have seconds."""
    return {
        (floors, "_AWAKE"): _AWAKE, (cleaning, "DELAY_MS"): _DELAY, (cleaning, "ENTRIES_MS"): _ENTRIES,
        (checkpoint, "EVERY"): 64, (merging, "_RECENT_PIECES"): 16,
    }  # fmt: skip


def hurry() -> None:
    """Makes days of seconds, in this process."""
    for (module, constant), value in hurried().items():
        setattr(module, constant, value)


def publisher(name: str, url: str, chance: random.Random, until: int) -> None:
    """Publishes numbers up to `until`, each with the position of its group, from where the store says it is."""
    store, run, at = Store.open(url), f"{name}-{os.getpid()}-{time.time_ns()}", TopicPartition("input", 0)
    number = store.publishes.claim(name, run) + 1
    print(f"{name} begins at {number} as {os.getpid()}", flush=True)
    while number < until:
        writer = store.publishes.writer(store.publishes.plan([TOPIC, KEYED]))
        count = chance.randrange(1, 4)
        # Some are too large to be in the decision.
        padding = b"." * (100_000 if chance.random() < 0.05 else 10)
        places = pa.array([(number + each) % PARTITIONS for each in range(count)], pa.int32())
        values = [b"%s %d %d %d " % (name.encode(), number, each, count) + padding for each in range(count)]
        writer.append(TOPIC, pa.record_batch({"value": values, "partition": places}))
        writer.append(KEYED, pa.record_batch({
            "key": [b"%s %d" % (name.encode(), number % KEYS)], "value": [b"%d" % number],
            "partition": pa.array([number % PARTITIONS], pa.int32()),
        }))  # fmt: skip
        committed = store.groups[name].committed()
        before = committed[at].offset if at in committed else None
        steps = [] if before == number + 1 else [OffsetStep(name, at, before, number + 1)]
        try:
            store.publishes.publish(name, number, writer.finish(), steps=steps, run=run, claimed=True)
        except StagedOutputError:
            continue  # It was stopped for so long that its output is void.
        number += 1
        time.sleep(chance.random() / 50)


def upkeep(_name: str, url: str, chance: random.Random, _until: int) -> None:
    """Merges, compacts and cleans until it is ended."""
    store = Store.open(url)
    while True:
        store.merge()
        for outcome in store.compact(KEYED):
            if outcome.problem:
                print(outcome.problem, flush=True)
        store.clean()
        time.sleep(chance.random() / 5)


def reader(name: str, url: str, chance: random.Random, _until: int) -> None:
    """Reads ranges again and again; a record that was seen at an offset never changes. Code 1: one did."""
    store, seen = Store.open(url), dict[tuple[int, int], bytes]()
    while True:
        for partition in range(PARTITIONS):
            end = store.latest_offset(TOPIC, partition)
            start = chance.randrange(end + 1)
            expected = start
            for rows in store.read(TOPIC, partition, start, min(end, start + 1000)):
                for offset, value in zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True):
                    # Of a long one, the part that identifies it.
                    if offset != expected or seen.setdefault((partition, offset), value[:40]) != value[:40]:
                        print(f"WRONG {name}: {partition} {offset} {value!r}", flush=True)
                        sys.exit(1)
                    expected += 1
        time.sleep(chance.random() / 20)


_KINDS = {"publisher": publisher, "upkeep": upkeep, "reader": reader}


def main() -> None:
    """Runs one."""
    kind, name, url, seed, until = sys.argv[1:]
    hurry()
    chance = random.Random(seed)
    while True:
        try:
            _KINDS[kind](name, url, chance, int(until))
            sys.exit(0)
        except PublisherFencedError as error:
            print(error, flush=True)
            sys.exit(FENCED)
        except (*_AGAIN, OffsetOutOfRangeError) as error:
            # As a job that fails and is started again.
            print(f"{type(error).__name__}: {str(error)[:300]}", flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    main()
