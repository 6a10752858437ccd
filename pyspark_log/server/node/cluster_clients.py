"""What a cluster says of its clients: users, rules and quotas, as its brokers apply them, and so a node of it."""

from __future__ import annotations

import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Generic, TypeVar

from pyspark_log.errors import InvalidConfigError
from pyspark_log.kafka.messages import AccessControlEntryRecord, UserScramCredentialRecord
from pyspark_log.server.cluster import Image
from pyspark_log.server.cluster.errors import MetadataError
from pyspark_log.server.cluster.image import Entity as ClusterEntity
from pyspark_log.server.documents import Documents, Followed
from pyspark_log.server.quotas import DEFAULT, KINDS, ClientQuotas, Entity, Table
from pyspark_log.server.security.acls import Acl, Acls, Operation, Pattern, Permission, Resource, Rules
from pyspark_log.server.security.users import SCRAM_NUMBERS, Credential, Known

_log = logging.getLogger(__name__)

# ACLs that are remembered as entries of rules, at most.
_MOST_KNOWN = 100_000

_P = TypeVar("_P")
_T = TypeVar("_T")


class ClusterClients:
    """The clients of a cluster, as the newest image has them.

    Attributes:
        users: those with passwords.
        quotas: how much each may use.
    """

    def __init__(self) -> None:
        self._image = Image()
        secret = secrets.token_bytes(32)
        self.users: Followed[Known] = _Followed(lambda: self._image.scram, lambda scram: _users(scram, secret))
        self.quotas: Followed[Table] = _Followed(lambda: self._image.quotas, _quotas)

    def follow(self, image: Image) -> None:
        """Takes a newer image; before the first, there is nothing."""
        self._image = image

    def rules(self, super_users: Collection[str]) -> Followed[Rules]:
        """What each principal may do; `super_users`: of this node."""
        return _Followed(lambda: self._image.acls, lambda acls: Rules(map(_acl, acls.values()), super_users))


def clients_of_cluster(documents: Documents, *, has_rules: bool) -> ClusterClients:
    """The clients of the cluster that a server is a node of.

    Args:
        documents: those of its store.
        has_rules: ACLs count.

    Raises:
        InvalidConfigError: the store has ACLs, which its administrator may take for those that count.
        PylogError, OSError: it cannot be found out what the store has.
    """
    if has_rules and (count := len(Acls(documents, ()).rules().acls)):
        raise InvalidConfigError(
            f"the store has {count} ACLs of its own, and a node uses those of its cluster alone: add them there by "
            "kafka-acls.sh, and remove them here by `pylog acls remove`"
        )
    if ClientQuotas(documents).table().quotas:
        _log.warning("the store's own quotas are not used: a node has those of its cluster")
    return ClusterClients()


class _Followed(Generic[_P, _T]):
    """What follows from a part of the newest image."""

    def __init__(self, part: Callable[[], _P], make: Callable[[_P], _T]) -> None:
        """`make`: what follows, from the part; MetadataError: nothing, as this version does not know it."""
        self._part, self._make = part, make
        self._cached: tuple[_P, _T | MetadataError] | None = None

    def content(self) -> _T:
        """What follows now; the same object until the part is another one. MetadataError, as of `make`."""
        part, cached = self._part(), self._cached
        # An image that differs elsewhere shares the part.
        if cached is None or cached[0] is not part:
            try:
                cached = part, self._make(part)
            except MetadataError as error:
                cached = part, error
            self._cached = cached
        if isinstance(cached[1], MetadataError):
            raise MetadataError(str(cached[1]))
        return cached[1]

    def change(self, make: Callable[[_T], _T]) -> None:
        """Refuses that. InvalidConfigError."""
        raise InvalidConfigError("the controllers of the cluster change that, and no node")


def _users(scram: Mapping[tuple[str, int], UserScramCredentialRecord], secret: bytes) -> Known:
    users = defaultdict[str, dict[str, Credential]](dict)
    for (name, number), record in scram.items():
        if number in SCRAM_NUMBERS:
            keys = bytes(record.salt), bytes(record.stored_key), bytes(record.server_key)
            users[name][SCRAM_NUMBERS[number]] = Credential(*keys, record.iterations)
    return Known(dict(users), secret)


def _quotas(quotas: Mapping[ClusterEntity, Mapping[str, float]]) -> Table:
    table = {}
    for entity, values in quotas.items():
        parts = {kind: DEFAULT if name is None else name for kind, name in entity}
        table[Entity(*(parts.get(kind) for kind in KINDS))] = values
    return Table(table)


@lru_cache(_MOST_KNOWN)  # An image has most records of the one before.
def _acl(record: AccessControlEntryRecord) -> Acl:
    try:
        return Acl(
            Resource(record.resource_type),
            record.resource_name,
            Pattern(record.pattern_type),
            record.principal,
            record.host,
            Operation(record.operation),
            Permission(record.permission_type),
        )
    except ValueError as error:
        raise MetadataError(f"an ACL of the cluster is of a kind that this version does not know: {error}") from None
