"""A proxy between clients and a broker, which notes what their connections carry."""

from __future__ import annotations

import socket
import struct
import threading
import time

from pyspark_log.kafka import decode_response, encode_response
from pyspark_log.kafka.messages import ApiVersionsResponse
from pyspark_log.server.handlers import APIS
from tests.ports import HOST, free_ports
from tests.recordings.events import Event, Kind
from tests.server_tools import PATIENCE

_API_VERSIONS = 18
_UNSUPPORTED_VERSION = 35
_REQUEST = struct.Struct(">hhi")


class Recorder:
    """Each client's connection gets one to the broker.

    Frames are passed as they are, but for the answers to ApiVersions: of what Kafka has, a client learns of what `pylog
    serve` has, too. So it sends what it would send here.

    Attributes:
        host, port: where it listens. The broker must advertise that address.
    """

    def __init__(self):
        self.host, self.port = HOST, free_ports(1)[0]
        self.bootstrap = f"{self.host}:{self.port}"
        self._broker = None
        self._lock = threading.Lock()
        self._events, self._open, self._failures = [], set(), []
        self._next = 0
        self._listener = socket.create_server((self.host, self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def begin(self, broker_port):
        """A recording begins; connections lead to that port from now on."""
        assert not self._open
        self._broker = (HOST, broker_port)
        self._events, self._next = [], 0

    def end(self):
        """Waits until all connections are closed; what was noted since `begin`."""
        end = time.monotonic() + PATIENCE
        while self._open:
            assert time.monotonic() < end, f"connections {self._open} are still open"
            time.sleep(0.02)
        assert not self._failures, self._failures
        return self._events

    def close(self):
        """No more clients come."""
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # the listener was closed
            with self._lock:
                number, self._next = self._next, self._next + 1
                self._open.add(number)
                self._events.append(Event(Kind.OPEN, number))
            # What one packet of a client was, is one of the proxy.
            broker = socket.create_connection(self._broker)
            for side in (client, broker):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asked = {}
            threading.Thread(target=self._requests, args=(number, client, broker, asked), daemon=True).start()
            threading.Thread(target=self._responses, args=(number, client, broker, asked), daemon=True).start()

    def _requests(self, number, client, broker, asked):
        while (frame := _frame(client)) is not None:
            key, version, correlation_id = _REQUEST.unpack_from(frame)
            asked[correlation_id] = key, version
            self._note(Kind.REQUEST, number, frame)
            _send(broker, frame)
        # Answers that come now reach no client.
        with self._lock:
            self._events.append(Event(Kind.CLOSE, number))
            self._open.discard(number)
        broker.shutdown(socket.SHUT_RDWR)
        client.close()

    def _responses(self, number, client, broker, asked):
        while (frame := _frame(broker)) is not None:
            key, version = asked.pop(int.from_bytes(frame[:4], "big"), (None, None))
            if key == _API_VERSIONS:
                frame = _of_both(version, frame)
            with self._lock:
                if number not in self._open:
                    break
                self._events.append(Event(Kind.RESPONSE, number, frame))
            try:
                _send(client, frame)
            except OSError:
                break  # the client has gone; the other thread notes it
        with self._lock:
            if number in self._open:
                self._failures.append(f"the broker has closed connection {number}")
        broker.close()

    def _note(self, *event):
        with self._lock:
            self._events.append(Event(*event))


def _of_both(version, frame):
    """An answer of Kafka's to ApiVersions, with the versions that this server has, too."""
    if int.from_bytes(frame[4:6], "big") == _UNSUPPORTED_VERSION:
        version = 0
    correlation_id, response = decode_response(_API_VERSIONS, version, frame)
    keys = []
    for one in response.api_keys:
        if one.api_key in APIS:
            ours = APIS[one.api_key].versions
            first, last = max(one.min_version, ours.start), min(one.max_version, ours.stop - 1)
            keys.append(one._replace(min_version=first, max_version=last))
    answer = ApiVersionsResponse(response.error_code, keys)
    return b"".join(map(bytes, encode_response(answer, version, correlation_id)))[4:]


def _send(to, frame):
    to.sendall(len(frame).to_bytes(4, "big") + frame)


def _frame(source):
    """The next frame; None: the connection is at its end."""
    start = _bytes(source, 4)
    return None if start is None else _bytes(source, int.from_bytes(start, "big"))


def _bytes(source, count):
    data = bytearray()
    while len(data) < count:
        try:
            piece = source.recv(count - len(data))
        except OSError:
            return None
        if not piece:
            return None
        data += piece
    return bytes(data)
