"""What a server does for its store beside answering clients, as a broker does in the background."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark_log.errors import PylogError
from pyspark_log.server.network import Loop, Workers
from pyspark_log.server.served import ServedLogs
from pyspark_log.storage.store import Store

_log = logging.getLogger(__name__)

# How often decided publishes are looked for whose process died before it had applied them, and how often what exceeds
# retention is (Kafka's log.retention.check.interval.ms); in seconds. For the latter in an object store see
# served/objects/upkeep.py.
_APPLY, _CLEAN = 1.0, 300.0


class Upkeep:
    """Applies publishes that were decided, deletes what exceeds retention, and begins what else is done for a store."""

    def __init__(self, loop: Loop, workers: Workers, store: Store, logs: ServedLogs) -> None:
        """Begins with nothing yet."""
        self._loop, self._workers, self._store, self._logs = loop, workers, store, logs

    def start(self) -> None:
        """Begins, if this process may write to the store."""
        if self._logs.writable:
            self._logs.background.start()
            self._repeat(_APPLY, self._store.publishes.apply_pending)
            self._loop.call_later(_CLEAN, self._repeat, _CLEAN, self.clean)

    def stop(self) -> None:
        """Stops what is done in the background. The rest ends with the loop."""
        self._logs.background.stop()

    def clean(self) -> None:
        """Deletes what exceeds the retention of topics and of committed offsets; a problem is logged."""
        for clean in (self._logs.clean, self._logs.groups.expire):
            try:
                clean()
            except (PylogError, OSError) as error:
                _log.warning("%s: %s", self._store.path, error)

    def _repeat(self, seconds: float, action: Callable[[], object]) -> None:
        """Runs an action, and again `seconds` after its end."""
        self._workers.run(action).then(lambda: self._loop.call_later(seconds, self._repeat, seconds, action))
