"""One client's connection: a request in, its response out, and then the next one.

A frame is a length (4 bytes) and a request or response (Kafka's protocol guide). As in Kafka, one request of a
connection is handled at a time, and the next one when the response is with the system: so responses have the order of
the requests, what waits to be sent is one response, and a client that does not read is not read from either. A session
may name APIs whose requests begin while earlier ones of them wait; the responses keep the order of the requests.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_log.server.network.loop import Loop, Timer, Wait
from pyspark_log.server.network.output import PlainOutput
from pyspark_log.server.network.request_times import Answered, RequestTimes

if TYPE_CHECKING:
    from pyspark_log.server.network.tls import TlsSocket

_log = logging.getLogger(__name__)

# Kafka's socket.request.max.bytes.
_MAX_REQUEST_BYTES = 100 * 1024 * 1024
# Requests that carry no records are bounded more tightly: read, they take up to a hundred times the memory.
_MAX_OTHER_BYTES = 8 * 1024 * 1024
# What a client may send that has yet to authenticate itself: a token with many claims fits.
_MAX_BYTES_BEFORE = 64 * 1024
# The shortest header: key, version and correlation id.
_MIN_REQUEST_BYTES = 8
_PRODUCE = 0
# Where the key of a request's API ends, from the frame's length on; the keys of all APIs fit into its last byte.
_KEY_END = 6
# How much is read at once; a frame that is larger gets a buffer of its own.
_READ_BYTES = 64 * 1024
# Responses that are ready at once are sent together, up to as many.
_MOST_TOGETHER = 16
# How many requests may wait at once whose API lets them: an idempotent producer has five on their way, others more.
_MOST_WAITING = 32

# What the first four bytes are of clients that speak something else, each with its name.
_OTHERS = {
    b"GET ": "HTTP", b"POST": "HTTP", b"PUT ": "HTTP", b"HEAD": "HTTP", b"OPTI": "HTTP", b"DELE": "HTTP",
    b"PRI ": "HTTP/2", b"SSH-": "SSH", b"PROX": "the PROXY protocol",
}  # fmt: skip


class Session(Protocol):
    """What is on the other side of a connection, for the server: it answers requests.

    Attributes:
        is_authenticated: whether the client may send requests of any size.
        pause: how long nothing is read after the response to the request that was answered last (s).
        overlapping: the keys of APIs whose requests may begin while earlier ones of them wait.
    """

    is_authenticated: bool
    pause: float
    overlapping: Collection[int]

    def answer(self, frame: bytes | bytearray) -> Coroutine[Wait[Any], None, Sequence[Any] | None]:
        """Answers a request, a frame without its length; awaits only `Wait`s.

        Returns:
            The response as chunks, its length first; None: the client expects none.

        Raises:
            ClosedByServerError: the connection is to be closed.
        """


class ClosedByServerError(Exception):
    """The server closes a connection, for a reason that is the client's; the message says it.

    Attributes:
        response: what is sent before, as `Session.answer` returns it.
    """

    def __init__(self, why: str, response: Sequence[Any] = ()) -> None:
        super().__init__(why)
        self.response = response


class MustSendError(Exception):
    """Nothing can be received before something of the transport's own is sent."""


class Buffers:
    """The memory of requests that all connections of a process have received and not answered.

    Attributes:
        used: bytes.
        scratch: where a connection reads to before it knows how long a frame is.
    """

    def __init__(self, most: int) -> None:
        """`most`: while more bytes are used, no new request is read."""
        self.used, self._most = 0, most
        self.scratch = memoryview(bytearray(_READ_BYTES))
        self._waiting: list[Callable[[], None]] = []

    @property
    def are_full(self) -> bool:
        """Whether no new request may be read."""
        return self.used > self._most

    def wait(self, go_on: Callable[[], None]) -> None:
        """Calls `go_on` when there is room."""
        self._waiting.append(go_on)

    def change(self, size: int) -> None:
        """Counts bytes that are used from now on; or, negative, not any more."""
        self.used += size
        if size < 0 and self._waiting and not self.are_full:
            waiting, self._waiting = self._waiting, []
            for go_on in waiting:
                go_on()


class _Request:
    """One that is being handled.

    Attributes:
        coroutine: what handles it.
        api, size: the key of its API, and its bytes.
        arrived, begun: when it was received, and when it began (s).
        waits_since, waited: since when it waits, and how long it has waited before that (s).
        is_answered: whether `response` is that of the coroutine.
    """

    __slots__ = ("api", "arrived", "begun", "coroutine", "is_answered", "response", "size", "waited", "waits_since")

    def __init__(
        self, coroutine: Coroutine[Wait[Any], None, Sequence[Any] | None], api: int, size: int, arrived: float,
        begun: float,
    ) -> None:  # fmt: skip
        self.coroutine, self.api, self.size, self.arrived, self.begun = coroutine, api, size, arrived, begun
        self.waits_since = self.waited = 0.0
        self.is_answered, self.response = False, None


class Connection:
    """A client's connection; all calls come from the loop's thread.

    Attributes:
        peer: the client's address, for the log.
        session: what answers its requests.
        api: the key of the API of the newest request.
        begun: when it began, by the listener's clock (s).
        last_request: when its last whole request began, by the same clock.
        is_closed: whether it is closed.
    """

    def __init__(
        self,
        loop: Loop,
        accepted: socket.socket | TlsSocket,
        peer: str,
        session: Session,
        buffers: Buffers,
        clock: Callable[[], float],
        times: RequestTimes,
        on_close: Callable[[Connection], object],
    ) -> None:
        """Starts reading from a socket that does not block; with TLS it is agreed on."""
        self.peer, self.session, self.is_closed = peer, session, False
        self.begun = self.last_request = clock()
        self._loop, self._socket, self._buffers = loop, accepted, buffers
        self._clock, self._times, self._on_close = clock, times, on_close
        self.api, self._arrived = 0, 0.0
        self._holds_file = False  # whether a response that is ready has a range of a file
        self._unsent: list[Answered] = []
        self._tls = None if isinstance(accepted, socket.socket) else accepted
        self._output = accepted.output() if not isinstance(accepted, socket.socket) else PlainOutput(accepted)
        self._rest: bytes = b""  # what was received after the frames that were handled
        self._frame: bytearray | None = None  # a large one that is being received
        self._received = 0  # bytes of it
        self._requests = deque[_Request]()  # those that wait, or are answered after one that does
        self._counted = 0  # bytes that `buffers` counts for this connection
        self._is_sending = False  # the system takes no more
        self._is_reading = False
        self._pause: Timer | None = None  # at its end requests are handled again
        self._read_on()

    @property
    def is_authenticated(self) -> bool:
        """Whether its client may do what it is allowed to."""
        return self.session.is_authenticated

    @property
    def is_idle(self) -> bool:
        """Whether the next request may be handled: none is being handled or answered, and there is no pause."""
        if not self._requests:
            return not self._is_sending and self._pause is None
        return self._may_begin(self._rest, 0)

    def _may_begin(self, data: memoryview | bytes, position: int) -> bool:
        """The same of a request that begins there, as far as it was received."""
        if self._is_sending or self._pause is not None:
            return False
        if not self._requests:
            return True
        overlapping = self.session.overlapping
        if not overlapping or len(self._requests) == _MOST_WAITING or self.api not in overlapping:
            return False
        return len(data) - position < _KEY_END or data[position + _KEY_END - 1] in overlapping

    @property
    def is_waiting(self) -> bool:
        """Whether a request waits: for records, a disk, or other clients."""
        return bool(self._requests)

    @property
    def holds_part(self) -> bool:
        """Whether the rest of a large request is missing, or requests were received that wait for a pause."""
        return self._frame is not None or (self._pause is not None and bool(self._rest))

    def close(self) -> None:
        """Closes it; what is not sent yet is lost."""
        if self.is_closed:
            return
        self.is_closed = True
        self._stop_reading()
        if self._is_sending:
            self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        requests, self._requests = self._requests, deque()
        for request in requests:
            request.coroutine.close()
        if self._pause is not None:
            self._pause.cancel()
        self._rest, self._frame = b"", None
        self._output.clear()
        self._count()
        self._on_close(self)

    # ---- what the loop calls

    def _request_can_go_on(self, request: _Request) -> None:
        # Not at once: what the request does next may finish the wait of another one, and so on.
        self._loop.call_soon(self._guard, partial(self._run_on, request))

    def _guard(self, action: Callable[[], None]) -> None:
        """Runs an action, and closes the connection if it fails."""
        if self.is_closed:
            return
        try:
            action()
        except BlockingIOError:
            pass
        except MustSendError:
            self._stop_reading()
            self._wait_for_room()
        except ClosedByServerError as error:
            _log.warning("%s: closing the connection: %s", self.peer, error)
            self._close_after(error.response)
        except ConnectionError:
            self.close()  # The client has left.
        except OSError as error:
            _log.warning("%s: closing the connection: %s", self.peer, error)
            self.close()
        except Exception:  # noqa: BLE001  (the other connections continue)
            _log.exception("%s: closing the connection after an error that was not expected", self.peer)
            self.close()

    def _close_after(self, response: Sequence[Any]) -> None:
        """Sends a response, as far as the system takes it now, and closes the connection."""
        self._output.add(response)
        with contextlib.suppress(OSError):
            self._output.send()
        self.close()

    # ---- receiving

    def _read_on(self) -> None:
        if not self._is_reading and not self.is_closed:
            self._is_reading = True
            self._loop.add_reader(self._socket.fileno(), partial(self._guard, self._receive))

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._socket.fileno())

    def _receive(self) -> None:
        if not self.is_idle:
            self._stop_reading()
        elif self._frame is not None:
            self._receive_frame(self._frame)
        elif self._buffers.are_full:
            self._stop_reading()
            self._buffers.wait(self._read_on)
        else:
            scratch = self._buffers.scratch
            count = self._socket.recv_into(scratch)
            if count:
                self._arrived = self._clock()
                self._handle(self._rest + scratch[:count] if self._rest else scratch[:count])
            else:
                self.close()

    def _receive_frame(self, frame: bytearray) -> None:
        count = self._socket.recv_into(memoryview(frame)[self._received :])
        if count == 0:
            self.close()
            return
        self._received += count
        if self._received == len(frame):
            self._frame = None
            if self._tls is not None:
                # The system does not report what TLS has read already.
                self._rest = self._tls.rest()
            self._arrived = self._clock()
            self._start(frame)
            self._send_on()
        self._count()

    def _handle(self, data: memoryview | bytes) -> None:
        """Handles the frames in what was received, as far as they are whole, and keeps the rest."""
        position, together = 0, 0
        try:
            while position < len(data) and self._may_begin(data, position):
                size = self._size_of(data, position)
                if size is None:
                    break
                start, position = position + 4, position + 4 + size
                if position > len(data):
                    position = start - 4
                    break
                self._start(bytes(data[start:position]))
                together += 1
                # A file that waits to be sent is open: no other response is prepared before it is sent.
                if together == _MOST_TOGETHER or self._holds_file:
                    together = 0
                    self._send()
        finally:
            # Also what was ready before a request for which the connection is closed.
            self._send()
        self._keep(data, position)
        if not self._is_reading and self.is_idle:
            self._read_on()

    def _keep(self, data: memoryview | bytes, position: int) -> None:
        """Keeps what was received of requests that are not handled yet, a large one in a buffer of its size."""
        if position == len(data):
            self._rest = b""
            if not (self._counted or self._requests):
                return
        elif (
            not self._may_begin(data, position)
            or (size := self._size_of(data, position)) is None
            or 4 + size <= _READ_BYTES
        ):
            self._rest = bytes(data[position:])
        else:
            self._frame, self._received, self._rest = bytearray(size), len(data) - position - 4, b""
            self._frame[: self._received] = data[position + 4 :]
        self._count()

    def _size_of(self, data: memoryview | bytes, position: int) -> int | None:
        """The size of the frame that begins there; None: it is not known yet. ClosedByServerError: it is none."""
        start = bytes(data[position : position + 6])
        if len(start) < 6:
            return None
        size = int.from_bytes(start[:4], "big", signed=True)
        most = _MAX_OTHER_BYTES if self.session.is_authenticated else _MAX_BYTES_BEFORE
        if _MIN_REQUEST_BYTES <= size <= most:
            return size
        other = "TLS" if start[:2] == b"\x16\x03" else _OTHERS.get(start[:4])
        if other is not None:
            raise ClosedByServerError(f"the client speaks {other}, and this port speaks Kafka's protocol")
        if not _MIN_REQUEST_BYTES <= size <= _MAX_REQUEST_BYTES:
            raise ClosedByServerError(
                f"a request of {size} bytes; a request has {_MIN_REQUEST_BYTES} to {_MAX_REQUEST_BYTES}"
            )
        if not self.session.is_authenticated:
            raise ClosedByServerError(f"a request of {size} bytes before authentication; at most {most} are read then")
        key = int.from_bytes(start[4:], "big")
        if key != _PRODUCE:
            raise ClosedByServerError(
                f"a request of {size} bytes for the API with key {key}; only produce requests may have more than "
                f"{_MAX_OTHER_BYTES}"
            )
        return size

    def _count(self) -> None:
        """Has the bytes counted that this connection holds."""
        now = len(self._rest) + (self._received if self._frame is not None else 0)
        for request in self._requests:
            now += request.size
        if now != self._counted:
            change, self._counted = now - self._counted, now
            self._buffers.change(change)

    # ---- answering

    def _start(self, frame: bytes | bytearray) -> None:
        self.last_request, self.api = self._clock(), frame[1]  # the keys of all APIs fit into the second byte
        request = _Request(self.session.answer(frame), self.api, len(frame), self._arrived, self.last_request)
        self._requests.append(request)
        self._run(request)

    def _run(self, request: _Request) -> None:
        """Runs a request to its end, or to what it waits for; raises what it raises."""
        try:
            wait = request.coroutine.send(None)
        except StopIteration as end:
            request.is_answered, request.response = True, end.value
            if self.session.pause:
                self._pause = self._loop.call_later(self.session.pause, self._guard, self._end_pause)
            self._take_answers()
        else:
            request.waits_since = self._clock()
            wait.then(partial(self._request_can_go_on, request))

    def _take_answers(self) -> None:
        """Gets the responses ready to be sent, in the order of the requests."""
        requests = self._requests
        while requests and requests[0].is_answered:
            request = requests.popleft()
            self._unsent.append((request.api, request.arrived, request.begun, self._clock(), request.waited))
            if request.response is not None and self._output.add(request.response):
                self._holds_file = True

    def _run_on(self, request: _Request) -> None:
        """Runs a request on that has waited, and then those that came after it."""
        request.waited += self._clock() - request.waits_since
        self._run(request)
        self._send_on()

    def _end_pause(self) -> None:
        """Continues with the requests that came meanwhile."""
        self._pause = None
        self._send_on()

    def _send(self) -> None:
        """Sends what is ready, as far as the system takes it now. OSError."""
        if not self._unsent and not self._is_sending:
            return
        is_all = not self._output or self._output.send()
        self._holds_file = False
        if is_all and self._is_sending:
            self._is_sending = False
            self._loop.remove_writer(self._socket.fileno())
        elif not is_all:
            self._wait_for_room()
        if is_all:
            self._times.note(self._unsent, self._clock())
            self._unsent.clear()

    def _wait_for_room(self) -> None:
        """Continues when the system takes more; until then nothing is received."""
        if not self._is_sending:
            self._is_sending = True
            self._loop.add_writer(self._socket.fileno(), partial(self._guard, self._send_on))

    def _send_on(self) -> None:
        """Sends what is ready; if that was all, continues with the requests that came meanwhile."""
        self._send()
        if not self.is_idle:
            return
        if self._rest:
            self._handle(self._rest)
        else:
            self._count()
            if not self._is_reading:
                self._read_on()
