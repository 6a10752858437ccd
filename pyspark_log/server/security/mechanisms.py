"""PLAIN and SCRAM: what a client sends for them, and whether it has a user's password."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyspark_log.errors import PylogError, shortened
from pyspark_log.server.network import Workers
from pyspark_log.server.security.users import Users


@dataclass(frozen=True)
class Identity:
    """As which user a client has authenticated itself.

    Attributes:
        name: the user's.
        lasts: for how long at most (s); None: for ever.
    """

    name: str
    lasts: float | None = None


class RefusedLoginError(Exception):
    """A client is not the user that it says it is. The message is for the log; it has no secret."""


class Exchange(Protocol):
    """The messages of one authentication, by one mechanism.

    Attributes:
        identity: once it is done.
    """

    identity: Identity | None

    async def answer(self, data: bytes) -> bytes:
        """Answers the next message; awaits only `Wait`s. RefusedLoginError."""


class Plain:
    """PLAIN (RFC 4616): name and password in one message."""

    def __init__(self, users: Users, workers: Workers) -> None:
        """`workers`: their threads derive keys."""
        self._users, self._workers = users, workers
        self.identity: Identity | None = None

    async def answer(self, data: bytes) -> bytes:
        """Takes the one message."""
        try:
            parts = data.decode().split("\0")
        except UnicodeDecodeError:
            parts = []
        if len(parts) != 3 or not all(parts[1:]):
            raise RefusedLoginError("its message has another form than a name and a password")
        acting_as, name, password = parts
        if acting_as not in ("", name):
            raise RefusedLoginError(f"{shown(name)} wants to act as {shown(acting_as)}")
        if not await self._workers.run(self._users.has_password, name, password):
            raise RefusedLoginError(f"user {shown(name)}: unknown, or another password")
        self.identity = Identity(name)
        return b""


class Scram:
    """SCRAM (RFC 5802): the client proves that it knows the password, and the server that it knows the keys."""

    def __init__(self, mechanism: str, users: Users, workers: Workers) -> None:
        """`workers`: their threads read users. ModuleNotFoundError: scramp is missing."""
        import scramp  # noqa: PLC0415  (it loads OpenSSL)

        self._mechanism, self._users, self._workers = mechanism, users, workers
        self._server = scramp.ScramMechanism(mechanism).make_server(self._find)
        self._error = scramp.ScramException
        self._name, self._exists, self._is_second = "", False, False
        self.identity: Identity | None = None

    def _find(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self._name = name
        found, self._exists = self._users.credential(name, self._mechanism)
        return found.salt, found.stored_key, found.server_key, found.iterations

    async def answer(self, data: bytes) -> bytes:
        """Takes the first message, and then the second one."""
        return (await self._workers.run(self._answer, data)).encode()

    def _answer(self, data: bytes) -> str:
        server = self._server
        try:
            if not self._is_second:
                self._is_second = True
                server.set_client_first(data.decode())
                return str(server.get_server_first())
            server.set_client_final(data.decode())
        except (self._error, UnicodeDecodeError) as error:
            if isinstance(error.__cause__, (PylogError, OSError)):
                raise error.__cause__ from None  # of `_find`
            if not self._name:
                raise RefusedLoginError("its first message has another form") from None
            raise RefusedLoginError(f"user {shown(self._name)}: unknown, or another password") from None
        if not self._exists:
            raise RefusedLoginError(f"user {shown(self._name)}: unknown")
        self.identity = Identity(self._name)
        return str(server.get_server_final())


def shown(name: str) -> str:
    """A name that a client has sent, for the log."""
    return shortened(repr(name))
