"""Clients that behave like Kafka's, on a network and a log that fail, and what must hold of their group all the time.

Everything is drawn from a seed. `python tests/unit/server/coordinator/explorer.py SEED EVENTS` explores further than
the tests do; a failure names the seed and the event.
"""

from explorer_clients import SimClient
from explorer_rules import Rules

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.coordinator import Coordinator, Settings
from tests.exploring import GroupWorld, main

GROUP = "g"
EVENTS_OF_A_WORLD = 2_000
MOST_CLIENTS = 7
INSTANCES = ("i1", "i2", "i3")
MOST_MEMBERS = (3, 5)


class Token:
    """A request that waits at the server: when it came, of which kind it is, and what is done with the answer."""

    def __init__(self, kind, since, answer):
        self.kind, self.since, self.answer = kind, since, answer


def is_new(token, response):
    """Whether a response lets a member into a generation."""
    return token.kind == "join" and response.error_code == ErrorCode.NONE


class World(GroupWorld):
    """One group, its server and its clients."""

    def __init__(self, seed):
        super().__init__(seed)
        self.gone, self.record = [], None
        self.rules = Rules(self)
        self.waiting = set()
        self.coordinator = self._new_coordinator()

    def _new_coordinator(self):
        size = self.chance.choice(MOST_MEMBERS)
        settings = Settings(
            min_session_timeout=1_000, initial_rebalance_delay=500, max_size=size, new_member_timeout=20_000
        )
        return Coordinator(settings, lambda: str(next(self._numbers)))

    def lateness(self, deadline, first):
        # A server is sometimes late.
        return deadline if self.calm else min(first, deadline + self.chance.randrange(5))

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
            self.after(self.latency(), lambda: lost() if self.life != life else answered and answered(response))

        self.after(self.latency(), lambda: deliver(back) if self.life == life else lost())
        if not self.calm and self.chance.random() < 0.03:
            self.after(self.latency() * 10, lambda: deliver(lambda response: None))

    def take(self, effects):
        before = self.rules.generation
        for token, response in effects.answers:
            self.waiting.remove(token)  # KeyError: answered twice
            self.rules.check_answer(token, response)
            token.answer(response)
        if self.rules.generation > before:
            self.rules.check_new_generation([one for token, one in effects.answers if is_new(token, one)])
        self.write(effects.stores)

    def begin_write(self, store):
        if store.record is None:
            self.rules.stored_generation = 0  # even if it fails: a group of the same name may have begun

    def keep(self, store):
        self.rules.check_record(store.record)
        self.record = store.record

    def restart(self):
        """The server is killed, or ends, and starts again."""
        self.end_life(GROUP)
        waiting, self.waiting = self.waiting, set()
        self.coordinator = self._new_coordinator()
        self.rules.check_loaded(self.record)
        if self.record is not None:
            self.take(self.coordinator.load(GROUP, self.record, self.now))
        for token in sorted(waiting, key=lambda one: one.since):
            token.answer(None)  # the connection has ended

    # ---- what happens

    def actions(self):
        return {
            self._start: 14, self.each("stop"): 8, self.each("leave"): 6, self.each("change"): 6,
            self.each("commit"): 20, self._commit_of_ghost: 10, self._commit_without_member: 6,
            self._restart_instance: 8, self._remove_instance: 2, self._delete: 3, self.restart: 2, self.nothing: 20,
        }  # fmt: skip

    def _start(self):
        if len(self.clients) < MOST_CLIENTS:
            self._start_client(self.free_instance(INSTANCES))

    def _start_client(self, instance):
        self.clients.append(SimClient(self, f"c{next(self._numbers)}", instance))
        self.clients[-1].join()

    def _commit_of_ghost(self):
        """A client that was thought to be dead commits what it had."""
        if self.gone:
            self.chance.choice(self.gone[-20:]).commit()

    def _commit_without_member(self):
        self.rules.check_commit(-1, "", self.coordinator.check_commit(GROUP, -1, "", None, 9, self.now))

    def _restart_instance(self):
        """A static client restarts, maybe while its old process is there."""
        old = self.one()
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


if __name__ == "__main__":
    main(World, EVENTS_OF_A_WORLD)
