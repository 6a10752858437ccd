"""TLS on a client's connection. It loads OpenSSL, so only a server with TLS loads it."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

from pyspark_log.kafka import FileRange
from pyspark_log.server.network.connection import MustSendError
from pyspark_log.server.network.loop import Loop
from pyspark_log.server.network.output import Output, read_range

_log = logging.getLogger(__name__)

# About how many bytes are encrypted at a time; a larger range of a file is read in pieces of this size.
_PIECE = 64 * 1024
# The first byte of a client that speaks TLS: a record of its handshake.
_HANDSHAKE = b"\x16"


class TlsSocket:
    """A socket with TLS that does not block, after its handshake.

    What it raises is what a plain one raises, but for MustSendError. TLS 1.3 alone has messages then that want an
    answer (KeyUpdate), and renegotiation is switched off: so nothing that is sent waits for something to be received.
    """

    def __init__(self, secured: ssl.SSLSocket) -> None:
        """Takes over a socket."""
        self._socket = secured

    def fileno(self) -> int:
        """The file descriptor."""
        return self._socket.fileno()

    def certificate(self) -> bytes | None:
        """The client's certificate (DER), which was checked; None: it has sent none."""
        return self._socket.getpeercert(binary_form=True)

    def recv_into(self, buffer: memoryview) -> int:
        """Receives what there is. BlockingIOError: nothing. MustSendError. OSError."""
        try:
            return self._socket.recv_into(buffer)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            raise MustSendError from None

    def rest(self) -> bytes:
        """What was received from the system, and from here not yet: a part of one record of TLS."""
        count = self._socket.pending()
        return self._socket.recv(count) if count else b""

    def send(self, data: memoryview) -> int:
        """Sends what the system takes now. BlockingIOError: nothing; the next call must have the same data. OSError."""
        try:
            return self._socket.send(data)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            raise ConnectionResetError from None  # The client has left.

    def output(self) -> Output:
        """What waits to be sent on it."""
        return _TlsOutput(self)

    def close(self) -> None:
        """Says that there is nothing more, if the system takes that now, and closes the socket."""
        with contextlib.suppress(OSError, ValueError):
            self._socket.unwrap()
        self._socket.close()


class _TlsOutput(Output):
    """Sends chunks in order; files are read, as their bytes have to be encrypted."""

    def __init__(self, target: TlsSocket) -> None:
        super().__init__()
        self._socket = target
        self._piece = memoryview(b"")  # What was taken from the chunks, and is not sent yet.

    def clear(self) -> None:
        super().clear()
        self._piece = memoryview(b"")

    def __bool__(self) -> bool:
        return bool(self._piece or self._chunks)

    def send(self) -> bool:
        try:
            while self:
                if not self._piece:
                    self._piece = memoryview(self._next_piece())
                self._piece = self._piece[self._socket.send(self._piece) :]
        except BlockingIOError:
            return False
        return True

    def _next_piece(self) -> bytes:
        pieces: list[bytes | memoryview] = []
        room = _PIECE
        while self._chunks and room > 0:
            chunk = self._chunks.popleft()
            if isinstance(chunk, FileRange):
                now = min(chunk.length, room)
                piece: bytes | memoryview = read_range(chunk.file, chunk.position, now)
                if now < chunk.length:
                    self._chunks.appendleft(FileRange(chunk.file, chunk.position + now, chunk.length - now))
            else:
                piece = chunk[:room]
                if len(piece) < len(chunk):
                    self._chunks.appendleft(memoryview(chunk)[room:])
            pieces.append(piece)
            room -= len(piece)
        return b"".join(pieces)


class Handshake:
    """A client's connection until TLS is agreed on; all calls come from the loop's thread.

    Attributes:
        peer: the client's address, for the log.
        begun: when it was accepted, by the listener's clock (s).
    """

    def __init__(
        self,
        loop: Loop,
        accepted: socket.socket,
        peer: str,
        context: Callable[[], ssl.SSLContext],
        begun: float,
        on_end: Callable[[Handshake, TlsSocket | None], object],
    ) -> None:
        """Starts.

        Args:
            loop: its thread makes all calls.
            accepted: the client's socket, which does not block.
            peer, begun: the attributes.
            context: gives the server's side of TLS, once the client has begun.
            on_end: called once, with the socket, or None: it is closed.
        """
        self.peer, self.begun = peer, begun
        self._loop, self._socket, self._context, self._on_end = loop, accepted, context, on_end
        self._secured: ssl.SSLSocket | None = None
        self._is_sending = False
        self._fd = accepted.fileno()
        loop.add_reader(self._fd, self._continue)

    def close(self) -> None:
        """Closes the connection."""
        self._leave()
        (self._secured or self._socket).close()
        self._on_end(self, None)

    def _continue(self) -> None:
        try:
            secured = self._secured
            if secured is None:
                first = self._socket.recv(1, socket.MSG_PEEK)
                if first != _HANDSHAKE:
                    if first:
                        _log.warning("%s: closing the connection: the client does not speak TLS", self.peer)
                    self.close()
                    return
                secured = self._secured = self._context().wrap_socket(
                    self._socket, server_side=True, do_handshake_on_connect=False
                )
            secured.do_handshake()
        except (BlockingIOError, ssl.SSLWantReadError):
            self._wait(sending=False)
        except ssl.SSLWantWriteError:
            self._wait(sending=True)
        except ssl.SSLError as error:
            _log.warning("%s: closing the connection: TLS failed: %s", self.peer, _why(error))
            self.close()
        except OSError:
            self.close()  # The client has left.
        else:
            self._leave()
            self._on_end(self, TlsSocket(secured))

    def _wait(self, *, sending: bool) -> None:
        if sending != self._is_sending:
            self._leave()
            self._is_sending = sending
            (self._loop.add_writer if sending else self._loop.add_reader)(self._fd, self._continue)

    def _leave(self) -> None:
        (self._loop.remove_writer if self._is_sending else self._loop.remove_reader)(self._fd)


def _why(error: ssl.SSLError) -> str:
    """What OpenSSL says, in words alone."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
