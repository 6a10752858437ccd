"""Worlds that are drawn from a seed and explored event by event: what all explorers of the server share."""

import heapq
import itertools
import random
import sys
from collections import Counter

from pyspark_log.kafka.error_codes import ErrorCode


class World:
    """What happens, one event after the other.

    Attributes:
        now: the time, in ms.
        events: how many there were.
        calm: nothing fails any more.
    """

    def __init__(self, seed, now=0):
        self.chance, self.now, self.events, self.calm = random.Random(seed), now, 0, False
        self._numbers, self._queue = itertools.count(1), []

    def after(self, delay, action):
        """Has something done after a time."""
        heapq.heappush(self._queue, (self.now + delay, next(self._numbers), action))

    def run(self, until):
        """Does what is due up to a time."""
        while self._queue and self._queue[0][0] <= until:
            self.do_next()
        self.now = max(self.now, until)

    def do_next(self):
        """Does what is due first."""
        self.now, _, action = heapq.heappop(self._queue)
        action()
        self.events += 1

    def drive(self, actions, events, checked=lambda: None):
        """Lets things happen, each as often as its weight says, until there were so many events."""
        while self.events < events:
            self.chance.choices(list(actions), actions.values())[0]()
            self.run(self.now + self.chance.choice([0, 10, 100, 1_000, 4_000]))
            checked()

    def nothing(self):
        """Happens, too."""

    def fail(self, why):
        """AssertionError: a rule is broken."""
        raise AssertionError(f"event {self.events}, time {self.now}: {why}")


class GroupWorld(World):
    """One group, its server and its clients.

    Attributes:
        life: how often the server has started. Connections end with it, and what is under way on them.
        most_late: how long a message may take that is late, in ms.
        longest_write: how long a write may take, in ms.
        long: longer than any session, rebalance, write or wait for an answer, in ms.
    """

    most_late, longest_write, long = 5_000, 3_000, 120_000

    def __init__(self, seed, now=0):
        super().__init__(seed, now)
        self.life, self.clients, self.unwritten, self._writes = 0, [], [], False

    # ---- time

    def lateness(self, deadline, _first):
        """When the server does what is due at a deadline, before the first of other events."""
        return deadline

    def run(self, until):
        """Does what is due up to a time: messages, timers of clients, deadlines of the server."""
        while True:
            deadline = self.coordinator.next_deadline()
            first = self._queue[0][0] if self._queue else until + 1
            if min(first, until + 1 if deadline is None else deadline) > until:
                break
            if deadline is not None and deadline <= first:
                self.now = max(self.now, self.lateness(deadline, first))
                self.take(self.coordinator.expire(self.now))
                self.events += 1
            else:
                self.do_next()
            self.rules.check_group()
        self.now = max(self.now, until)

    def latency(self):
        """How long a message takes."""
        if not self.calm and self.chance.random() < 0.05:
            return self.chance.randrange(self.most_late)
        return self.chance.randrange(1, 20)

    # ---- the log

    def write(self, stores):
        """Writes later, one after the other."""
        self.unwritten += stores
        if not self._writes and self.unwritten:
            self._writes = True
            longest = 30 if self.calm else self.longest_write
            self.after(self.chance.randrange(1, longest), lambda life=self.life: self._write(life))

    def _write(self, life):
        if life != self.life:
            return
        store = self.unwritten.pop(0)
        self._writes = False
        self.begin_write(store)
        fails = not self.calm and self.chance.random() < 0.1
        # A write that is reported as failed may be on the disk all the same.
        if not fails or self.chance.random() < 0.3:
            self.keep(store)
        error = self.chance.choice([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
        self.rules.counts["failed writes"] += fails
        self.take(self.coordinator.stored(store.ticket, error if fails else ErrorCode.NONE, self.now))

    def begin_write(self, store):
        """A write begins."""

    def end_life(self, group):
        """The server is killed, or ends. What it was writing may be on the disk."""
        if self.chance.random() < 0.5:
            self.take(self.coordinator.unload(group))
        if self.unwritten and self.chance.random() < 0.5:
            self.keep(self.unwritten[0])
        self.life += 1
        self.unwritten, self._writes = [], False

    # ---- what happens

    def explore(self, events):
        """Lets things happen until there were so many events; then it lets them settle, and ends all clients."""
        self.drive(self.actions(), events, self.rules.check_waiting)
        self.calm = True
        self.run(self.now + self.long)
        self.rules.check_settled()
        for client in list(self.clients):
            client.stop()
        self.run(self.now + self.long)
        self.rules.check_ended()

    def one(self):
        """A client; None: there is none."""
        return self.chance.choice(self.clients) if self.clients else None

    def each(self, act, *given):
        """What has one client do something, by the name of that."""

        def happen():
            if client := self.one():
                getattr(client, act)(*given)

        return happen

    def free_instance(self, instances):
        """An instance id that no client has, or none."""
        free = [one for one in instances if one not in {client.instance for client in self.clients}]
        return self.chance.choice(free) if free and self.chance.random() < 0.5 else None


def explore(make, seed, events):
    """Explores one world, which `make` makes of the seed. AssertionError: a rule is broken."""
    world = make(seed)
    try:
        world.explore(events)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return world


def main(make, events_of_a_world):
    """Explores worlds from a seed on until there were as many events, as the command line says."""
    seed, events = int(sys.argv[1]), int(sys.argv[2])
    done, counts = 0, Counter()
    while done < events:
        world = explore(make, seed, events_of_a_world)
        done += world.events
        counts += world.rules.counts
        seed += 1
    print(f"{done} events, {dict(counts)}; the next seed is {seed}")
