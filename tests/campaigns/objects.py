"""Kills and stops the processes of a store in an object store, and the server of its objects, and checks what is there.

    python -m tests.campaigns objects --publishes 1000 --kills 40 --stops 10 --seed 1

Four publishers publish numbered output, each with the position of its group; three processes merge, compact and clean,
with days that take seconds; one reads. The server is versitygw, which keeps objects in files. Victims are killed by
SIGKILL and started again; the server is, too. Some publishers are stopped by SIGSTOP while a successor takes over, and
wake later: what they were about to do must not count. At last all come to an end undisturbed. Then

- each record is there exactly once, and each publisher's are in their order,
- each output is there as a whole, and each group's committed offset is that of the last publish,
- no reader has ever seen another record at an offset,
- the compacted topic has the last value of each key,
- each stopped publisher was replaced, and has published nothing after that.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections import defaultdict

from pyspark_log import Store
from pyspark_log.types import TopicPartition
from tests.campaigns import harness
from tests.campaigns.object_actors import FENCED, KEYED, KEYS, PARTITIONS, TOPIC, hurry
from tests.object_server import Versitygw

PUBLISHERS = ("a", "b", "c", "d")
#: What each process is, by name.
KINDS = dict.fromkeys(PUBLISHERS, "publisher") | {"u1": "upkeep", "u2": "upkeep", "u3": "upkeep", "r1": "reader"}
OTHERS = ("u1", "u2", "u3", "r1")
# In seconds.
_PATIENCE = 1800


class Campaign(harness.Campaign):
    """A store in an object store. Stopped processes sleep for longer than entries stay."""

    kills, tend_every = 40, 5

    @classmethod
    def arguments(cls, options):
        options.add_argument("--publishes", type=int, default=1000, help="of each publisher")
        options.add_argument("--stops", type=int, default=10, help="beside the kills")

    def prepare(self):
        self.server = Versitygw(self.folder)
        self.url = f"s3://{self.server.bucket}/store"
        self.zombies = []
        self.plan = ["kill"] * self.options.kills + ["stop"] * self.options.stops
        self.random.shuffle(self.plan)
        os.environ.update(self.server.environment)

    def begin(self):
        self.server.start()
        store = Store.create(self.url, {"staged.output.expiration.ms": "30000"})
        store.create_topic(TOPIC, PARTITIONS, {"retention.ms": "-1"})
        store.create_topic(KEYED, PARTITIONS, {"cleanup.policy": "compact"})
        for name in KINDS:
            self.start(name)

    def start(self, name):
        """Starts a process, or another one of its name."""
        seed = self.random.randrange(1 << 30)
        self.launch_module(name, "object_actors", KINDS[name], name, self.url, seed, self.options.publishes)

    def count(self):
        return len(self.plan)

    def strike(self):
        if not self.working():
            return None
        return self._stop() if self.plan.pop() == "stop" else self._kill()

    def working(self):
        """The publishers that are not done."""
        return [name for name in PUBLISHERS if self.running[name].poll() is None]

    def _kill(self):
        """Kills one process, or the server, and starts it again."""
        if self.random.random() < 0.15:
            self.server.kill()
            time.sleep(self.random.random())
            self.server.start()
            return "kills of the server"
        name = self.random.choice([*self.working(), *self.working(), *OTHERS])
        self.kill(name)
        self.start(name)
        return f"kills of {KINDS[name]}"

    def _stop(self):
        """Stops a publisher, and starts a successor; it wakes later."""
        # One that has begun, and is not at its end: else it need not be replaced.
        done = {one.publisher: one.number for one in Store.shared(self.url).publishes.publishers()}
        names = [name for name in self.working() if self.has_begun(name) and done[name] < self.options.publishes - 10]
        if not names:
            return "stops that came too late"
        name = self.random.choice(names)
        process = self.running.pop(name)
        process.send_signal(signal.SIGSTOP)
        self.zombies.append((name, process))
        self.start(name)
        return "stops"

    def has_begun(self, name):
        """Whether a publisher has claimed its name."""
        return f" as {self.running[name].pid}\n" in self.log(name)

    def tend(self):
        """Lets the stopped ones continue, and sees how they end."""
        self.pause()
        self.wake()

    def wake(self):
        """Each was replaced meanwhile."""
        while self.zombies:
            name, process = self.zombies[0]
            process.send_signal(signal.SIGCONT)
            code = process.wait(_PATIENCE)
            assert code == FENCED, f"{name} was replaced, and ended with {code}"
            self.counts["stopped ones that ended as replaced"] += 1
            del self.zombies[0]

    def pause(self):
        """Returns when some more was published."""
        wanted = self.published() + self.random.randrange(20, 60)
        there = self.wait(lambda: not self.working() or self.published() >= wanted, _PATIENCE)
        assert there, "nothing is published any more"

    def published(self):
        """How many publishes there are."""
        with contextlib.suppress(Exception):  # The server may be down.
            return sum(one.number + 1 for one in Store.shared(self.url).publishes.publishers())
        return 0

    def look(self):
        """Starts again what has ended and is not done."""
        for name, process in list(self.running.items()):
            if process.poll() not in (None, 0):
                assert "WRONG" not in self.log(name), self.log(name)
                self.start(name)
                self.counts[f"ends of {KINDS[name]} by itself"] += 1

    def finish(self):
        """Lets the publishers come to their end, and ends all others."""
        self.wake()
        assert self.wait(lambda: not self.working(), _PATIENCE), "the publishers do not end"
        for name in OTHERS:
            assert "WRONG" not in self.log(name), self.log(name)
            self.kill(name)

    def check(self):
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
            assert sorted(found[name]) == list(range(self.options.publishes)), f"{name}: numbers are missing"
            for number, parts in found[name].items():
                # Once, and whole.
                assert sorted(parts) == [(each, parts[0][1]) for each in range(parts[0][1])], (name, number, parts)
            committed = store.groups[name].committed()[TopicPartition("input", 0)].offset
            assert committed == self.options.publishes, f"{name}: its group is at {committed}"
        last = {}
        for partition in range(PARTITIONS):
            for rows in store.read(KEYED, partition):
                for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
                    assert (partition, key) not in last, f"{key} is there twice"
                    last[partition, key] = int(value)
        wanted = {
            (number % PARTITIONS, b"%s %d" % (name.encode(), number % KEYS)): number
            for name in PUBLISHERS for number in range(self.options.publishes)
        }  # fmt: skip
        assert last == wanted
        state = store.log.follow()
        self.counts.update({"decisions": state.number + 1, "floors": state.floors, "is the last floor": state.floor})
        self.counts["objects that are left"] = sum(1 for _ in store.log.objects.list())
        return []

    def end(self):
        for _, process in self.zombies:
            process.kill()
            process.wait()
        self.server.kill()
