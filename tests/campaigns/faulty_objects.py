"""moto as a server of objects that misbehaves all the time, for campaigns."""

from __future__ import annotations

import contextlib
import random
import time

from tests.object_proxy import Answer, pass_on, proxy
from tests.object_server import moto

# How many requests of a thousand have each fault.
_PER_THOUSAND = 8


def _late(exchange):
    time.sleep(random.uniform(0, 2))
    return exchange.ask()


def _lost(_exchange):
    """It was not served."""


def _unanswered(exchange):
    """It was served."""
    exchange.ask()


def _cut(exchange):
    answer = exchange.ask()
    answer.cut = exchange.method == "GET"
    return answer


def _busy(_exchange):
    return Answer(503, body=b"<Error><Code>SlowDown</Code></Error>")


def _conflict(exchange):
    """A put-if-absent that meets another one may be refused though nothing is there."""
    conflict = Answer(409, body=b"<Error><Code>ConditionalRequestConflict</Code></Error>")
    return conflict if exchange.is_create else exchange.ask()


_FAULTS = (_late, _lost, _unanswered, _cut, _busy, _conflict)


class FaultyObjects:
    """Methods and attributes as those of Versitygw, whose kill is here a time in which no request is served."""

    def __init__(self, folder):
        folder.mkdir()
        self._all, self._is_away = contextlib.ExitStack(), False
        server = self._all.enter_context(moto(folder))
        self._server = self._all.enter_context(proxy(server, self._behave))
        self.environment, self.bucket = self._server.environment, self._server.bucket

    def _behave(self, exchange):
        place = int(random.uniform(0, 1000)) // _PER_THOUSAND
        fault = _FAULTS[place] if place < len(_FAULTS) else pass_on
        return None if self._is_away else fault(exchange)

    def start(self):
        """Serves from now on."""
        self._is_away = False

    def kill(self):
        """Serves nothing until the next start."""
        self._is_away = True
