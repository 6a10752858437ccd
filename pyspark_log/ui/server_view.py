"""What the page asks a server for. Without a server, the parts that need it say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pyspark_log.types import TopicPartition


class ClientView(NamedTuple):
    """A client that is connected.

    Attributes:
        peer: its address.
        client_id: its client.id, cut if it is long; "": it has none.
        software: its library with the version; "": it has not said.
        principal: as which principal it is known.
        api: the name of the API of its newest request.
        is_waiting: whether that waits for records, other members, or a disk.
        connected, idle: how long it is connected, and since when it has sent nothing (s).
    """

    peer: str
    client_id: str
    software: str
    principal: str
    api: str
    is_waiting: bool
    connected: float
    idle: float


class TransactionView(NamedTuple):
    """A transactional id.

    Attributes:
        name: the id.
        state: by Kafka's name.
        producer: id and epoch of its producer.
        started: when its open transaction began (ms); -1: it has none.
        timeout: how long it may last (ms).
        partitions: what the open transaction has written to.
    """

    name: str
    state: str
    producer: tuple[int, int]
    started: int
    timeout: int
    partitions: Sequence[TopicPartition]


class HeldBack(NamedTuple):
    """Something for which a server makes clients wait, or refuses them.

    Attributes:
        name: what it is.
        now: the state now, as text.
        limit: from when on it holds clients back, as text.
        is_active: whether it does now, or has lately.
    """

    name: str
    now: str
    limit: str
    is_active: bool


class ServerState(NamedTuple):
    """A server at a moment.

    Attributes:
        clients: as many as a page shows, those that are connected longest.
        client_count: all of them.
        transactions: as many as a page shows, by their names.
        transaction_count: all of them.
        throttling: what holds clients back.
    """

    clients: Sequence[ClientView]
    client_count: int
    transactions: Sequence[TransactionView]
    transaction_count: int
    throttling: Sequence[HeldBack]


class ServerView(Protocol):
    """A server, as the page sees it; its methods are called in any thread."""

    def state(self) -> ServerState:
        """How it is now. TimeoutError: it does not answer."""

    def log_in(self, host: str, user: str, password: str) -> bool:
        """Whether a user of the server has a password; `host`: from where it is asked. A failure takes some time."""
