"""The other brokers of a cluster, as this node asks them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyspark_log.errors import PylogError
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.network import Loop, Wait, Workers


class Peers:
    """Asks brokers, each kind of request of each broker in a thread of its own. All calls come from the loop's thread.

    So a broker that does not answer holds back what is for others no more; and an answer for which the other side asks
    back, as for whether a producer may append, does not wait for one that waits for this side likewise.
    """

    def __init__(self, loop: Loop, connect: Callable[[int], Connection]) -> None:
        """`connect`: makes a connection to a broker of an id, in any thread. OSError, LoginError."""
        self._loop, self._connect = loop, connect
        self._lanes: dict[tuple[int, type[Struct]], _Lane] = {}

    def ask(self, broker: int, request: Struct) -> Wait[Any]:
        """The answer of a broker to a request that may come twice: the first time over a connection that was closed.

        The wait raises OSError or PylogError if there is none; also if there was none to one that was asked before it,
        but after it was given.
        """
        key = broker, type(request)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(self._loop, lambda: self._connect(broker))
        return lane.workers.run(lane.ask, request, time.monotonic())

    def close(self) -> None:
        """Closes the connections; nothing is asked any more."""
        for lane in self._lanes.values():
            lane.is_closed = True
        for lane in self._lanes.values():
            lane.close()


class _Lane:
    """A thread with a connection."""

    def __init__(self, loop: Loop, connect: Callable[[], Connection]) -> None:
        self.workers, self._connect = Workers(loop, 1), connect
        self._connection: Connection | None = None
        self._failed_at = float("-inf")
        self.is_closed = False

    def ask(self, request: Struct, since: float) -> Struct:
        """The answer to a request that was given at a time."""
        if self.is_closed or since < self._failed_at:
            raise ConnectionAbortedError("the broker did not answer what was asked before")
        try:
            return self._answer(request)
        except (OSError, PylogError):
            self._failed_at = time.monotonic()
            raise

    def _answer(self, request: Struct) -> Struct:
        kept, self._connection = self._connection, None
        if kept is not None:
            try:
                response: Struct = kept.ask(request)
            except (OSError, PylogError) as error:
                kept.close()
                if isinstance(error, TimeoutError):
                    raise
            else:
                self._connection = kept
                return response
        connection = self._connect()
        try:
            response = connection.ask(request)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return response

    def close(self) -> None:
        """Ends the thread, after what it asks now."""
        self.workers.close()
        if self._connection is not None:
            self._connection.close()
