"""Passes what is appended in transactions on to the server that coordinates them, where several share a folder.

Nothing may be appended in a transaction after the marker that ends it. Within one process the coordinator sees to that
(`transactions.Transactions`): it counts what it has let in, and waits for that before it decides. It can count nothing
of other processes: one of them that is slow, or stopped, would append later. So no other process appends any of it:
each passes such a request on, whole, and gives the coordinator's answer to its client.

The coordinator has a lock to the end of its last thread (`storage.fs.locking.life_locks`). When another process
gets it, the one before has written all that it ever will. The new one reads what was decided before it lets anything
in, so it knows what has ended. One that is stopped still has its lock, so there is no new one. What a server has passed
on and sees unanswered, its producer sends again; the sequence numbers of an idempotent producer, which each of them is,
have it appended once.

They listen on sockets in the store's folder, which only its owner may enter; no other user can listen in place of one.
The coordinator looks at the client's rights, by the name that the other server has found for it.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark_log.errors import PylogError
from pyspark_log.kafka import decode_request, decode_response, encode_request, encode_response
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import ProduceRequest, ProduceResponse
from pyspark_log.server.handlers import Api, Call, Client
from pyspark_log.server.handlers.records import produce
from pyspark_log.server.network import Buffers, ClosedByServerError, Connection, Limits, Loop, RequestTimes, Workers
from pyspark_log.server.served.folder.servers import FolderServers
from pyspark_log.storage.fs import files

if TYPE_CHECKING:
    from pyspark_log.server.broker import Broker

_log = logging.getLogger(__name__)

# How many requests are passed on at once, and how long each may take, in seconds.
_THREADS, _TIMEOUT = 4, 30.0
_BACKLOG, _ACCEPTED_AT_ONCE = 1024, 64
# What follows a request: the lengths of the principal and of the client's address, which are before them.
_LENGTHS, _SIZE = struct.Struct(">HH"), struct.Struct(">i")
_AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS


class Relay:
    """One server's end of it, as the one that passes on, and as the coordinator. Its calls come from the loop."""

    def __init__(
        self, loop: Loop, servers: FolderServers, broker: Callable[[], Broker], of: Callable[[str], ErrorCode]
    ) -> None:
        """Neither listens nor asks yet.

        Args:
            loop: the server's.
            servers: which there are.
            broker: gives this server.
            of: says whether a transactional id is coordinated here, or why not.
        """
        self._loop, self._servers, self._broker, self._of = loop, servers, broker, of
        self._workers = Workers(loop, _THREADS)
        self._links = list[_Link]()
        self._socket: socket.socket | None = None
        self._buffers, self._times = Buffers(Limits().queued_max_request_bytes), RequestTimes()
        self._connections = set[Connection]()

    def apis(self, apis: Mapping[int, Api]) -> Mapping[int, Api]:
        """The same with `produce` as it is here."""
        return {**apis, produce.KEY: apis[produce.KEY]._replace(handler=self.produce)}

    # ---- passing on

    async def produce(self, call: Call, request: ProduceRequest) -> ProduceResponse | None:
        """As produce.produce."""
        name = request.transactional_id
        error = ErrorCode.NONE if name is None else self._of(name)
        if not error:
            return await produce.produce(call, request)
        response = _refused(request, "the coordinator of its transaction does not answer yet")
        coordinator = self._servers.coordinator()
        if error == ErrorCode.NOT_COORDINATOR and coordinator is not None:
            path = self._servers.socket_of(coordinator.node_id)
            # It always answers; not so a producer that wants none.
            passed = request._replace(acks=request.acks or 1)
            try:
                response = await self._workers.run(self._pass_on, path, passed, call)
            except (OSError, PylogError) as failure:
                _log.info("node %d does not answer what %s appends: %s", coordinator.node_id, name, failure)
        if request.acks:
            return response
        if any(part.error_code for topic in response.responses for part in topic.partition_responses):
            raise ClosedByServerError("a batch with acks=0 was refused in a transaction")
        return None

    def _pass_on(self, path: str, request: ProduceRequest, call: Call) -> ProduceResponse:
        """The coordinator's answer; in a thread. OSError, PylogError: there is none."""
        frame = b"".join(map(bytes, encode_request(request, call.version, 0, call.client_id)))[_SIZE.size :]
        names = [text.encode() for text in (call.client.principal, call.client.peer)]
        message = b"".join((frame, *names, _LENGTHS.pack(*map(len, names))))
        link = self._links.pop() if self._links else _Link(path)
        if link.path != path:
            link.close()
            link = _Link(path)
        try:
            _, response = decode_response(produce.KEY, call.version, link.ask(message))
        except BaseException:
            link.close()
            raise
        self._links.append(link)
        assert isinstance(response, ProduceResponse)
        return response

    # ---- being asked

    def start(self) -> None:
        """Listens from now on. OSError."""
        path = self._servers.socket_of(self._servers.node_id)
        if files.exists(path):
            files.unlink(path)  # One that was killed has left it.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _short(path) as short:
            self._socket.bind(short)
        self._socket.listen(_BACKLOG)
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def stop(self) -> None:
        """Answers nothing any more."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            files.unlink(self._servers.socket_of(self._servers.node_id))
        for connection in list(self._connections):
            connection.close()

    def close(self) -> None:
        """Asks nothing any more."""
        self._workers.close()
        for link in self._links:
            link.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                assert self._socket is not None
                accepted, _ = self._socket.accept()
            except OSError:
                return  # There is none; or no file is left for it, which the listener for clients reports.
            accepted.setblocking(False)
            session = _Passed(self._broker(), self._of)
            self._connections.add(
                Connection(
                    self._loop, accepted, "another server", session, self._buffers, self._loop.time, self._times,
                    on_close=self._connections.discard,
                )
            )  # fmt: skip


class _Passed:
    """The session of another server: its clients' requests, one after the other."""

    def __init__(self, broker: Broker, of: Callable[[str], ErrorCode]) -> None:
        self._broker, self._of = broker, of
        self.is_authenticated, self.pause = True, 0.0
        self.overlapping: Collection[int] = ()

    async def answer(self, frame: bytes | bytearray) -> list[Any]:
        """Answers a request as `Session.answer` says."""
        header, request = decode_request(frame)
        assert isinstance(request, ProduceRequest)
        end = len(frame) - _LENGTHS.size
        of_principal, of_peer = _LENGTHS.unpack_from(frame, end)
        names = frame[end - of_principal - of_peer : end].decode()
        client = Client(names[of_principal:], ("", 0), principal=names[:of_principal])
        call = Call(self._broker, client, header.client_id, header.request_api_version)
        if self._of(request.transactional_id or ""):
            response: ProduceResponse | None = _refused(request, "its transactions are not coordinated here yet")
        else:
            response = await produce.produce(call, request)
        assert response is not None
        return encode_response(response, call.version, header.correlation_id)


class _Link:
    """A connection to another server, for a thread at a time.

    Attributes:
        path: where that listens.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_TIMEOUT)
            with _short(path) as short:
                self._socket.connect(short)
        except BaseException:
            self.close()
            raise

    def ask(self, message: bytes) -> bytearray:
        """The frame that answers one. OSError."""
        self._socket.sendall(_SIZE.pack(len(message)) + message)
        [size] = _SIZE.unpack(self._read(_SIZE.size))
        return self._read(size)

    def _read(self, size: int) -> bytearray:
        data, received = bytearray(size), 0
        while received < size:
            count = self._socket.recv_into(memoryview(data)[received:])
            if not count:
                raise ConnectionResetError(f"{self.path}: the server has ended")
            received += count
        return data

    def close(self) -> None:
        """Closes it."""
        self._socket.close()


@contextmanager
def _short(path: str) -> Iterator[str]:
    """A path of the same file that fits into the address of a socket, which has about 100 bytes."""
    if sys.platform != "linux":
        yield path
        return
    with files.open_read(os.path.dirname(path)) as folder:
        yield f"/proc/self/fd/{folder.fd}/{os.path.basename(path)}"


def _refused(request: ProduceRequest, why: str) -> ProduceResponse:
    """An answer after which the producer tries again."""
    row, topics = ProduceResponse.PartitionProduceResponse, ProduceResponse.TopicProduceResponse
    return ProduceResponse([
        topics(topic.name, topic.topic_id, [
            row(part.index, _AGAIN, -1, -1, -1, (), why) for part in topic.partition_data
        ])
        for topic in request.topic_data
    ])  # fmt: skip
