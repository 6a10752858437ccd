"""HTTP for pages: what it answers, and what it does with clients that are slow, many, or speak something else."""

import contextlib
import socket
import ssl
import threading
import time

import pytest

from pyspark_log.monitoring import HttpServer, Page, paths
from pyspark_log.monitoring import http as served
from tests.ports import HOST
from tests.scrapes import get
from tests.security_tools import Authority, name
from tests.server_tools import PATIENCE

BODY = b"x" * 5_000_000


def fail():
    raise ValueError("a fault of the page")


@pytest.fixture
def server():
    pages = {"/": lambda: Page(b"hello\n"), "/large": lambda: Page(BODY), "/fault": fail}
    server = HttpServer(HOST, 0, paths(pages))
    server.start()
    yield server
    server.close()


def connected(server):
    return socket.create_connection(server.address, timeout=PATIENCE)


def serving():
    """How many connections are served now."""
    return sum(thread.name == "http connection" for thread in threading.enumerate())


def all_of(client):
    """What the server answers until it closes the connection."""
    data = bytearray()
    try:
        while piece := client.recv(1 << 16):
            data += piece
    except ConnectionResetError:
        pass  # it has not read all that was sent
    return bytes(data)


def test_pages(server, caplog):
    port = server.address[1]
    assert get(port, "/") == get(port, "/?name=value") == (200, "hello\n")
    assert get(port, "/", "HEAD") == (200, "")
    assert get(port, "/large") == (200, BODY.decode())
    assert get(port, "/none") == (404, "Not Found\n")
    assert get(port, "/", "POST") == (405, "Method Not Allowed\n")
    assert get(port, "/fault") == (500, "Internal Server Error\n")
    assert "a fault of the page" in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 600 + b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"get / HTTP/1.1\r\n\r\n",
        b"GET http://other/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"y" * (8192 - 19),
        b"\r\n\r\n",
    ],
)
def test_what_is_no_request(server, sent):
    with connected(server) as client:
        client.sendall(sent)
        assert all_of(client).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_request_that_is_too_large(server):
    with connected(server) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(b"GET / HTTP/1.1\r\nX: " + b"y" * 1_000_000)
        # Where bytes are left that nothing has read, the system may drop the answer.
        assert all_of(client)[:12] in (b"HTTP/1.1 400", b"")
    assert get(server.address[1], "/")[0] == 200


def test_one_that_leaves_at_once(server):
    for sent in (b"", b"GET", b"GET /large HTTP/1.1\r\n\r\n"):
        with connected(server) as client:
            client.sendall(sent)
    assert get(server.address[1], "/")[0] == 200


def test_slow_clients_have_their_time_and_no_more(server, monkeypatch):
    monkeypatch.setattr(served, "_MOST_SECONDS", 0.5)
    with connected(server) as silent, connected(server) as slow, connected(server) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        ends = threading.Event()

        def drip():
            # A byte now and then, so that no single wait is long.
            try:
                while not ends.wait(0.05):
                    slow.sendall(b"x")
            except ConnectionError:
                return

        thread = threading.Thread(target=drip)
        thread.start()
        assert all_of(silent) == all_of(slow) == b""
        ends.set()
        thread.join()
        end = time.monotonic() + PATIENCE
        while serving():
            assert time.monotonic() < end, "a client that does not read is waited for"
            time.sleep(0.01)


def test_more_clients_than_there_is_room_for(server, monkeypatch):
    monkeypatch.setattr(served, "_MOST_SECONDS", 3600)
    many = [connected(server) for _ in range(3 * served._MOST_CONNECTIONS)]
    assert get(server.address[1], "/")[0] == 200
    assert serving() <= served._MOST_CONNECTIONS
    for client in many:
        client.close()


def test_one_address_that_asks_for_nothing_keeps_no_others_away(server, monkeypatch):
    monkeypatch.setattr(served, "_MOST_SECONDS", 3600.0)
    monkeypatch.setattr(served, "_MOST_SILENT_SECONDS", 3600.0)
    many = [connected(server) for _ in range(3 * served._MOST_CONNECTIONS)]
    assert get(server.address[1], "/") == (200, "hello\n")
    # The newest ones are waited for.
    many[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert all_of(many[-1]).endswith(b"hello\n")
    for client in many:
        client.close()


def test_one_address_that_asks_often_at_once_is_answered(server, monkeypatch):
    """What it has sent waits in the system as long as the server's threads get no turn."""
    monkeypatch.setattr(served, "_MOST_SILENT_SECONDS", 3600.0)
    sent, head = threading.Event(), served._head
    monkeypatch.setattr(served, "_head", lambda *where: sent.wait(PATIENCE) and head(*where))
    asking = []
    for _ in range(2 * served._MOST_SILENT):
        asking.append(connected(server))
        asking[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")
    sent.set()
    for client in asking:
        assert all_of(client).endswith(b"hello\n")
        client.close()


def test_a_page_that_takes_longer_than_a_client_may(monkeypatch):
    monkeypatch.setattr(served, "_MOST_SECONDS", 0.1)
    server = HttpServer(HOST, 0, paths({"/": lambda: time.sleep(0.3) or Page(b"hello\n")}))
    server.start()
    try:
        assert get(server.address[1], "/") == (200, "hello\n")
    finally:
        server.close()


def test_it_waits_for_a_request_two_seconds(server, monkeypatch):
    monkeypatch.setattr(served, "_MOST_SECONDS", 3600.0)
    began = time.monotonic()
    with connected(server) as client:
        assert all_of(client) == b""
    assert time.monotonic() - began >= served._MOST_SILENT_SECONDS == 2.0


def test_connections_over_tls_that_ask_for_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(served, "_MOST_SECONDS", 3600.0)
    monkeypatch.setattr(served, "_MOST_SILENT_SECONDS", 3600.0)
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("server", name(CN="kafka.example")))
    server = HttpServer(HOST, 0, paths({"/": lambda: Page(b"hello\n")}), lambda: context)
    server.start()
    try:
        many = [connected(server) for _ in range(2 * served._MOST_CONNECTIONS)]
        with authority.context().wrap_socket(connected(server), server_hostname="localhost") as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert all_of(client).endswith(b"hello\n")
        for one in many:
            one.close()
    finally:
        server.close()


def test_it_ends(server):
    threads = [one for one in threading.enumerate() if one.name == "http"]
    assert threads
    server.close()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        connected(server)


def test_an_address_that_is_in_use(server):
    with pytest.raises(OSError, match=f"cannot listen on {HOST}:{server.address[1]}: Address already in use"):
        HttpServer(*server.address, paths({}))
