"""Clients of groups of KIP-848 on a network and a log that fail, and what must hold of their group all the time.

Everything is drawn from a seed. `python tests/unit/server/coordinator/modern_explorer.py SEED EVENTS` explores further
than the tests do; a failure names the seed and the event.
"""

import heapq
import itertools
import random
from dataclasses import replace

from exploring import main
from modern_rig import topics_of
from modern_rules import GROUP, ModernRules
from modern_sim import ModernClient

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.coordinator import Coordinator, Settings

EVENTS_OF_A_WORLD = 1_000
MOST_CLIENTS = 6
INSTANCES = ("i1", "i2")
# Longer than any session, revocation, write or wait for an answer, in ms.
LONG = 200_000
SESSION = 10_000


class World:
    """One group, its server and its clients.

    Attributes:
        life: how often the server has started. Connections end with it, and what is under way on them.
        calm: nothing fails any more.
        records: what the log has.
    """

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.now, self.events, self.life, self.calm = 1, 0, 0, False
        self._numbers = itertools.count(1)
        self._queue = []
        self.clients = []
        self.records, self.unwritten, self._writes = {}, [], False
        self.topics = topics_of(t=3, u=2)
        self.rules = ModernRules(self)
        self.waiting = {}
        self.coordinator = self._new_coordinator()

    def _new_coordinator(self):
        settings = Settings(
            modern_session_timeout=SESSION, assignment_interval=self.chance.choice([0, 500]),
            modern_max_size=self.chance.choice([4, 10]),
        )  # fmt: skip
        return Coordinator(settings, lambda: str(next(self._numbers)))

    # ---- time

    def after(self, delay, action):
        heapq.heappush(self._queue, (self.now + delay, next(self._numbers), action))

    def run(self, until):
        """Does what is due up to a time: messages, timers of clients, deadlines of the server."""
        while True:
            deadline = self.coordinator.next_deadline()
            first = self._queue[0][0] if self._queue else until + 1
            if min(first, until + 1 if deadline is None else deadline) > until:
                break
            if deadline is not None and deadline <= first:
                self.now = max(self.now, deadline)
                self.take(self.coordinator.expire(self.now))
            else:
                self.now, _, action = heapq.heappop(self._queue)
                action()
            self.events += 1
            self.rules.check_group()
        self.now = max(self.now, until)

    # ---- the server

    def latency(self):
        if not self.calm and self.chance.random() < 0.05:
            return self.chance.randrange(4_000)
        return self.chance.randrange(1, 20)

    def send(self, call, answered, is_wanted=lambda: True):
        """Sends a request: `call` is given a token and calls the coordinator. It, or the answer, may be lost.

        `is_wanted`: whether the client still waits. A request that it has given up does not overtake the next one.
        """
        life = self.life
        if not self.calm and self.chance.random() < 0.03:
            return

        def deliver():
            if self.life == life and is_wanted():
                token = object()
                self.waiting[token] = self.now, back
                self.take(call(token))

        def back(response):
            if self.calm or self.chance.random() < 0.97:
                self.after(self.latency(), lambda: self.life == life and answered(response))

        self.after(self.latency(), deliver)

    def take(self, effects):
        for token, response in effects.answers:
            _, back = self.waiting.pop(token)  # KeyError: answered twice
            self.rules.check_answer(response)
            back(response)
        self.unwritten += effects.stores
        if not self._writes and self.unwritten:
            self._writes = True
            self.after(self.chance.randrange(1, 30 if self.calm else 1_000), lambda life=self.life: self._write(life))

    def _write(self, life):
        if life != self.life:
            return
        store = self.unwritten.pop(0)
        self._writes = False
        fails = not self.calm and self.chance.random() < 0.1
        # A write that is reported as failed may be on the disk all the same.
        if not fails or self.chance.random() < 0.3:
            self._keep(store)
        error = self.chance.choice([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
        self.rules.counts["failed writes"] += fails
        self.take(self.coordinator.stored(store.ticket, error if fails else ErrorCode.NONE, self.now))

    def _keep(self, store):
        kept = self.records | store.records
        self.records = {key: value for key, value in kept.items() if value is not None}

    def restart(self):
        """The server is killed, or ends, and starts again. What it was writing may be on the disk."""
        if self.chance.random() < 0.5:
            self.take(self.coordinator.unload(GROUP))
        if self.unwritten and self.chance.random() < 0.5:
            self._keep(self.unwritten[0])
        self.life += 1
        self.unwritten, self._writes, self.waiting = [], False, {}
        self.coordinator = self._new_coordinator()
        if self.records:
            self.take(self.coordinator.load_modern(GROUP, self.records, self.now))

    # ---- what happens

    def explore(self, events):
        """Lets things happen until there were so many events; then it lets them settle, and ends all clients."""
        actions = {
            self._start: 10, self._kill: 3, self._leave: 5, self._away: 5, self._change: 4, self._commit: 20,
            self._grow: 2, self._delete: 2, self.restart: 2, self._nothing: 30,
        }  # fmt: skip
        while self.events < events:
            self.chance.choices(list(actions), actions.values())[0]()
            self.run(self.now + self.chance.choice([0, 10, 100, 1_000, 4_000]))
            self.rules.check_waiting()
        self.calm = True
        self.run(self.now + LONG)
        self.rules.check_settled()
        for client in list(self.clients):
            client.stop()
        self.run(self.now + LONG)
        self.rules.check_ended()

    def _nothing(self):
        pass

    def _start(self):
        if len(self.clients) < MOST_CLIENTS:
            free = [one for one in INSTANCES if one not in {client.instance for client in self.clients}]
            instance = self.chance.choice(free) if free and self.chance.random() < 0.5 else None
            self.clients.append(ModernClient(self, f"m{next(self._numbers)}", instance))
            self.clients[-1].beat()

    def _one(self):
        return self.chance.choice(self.clients) if self.clients else None

    def _kill(self):
        if client := self._one():
            client.stop()

    def _leave(self):
        if client := self._one():
            client.leave(-1)

    def _away(self):
        client = self._one()
        if client and client.instance:
            client.leave(-2)

    def _change(self):
        if client := self._one():
            client.subscribe()

    def _commit(self):
        if client := self._one():
            client.commit()

    def _grow(self):
        topics = self.topics.topics
        if (name := self.chance.choice(list(topics))) and topics[name].partitions < 6:
            more = {one: topic.partitions + (one == name) for one, topic in topics.items()}
            self.topics = replace(topics_of(**more), version=self.topics.version + 1)

    def _delete(self):
        self.send(lambda token: self.coordinator.delete(token, GROUP), lambda _: None)

    def fail(self, why):
        raise AssertionError(f"event {self.events}, time {self.now}: {why}")


if __name__ == "__main__":
    main(World, EVENTS_OF_A_WORLD)
