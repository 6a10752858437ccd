"""What the page of a store is shown of its server: clients, transactions, throttling; and its login."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue

from pyspark_log.kafka.schemas import api
from pyspark_log.server.broker import Broker
from pyspark_log.server.network import Limits, Listener
from pyspark_log.server.network.connection import Connection
from pyspark_log.server.pages.loop_calls import in_loop
from pyspark_log.server.quotas import Usage
from pyspark_log.server.security import ANONYMOUS, PrincipalRules, Sasl, subject, user
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource
from pyspark_log.server.session import ClientSession
from pyspark_log.ui import MOST_ROWS, ClientView, HeldBack, ServerState, TransactionView
from pyspark_log.units import human_size

# Of those that have quotas, the ones that had to wait most often.
_MOST_QUOTAS = 50
# Of a client.id.
_MOST_CHARACTERS = 64
_QUOTAS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "producer_byte_rate": ("Quota of bytes produced", lambda rate: f"{human_size(round(rate))}/s"),
    "consumer_byte_rate": ("Quota of bytes fetched", lambda rate: f"{human_size(round(rate))}/s"),
    "request_percentage": ("Quota of time", lambda rate: f"{rate:.1f} %"),
    "controller_mutation_rate": ("Quota of partitions made and deleted", lambda rate: f"{rate:.1f}/s"),
}
# How long a login may take, with others of its address before it, in seconds.
_PATIENCE = 8.0


class UiView:
    """A server, as the page sees it: its methods are called in the threads of HTTP."""

    def __init__(
        self, broker: Broker, listener: Listener, limits: Limits, sasl: Sasl | None, rules: PrincipalRules
    ) -> None:
        """Of a server that is about to start.

        Args:
            broker, listener, limits: of the server.
            sasl: how clients authenticate themselves; None: they need not.
            rules: of the principals of clients' certificates.
        """
        self._broker, self._listener, self._limits = broker, listener, limits
        self._sasl, self._rules = sasl, rules

    def state(self) -> ServerState:
        """The server now. LoopStuckError."""
        return in_loop(self._broker.loop, self._state)

    def log_in(self, host: str, name: str, password: str) -> bool:
        """Whether a user has a password, in the turn of its address, as clients of Kafka have theirs."""
        assert self._sasl is not None
        sasl, results = self._sasl, SimpleQueue[bool]()

        def begin() -> None:
            wait = self._broker.loop.start(sasl.has_password(host, name, password))
            wait.then(lambda: results.put(wait.error is None and wait.value))

        if self._broker.loop.is_closed:
            return False
        self._broker.loop.call_from_elsewhere(begin)
        try:
            return results.get(timeout=_PATIENCE)
        except Empty:
            return False

    def admit(self, name: str | None, certificate: bytes | None) -> str:
        """Why a reader is not shown the page; "": it is.

        Where there are ACLs, super users alone are: the page has all topics and groups together.
        """
        principal = ANONYMOUS
        if name is not None:
            principal = user(name)
        elif certificate is not None:
            mapped = self._rules.name(subject(certificate))
            if mapped is None:
                return "no rule for principals fits the certificate"
            principal = user(mapped)
        acls = self._broker.acls
        # What is allowed without entries, is allowed to super users.
        if acls is None or acls.without_entries.allow(principal, "", Operation.ALL, Resource.CLUSTER, CLUSTER_NAME):
            return ""
        return f"the server has access rules, and {principal} is no super user: the page shows all topics and groups"

    # ---- in the thread of the loop

    def _state(self) -> ServerState:
        now = self._broker.loop.time()
        connections, by_id = self._listener.connections, self._broker.transactions.metadata
        # Only what a page shows is made: clients wait for the loop meanwhile.
        clients = [
            _client(connection, now)
            for connection in heapq.nsmallest(MOST_ROWS, connections, key=lambda connection: connection.begun)
        ]
        transactions = [
            TransactionView(
                name, metadata.state.kafkas_name, (metadata.producer_id, metadata.epoch), metadata.started,
                metadata.timeout, sorted(metadata.partitions),
            )
            for name, metadata in ((name, by_id[name]) for name in heapq.nsmallest(MOST_ROWS, by_id))
        ]  # fmt: skip
        held_back = self._throttling(len(connections))
        return ServerState(clients, len(connections), transactions, len(by_id), held_back)

    def _throttling(self, clients: int) -> list[HeldBack]:
        limits, listener = self._limits, self._listener
        used, most = listener.request_bytes, limits.queued_max_request_bytes
        refused, slowed = listener.refused, [] if self._sasl is None else self._sasl.attempts.slowed()
        return [
            HeldBack("Requests in memory", human_size(used), human_size(most), used > most),
            HeldBack("Connections", f"{clients:,}", f"{limits.max_connections:,}", clients >= limits.max_connections),
            HeldBack("Refused connections", f"{refused:,}", f"{limits.max_connections_per_ip:,} an address", False),
            HeldBack("Addresses with too many failed logins", f"{len(slowed):,}", "10 failures", bool(slowed)),
            *map(_quota, sorted(self._broker.throttles.usages(), key=lambda usage: usage.throttled)[-_MOST_QUOTAS:]),
        ]


def _quota(usage: Usage) -> HeldBack:
    parts = (("user", usage.user), ("client", usage.client_id))
    whose = " ".join(f"{kind} {name}" for kind, name in parts if name) or "all together"
    title, shown = _QUOTAS[usage.name]
    return HeldBack(f"{title}, {whose}", shown(usage.rate), shown(usage.bound), usage.pause_ms > 0)


def _client(connection: Connection, now: float) -> ClientView:
    assert isinstance(connection.session, ClientSession)
    client = connection.session.client
    name = "" if connection.last_request == connection.begun else api(connection.api)[0].name.removesuffix("Request")
    return ClientView(
        client.peer,
        client.client_id[:_MOST_CHARACTERS],
        client.software,
        client.principal,
        name,
        connection.is_waiting,
        now - connection.begun,
        now - connection.last_request,
    )
