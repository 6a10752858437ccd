"""What a store in an object store needs now and then, done by one of its servers: compaction, merging, retention."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pyspark_log.errors import PylogError
from pyspark_log.server.served.logs import Background
from pyspark_log.server.served.servers import Servers
from pyspark_log.storage.object_store import ObjectStore

_log = logging.getLogger(__name__)

#: How long after its start a server does it first, and how long after that again, in seconds: to list the objects of a
#: large store costs a cent.
FIRST, AGAIN = 300.0, 3600.0


class ObjectUpkeep(Background):
    """Does it in a thread, while this server is the one that coordinates.

    If another one has come to do the same, it is only done twice: each change is a decision.
    """

    def __init__(self, store: ObjectStore, servers: Servers) -> None:
        """Of a store, whose `servers` are known."""
        self._store, self._servers = store, servers
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pylog-upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Not waited for: what is under way may take long, and is right wherever it is cut off."""
        self._is_over.set()

    def _work(self) -> None:
        pause = FIRST
        while not self._is_over.wait(pause):
            pause = AGAIN
            if self._servers.coordinates:
                self._run()

    def _run(self) -> None:
        """Does each step; what fails is logged, and the rest is done."""
        steps: tuple[Callable[[], object], ...] = (self._compact, self._store.merge, self._store.clean)
        for step in steps:
            try:
                step()
            except (PylogError, OSError) as error:
                _log.warning("%s: %s", self._store.path, error)

    def _compact(self) -> None:
        for outcome in self._store.compact():
            if outcome.problem:
                _log.warning("%s: %s was not compacted: %s", self._store.path, outcome.at, outcome.problem)
