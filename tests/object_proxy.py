"""A proxy between a client and a server of objects, which misbehaves as it is asked to."""

import contextlib
import http.client
import http.server
import socket
import threading
from urllib.parse import urlsplit

from tests.object_server import PATIENCE, ObjectServer
from tests.ports import HOST

_CONDITION = "if-none-match"


class Answer:
    """What a server has answered.

    Attributes:
        status, headers, body: of the response.
        cut: whether the connection ends in the middle of the body.
    """

    def __init__(self, status, headers=(), body=b"", *, cut=False):
        self.status, self.headers, self.body, self.cut = status, list(headers), body, cut


class Exchange:
    """A request, with which a behaviour does what it wants.

    Attributes:
        method, path, headers, body: of the request.
    """

    def __init__(self, server, method, path, headers, body):
        self._server = server
        self.method, self.path, self.headers, self.body = method, path, headers, body

    def ask(self, method=None, headers=None, body=None):
        """Sends the request to the server, changed as said; its answer. Signatures are not checked there."""
        connection = http.client.HTTPConnection(self._server, timeout=PATIENCE)
        try:
            body = self.body if body is None else body
            sent = {name: one for name, one in (headers or self.headers).items() if name != "content-length"}
            connection.request(method or self.method, self.path, body, sent)
            response = connection.getresponse()
            return Answer(response.status, response.getheaders(), response.read())
        finally:
            connection.close()

    @property
    def is_create(self):
        """Whether it is a put if absent."""
        return self.method == "PUT" and _CONDITION in self.headers


def pass_on(exchange):
    """The server's own answer."""
    return exchange.ask()


def ignore_the_condition(exchange):
    """A server that does not know If-None-Match."""
    return exchange.ask(headers={name: one for name, one in exchange.headers.items() if name != _CONDITION})


@contextlib.contextmanager
def proxy(server, behaviour):
    """A proxy to the server; `behaviour` gets an Exchange, and gives an Answer, or None: the connection is cut."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else the body of an answer waits 40 ms for an acknowledgement of its headers

        def _handle(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            where = urlsplit(server.endpoint).netloc
            answer = behaviour(
                Exchange(
                    where, self.command, self.path, {name.lower(): one for name, one in self.headers.items()}, body
                )
            )
            if answer is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response_only(answer.status)
            for name, value in answer.headers:
                if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(name, value)
            length = next((value for name, value in answer.headers if name.lower() == "content-length"), None)
            self.send_header("Content-Length", length if self.command == "HEAD" else str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body[: len(answer.body) // 2] if answer.cut else answer.body)
            if answer.cut:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815  (names of the library)

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_):
            pass  # A client that leaves.

    with Server((HOST, 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield ObjectServer(f"http://{HOST}:{listening.server_port}", server.bucket)
        finally:
            listening.shutdown()
            thread.join()
