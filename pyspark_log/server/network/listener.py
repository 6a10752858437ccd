"""The port of a server: accepts connections, within limits, and closes those that idle."""

from __future__ import annotations

import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_log.server.network.connection import Buffers, ClosedByServerError, Connection, Session
from pyspark_log.server.network.loop import Loop, Timer
from pyspark_log.server.network.request_times import RequestTimes

if TYPE_CHECKING:
    import ssl

    from pyspark_log.server.network.tls import Handshake, TlsSocket

_log = logging.getLogger(__name__)

# How many connections are accepted in a row before those that are open get their turn.
_ACCEPTED_AT_ONCE = 64
_BACKLOG = 1024
# How often connections are looked through for idle ones, and how long accepting pauses when the system has no file
# descriptor left; in seconds.
_SWEEP, _PAUSE = 5.0, 0.5
# How long the rest of a large request may take while no memory for others is left, in seconds.
_PATIENCE = 30.0
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True)
class Limits:
    """What clients may take, by Kafka's names.

    Attributes:
        max_connections, max_connections_per_ip: how many at a time.
        connections_max_idle_s: a connection without a request for as long is closed (s).
        queued_max_request_bytes: while as many bytes of requests wait, no further ones are read.
        login_s: a client that has not agreed on TLS in as long is disconnected, and one that has not authenticated
            itself in as long after that (s).
    """

    max_connections: int = 20_000
    max_connections_per_ip: int = 20_000
    connections_max_idle_s: float = 600.0
    queued_max_request_bytes: int = 256 * 1024 * 1024
    login_s: float = 30.0


#: Makes the session of a new connection. ClosedByServerError: the client is not served.
#: From the client's address, the server's own as the client has it, and the client's certificate (DER), if it has one.
OpenSession = Callable[[str, tuple[str, int], bytes | None], Session]


class Listener:
    """Accepts clients on one address.

    Attributes:
        address: host and port that it listens on.
        connections: those that are open.
        accepted, refused: how many were accepted so far, and how many were refused by a limit.
        times: the times of requests.
    """

    def __init__(
        self,
        loop: Loop,
        host: str,
        port: int,
        open_session: OpenSession,
        limits: Limits,
        tls: Callable[[], ssl.SSLContext] | None = None,
        wait_of: Callable[[str], float] = lambda _: 0.0,
    ) -> None:
        """Binds the address, and listens; `start` accepts.

        Args:
            loop: its thread makes all calls.
            host, port: the address; port 0: any that is free.
            open_session: makes the session of a new connection.
            limits: what clients may take.
            tls: gives the server's side of TLS for a new connection; None: connections have none.
            wait_of: how long an address has to wait until it may connect (s); 0: it may now.

        Raises:
            OSError: the address cannot be used.
        """
        self._loop, self._open_session, self._limits, self._tls = loop, open_session, limits, tls
        self._wait_of = wait_of
        self._clock = loop.time
        self._buffers = Buffers(limits.queued_max_request_bytes)
        self.connections: set[Connection] = set()
        self._handshakes: set[Handshake] = set()
        self._too_early: set[socket.socket] = set()
        self.accepted = self.refused = 0
        self.times = RequestTimes()
        self._by_host: Counter[str] = Counter()
        self._refused: set[str] = set()  # hosts of which a refusal was logged, until the next sweep
        self._timer: Timer | None = None
        try:
            family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        except socket.gaierror as error:
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from None
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(where)
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self._socket.close()
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from None
        self._socket.setblocking(False)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]

    def start(self) -> None:
        """Accepts connections from now on."""
        self._loop.add_reader(self._socket.fileno(), self._accept)
        self._timer = self._loop.call_later(_SWEEP, self._sweep)

    @property
    def request_bytes(self) -> int:
        """The bytes of requests that were received and not answered, of all connections."""
        return self._buffers.used

    def close(self) -> None:
        """Stops accepting, and closes all connections."""
        if self._timer is not None:
            self._timer.cancel()
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for early in list(self._too_early):
            self._refuse(early)
        for handshake in list(self._handshakes):
            handshake.close()
        for connection in list(self.connections):
            connection.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, (host, port, *_) = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                _log.warning("no connection can be accepted now: %s", error)
                self._loop.remove_reader(self._socket.fileno())
                self._loop.call_later(_PAUSE, self._accept_again)
                return
            self._open(accepted, host, port)

    def _accept_again(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _open(self, accepted: socket.socket, host: str, port: int) -> None:
        limit, wait = None, 0.0
        if len(self.connections) + len(self._handshakes) + len(self._too_early) >= self._limits.max_connections:
            limit = f"max.connections ({self._limits.max_connections})"
        elif wait := self._wait_of(host):
            limit = "connection_creation_rate"
        elif self._by_host[host] >= self._limits.max_connections_per_ip:
            limit = f"max.connections.per.ip ({self._limits.max_connections_per_ip})"
        if limit is not None:
            if wait:
                # A client that is refused at once would connect again at once.
                self._too_early.add(accepted)
                self._loop.call_later(wait, self._refuse, accepted)
            else:
                accepted.close()
            self.refused += 1
            if host not in self._refused:
                self._refused.add(host)
                _log.warning("%s: refusing connections: there are as many as %s allows", host, limit)
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._by_host[host] += 1
        self.accepted += 1
        _log.debug("%s:%d: connected", host, port)
        if self._tls is None:
            self._connect(accepted, f"{host}:{port}", accepted.getsockname()[:2], None)
            return
        from pyspark_log.server.network.tls import Handshake  # noqa: PLC0415  (it loads OpenSSL)

        reached_at = accepted.getsockname()[:2]

        def finished(ended: Handshake, secured: TlsSocket | None) -> None:
            self._handshakes.discard(ended)
            if secured is None:
                self._forget(ended.peer)
            else:
                self._connect(secured, ended.peer, reached_at, secured.certificate())

        self._handshakes.add(Handshake(self._loop, accepted, f"{host}:{port}", self._tls, self._clock(), finished))

    def _refuse(self, early: socket.socket) -> None:
        self._too_early.discard(early)
        early.close()

    def _connect(
        self, accepted: socket.socket | TlsSocket, peer: str, reached_at: tuple[str, int], certificate: bytes | None
    ) -> None:
        try:
            session = self._open_session(peer, reached_at, certificate)
        except ClosedByServerError as error:
            _log.warning("%s: closing the connection: %s", peer, error)
            accepted.close()
            self._forget(peer)
            return

        def forget(closed: Connection) -> None:
            self.connections.discard(closed)
            self._forget(peer)

        connection = Connection(
            self._loop, accepted, peer, session, self._buffers, self._clock, self.times, on_close=forget
        )
        self.connections.add(connection)

    def _forget(self, peer: str) -> None:
        _log.debug("%s: disconnected", peer)
        host = peer.rpartition(":")[0]
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _sweep(self) -> None:
        self.close_idle(self._clock())
        self._refused.clear()
        self._timer = self._loop.call_later(_SWEEP, self._sweep)

    def close_idle(self, now: float) -> None:
        """Closes connections without a request for too long by the time `now` (s).

        While memory is short also those that have sent a part of a request and not the rest, and always those that have
        not authenticated themselves in time.
        """
        for handshake in list(self._handshakes):
            if now - handshake.begun > self._limits.login_s:
                _log.info("%s: closing the connection: no TLS after %d s", handshake.peer, now - handshake.begun)
                handshake.close()
        for connection in list(self.connections):
            silent = now - connection.last_request
            if silent > self._limits.connections_max_idle_s and not connection.is_waiting:
                _log.info("%s: closing the connection: no request for %d s", connection.peer, silent)
                connection.close()
            elif not connection.is_authenticated and now - connection.begun > self._limits.login_s:
                _log.info(
                    "%s: closing the connection: not authenticated after %d s", connection.peer, now - connection.begun
                )
                connection.close()
            elif self._buffers.are_full and silent > _PATIENCE and connection.holds_part:
                _log.warning("%s: closing the connection: it holds bytes of requests for %d s", connection.peer, silent)
                connection.close()
