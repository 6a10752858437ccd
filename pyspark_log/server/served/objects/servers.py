"""The servers of a store in an object store: each says in the publish log that it is there; see `servers`.

No two clocks are compared: a server is dead if this one has seen nothing of it for some time, by its own clock, while
it has followed the log. The log decides which of several that take it for dead coordinates in its place, and refuses
what the dead one writes, if it lives.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from pyspark_log.errors import PylogError, StoreError
from pyspark_log.server.served.objects.follower import Follower
from pyspark_log.server.served.servers import Server, Servers, check_reachable, leader_of
from pyspark_log.storage.catalog.topics import new_id
from pyspark_log.storage.fs.clock import since_boot
from pyspark_log.storage.publish_log.entries.changes import Place
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.proposals import Proposal
from pyspark_log.storage.publish_log.serving import servers
from pyspark_log.storage.publish_log.state import NO_COORDINATOR, State

_log = logging.getLogger(__name__)

#: How often a server says that it is there, and after how long without that it is taken for dead, in seconds.
RENEW, DEAD = 5.0, 15.0
# How long its end waits until the others know of it, in seconds.
_LEAVE = 5.0
# How often it is looked whether others live, in seconds.
_LOOK = 1.0


class ObjectServers(Servers):
    """Registers this one, and follows the others, in a thread."""

    def __init__(self, log: PublishLog, follower: Follower, node_id: int | None, rack: str = "") -> None:
        """`node_id`: an id of its own; None: any that is free, once it begins. `rack`: its rack; "": it has none."""
        self._log, self._follower, self._wanted = log, follower, node_id
        self.node_id, self.run = -1 if node_id is None else node_id, new_id()
        self._place = Place("", 0, rack)
        self._is_over = threading.Event()
        # Which number each start has said last that it is there with, and when this one has seen that, in seconds.
        self._seen = dict[str, tuple[int, float]]()
        self._alive: tuple[Server, ...] = ()
        self._renewed = 0.0
        self._thread = threading.Thread(target=self._work, name="pylog-servers", daemon=True)

    def alive(self) -> Sequence[Server]:
        return self._alive

    def leader(self, topic_id: str, partition: int, rack: str) -> Server:
        return leader_of(self._alive, topic_id, partition, rack)

    def nearer(self, topic_id: str, partition: int, rack: str) -> int | None:
        leader = self.leader(topic_id, partition, rack)
        return leader.node_id if leader.rack == rack != self._place.rack else None

    def coordinator(self) -> Server | None:
        state = self._follower.state
        for server in self._alive:
            registered = state.servers.get(server.node_id)
            if registered is not None and registered.run == state.coordinator.run:
                return server
        return None

    def of_transactions(self, transactional_id: str) -> Server:
        # Any of them decides; so that several clients do not ask one alone, they are shared out as partitions are.
        return leader_of(self._alive, transactional_id, 0)

    @property
    def coordinates(self) -> bool:
        # One that has not looked for so long, or was suspended, may have been replaced: it must not answer with old
        # offsets.
        return self.term is not None and since_boot() - self._follower.looked < DEAD

    @property
    def term(self) -> int | None:
        coordinator = self._follower.state.coordinator
        return coordinator.since if coordinator.run == self.run else None

    def register(self, address: tuple[str, int]) -> None:
        check_reachable(address)
        self._place = Place(*address, self._place.rack)
        entry = self._log.decide(lambda state: servers.register(state, self._wanted, self.run, self._place))
        assert entry is not None
        assert entry.server is not None
        self.node_id, self._renewed = entry.server.node_id, since_boot()
        self._judge()

    def begin(self, on_change: Callable[[], object], fail: Callable[[Exception], object]) -> None:
        self._on_change, self._fail = on_change, fail
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        if self._thread.ident is None:
            return
        # The object store may not answer for minutes.
        leaving = threading.Thread(target=self._leave, name="pylog-leave", daemon=True)
        leaving.start()
        leaving.join(_LEAVE)
        if leaving.is_alive():
            _log.warning("the other servers will take this one for dead in %d s: the store does not answer", DEAD)

    def _leave(self) -> None:
        self._thread.join()
        try:
            self._log.decide(lambda state: servers.leave(state, self.node_id, self.run))
        except (PylogError, OSError) as error:
            _log.warning("the other servers will take this one for dead in %d s: %s", DEAD, error)

    def _work(self) -> None:
        coordinated = NO_COORDINATOR
        while not self._is_over.wait(_LOOK):
            try:
                self._judge()
                self._take_over()
                if since_boot() - self._renewed >= RENEW:
                    self._decide(lambda state: servers.renew(state, self.node_id, self.run, self._place))
            except StoreError as error:
                self._fail(error)
                return
            except (PylogError, OSError) as error:
                _log.warning("node %d cannot say that it is there: %s", self.node_id, error)
            if (coordinator := self._follower.state.coordinator) != coordinated:
                coordinated = coordinator
                self._on_change()

    def _decide(self, propose: Callable[[State], Proposal | None]) -> None:
        began = since_boot()
        if self._log.decide(propose) is not None:
            self._renewed = began

    def _judge(self) -> None:
        """Finds which servers live."""
        # The state is at least as new as that look.
        looked, state = self._follower.looked, self._follower.state
        now, alive = since_boot(), list[Server]()
        for node_id, server in sorted(state.servers.items()):
            number, since = self._seen.get(server.run, (-1, 0.0))
            if number != server.number:
                since = now
                self._seen[server.run] = server.number, since
            if server.run == self.run or looked - since < DEAD:
                alive.append(Server(node_id, *server.place))
        self._seen = {server.run: self._seen[server.run] for server in state.servers.values()}
        # One that is alone is where its clients have found it.
        self._alive = tuple(alive) if len(alive) > 1 else (Server(self.node_id, "", 0, self._place.rack),)

    def _take_over(self) -> None:
        """Coordinates in place of a server that has died, if it is the first one of those that live."""
        state = self._follower.state
        if self.coordinator() is None and self._alive and self._alive[0].node_id == self.node_id:
            dead = state.coordinator.run
            _log.info("node %d coordinates in place of a server that has died", self.node_id)
            self._decide(lambda newest: servers.coordinate(newest, self.node_id, self.run, self._place, dead))
