"""What follows from the calls of the coordinator, until it is taken, and what is done when it is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.coordinator.effects import Effects, ModernStore, Store, Token

#: What is done when a record is stored, or cannot be; it is given why not, and the time.
Stored: TypeAlias = Callable[[ErrorCode, int], None]

# What members get for an error of the log, where it is another: they look for the coordinator again, or give up.
_ERRORS_OF_STORING = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def of_storing(error: ErrorCode) -> ErrorCode:
    """What clients of a group get for an error of the log. As Kafka: others they would take for the end of all."""
    return _ERRORS_OF_STORING.get(error, error)


class Outbox:
    """Collects answers and stores."""

    def __init__(self) -> None:
        self._effects = Effects()
        self._waiting: dict[int, Stored] = {}
        self._ticket = 0

    def take_effects(self) -> Effects:
        """What followed from the calls since the last time."""
        taken, self._effects = self._effects, Effects()
        return taken

    def answer(self, token: Token, response: Struct) -> None:
        """Answers a request."""
        self._effects.answers.append((token, response))

    def store(self, make: Callable[[int], Store | ModernStore], then: Stored | None = None) -> int:
        """Has something written, made of its ticket; `then` is called afterwards. Returns the ticket."""
        self._ticket += 1
        if then is not None:
            self._waiting[self._ticket] = then
        self._effects.stores.append(make(self._ticket))
        return self._ticket

    def stored(self, ticket: int, error: ErrorCode, now: int) -> None:
        """Continues after something is written, or is not."""
        then = self._waiting.pop(ticket, None)
        if then is not None:
            then(of_storing(error), now)
