"""Clients that behave like Kafka's, on a network and a log that fail, and what must hold of their group all the time.

Everything is drawn from a seed. `python tests/unit/server/coordinator/explorer.py SEED EVENTS` explores further than
the tests do; a failure names the seed and the event.
"""

import heapq
import itertools
import random

from explorer_clients import SimClient
from explorer_rules import Rules
from exploring import main

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.coordinator import Coordinator, Settings

GROUP = "g"
EVENTS_OF_A_WORLD = 2_000
MOST_CLIENTS = 7
INSTANCES = ("i1", "i2", "i3")
MOST_MEMBERS = (3, 5)
# Longer than any session, rebalance, write or wait for an answer, in ms.
LONG = 120_000


class Token:
    """A request that waits at the server: when it came, of which kind it is, and what is done with the answer."""

    def __init__(self, kind, since, answer):
        self.kind, self.since, self.answer = kind, since, answer


def is_new(token, response):
    """Whether a response lets a member into a generation."""
    return token.kind == "join" and response.error_code == ErrorCode.NONE


class World:
    """One group, its server and its clients.

    Attributes:
        life: how often the server has started. Connections end with it, and what is under way on them.
        calm: nothing fails any more.
    """

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.now, self.events, self.life, self.calm = 0, 0, 0, False
        self._numbers = itertools.count(1)
        self._queue = []
        self.clients, self.gone = [], []
        self.record, self.unwritten, self._writes = None, [], False
        self.rules = Rules(self)
        self.waiting = set()
        self.coordinator = self._new_coordinator()

    def _new_coordinator(self):
        size = self.chance.choice(MOST_MEMBERS)
        settings = Settings(
            min_session_timeout=1_000, initial_rebalance_delay=500, max_size=size, new_member_timeout=20_000
        )
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
                # A server is sometimes late.
                self.now = max(self.now, deadline if self.calm else min(first, deadline + self.chance.randrange(5)))
                self.take(self.coordinator.expire(self.now))
            else:
                self.now, _, action = heapq.heappop(self._queue)
                action()
            self.events += 1
            self.rules.check_group()
        self.now = max(self.now, until)

    # ---- the server

    def send(self, kind, call, answered=None, lost=lambda: None):
        """Sends a request, which may be late, or come twice. The answer is late too.

        Args:
            call: given a token, it calls the coordinator; it returns its effects.
            answered: given the response.
            lost: called if the connection ends before that.
        """
        life = self.life

        def deliver(answer):
            if self.life == life:
                token = Token(kind, self.now, answer)
                self.waiting.add(token)
                self.take(call(token))

        def back(response):
            self.after(self._latency(), lambda: lost() if self.life != life else answered and answered(response))

        self.after(self._latency(), lambda: deliver(back) if self.life == life else lost())
        if not self.calm and self.chance.random() < 0.03:
            self.after(self._latency() * 10, lambda: deliver(lambda response: None))

    def _latency(self):
        if not self.calm and self.chance.random() < 0.05:
            return self.chance.randrange(5_000)
        return self.chance.randrange(1, 20)

    def take(self, effects):
        before = self.rules.generation
        for token, response in effects.answers:
            self.waiting.remove(token)  # KeyError: answered twice
            self.rules.check_answer(token, response)
            token.answer(response)
        if self.rules.generation > before:
            self.rules.check_new_generation([one for token, one in effects.answers if is_new(token, one)])
        self.unwritten += effects.stores
        if not self._writes and self.unwritten:
            self._writes = True
            self.after(self.chance.randrange(1, 30 if self.calm else 3_000), lambda life=self.life: self._write(life))

    def _write(self, life):
        if life != self.life:
            return
        store = self.unwritten.pop(0)
        self._writes = False
        if store.record is None:
            self.rules.stored_generation = 0  # even if it fails: a group of the same name may have begun
        fails = not self.calm and self.chance.random() < 0.1
        # A write that is reported as failed may be on the disk all the same.
        if not fails or self.chance.random() < 0.3:
            self._keep(store)
        error = self.chance.choice([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
        self.take(self.coordinator.stored(store.ticket, error if fails else ErrorCode.NONE, self.now))

    def _keep(self, store):
        self.rules.check_record(store.record)
        self.record = store.record

    def restart(self):
        """The server is killed, or ends, and starts again. What it was writing may be on the disk."""
        if self.chance.random() < 0.5:
            self.take(self.coordinator.unload(GROUP))
        if self.unwritten and self.chance.random() < 0.5:
            self._keep(self.unwritten[0])
        self.life += 1
        self.unwritten, self._writes = [], False
        waiting, self.waiting = self.waiting, set()
        self.coordinator = self._new_coordinator()
        self.rules.check_loaded(self.record)
        if self.record is not None:
            self.take(self.coordinator.load(GROUP, self.record, self.now))
        for token in sorted(waiting, key=lambda one: one.since):
            token.answer(None)  # the connection has ended

    # ---- what happens

    def explore(self, events):
        """Lets things happen until there were so many events; then it lets them settle, and ends all clients."""
        actions = self._actions()
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

    def _actions(self):
        return {
            self._start: 14, self._kill: 8, self._leave: 6, self._change: 6, self._commit: 20,
            self._commit_of_ghost: 10, self._commit_without_member: 6, self._restart_instance: 8,
            self._remove_instance: 2, self._delete: 3, self.restart: 2, self._nothing: 20,
        }  # fmt: skip

    def _nothing(self):
        pass

    def _start(self):
        if len(self.clients) < MOST_CLIENTS:
            free = [one for one in INSTANCES if one not in {client.instance for client in self.clients}]
            instance = self.chance.choice(free) if free and self.chance.random() < 0.5 else None
            self._start_client(instance)

    def _start_client(self, instance):
        self.clients.append(SimClient(self, f"c{next(self._numbers)}", instance))
        self.clients[-1].join()

    def _one(self):
        return self.chance.choice(self.clients) if self.clients else None

    def _kill(self):
        if client := self._one():
            client.stop()

    def _leave(self):
        if client := self._one():
            client.leave()

    def _change(self):
        if client := self._one():
            client.change()

    def _commit(self):
        if client := self._one():
            client.commit()

    def _commit_of_ghost(self):
        """A client that was thought to be dead commits what it had."""
        if self.gone:
            self.chance.choice(self.gone[-20:]).commit()

    def _commit_without_member(self):
        self.rules.check_commit(-1, "", self.coordinator.check_commit(GROUP, -1, "", None, 9, self.now))

    def _restart_instance(self):
        """A static client restarts, maybe while its old process is there."""
        old = self._one()
        if old and old.instance:
            if self.chance.random() < 0.6:
                old.stop()
            if len(self.clients) < MOST_CLIENTS:
                self._start_client(old.instance)

    def _remove_instance(self):
        instance = self.chance.choice(INSTANCES)
        self.send("leave", SimClient(self, "admin", None).call_of_leave([("", instance)]))

    def _delete(self):
        def call(token):
            effects = self.coordinator.delete(token, GROUP)
            if effects.stores:
                self.rules.forget_group()
            return effects

        self.send("delete", call)

    def fail(self, why):
        raise AssertionError(f"event {self.events}, time {self.now}: {why}")


if __name__ == "__main__":
    main(World, EVENTS_OF_A_WORLD)
