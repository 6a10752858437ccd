"""A small HTTP server for a few pages, in threads of its own: it never has to be waited for.

A request may take ten seconds, and 8 KiB; there may be 16 at a time. Each gets one answer, and then its connection is
closed. What is more than a request line and headers is not read.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

_log = logging.getLogger(__name__)

_MOST_SECONDS, _MOST_BYTES, _MOST_CONNECTIONS = 10.0, 8192, 16
_REQUEST = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]")
_PLAIN = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """An answer."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = _PLAIN


class HttpServer:
    """Answers GET and HEAD.

    Attributes:
        address: host and port that it listens on.
    """

    def __init__(self, host: str, port: int, pages: Mapping[str, Callable[[], Page]]) -> None:
        """Binds the address; `start` accepts.

        Args:
            host, port: the address; port 0: any that is free.
            pages: gives the answer for each path, in any thread, several at a time.

        Raises:
            OSError: the address cannot be used.
        """
        self._pages = pages
        self._room, self._is_closed = threading.BoundedSemaphore(_MOST_CONNECTIONS), False
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
        threading.Thread(target=self.run, name="http", daemon=True).start()

    def run(self) -> None:
        """The same in this thread, until `close`."""
        while True:
            self._room.acquire()
            try:
                accepted, _ = self._socket.accept()
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
            threading.Thread(target=self._serve, args=(accepted,), name="http connection", daemon=True).start()

    def close(self) -> None:
        """Accepts nothing any more."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()

    def _serve(self, accepted: socket.socket) -> None:
        deadline = time.monotonic() + _MOST_SECONDS
        try:
            with accepted:
                method, page = self._answer(_head(accepted, deadline))
                accepted.settimeout(_left(deadline))
                accepted.sendall(_response(page, with_body=method != b"HEAD"))
                accepted.shutdown(socket.SHUT_WR)
        except OSError as error:
            _log.debug("an HTTP client was given up: %s", error)
        finally:
            self._room.release()

    def _answer(self, head: bytes) -> tuple[bytes, Page]:
        request = _REQUEST.fullmatch(head.partition(b"\r\n")[0])
        if request is None:
            return b"", _failure(HTTPStatus.BAD_REQUEST)
        method, target = request.groups()
        page = self._pages.get(target.partition(b"?")[0].decode("ascii"))
        if page is None:
            return method, _failure(HTTPStatus.NOT_FOUND)
        if method not in (b"GET", b"HEAD"):
            return method, _failure(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return method, page()
        except Exception:  # noqa: BLE001  (the next request is answered)
            _log.exception("an error that was not expected")
            return method, _failure(HTTPStatus.INTERNAL_SERVER_ERROR)


def _left(deadline: float) -> float:
    """The seconds that are left. TimeoutError: none are."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("it takes too long")
    return left


def _head(accepted: socket.socket, deadline: float) -> bytes:
    """The request line and the headers, as far as there is room for them. OSError: they do not come."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MOST_BYTES:
        accepted.settimeout(_left(deadline))
        data = accepted.recv(_MOST_BYTES - len(head))
        if not data:
            raise ConnectionError("the request is not complete")
        head += data
    return head if b"\r\n\r\n" in head else b""


def _failure(status: HTTPStatus) -> Page:
    return Page(f"{status.phrase}\n".encode(), status)


def _response(page: Page, *, with_body: bool) -> bytes:
    lines = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode("ascii") + (page.body if with_body else b"")
