"""A request to be handled, with its circumstances."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_log.errors import PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.broker import Broker
from pyspark_log.server.handlers.errors import RefusedError
from pyspark_log.server.security import ANONYMOUS, Login
from pyspark_log.server.security.acls import Operation, Resource

_log = logging.getLogger(__name__)

#: The error for what a client may not do, by the kind of resource.
NOT_ALLOWED: Mapping[Resource, ErrorCode] = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@dataclass
class Client:
    """What is known of the client of a connection.

    Attributes:
        peer: its address, "host:port".
        reached_at: the server's address as the client has it.
        software: name and version of its library, once it has said.
        warned: groups of which was logged that it cannot join.
        principal: as which it is known, as Kafka's access rules have it: `User:NAME`.
        login: its authentication; None: it needs none.
    """

    peer: str
    reached_at: tuple[str, int]
    software: str = field(default="")
    warned: set[str] = field(default_factory=set)
    principal: str = ANONYMOUS
    login: Login | None = None

    @property
    def host(self) -> str:
        """The address without the port."""
        return self.peer.rpartition(":")[0]


@dataclass(frozen=True)
class Call:
    """The circumstances of a request.

    Attributes:
        broker: the server.
        client: whose request it is.
        client_id: the name that the client gives itself; None: none.
        version: of the request and its response.
    """

    broker: Broker
    client: Client
    client_id: str | None
    version: int

    def allows(self, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether the client may do something; not, if what it may do cannot be read."""
        acls = self.broker.acls
        if acls is None:
            return True
        try:
            rules = acls.rules()
        except (PylogError, OSError) as error:
            _log.error("%s", error)
            return False
        return rules.allow(self.client.principal, self.client.host, operation, resource, name)

    def may_write_any(self) -> bool:
        """Whether there could be a topic that the client may write to."""
        acls, client = self.broker.acls, self.client
        return acls is None or acls.rules().allow_any(client.principal, client.host, Operation.WRITE, Resource.TOPIC)

    def require(self, operation: Operation, resource: Resource, name: str) -> None:
        """Refuses what the client may not do. RefusedError."""
        if not self.allows(operation, resource, name):
            raise RefusedError(NOT_ALLOWED[resource], f"{self.client.principal} may not do that")

    async def name_of(self, topic_id: bytes) -> str | None:
        """The topic of an id; None: there is none."""
        topics = self.broker.topics
        return topics.known_name(topic_id) or await self.broker.workers.run(topics.name, topic_id)
