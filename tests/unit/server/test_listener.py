"""Connections that idle, and those whose client is lost without a word: when they are closed, and what they hold."""

import contextlib
import select
import socket
import struct

import pytest

from pyspark_log.server.network import Limits, Listener, Wait
from pyspark_log.server.security import TlsConfig
from pyspark_log.server.security.certificates import Certificates
from tests.security_tools import Authority, name

_IDLE = 600.0
_ASK = b"a question of eleven"
# Linux: a socket in this state is closed without a packet, as if its host had lost its power (tcp(7), CRIU).
_TCP_REPAIR = 19


class _Echo:
    """Answers each request with itself; one that begins with "w" waits before."""

    is_authenticated, pause, overlapping = True, 0.0, ()

    def __init__(self):
        self.waits = []

    async def answer(self, frame):
        if frame[:1] == b"w":
            self.waits.append(Wait())
            await self.waits[-1]
        return [struct.pack(">i", len(frame)), bytes(frame)]


@pytest.fixture
def session():
    return _Echo()


@pytest.fixture
def listener(loop, session):
    limits = Limits(connections_max_idle_s=_IDLE, queued_max_request_bytes=600_000)
    listener = Listener(loop, "127.0.0.1", 0, lambda *_: session, limits)
    listener.start()
    listener._timer.cancel()  # Idle connections are closed when a test says so.
    yield listener
    listener.close()


@pytest.fixture
def connect(listener):
    """Makes a client; how many there are at the end, the server must know by then."""
    clients = []

    def connect(data=b""):
        clients.append(socket.create_connection(listener.address))
        clients[-1].sendall(data)
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def _frame(data):
    return struct.pack(">i", len(data)) + data


def _run_until(loop, condition):
    """Runs the loop until something has happened; a test that waits in vain is ended by the suite's time limit."""

    def look():
        if condition():
            loop.stop()
        else:
            loop.call_later(0.001, look)

    look()
    loop.run()


def _vanish(client):
    """Ends a client without a packet to the server."""
    try:
        client.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
    except OSError as error:
        pytest.skip(f"this process may not close a socket without a packet: {error}")
    client.close()


def _is_closed(client):
    client.setblocking(False)
    try:
        while client.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return True


def test_a_connection_without_a_request_is_closed_after_its_time(loop, listener, connect):
    first, second = connect(), connect()
    _run_until(loop, lambda: len(listener.connections) == 2)
    for connection in listener.connections:
        connection.last_request = 0.0
    listener.close_idle(_IDLE)
    assert len(listener.connections) == 2
    second.sendall(_frame(_ASK))
    _run_until(loop, lambda: any(one.last_request for one in listener.connections))
    listener.close_idle(_IDLE + 0.001)
    assert len(listener.connections) == 1
    assert (_is_closed(first), _is_closed(second)) == (True, False)


def test_a_request_that_waits_keeps_its_connection(loop, session, listener, connect):
    client = connect(_frame(b"wait for others"))
    _run_until(loop, lambda: session.waits)
    [connection] = listener.connections
    listener.close_idle(connection.last_request + 10 * _IDLE)
    assert not connection.is_closed
    session.waits[0].finish(None)
    _run_until(loop, lambda: connection.is_idle)
    assert client.recv(100) == _frame(b"wait for others")
    listener.close_idle(connection.last_request + 10 * _IDLE)
    assert connection.is_closed


def test_half_open_connections_give_back_what_they_hold(loop, session, listener, connect):
    """Idle ones, and those in the middle of a request, when their time has come; those with an answer, by it."""
    idle = [connect() for _ in range(20)]
    parts = [connect(_frame(b"p" * 100_000)[:50_000]) for _ in range(10)]
    waiting = [connect(_frame(b"w" * 20)) for _ in range(20)]
    _run_until(loop, lambda: len(listener.connections) == 50 and len(session.waits) == 20)
    _run_until(loop, lambda: listener._buffers.used == 10 * (50_000 - 4) + 20 * 20)
    for client in (*idle, *parts, *waiting):
        _vanish(client)
    for wait in session.waits:
        wait.finish(None)
    # The answer finds nothing there, and the system says so.
    _run_until(loop, lambda: len(listener.connections) == 30)
    listener.close_idle(max(one.last_request for one in listener.connections) + _IDLE + 1)
    assert not listener.connections
    assert listener._buffers.used == 0


def test_a_part_of_a_request_is_dropped_sooner_while_memory_is_short(loop, listener, connect):
    part, other = connect(struct.pack(">ih", 1_000_000, 0) + b"p" * 650_000), connect()
    _run_until(loop, lambda: listener._buffers.are_full)
    other.sendall(_frame(_ASK))
    [held] = (one for one in listener.connections if one.holds_part)
    held.last_request = 0.0
    listener.close_idle(30.0)
    assert not held.is_closed
    listener.close_idle(30.1)
    assert held.is_closed
    assert _is_closed(part)
    # The request that was not read meanwhile is.
    _run_until(loop, lambda: not listener._buffers.used)
    with contextlib.suppress(BlockingIOError):
        other.setblocking(False)
        assert other.recv(100) == _frame(_ASK)


# ---- clients that do not get as far as a request


def test_a_client_that_does_not_authenticate_itself(loop, session, listener, connect):
    session.is_authenticated = False
    client = connect(_frame(_ASK))
    _run_until(loop, lambda: select.select([client], [], [], 0)[0])
    [connection] = listener.connections
    listener.close_idle(connection.begun + 29)
    assert not connection.is_closed
    listener.close_idle(connection.begun + 31)
    assert connection.is_closed
    assert client.recv(1000) == _frame(_ASK)


def test_a_client_that_authenticates_itself_in_time(loop, session, listener, connect):
    connect(_frame(_ASK))
    _run_until(loop, lambda: listener.connections)
    [connection] = listener.connections
    listener.close_idle(connection.begun + 31)
    assert not connection.is_closed


def test_a_client_that_does_not_finish_its_handshake(loop, session, tmp_path):
    certificate, key = Authority(tmp_path).issue("server", name(CN="server"))
    certificates = Certificates(TlsConfig(str(certificate), str(key)), loop.time)
    listener = Listener(loop, "127.0.0.1", 0, lambda *_: session, Limits(max_connections=2), certificates.context)
    listener.start()
    clients = [socket.create_connection(listener.address) for _ in range(2)]
    # The one says nothing, and the other the beginning of a greeting.
    clients[1].sendall(bytes.fromhex("16030100f8"))
    _run_until(loop, lambda: len(listener._handshakes) == 2)
    with socket.create_connection(listener.address) as third:
        _run_until(loop, lambda: _is_closed(third))
    begun = max(one.begun for one in listener._handshakes)
    listener.close_idle(begun + 25)
    assert len(listener._handshakes) == 2
    listener.close_idle(begun + 40)
    assert [client.recv(1) for client in clients] == [b"", b""]
    assert not listener._handshakes
    assert not listener.connections
    assert not listener._by_host
    for client in clients:
        client.close()
    listener.close()


def test_a_pause_delays_the_next_request_and_ends_with_the_connection(loop, session, listener, connect):
    session.pause = 0.05
    client = connect(_frame(b"the first one") + _frame(b"the second one"))
    began = loop.time()
    _run_until(loop, lambda: sum(times.count for times in list(listener.times.values())) == 2)
    assert loop.time() - began >= 0.05
    assert client.recv(100) == _frame(b"the first one") + _frame(b"the second one")
    session.pause = 600.0
    client.sendall(_frame(b"the third one"))
    client.sendall(_frame(b"the fourth one") * 100)
    [connection] = listener.connections
    _run_until(loop, lambda: not connection.is_idle)
    listener.close_idle(connection.last_request + _IDLE + 1)
    assert connection.is_closed


def test_paused_connections_give_back_what_they_hold_if_memory_is_short(loop, session, listener, connect):
    session.pause = 600.0
    for _ in range(20):
        connect(_frame(_ASK) * 2000)
    _run_until(loop, lambda: listener.request_bytes > 600_000)
    listener.close_idle(loop.time() + 31)
    assert listener.request_bytes < 600_000


def test_an_address_that_connects_too_often_is_refused_later(loop, session):
    waits = iter([0.0, 0.05, 600.0])
    listener = Listener(loop, "127.0.0.1", 0, lambda *_: session, Limits(), wait_of=lambda _: next(waits))
    listener.start()
    clients = [socket.create_connection(listener.address) for _ in range(3)]
    began = loop.time()
    _run_until(loop, lambda: listener.refused == 2 and _is_closed(clients[1]))
    assert loop.time() - began >= 0.05
    assert not _is_closed(clients[2])
    assert len(listener.connections) == listener.accepted == 1
    listener.close()
    assert _is_closed(clients[2])
    for client in clients:
        client.close()
