"""A request to be handled, with its circumstances."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark_log.server.broker import Broker
from pyspark_log.server.security import ANONYMOUS, Login


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

    async def name_of(self, topic_id: bytes) -> str | None:
        """The topic of an id; None: there is none."""
        topics = self.broker.topics
        return topics.known_name(topic_id) or await self.broker.workers.run(topics.name, topic_id)
