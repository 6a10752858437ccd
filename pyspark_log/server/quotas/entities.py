"""Quotas as they are set: for which clients, of what, and how much (KIP-13, 55, 124, 599, 612)."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pyspark_log.errors import InvalidConfigError, shortened

#: As a part of an entity: each one that has no quota of its own.
DEFAULT = ""

#: What can be limited, by Kafka's names: bytes a second, also those of requests' and responses' other fields; the time
#: of a thread in percent; and partitions that are made or deleted, and connections, a second.
PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATION, CONNECTION = "controller_mutation_rate", "connection_creation_rate"

#: The quotas of users and clients, and those of addresses.
OF_CLIENTS, OF_ADDRESSES = (PRODUCE, FETCH, REQUEST, MUTATION), (CONNECTION,)
# Those that are whole numbers, with the largest.
_WHOLE: Mapping[str, int] = {PRODUCE: 2**63 - 1, FETCH: 2**63 - 1, CONNECTION: 2**31 - 1}
#: The most characters of a name.
MOST_NAME = 1024


class Entity(NamedTuple):
    """The clients that a quota is for.

    Attributes:
        user: a name, without `User:`; DEFAULT; None: it is for no user in particular.
        client_id: a client id, likewise.
        ip: an address, likewise; then neither a user nor a client id.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def parts(self) -> Iterator[tuple[str, str]]:
        """Its parts, by Kafka's names of their types; DEFAULT for a default."""
        for kind, name in zip(KINDS, self, strict=True):
            if name is not None:
                yield kind, name


#: Kafka's names of the parts of an entity, in its order.
KINDS = ("user", "client-id", "ip")
#: What is set: the values of quotas by their names, by entity.
Quotas = Mapping[Entity, Mapping[str, float]]


def check_entity(entity: Entity) -> None:
    """Refuses what is no entity. InvalidConfigError."""
    if entity.ip is not None and (entity.user is not None or entity.client_id is not None):
        raise InvalidConfigError("an address has no user and no client id beside it")
    if all(part is None for part in entity):
        raise InvalidConfigError("a quota is for a user, a client id, both, or an address")
    for kind, name in entity.parts():
        if len(name) > MOST_NAME:
            raise InvalidConfigError(f"{kind} {shortened(name)!r} has more than {MOST_NAME} characters")
    if entity.ip and not _is_address(entity.ip):
        raise InvalidConfigError(f"{shortened(entity.ip)!r} is no address of IP")


def check_quota(entity: Entity, name: str, value: float) -> None:
    """Refuses what is no quota of an entity, or no value of it. InvalidConfigError."""
    known = OF_CLIENTS if entity.ip is None else OF_ADDRESSES
    if name not in known:
        whose = "users and client ids" if entity.ip is None else "addresses"
        raise InvalidConfigError(f"{shortened(name)!r} is no quota of {whose}: there are {', '.join(known)}")
    if not 0 < value < math.inf:
        raise InvalidConfigError(f"{name} is {value}; it must be a number greater than 0")
    if name in _WHOLE:
        if value > _WHOLE[name]:
            raise InvalidConfigError(f"{name} is {value}; at most {_WHOLE[name]} is possible")
        if value % 1 > 1e-6:
            raise InvalidConfigError(f"{name} is {value}; it must be a whole number")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
