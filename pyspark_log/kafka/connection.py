"""A client's connection to one broker: versions are negotiated, and the client logs in."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from typing import Any, Final

from pyspark_log.errors import InvalidConfigError
from pyspark_log.kafka import messages
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.error_codes import name_of
from pyspark_log.kafka.errors import ClusterError, LoginError
from pyspark_log.kafka.frames import decode_response, encode_request
from pyspark_log.kafka.schemas import Struct, message

#: How long a broker may take for an answer (s), beyond what a request lets it wait.
TIMEOUT: Final = 30.0
_LARGEST: Final = 1 << 30


class Connection:
    """A connection. Not thread-safe, but for `interrupt`.

    Attributes:
        host, port: of the broker.
    """

    def __init__(self, host: str, port: int, config: ClientConfig, *, timeout: float = TIMEOUT) -> None:
        """Connects and logs in.

        Args:
            host, port: of the broker.
            config: how to log in.
            timeout: how long each answer may take, in seconds.

        Raises:
            OSError: there is no broker, or it does not answer.
            LoginError: it refuses the login.
        """
        self.host, self.port = host, port
        self._versions: dict[int, range] = {}
        self._sent = deque[tuple[int, int, int]]()  # correlation id, API, version
        self._next = 0
        self._socket = socket.create_connection((host, port), timeout)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if config.tls is not None:
                self._socket = config.tls.wrap_socket(self._socket, server_hostname=host)
            self._negotiate()
            if config.mechanism:
                self._log_in(config)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes it."""
        self._socket.close()

    def interrupt(self) -> None:
        """Ends what another thread sends or waits for: it gets an OSError. The connection is of no use then."""
        with contextlib.suppress(OSError):  # It is closed already.
            # Not that of TLS, which would change what the other thread uses.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def version(self, request: type[Struct]) -> int:
        """The newest version of a request that both sides know. ClusterError: there is none."""
        schema = message(request.__name__)
        theirs = self._versions.get(schema.api_key if schema.api_key is not None else -1, range(0))
        newest = min(schema.versions.stop, theirs.stop) - 1
        if newest not in schema.versions or newest not in theirs:
            raise ClusterError(f"{self.host}:{self.port} has no version of {schema.name} that is known here")
        return newest

    def ask(self, request: Struct, version: int | None = None) -> Any:  # noqa: ANN401  (the request's response)
        """Sends a request, and returns its response; arguments and errors as `send` and `receive`."""
        self.send(request, version)
        return self.receive()

    def send(self, request: Struct, version: int | None = None) -> None:
        """Sends a request. OSError: the connection is lost.

        Args:
            request: as its version has it.
            version: None: the newest one.
        """
        if version is None:
            version = self.version(type(request))
        api_key = message(type(request).__name__).api_key
        assert api_key is not None
        self._next += 1
        chunks = encode_request(request, version, self._next, "pylog")
        data = b"".join(map(bytes, chunks))
        self._socket.sendall(data)
        self._sent.append((self._next, api_key, version))

    def receive(self) -> Any:  # noqa: ANN401  (the request's response)
        """The response to the oldest request that has none yet; its records are views of memory of its own.

        Raises:
            OSError: the connection is lost, or there was no answer in time.
            MessageError, ClusterError: it is no response to that request.
        """
        expected, api_key, version = self._sent.popleft()
        size = int.from_bytes(self._read(4), "big", signed=True)
        if not 0 <= size <= _LARGEST:
            raise ClusterError(f"{self.host}:{self.port} has sent {size} bytes as one response: it is no Kafka broker")
        correlation_id, response = decode_response(api_key, version, self._read(size))
        if correlation_id != expected:
            raise ClusterError(f"{self.host}:{self.port} answers request {correlation_id}, not {expected}")
        return response

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view, done = memoryview(data), 0
        while done < size:
            got = self._socket.recv_into(view[done:])
            if not got:
                raise ConnectionResetError(f"{self.host}:{self.port} has closed the connection")
            done += got
        return data

    def _negotiate(self) -> None:
        # Version 0 is what every broker answers.
        response = self.ask(messages.ApiVersionsRequest(), 0)
        if response.error_code:
            raise ClusterError(f"{self.host}:{self.port}: {name_of(response.error_code)} instead of its versions")
        self._versions = {one.api_key: range(one.min_version, one.max_version + 1) for one in response.api_keys}

    def _log_in(self, config: ClientConfig) -> None:
        mechanism = config.mechanism
        answer = self.ask(messages.SaslHandshakeRequest(mechanism))
        if answer.error_code:
            raise LoginError(
                f"{self.host}:{self.port} does not enable {mechanism}; it has {', '.join(answer.mechanisms) or 'none'}"
            )
        if mechanism == "PLAIN":
            self._authenticate(f"\0{config.user}\0{config.password}".encode())
            return
        try:
            import scramp  # noqa: PLC0415  (it loads OpenSSL, and few clients need it)
        except ModuleNotFoundError:
            raise InvalidConfigError(f"{mechanism} needs scramp: pip install 'pyspark-log[server]'") from None
        client = scramp.ScramClient([mechanism], config.user, config.password)
        try:
            client.set_server_first(self._authenticate(client.get_client_first().encode()).decode())
            client.set_server_final(self._authenticate(client.get_client_final().encode()).decode())
        except (scramp.ScramException, UnicodeDecodeError) as error:
            raise LoginError(f"{self.host}:{self.port}: the login as {config.user!r} failed: {error}") from error

    def _authenticate(self, data: bytes) -> bytes:
        answer = self.ask(messages.SaslAuthenticateRequest(data))
        if answer.error_code:
            reason = answer.error_message or name_of(answer.error_code)
            raise LoginError(f"{self.host}:{self.port} refuses the login: {reason}")
        return bytes(answer.auth_bytes)
