"""Clients of groups of KIP-848 on a network and a log that fail, and what must hold of their group all the time.

Everything is drawn from a seed. `python tests/unit/server/coordinator/modern_explorer.py SEED EVENTS` explores further
than the tests do; a failure names the seed and the event.
"""

from dataclasses import replace

from modern_rig import topics_of
from modern_rules import GROUP, ModernRules
from modern_sim import ModernClient

from pyspark_log.server.coordinator import Coordinator, Settings
from tests.exploring import GroupWorld, main

EVENTS_OF_A_WORLD = 1_000
MOST_CLIENTS = 6
INSTANCES = ("i1", "i2")
SESSION = 10_000


class World(GroupWorld):
    """One group, its server and its clients.

    Attributes:
        records: what the log has.
    """

    most_late, longest_write, long = 4_000, 1_000, 200_000

    def __init__(self, seed):
        super().__init__(seed, 1)
        self.records = {}
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

    # ---- the server

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
        self.write(effects.stores)

    def keep(self, store):
        kept = self.records | store.records
        self.records = {key: value for key, value in kept.items() if value is not None}

    def restart(self):
        """The server is killed, or ends, and starts again."""
        self.end_life(GROUP)
        self.waiting = {}
        self.coordinator = self._new_coordinator()
        if self.records:
            self.take(self.coordinator.load_modern(GROUP, self.records, self.now))

    # ---- what happens

    def actions(self):
        return {
            self._start: 10, self.each("stop"): 3, self.each("leave", -1): 5, self._away: 5, self.each("subscribe"): 4,
            self.each("commit"): 20, self._grow: 2, self._delete: 2, self.restart: 2, self.nothing: 30,
        }  # fmt: skip

    def _start(self):
        if len(self.clients) < MOST_CLIENTS:
            instance = self.free_instance(INSTANCES)
            self.clients.append(ModernClient(self, f"m{next(self._numbers)}", instance))
            self.clients[-1].beat()

    def _away(self):
        client = self.one()
        if client and client.instance:
            client.leave(-2)

    def _grow(self):
        topics = self.topics.topics
        if (name := self.chance.choice(list(topics))) and topics[name].partitions < 6:
            more = {one: topic.partitions + (one == name) for one, topic in topics.items()}
            self.topics = replace(topics_of(**more), version=self.topics.version + 1)

    def _delete(self):
        self.send(lambda token: self.coordinator.delete(token, GROUP), lambda _: None)


if __name__ == "__main__":
    main(World, EVENTS_OF_A_WORLD)
