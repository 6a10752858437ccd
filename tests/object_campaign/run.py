"""Kills and stops the processes of a store in an object store, and the server of its objects, and checks what is there.

    python -m tests.object_campaign.run --publishes 1000 --kills 40 --stops 10 --seed 1

Four publishers publish numbered output, each with the position of its group; three processes merge, compact and clean,
with days that take seconds; one reads. The server is versitygw, which keeps objects in files. Victims are killed by
SIGKILL and started again; the server is, too. Some publishers are stopped by SIGSTOP while a successor takes over, and
wake later: what they were about to do must not count. At last all come to an end undisturbed. Then

- each record is there exactly once, and each publisher's are in their order,
- each output is there as a whole, and each committed offset is that of the last publish,
- no reader has ever seen another record at an offset,
- the compacted topic has the last value of each key,
- each stopped publisher was replaced, and has published nothing after that.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from pyspark_log import Store
from pyspark_log.types import TopicPartition
from tests.object_campaign.actors import FENCED, KEYED, KEYS, PARTITIONS, TOPIC, hurry
from tests.object_server import Versitygw

PUBLISHERS = ("a", "b", "c", "d")
OTHERS = (("upkeep", "u1"), ("upkeep", "u2"), ("upkeep", "u3"), ("reader", "r1"))
# In seconds.
_PATIENCE = 1800


class Campaign:
    """The processes, and what is done to them."""

    def __init__(self, folder: Path, seed: int, publishes: int) -> None:
        self.folder, self.random, self.publishes = folder, random.Random(seed), publishes
        self.server = Versitygw(folder)
        self.url = f"s3://{self.server.bucket}/store"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.zombies: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.counts: Counter[str] = Counter()
        os.environ.update(self.server.environment)

    def begin(self) -> None:
        """Creates the store, and starts all."""
        self.server.start()
        store = Store.create(self.url, {"staged.output.expiration.ms": "30000"})
        store.create_topic(TOPIC, PARTITIONS, {"retention.ms": "-1"})
        store.create_topic(KEYED, PARTITIONS, {"cleanup.policy": "compact"})
        for name in PUBLISHERS:
            self.start("publisher", name)
        for kind, name in OTHERS:
            self.start(kind, name)

    def start(self, kind: str, name: str) -> None:
        """Starts a process, or another one of its name."""
        seed = self.random.randrange(1 << 30)
        command = [sys.executable, "-m", "tests.object_campaign.actors", kind, name, self.url, seed, self.publishes]
        with (self.folder / f"{name}.log").open("ab") as output:
            self.running[name] = subprocess.Popen(list(map(str, command)), stdout=output, stderr=output)

    def kind(self, name: str) -> str:
        """What kind of process it is."""
        return "publisher" if name in PUBLISHERS else next(kind for kind, other in OTHERS if other == name)

    def working(self) -> list[str]:
        """The publishers that are not done."""
        return [name for name in PUBLISHERS if self.running[name].poll() is None]

    def kill(self) -> None:
        """Kills one process, or the server, and starts it again."""
        if self.random.random() < 0.15:
            self.server.kill()
            time.sleep(self.random.random())
            self.server.start()
            self.counts["kills of the server"] += 1
            return
        name = self.random.choice([*self.working(), *self.working(), *(name for _, name in OTHERS)])
        process = self.running[name]
        process.kill()
        process.wait()
        self.start(self.kind(name), name)
        self.counts[f"kills of {self.kind(name)}s"] += 1

    def stop(self) -> None:
        """Stops a publisher, and starts a successor; it wakes later."""
        # One that has begun, and is not at its end: else it need not be replaced.
        done = {one.publisher: one.number for one in Store.shared(self.url).publishes.publishers()}
        names = [name for name in self.working() if self.has_begun(name) and done[name] < self.publishes - 10]
        if not names:
            return
        name = self.random.choice(names)
        process = self.running[name]
        process.send_signal(signal.SIGSTOP)
        self.zombies.append((name, process))
        self.start("publisher", name)
        self.counts["stops"] += 1

    def has_begun(self, name: str) -> bool:
        """Whether a publisher has claimed its name."""
        return f" as {self.running[name].pid}\n" in (self.folder / f"{name}.log").read_text(errors="replace")

    def wake(self) -> None:
        """Lets the stopped ones continue, and sees how they end."""
        for name, process in self.zombies:
            process.send_signal(signal.SIGCONT)
            code = process.wait(_PATIENCE)
            self.counts[f"stopped ones that ended as {'replaced' if code == FENCED else code}"] += 1
            assert code == FENCED, f"{name} was replaced, and ended with {code}"
        self.zombies = []

    def disturb(self, kills: int, stops: int) -> None:
        """Kills and stops until that is done, or the work is."""
        plan = ["kill"] * kills + ["stop"] * stops
        self.random.shuffle(plan)
        for number, what in enumerate(plan):
            self.wait_for_progress()
            if not self.working():
                break
            getattr(self, what)()
            if number % 5 == 4:
                # Those stopped have slept for longer than entries stay.
                self.wait_for_progress()
                self.wake()
        self.wake()

    def wait_for_progress(self) -> None:
        """Returns when some more was published."""
        before, end = self.published(), time.monotonic() + _PATIENCE
        wanted = self.random.randrange(20, 60)
        while self.working() and self.published() < before + wanted:
            assert time.monotonic() < end, "nothing is published any more"
            self.see_to_it()
            time.sleep(0.2)

    def published(self) -> int:
        """How many publishes there are."""
        with contextlib.suppress(Exception):  # The server may be down.
            return sum(one.number + 1 for one in Store.shared(self.url).publishes.publishers())
        return 0

    def see_to_it(self) -> None:
        """Starts again what has ended and is not done."""
        for name, process in list(self.running.items()):
            if process.poll() not in (None, 0):
                assert "WRONG" not in (self.folder / f"{name}.log").read_text(errors="replace"), name
                self.start(self.kind(name), name)
                self.counts[f"{self.kind(name)}s that ended by themselves"] += 1

    def finish(self) -> None:
        """Lets the publishers come to their end, and ends all others."""
        end = time.monotonic() + _PATIENCE
        while self.working():
            assert time.monotonic() < end, "the publishers do not end"
            self.see_to_it()
            time.sleep(0.2)
        for _, name in OTHERS:
            assert "WRONG" not in (self.folder / f"{name}.log").read_text(errors="replace"), name
            self.running[name].kill()
            self.running[name].wait()

    def check(self) -> None:
        """What is said above; AssertionError."""
        hurry()
        store = Store.open(self.url)
        store.merge()
        for outcome in store.compact(KEYED):
            assert not outcome.problem, outcome.problem
        found: dict[str, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        for partition in range(PARTITIONS):
            expected, newest = 0, dict[str, int]()
            for rows in store.read(TOPIC, partition):
                for offset, value in zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True):
                    assert offset == expected, f"offset {offset} follows {expected - 1}"
                    expected += 1
                    name, number, each, count = re.match(rb"(\w) (\d+) (\d+) (\d+)", value).groups()
                    name, number = name.decode(), int(number)
                    assert newest.get(name, -1) <= number, f"{name}: {number} after {newest[name]}"
                    newest[name] = number
                    found[name][number].append((int(each), int(count)))
                    self.counts["records"] += 1
        for name in PUBLISHERS:
            assert sorted(found[name]) == list(range(self.publishes)), f"{name}: numbers are missing"
            for number, parts in found[name].items():
                # Once, and whole.
                assert sorted(parts) == [(each, parts[0][1]) for each in range(parts[0][1])], (name, number, parts)
            committed = store.groups[name].committed()[TopicPartition("input", 0)].offset
            assert committed == self.publishes, f"{name}: its group is at {committed}"
        last = {}
        for partition in range(PARTITIONS):
            for rows in store.read(KEYED, partition):
                for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
                    assert (partition, key) not in last, f"{key} is there twice"
                    last[partition, key] = int(value)
        wanted = {
            (number % PARTITIONS, b"%s %d" % (name.encode(), number % KEYS)): number
            for name in PUBLISHERS for number in range(self.publishes)
        }  # fmt: skip
        assert last == wanted
        state = store.log.follow()
        self.counts.update({"decisions": state.number + 1, "floors": state.floors, "the last floor": state.floor})
        self.counts["objects that are left"] = sum(1 for _ in store.log.objects.list())

    def end(self) -> None:
        """Ends all processes."""
        for process in [*self.running.values(), *(process for _, process in self.zombies)]:
            process.kill()
            process.wait()
        self.server.kill()


def main() -> int:
    """Runs a campaign; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.object_campaign.run", description=__doc__)
    parser.add_argument("--publishes", type=int, default=1000, help="of each publisher")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--stops", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pylog-objects-") as folder:
        campaign = Campaign(Path(folder), given.seed, given.publishes)
        print(f"seed {given.seed}", flush=True)
        try:
            campaign.begin()
            campaign.disturb(given.kills, given.stops)
            campaign.finish()
            campaign.check()
        except AssertionError as error:
            print(f"WRONG: {error}")
            for log in sorted(Path(folder).glob("*.log")):
                print(log.name, *log.read_text(errors="replace").splitlines()[-15:], sep="\n    ")
            return 1
        finally:
            campaign.end()
        for what, count in sorted(campaign.counts.items()):
            print(f"{what}: {count:,}")
    print(f"nothing is lost, doubled or out of order; {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
