"""A small HTTP server for a few pages, in threads of its own: it never has to be waited for.

A request may have 8 KiB; there may be 16 at a time. It has to be there after two seconds, and of an address the server
waits for four at most: one more, and the oldest connection that sends nothing is closed. A request gets one answer,
which the client has to take within ten seconds, and then its connection is closed. What is more than a request line and
headers is not read. GET and HEAD are all that there is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger(__name__)

_MOST_SECONDS, _MOST_BYTES, _MOST_CONNECTIONS = 10.0, 8192, 16
# How long a request may take to arrive, in seconds, and how many are waited for of an address.
_MOST_SILENT_SECONDS, _MOST_SILENT = 2.0, 4
_REQUEST = re.compile(r"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]")
_PLAIN = "text/plain; charset=utf-8"


class Request(NamedTuple):
    """A request.

    Attributes:
        path, query: of its target, before and after the "?", as they were sent.
        headers: by their names in small letters; of several the last one.
        host: the client's address.
        certificate: the client's certificate (DER), which was checked; None: it has sent none.
    """

    path: str
    query: str
    headers: Mapping[str, str]
    host: str
    certificate: bytes | None = None


class Page(NamedTuple):
    """An answer; `headers` are those beside the type and the length of the body."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = _PLAIN
    headers: Mapping[str, str] = {}


Answer = Callable[[Request], Page]


def paths(pages: Mapping[str, Callable[[], Page]]) -> Answer:
    """Answers with the page of a path, whatever else a request says."""

    def answer(request: Request) -> Page:
        page = pages.get(request.path)
        return _failure(HTTPStatus.NOT_FOUND) if page is None else page()

    return answer


def is_loopback(host: str) -> bool:
    """Whether an address is one that this machine alone can reach."""
    return host == "::1" or host.startswith("127.")


class HttpServer:
    """Answers GET and HEAD.

    Attributes:
        address: host and port that it listens on.
    """

    def __init__(self, host: str, port: int, answer: Answer, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        """Binds the address; `start` accepts.

        Args:
            host, port: the address; port 0: any that is free.
            answer: gives the answer, in any thread, several at a time.
            tls: gives the server's side of TLS for a new connection, in one thread; None: connections have none.

        Raises:
            OSError: the address cannot be used.
        """
        self._answer_of, self._tls = answer, tls
        self._room, self._is_closed = threading.BoundedSemaphore(_MOST_CONNECTIONS), False
        # The connections of each address whose request is not there yet, the oldest first.
        self._silent, self._lock = dict[str, list[socket.socket]](), threading.Lock()
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            # Python adds to the text of some errors of the OS. Those of names are others.
            why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            raise OSError(f"cannot listen on {host}:{port}: {why}") from None
        self.address: tuple[str, int] = self._socket.getsockname()[:2]

    def start(self) -> None:
        """Answers from now on. The threads do not keep the process from ending."""
        threading.Thread(target=self._run, name="http", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._room.acquire()
            try:
                accepted, (host, *_) = self._socket.accept()
            except ConnectionAbortedError:
                self._room.release()
                continue
            except OSError as error:
                self._room.release()
                if self._is_closed:
                    return
                # The system has no file descriptor left; the connection waits until it has.
                _log.warning("no HTTP connection can be accepted now: %s", error)
                time.sleep(1)
                continue
            connection = accepted
            if self._tls is not None:
                try:
                    connection = self._tls().wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
                except (OSError, ValueError) as error:  # it has left, or sent something before
                    _log.debug("an HTTP client was given up: %s", error)
                    accepted.close()
                    self._room.release()
                    continue
            self._begin(connection, host)
            threading.Thread(target=self._serve, args=(connection, host), name="http connection", daemon=True).start()

    def close(self) -> None:
        """Accepts nothing any more."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()

    def _begin(self, accepted: socket.socket, host: str) -> None:
        """Waits for the request of a connection, and not for the oldest one of its address if these are too many."""
        with self._lock:
            silent = self._silent.setdefault(host, [])
            # What others have sent may not be read yet.
            idle = (one for one in silent if not _has_more(one))
            if len(silent) >= _MOST_SILENT and (oldest := next(idle, None)) is not None:
                silent.remove(oldest)
                with contextlib.suppress(OSError):
                    # Wakes its thread. TLS, which that thread uses, is left alone.
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)
            silent.append(accepted)

    def _end(self, accepted: socket.socket, host: str) -> bool:
        """Waits for it no more; whether it was waited for."""
        with self._lock:
            silent = self._silent.get(host, [])
            if accepted not in silent:
                return False
            silent.remove(accepted)
            if not silent:
                del self._silent[host]
            return True

    def _serve(self, accepted: socket.socket, host: str) -> None:
        try:
            with accepted:
                try:
                    head, certificate = self._asked(accepted, time.monotonic() + _MOST_SILENT_SECONDS)
                finally:
                    is_wanted = self._end(accepted, host)
                if not is_wanted:
                    return
                method, page = self._answer(head, host, certificate)
                accepted.settimeout(_MOST_SECONDS)
                accepted.sendall(_response(page, with_body=method != "HEAD"))
                accepted.shutdown(socket.SHUT_WR)
        except OSError as error:
            _log.debug("an HTTP client was given up: %s", error)
        finally:
            self._room.release()

    def _asked(self, accepted: socket.socket, deadline: float) -> tuple[str, bytes | None]:
        """The head of a request, and the client's certificate, if it has sent one. OSError: they do not come."""
        certificate = None
        if self._tls is not None:
            secured = cast("ssl.SSLSocket", accepted)
            secured.settimeout(_left(deadline))
            secured.do_handshake()
            certificate = secured.getpeercert(binary_form=True)
        return _head(accepted, deadline), certificate

    def _answer(self, head: str, host: str, certificate: bytes | None) -> tuple[str, Page]:
        first, *lines = head.split("\r\n")
        request = _REQUEST.fullmatch(first)
        if request is None:
            return "", _failure(HTTPStatus.BAD_REQUEST)
        method, target = request.groups()
        if method not in ("GET", "HEAD"):
            return method, _failure(HTTPStatus.METHOD_NOT_ALLOWED)
        path, _, query = target.partition("?")
        fields = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        try:
            return method, self._answer_of(Request(path, query, headers, host, certificate))
        except Exception:  # noqa: BLE001  (the next request is answered)
            _log.exception("an error that was not expected")
            return method, _failure(HTTPStatus.INTERNAL_SERVER_ERROR)


def _has_more(accepted: socket.socket) -> bool:
    """Whether there is something of a client that was not read."""
    poll = select.poll()
    poll.register(accepted, select.POLLIN)
    return bool(poll.poll(0))


def _left(deadline: float) -> float:
    """The seconds that are left. TimeoutError: none are."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("it takes too long")
    return left


def _head(accepted: socket.socket, deadline: float) -> str:
    """The request line and the headers, as far as there is room for them. OSError: they do not come."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MOST_BYTES:
        accepted.settimeout(_left(deadline))
        data = accepted.recv(_MOST_BYTES - len(head))
        if not data:
            raise ConnectionError("the request is not complete")
        head += data
    return head.partition(b"\r\n\r\n")[0].decode("latin-1") if b"\r\n\r\n" in head else ""


def _failure(status: HTTPStatus) -> Page:
    return Page(f"{status.phrase}\n".encode(), status)


def _response(page: Page, *, with_body: bool) -> bytes:
    lines = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in page.headers.items()),
    )
    return "\r\n".join((*lines, "", "")).encode("ascii") + (page.body if with_body else b"")
