"""A request to be handled, with its circumstances."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.schemas import Struct, message
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.broker import Broker
from pyspark_log.server.network import Wait
from pyspark_log.server.quotas import Throttle
from pyspark_log.server.security import ANONYMOUS, Login
from pyspark_log.server.security.acls import OPERATIONS, Operation, Resource, Rules, host_of
from pyspark_log.types import TopicPartition

_log = logging.getLogger(__name__)

#: The error for what a client may not do, by the kind of resource.
NOT_ALLOWED: Mapping[Resource, ErrorCode] = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def _action_of(operation: Operation, resource: Resource) -> str:
    return f"{operation.name} {resource.name}".lower().replace("_", "-")


def key_of(request: type[Struct]) -> int:
    """The key of the API that a request is of."""
    key = message(request.__name__).api_key
    assert key is not None
    return key


class Turns:
    """Lets the requests of a connection do something one after the other, in their order."""

    def __init__(self) -> None:
        """It is the turn of the next one that asks."""
        self._waiting = deque[Wait[None]]()

    def take(self) -> Wait[None]:
        """Waits for a request's turn, which it has until it ends it."""
        turn: Wait[None] = Wait()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            turn.finish(None)
        return turn

    def end(self, turn: Wait[None]) -> None:
        """Ends the turn of a request, or its wait; a second time has no effect."""
        if turn not in self._waiting:
            return
        was_first = self._waiting[0] is turn
        self._waiting.remove(turn)
        if was_first and self._waiting:
            self._waiting[0].finish(None)


@dataclass
class Client:
    """What is known of the client of a connection.

    Attributes:
        peer: its address, "host:port".
        reached_at: the server's address as the client has it.
        software: name and version of its library, once it has said.
        client_id: the client.id of its last request.
        warned: groups of which was logged that it cannot join, or with an error: that it cannot commit.
        principal: as which it is known, as Kafka's access rules have it: `User:NAME`.
        login: its authentication; None: it needs none.
        turns: the order of its produce requests, where several are under way.
    """

    peer: str
    reached_at: tuple[str, int]
    software: str = field(default="")
    client_id: str = ""
    warned: set[str] = field(default_factory=set)
    principal: str = ANONYMOUS
    login: Login | None = None
    turns: Turns = field(default_factory=Turns)

    @property
    def name(self) -> str:
        """The user's name, as quotas have it."""
        return self.principal.partition(":")[2]

    @cached_property
    def host(self) -> str:
        """The address without the port, as ACLs name it."""
        return host_of(self.peer.rpartition(":")[0])


@dataclass(eq=False)
class Call:
    """The circumstances of a request.

    Attributes:
        broker: the server.
        client: whose request it is.
        client_id: the name that the client gives itself; None: none.
        version: of the request and its response.
        throttle: what of its quotas the client uses; None: nothing limits it.
    """

    broker: Broker
    client: Client
    client_id: str | None
    version: int
    throttle: Throttle | None = None
    _rules: Rules | None = field(default=None, init=False)

    @property
    def rules(self) -> Rules | None:
        """The rules of this request, the same to its end; None: it may do everything."""
        if self._rules is None and self.broker.acls is not None:
            self._rules = self.broker.acls.current()
        return self._rules

    def leads(self, at: TopicPartition) -> bool:
        """Whether the server leads a partition."""
        return self.broker.cluster.leader_epoch(at) is not None

    def allows(self, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether the client may do something; if what it may do cannot be read, only a super user may."""
        if self.broker.acls is None:
            return True
        rules, client = self.rules, self.client
        if rules is None or rules.allow(client.principal, client.host, operation, resource, name):
            return True
        _log.debug("%s: %s may not %s %s", client.peer, client.principal, _action_of(operation, resource), name)
        return False

    def may_write_any(self) -> bool:
        """Whether there could be a topic that the client may write to."""
        rules, client = self.rules, self.client
        return rules is None or rules.allow_any(client.principal, client.host, Operation.WRITE, Resource.TOPIC)

    def operations(self, resource: Resource, name: str) -> int:
        """What the client may do with a resource: a bit for each operation, by its number."""
        return sum(1 << operation for operation in OPERATIONS[resource] if self.allows(operation, resource, name))

    def require(self, operation: Operation, resource: Resource, name: str) -> None:
        """Refuses what the client may not do. RefusedError."""
        if not self.allows(operation, resource, name):
            action = _action_of(operation, resource)
            raise RefusedError(NOT_ALLOWED[resource], f"{self.client.principal} may not {action} {name}")

    def may_mutate(self, partitions: int, *, strict: bool) -> bool:
        """Takes from the client's quota of partitions that are made and deleted; from any thread.

        Args:
            partitions: how many are to be.
            strict: whether they may not, if the quota is used up; else the client only waits afterwards.
        """
        return self.throttle is None or self.throttle.mutate(partitions, strict=strict)

    def require_mutation(self, partitions: int, first_strict: int) -> None:
        """The same for a request that is strict from a version on. RefusedError: they may not."""
        if not self.may_mutate(partitions, strict=self.version >= first_strict):
            raise RefusedError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the quota controller_mutation_rate is used up")
