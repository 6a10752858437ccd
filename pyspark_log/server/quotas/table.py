"""Which quota counts for a client: that of the first of eight levels that has one, by the rules of Kafka's own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pyspark_log.server.quotas.entities import CONNECTION, DEFAULT, OF_CLIENTS, Entity, Quotas
from pyspark_log.server.security.acls import host_of

# Decisions that are remembered, at most.
_MOST_KNOWN = 10_000


class Bound(NamedTuple):
    """A quota that counts for a client.

    Attributes:
        value: how much.
        user, client_id: whose requests are counted together; "": of each one.
    """

    value: float
    user: str
    client_id: str


class Table:
    """All quotas, as they are at one time.

    Attributes:
        quotas: what is set.
    """

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self._addresses = {
            entity.ip and host_of(entity.ip): values[CONNECTION]
            for entity, values in quotas.items()
            if CONNECTION in values
        }
        self.limits_clients = any(entity.ip is None for entity in quotas)
        self._known: dict[tuple[str, str], Mapping[str, Bound]] = {}

    def bounds(self, user: str, client_id: str) -> Mapping[str, Bound]:
        """The quotas that count for a client, by their names; those without limit are missing."""
        known = self._known.get((user, client_id))
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = ((name, self._bound(name, user, client_id)) for name in OF_CLIENTS)
            # Infinity, and NaN, are quotas of Kafka that are never used up.
            known = self._known[user, client_id] = {
                name: bound for name, bound in found if bound is not None and math.isfinite(bound.value)
            }
        return known

    def _bound(self, name: str, user: str, client_id: str) -> Bound | None:
        for entity in _levels(user, client_id):
            value = self.quotas.get(entity, {}).get(name)
            if value is not None:
                # Each user and each client id under a default has all of its own.
                return Bound(
                    value, user if entity.user is not None else "", client_id if entity.client_id is not None else ""
                )
        return None

    def connection_rate(self, host: str) -> float | None:
        """How many connections an address may make a second; None: any number."""
        if not self._addresses:
            return None
        own = self._addresses.get(host_of(host), self._addresses.get(DEFAULT))
        return own if own is not None and math.isfinite(own) else None


def _levels(user: str, client_id: str) -> Iterator[Entity]:
    """Whose quotas count for a client, the first one first."""
    # Kafka takes a client without an id for none: only what is set for its user alone counts.
    for own in (user, DEFAULT):
        if client_id:
            yield Entity(own, client_id)
            yield Entity(own, DEFAULT)
        yield Entity(own)
    if client_id:
        yield Entity(None, client_id)
        yield Entity(None, DEFAULT)
