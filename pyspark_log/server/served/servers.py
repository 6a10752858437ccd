"""The servers of a store: which there are, which partition each leads, and which one coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol

from pyspark_log.errors import InvalidConfigError

# Addresses that listen on all others.
_ANY = ("0.0.0.0", "::")


class Server(NamedTuple):
    """A server, where clients find it, host "": where they have found this one; and its rack, "": it has none."""

    node_id: int
    host: str
    port: int
    rack: str = ""


def leader_of(alive: Sequence[Server], topic_id: str, partition: int, rack: str = "") -> Server:
    """Which of them leads a partition, by rendezvous hashing: one that comes or goes moves its own share alone.

    `rack`: one in it, if there is any; "": any.
    """
    if len(alive) == 1:
        return alive[0]
    near = [server for server in alive if server.rack == rack] if rack else alive
    place = f"{topic_id}-{partition}-"
    hashes = {server: blake2b(f"{place}{server.node_id}".encode(), digest_size=8).digest() for server in near or alive}
    return max(hashes, key=lambda server: (hashes[server], server))


def check_reachable(address: tuple[str, int]) -> None:
    """InvalidConfigError: clients cannot find a server by its address."""
    if address[0] in _ANY:
        raise InvalidConfigError(
            f"clients find no server at {address[0]}: give the address by which they find this one, by --advertise"
        )


class Servers(Protocol):
    """They share the partitions among them, and each takes what comes. All of it at once, unless it says otherwise.

    Attributes:
        node_id: Kafka's `broker.id` of this one.
    """

    node_id: int

    def alive(self) -> Sequence[Server]:
        """Those that live, as far as this one knows; it is one of them. By their ids."""

    def leader(self, topic_id: str, partition: int, rack: str) -> Server:
        """The one that clients of a rack are to ask for a partition; rack "": those of which none is known."""

    def nearer(self, topic_id: str, partition: int, rack: str) -> int | None:
        """The node id of one in a client's rack, where this one is not in it; None: there is none."""

    def coordinator(self) -> Server | None:
        """The one that coordinates groups; None: it is being looked for."""

    def of_transactions(self, transactional_id: str) -> Server | None:
        """The one that clients are to ask for a transactional id; likewise."""

    @property
    def coordinates(self) -> bool:
        """Whether this one does, and knows what the store has."""

    @property
    def term(self) -> int | None:
        """In which term this one coordinates groups, as far as it knows: it has none twice; None: it does not."""

    def register(self, address: tuple[str, int]) -> None:
        """Says that this one is there, and where clients find it; it has its id then. May wait. PylogError, OSError."""

    def begin(self, on_change: Callable[[], object], fail: Callable[[Exception], object]) -> None:
        """Says so from now on, and follows the others.

        Args:
            on_change: called when another one coordinates; in any thread.
            fail: called if it cannot be one of them any more; likewise.
        """

    def end(self) -> None:
        """Says that it ends. May wait."""


class OnlyServer(Servers):
    """The only one: it leads all, and coordinates all."""

    coordinates, term = True, 0

    def __init__(self, node_id: int) -> None:
        """With its `broker.id`."""
        self.node_id = node_id

    def alive(self) -> Sequence[Server]:
        return [self.coordinator()]

    def leader(self, topic_id: str, partition: int, rack: str) -> Server:
        return self.coordinator()

    def nearer(self, topic_id: str, partition: int, rack: str) -> int | None:
        """There is no other."""

    def coordinator(self) -> Server:
        return Server(self.node_id, "", 0)

    def of_transactions(self, transactional_id: str) -> Server:
        return self.coordinator()

    def register(self, address: tuple[str, int]) -> None:
        """There is none that asks."""

    def begin(self, on_change: Callable[[], object], fail: Callable[[Exception], object]) -> None:
        """Likewise."""

    def end(self) -> None:
        """Likewise."""
