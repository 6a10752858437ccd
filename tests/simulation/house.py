"""The whole house: hosts with servers, clients, an object store, and what happens to them, drawn from a seed."""

import logging
import os
from collections import defaultdict

from pyspark_log import Store
from pyspark_log.server.served.objects import logs  # noqa: F401  (loaded before the substitutes are set)
from pyspark_log.server.served.objects import upkeep as object_upkeep
from pyspark_log.server.several import over_objects  # noqa: F401  (likewise)
from pyspark_log.storage import object_store
from pyspark_log.storage.publish_log.maintenance import cleaning
from tests.simulation.clients import PARTITIONS, TOPIC, Committer, PlainWriter, Reader, Transactor, Writer
from tests.simulation.history import History
from tests.simulation.members import Member, ModernMember
from tests.simulation.objects import Bucket
from tests.simulation.scheduler import World
from tests.simulation.servers import URL, Faults, Host, network
from tests.simulation.substitutes import attributes, installed
from tests.simulation.topics import Keeper

_HOUR = 3600.0
_CHANGES = {(object_store, "faulty_races"): lambda *_: 0}  # it starts processes
# In some houses days take minutes, so that what is deleted after days matters; clocks are less wrong there.
_FASTER = {
    (object_upkeep, "FIRST"): 60.0, (object_upkeep, "AGAIN"): 300.0, (cleaning, "DELAY_MS"): 20 * 60_000,
    (cleaning, "ENTRIES_MS"): 40 * 60_000,
}  # fmt: skip
_CONFIGS = {"staged.output.expiration.ms": str(90 * 60_000)}
# Clocks are wrong by hours.
_TOPIC_CONFIGS = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**62)}
# How long the house may take to come to rest, in seconds.
_REST = 1800.0


class House:
    """One simulation.

    Attributes:
        is_over: clients begin nothing more; has_given_up: they do not even try again.
        quiet_until: when clients begin again, in seconds of the world.
        pace: how long they wait between two things, in seconds at most.
    """

    def __init__(self, seed):
        self.world, self.seed = World(seed), seed
        self.chance, self.history = self.world.chance, History(self.world)
        self.bucket = Bucket(self.world)
        self.is_over = self.has_given_up = False
        self.quiet_until, self.pace, self.is_fast = 0.0, 1.0, self.chance.random() < 0.5
        self.hosts, self.clients = [], []
        self._offsets = defaultdict(int)
        self.asleep = 0.0  # how long all servers did, in seconds
        self.events = defaultdict(int)

    # ---- what clients ask

    def time_ms(self):
        return int(self.world.outside.clock.time() * 1000)

    def next_offset(self, group):
        self._offsets[group] += 1
        return self._offsets[group]

    def groups(self):
        return sorted(self._offsets)

    # ---- the run

    def run(self, hours):
        """Lives for so many hours. AssertionError: a rule is broken."""
        try:
            self._begin()
            while self.world.now < hours * _HOUR:
                self.chance.choices([self._busy, self._quiet, self._night], [10, 4, 3])[0](hours * _HOUR)
            self._rest()
        finally:
            self._close()

    def _wait(self, seconds):
        end = self.world.now + seconds
        while self.world.now < end and self.world.problem is None:
            self.world.block(end)
        if self.world.problem is not None:
            raise AssertionError(f"seed {self.seed}: {self.world.problem}") from self.world.cause

    def _begin(self):
        store = Store.create(URL, _CONFIGS if self.is_fast else {})
        store.create_topic(TOPIC, PARTITIONS, _TOPIC_CONFIGS)
        count = self.chance.randint(2, 4)
        has_ids = self.chance.random() < 0.5
        self.hosts = [
            Host(self.world, number, number if has_ids else None, 30 if self.is_fast else 3000)
            for number in range(1, count + 1)
        ]
        for host in self.hosts:
            host.start()
        self.clients = [Writer(self, f"w{number}") for number in range(2)]
        self.clients.append(PlainWriter(self, "plain"))
        for number, (name, protocol) in enumerate([("x", 1), ("x", 1), ("y", 2), ("y", 2)]):
            self.clients.append(Transactor(self, f"{name}{number}", name, protocol))
        self.clients += [Committer(self, f"c{number}") for number in range(2)]
        self.clients += [Reader(self, f"r{number}") for number in range(2)]
        self.clients += [
            kind(self, f"m{number}-{kind.group}") for kind in (Member, ModernMember) for number in range(3)
        ]
        self.clients.append(Keeper(self, "k"))

    def _busy(self, _end):
        """Minutes in which clients work and much goes wrong."""
        self.pace = self.chance.choice([0.1, 1.0, 5.0])
        self.bucket.trouble = self.chance.choice([0.0, 0.3, 1.0, 2.0])
        end = self.world.now + self.chance.uniform(60, 600)
        actions = {
            self._kill: 3, self._stop: 2, self._freeze: 4, self._cut_off: 2, self._set_clock: 1,
            self._freeze_client: 1, self._sleep: 0.2, self._replace: 1,
        }  # fmt: skip
        longest = self.chance.choice([5, 30, 120])
        while self.world.now < end:
            self._wait(self.chance.uniform(0, longest))
            self._start()
            action = self.chance.choices(list(actions), actions.values())[0]
            action()
            self.events[action.__name__[1:]] += 1

    def _quiet(self, _end):
        """Servers run, and nothing asks them."""
        self.quiet_until = self.world.now + self.chance.uniform(60, 1800)
        self._wait(self.quiet_until - self.world.now)

    def _night(self, end):
        """All servers sleep for hours, or have ended; one may be up after some."""
        self.quiet_until = min(self.world.now + self.chance.uniform(0.5, 6) * _HOUR, end)
        for host in self.hosts:
            if host.is_up and not host.process.is_frozen(self.world.now):
                if self.chance.random() < 0.3:
                    host.end()
                else:
                    host.freeze(max(self.quiet_until - self.world.now - self.chance.uniform(0, 600), 1),
                                is_asleep=self.chance.random() < 0.5)  # fmt: skip
        self.asleep += self.quiet_until - self.world.now
        self._wait(self.quiet_until - self.world.now)
        self._start()

    def _rest(self):
        """Nothing goes wrong any more: what is under way ends, and the rules are checked."""
        self.bucket.trouble, self.bucket.cut_off, self.is_over = 0.0, {}, True
        self._start()
        self._wait(max(max(host.thaws for host in self.hosts) - self.world.now, 0) + 120)
        self.has_given_up = True
        for host in self.hosts:
            host.end_replaced()
        self._start()
        end = self.world.now + _REST
        while any(client.process.tasks for client in self.clients):
            self._wait(5)
            if self.world.now > end:
                self.world.fault("clients do not come to rest")
        self._wait(40)
        self._check_servers()
        self.is_over = self.has_given_up = False
        last = LastReader(self)
        while last.ends is None or last.offsets is None:
            self._wait(5)
            if self.world.now > end + _REST:
                self.world.fault("the store cannot be read")
        self.history.check(dict(enumerate(last.ends)), last.offsets)
        self._wait(0)
        for host in self.hosts:
            host.end()
        self._wait(60)

    def _check_servers(self):
        """All know of all, and of one that coordinates."""
        views = {
            (
                tuple(server.node_id for server in servers.alive()),
                servers.coordinator() and servers.coordinator().node_id,
            )
            for servers in (host.server.broker.logs.servers for host in self.hosts)
        }
        if len(views) > 1 or any(len(alive) < len(self.hosts) or coordinator is None for alive, coordinator in views):
            self.world.fault(f"the {len(self.hosts)} servers know of these, and of one that coordinates: {views}")

    def _close(self):
        """Ends all tasks."""
        self.is_over = True
        for host in self.hosts:
            host.may_start = False
        processes = [process for host in self.hosts for process in host.processes]
        for process in [*processes, *(client.process for client in self.clients)]:
            self.world.kill(process)
        for _ in range(3):
            self.world.block(self.world.now)
        self.world.close()

    # ---- what happens to it

    def _up(self):
        """A server that runs; None: none does."""
        up = [host for host in self.hosts if host.is_up and not host.process.is_frozen(self.world.now)]
        return self.chance.choice(up) if up else None

    def _start(self):
        """Starts what is down; in the middle of other things not always."""
        for host in self.hosts:
            if not host.is_up and (self.is_over or self.chance.random() < 0.8):
                host.start()

    def _kill(self):
        if host := self._up():
            host.kill()

    def _stop(self):
        if host := self._up():
            host.end()

    def _freeze(self):
        if host := self._up():
            host.freeze(self.chance.choice([1, 10, 20, 60, 300]) * self.chance.random(),
                        is_asleep=self.chance.random() < 0.3)  # fmt: skip

    def _sleep(self):
        """One sleeps for hours, while others continue."""
        if (host := self._up()) and all(other.thaws < self.world.now + 600 for other in self.hosts):
            host.freeze(self.chance.uniform(0.3, 4) * _HOUR, is_asleep=self.chance.random() < 0.5)

    def _replace(self):
        """One stops for a while, and is started once more meanwhile."""
        if host := self._up():
            host.replace(self.chance.uniform(1, 200))

    def _cut_off(self):
        if host := self._up():
            self.bucket.cut_off[host.process.name] = (
                self.world.now + self.chance.choice([30, 120, 400]) * self.chance.random()
            )

    def _set_clock(self):
        self.chance.choice(self.hosts).clock.wrong = self.chance.choice([-1, 1]) * self.chance.choice(
            [1, 30] if self.is_fast else [1, 60, 3000]
        )

    def _freeze_client(self):
        process = self.chance.choice(self.clients).process
        self.world.freeze(process, self.chance.uniform(1, 100))


class LastReader(Reader, Committer):
    """Reads all that there is, once, when nothing goes wrong any more.

    Attributes:
        ends, offsets: of partitions and groups; None: not read yet.
    """

    ends = offsets = None

    def __init__(self, house):
        super().__init__(house, "last")

    def _run(self):
        positions = [0] * PARTITIONS
        while self.ends != positions:
            self.host = self.chance.choice(self.house.hosts)
            self.ends = self.poll(positions, 1) or self.ends
            self.world.sleep(1)
        self.offsets = {group: self.fetch(group) for group in self.house.groups()}


def simulate(seed, hours, changes=()):
    """Lets a house live for some hours; `changes`: attributes of the product that are set meanwhile, by their places.

    AssertionError: a rule is broken.
    """
    house = House(seed)
    log, faults = logging.getLogger("pyspark_log"), Faults(house.world)
    before = log.propagate, os.sched_getaffinity(0)
    log.addHandler(faults)
    log.propagate = False
    # Two tasks never run at once, and a change of the processor takes longer than most of what they do.
    os.sched_setaffinity(0, {sorted(before[1])[os.getpid() % len(before[1])]})
    try:
        with (
            installed(house.world, house.bucket),
            attributes(_CHANGES | network(house.world) | (_FASTER if house.is_fast else {}) | dict(changes)),
        ):
            house.run(hours)
    finally:
        log.removeHandler(faults)
        log.propagate = before[0]
        os.sched_setaffinity(0, before[1])
    return house
