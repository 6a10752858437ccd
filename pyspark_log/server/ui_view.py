"""What the page of a store is shown of its server: clients, transactions, throttling; and its login."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue

from pyspark_log.kafka.schemas import api
from pyspark_log.server.broker import Broker
from pyspark_log.server.loop_calls import in_loop
from pyspark_log.server.network import Limits, Listener
from pyspark_log.server.network.connection import Connection
from pyspark_log.server.security import PrincipalRules, Sasl, subject
from pyspark_log.server.session import ClientSession
from pyspark_log.ui import ClientView, HeldBack, ServerState, TransactionView
from pyspark_log.units import human_size

# How long a login may take, with others of its address before it, in seconds.
_PATIENCE = 8.0


class UiView:
    """A server, as the page sees it: its methods are called in the threads of HTTP."""

    def __init__(self, broker: Broker, listener: Listener, limits: Limits, sasl: Sasl | None) -> None:
        """`sasl`: how clients authenticate themselves; None: they need not."""
        self._broker, self._listener, self._limits, self._sasl = broker, listener, limits, sasl

    def state(self) -> ServerState:
        """The server now. LoopStuckError."""
        return in_loop(self._broker.loop, self._state)

    def log_in(self, host: str, user: str, password: str) -> bool:
        """Whether a user has a password, in the turn of its address, as clients of Kafka have theirs."""
        assert self._sasl is not None
        sasl, found = self._sasl, SimpleQueue[bool]()

        def begin() -> None:
            wait = self._broker.loop.start(sasl.has_password(host, user, password))
            wait.then(lambda: found.put(wait.error is None and wait.value))

        self._broker.loop.call_from_elsewhere(begin)
        try:
            return found.get(timeout=_PATIENCE)
        except Empty:
            return False

    # ---- in the thread of the loop

    def _state(self) -> ServerState:
        now = self._broker.loop.time()
        clients = [_client(one, now) for one in sorted(self._listener.connections, key=lambda one: one.begun)]
        transactions = [
            TransactionView(
                name, one.state.kafkas_name, (one.producer_id, one.epoch), one.started, one.timeout,
                sorted(one.partitions),
            )
            for name, one in sorted(self._broker.transactions.known.items())
        ]  # fmt: skip
        return ServerState(clients, transactions, self._throttling(len(clients)))

    def _throttling(self, clients: int) -> list[HeldBack]:
        limits, listener = self._limits, self._listener
        used, most = listener.request_bytes, limits.queued_max_request_bytes
        refused, slowed = listener.refused, [] if self._sasl is None else self._sasl.attempts.slowed()
        return [
            HeldBack("Bytes of requests that are not answered yet", human_size(used), human_size(most), used > most),
            HeldBack("Connections", f"{clients:,}", f"{limits.max_connections:,}", clients >= limits.max_connections),
            HeldBack(
                "Connections that were refused", f"{refused:,}", f"{limits.max_connections_per_ip:,} an address", False
            ),
            HeldBack("Addresses that have failed to log in too often", f"{len(slowed):,}", "10 failures", bool(slowed)),
        ]


def admits(rules: PrincipalRules) -> Callable[[bytes | None], bool]:
    """Whether a client's certificate, which was checked, is that of a principal."""
    return lambda certificate: certificate is not None and rules.name(subject(certificate)) is not None


def _client(one: Connection, now: float) -> ClientView:
    assert isinstance(one.session, ClientSession)
    client = one.session.client
    name = "" if one.last_request == one.begun else api(one.api)[0].name.removesuffix("Request")
    return ClientView(
        client.peer, client.software, client.principal, name, one.is_waiting, now - one.begun, now - one.last_request
    )
