"""Which principal may do what: Kafka's access control lists (KIP-11, KIP-290), by the rules of StandardAuthorizer."""

from __future__ import annotations

import ipaddress
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeVar

from pyspark_log.errors import PylogError
from pyspark_log.server.documents import Documents, Followed
from pyspark_log.storage.catalog.store_json import ACLS_FILE
from pyspark_log.storage.fs.json_fields import Fields

_log = logging.getLogger(__name__)

_E = TypeVar("_E", bound=IntEnum)

#: The name of a literal pattern that means all resources of its kind.
ANY = "*"
#: The only resource of the kind CLUSTER.
CLUSTER_NAME = "kafka-cluster"
_EVERY_USER = "User:*"
_VERSION = 1
# Decisions that are remembered, at most, and the longest name of which one is; in place of a name: of any.
_MOST_KNOWN, _LONGEST_KNOWN, _EACH_NAME = 10_000, 249, ""


class Resource(IntEnum):
    """The kinds of resources; Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """How a name is meant; Kafka's numbers."""

    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What is done; Kafka's numbers."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether it may be done; Kafka's numbers."""

    DENY = 2
    ALLOW = 3


#: What can be done with a resource, by its kind.
OPERATIONS: Mapping[Resource, tuple[Operation, ...]] = {
    Resource.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    Resource.GROUP: (
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    Resource.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    ),
    Resource.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    Resource.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    Resource.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}  # fmt: skip

# Whichever of these is allowed allows the operation, too. What is denied is denied alone.
_IMPLIED_BY: Mapping[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


def host_of(address: str) -> str:
    """An address as ACLs name it: as Java writes it, IPv6 in eight numbers without leading zeros."""
    try:
        known = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv4Address):
        return str(known)
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in known.exploded.split(":"))


class Acl(NamedTuple):
    """An entry of the list.

    Attributes:
        resource, name, pattern: of what.
        principal: such as `User:anna`; `User:*` is each one.
        host: the client's address; `*` is each one.
        operation: what it does.
        permission: whether it may.
    """

    resource: Resource
    name: str
    pattern: Pattern
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def is_of(self, principal: str, host: str) -> bool:
        """Whether it is about this client."""
        return self.principal in (principal, _EVERY_USER) and self.host in (host, ANY)

    def allows(self, operation: Operation) -> bool:
        """Whether it allows an operation, also as one that is implied by what it names."""
        named = self.operation
        is_named = named in (operation, Operation.ALL) or named in _IMPLIED_BY.get(operation, ())
        return self.permission is Permission.ALLOW and is_named

    def denies(self, operation: Operation) -> bool:
        """Whether it denies an operation."""
        return self.permission is Permission.DENY and self.operation in (operation, Operation.ALL)


class Rules:
    """All entries, as they are at one time.

    Attributes:
        acls: the entries.
    """

    def __init__(self, acls: Iterable[Acl], super_users: Collection[str] = ()) -> None:
        """`super_users`: principals that may do everything, whatever the entries say."""
        self.acls = frozenset(acls)
        self._super_users = frozenset(super_users)
        self._by_name: dict[tuple[Resource, Pattern, str], list[Acl]] = {}
        for one in self.acls:
            self._by_name.setdefault((one.resource, one.pattern, one.name), []).append(one)
        # So that a long name costs no more than there are prefixes.
        prefixes = [(kind, len(name)) for kind, pattern, name in self._by_name if pattern is Pattern.PREFIXED]
        self._prefix_sizes = {kind: {size for of, size in prefixes if of is kind} for kind in Resource}
        self._known: dict[tuple[str, str, Operation, Resource, str], bool] = {}

    def allow(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether a client may do something. An entry that denies it counts before all that allow it."""
        if principal in self._super_users:
            return True
        asked = principal, host, operation, resource, name
        known = self._known.get(asked)
        if known is None:
            mine = [one for one in self._about(resource, name) if one.is_of(principal, host)]
            known = any(one.allows(operation) for one in mine) and not any(one.denies(operation) for one in mine)
            self._remember(asked, known)
        return known

    def allow_any(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether a client may do something with any resource of a kind, of those that there are or could be.

        So it is for an idempotent producer, which has not said yet what it writes to (KIP-679).
        """
        asked = principal, host, operation, resource, _EACH_NAME
        known = self._known.get(asked)
        if known is None:
            known = self._allows_any(principal, host, operation, resource)
            self._remember(asked, known)
        return known

    def _remember(self, asked: tuple[str, str, Operation, Resource, str], answer: bool) -> None:
        if len(asked[-1]) <= _LONGEST_KNOWN:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[asked] = answer

    def _allows_any(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        # As Kafka looks whether any name is allowed at all; there, and only there, implied operations count.
        if self.allow(principal, host, operation, resource, "hardcode"):
            return True
        mine = [one for one in self.acls if one.resource is resource and one.is_of(principal, host)]
        denied = [one for one in mine if one.denies(operation)]
        if any(one.name == ANY and one.pattern is Pattern.LITERAL for one in denied):
            return False
        literal = {one.name for one in denied if one.pattern is Pattern.LITERAL}
        prefixes = tuple(one.name for one in denied if one.pattern is Pattern.PREFIXED)
        for one in mine:
            if one.permission is Permission.ALLOW and one.operation in (operation, Operation.ALL):
                if one.name == ANY and one.pattern is Pattern.LITERAL:
                    return True
                is_denied = one.pattern is Pattern.LITERAL and one.name in literal
                if not is_denied and not one.name.startswith(prefixes):
                    return True
        return False

    def _about(self, resource: Resource, name: str) -> Iterator[Acl]:
        """The entries about a resource."""
        for known in (name, ANY):
            yield from self._by_name.get((resource, Pattern.LITERAL, known), ())
        for size in self._prefix_sizes[resource]:
            yield from self._by_name.get((resource, Pattern.PREFIXED, name[:size]), ())


class Acls:
    """The entries of a store, or of a cluster; each change of them counts at once. Safe to use from several threads.

    Attributes:
        without_entries: the rules if there were none.
    """

    def __init__(
        self, documents: Documents, super_users: Collection[str], source: Followed[Rules] | None = None
    ) -> None:
        """Those among the documents of a store.

        Args:
            documents: the store's.
            super_users: as those of `Rules`.
            source: has the rules in place of the documents.
        """
        self._super_users, self._complaint = super_users, ""
        self.without_entries = self._rules(())
        self._source: Followed[Rules] = source or documents.followed(
            ACLS_FILE, "list of ACLs", self.without_entries, self._decoded, _encoded
        )

    def _rules(self, acls: Iterable[Acl]) -> Rules:
        return Rules(acls, self._super_users)

    def rules(self) -> Rules:
        """The rules as they are now. PylogError, OSError: they cannot be read."""
        return self._source.content()

    def current(self) -> Rules:
        """The same; if they cannot be read, the rules without entries, so that super users alone are served."""
        try:
            rules, self._complaint = self.rules(), ""
        except (PylogError, OSError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.error("only super users are served: %s", error)
            return self.without_entries
        return rules

    def change(self, make: Callable[[frozenset[Acl]], Iterable[Acl]]) -> None:
        """Replaces the entries by what `make` makes of them.

        Raises:
            PylogError, OSError: as of Followed.
        """
        self._source.change(lambda rules: self._rules(make(rules.acls)))

    def _decoded(self, data: bytes) -> Rules:
        content = Fields.parse(data)
        content.check_version(_VERSION, "the list of ACLs")
        return self._rules(_acl(Fields(one)) for one in content.list("acls"))


def _encoded(rules: Rules) -> bytes:
    acls = [
        {
            "resource": one.resource.name, "name": one.name, "pattern": one.pattern.name, "principal": one.principal,
            "host": one.host, "operation": one.operation.name, "permission": one.permission.name,
        }
        for one in sorted(rules.acls)
    ]  # fmt: skip
    return json.dumps({"version": _VERSION, "acls": acls}, indent=2).encode() + b"\n"


def _acl(fields: Fields) -> Acl:
    def number(kind: type[_E], name: str) -> _E:
        try:
            return kind[fields.text(name)]
        except KeyError:
            raise ValueError(f"{name!r} is none of {', '.join(kind.__members__)}") from None

    return Acl(
        number(Resource, "resource"),
        fields.text("name"),
        number(Pattern, "pattern"),
        fields.text("principal"),
        fields.text("host"),
        number(Operation, "operation"),
        number(Permission, "permission"),
    )
