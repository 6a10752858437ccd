"""SASL on a connection: what is served before, during and after authentication (KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark_log.errors import InvalidConfigError, PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.network import ClosedByServerError, Loop, Wait, Workers
from pyspark_log.server.security.attempts import Attempts
from pyspark_log.server.security.config import SaslConfig
from pyspark_log.server.security.mechanisms import Exchange, Identity, Plain, RefusedLoginError, Scram, shown
from pyspark_log.server.security.principals import user
from pyspark_log.server.security.users import HASHES, Users

if TYPE_CHECKING:
    from pyspark_log.server.security.tokens import TokenKeys

_log = logging.getLogger(__name__)

#: The keys of the APIs that are served without authentication.
HANDSHAKE, API_VERSIONS, AUTHENTICATE = 17, 18, 36
_PLAIN, BEARER = "PLAIN", "OAUTHBEARER"
#: The mechanisms.
MECHANISMS = (*HASHES, _PLAIN, BEARER)

# Kafka's connection.failed.authentication.delay.ms: after as long a failure is answered (s).
_DELAY = 0.1
# A client that authenticates itself again does not do so once more before as long (s), as in Kafka.
_LEAST_SESSION = 1.0


# What a mechanism needs beside this package.
_NEEDED = {BEARER: "joserfc", **dict.fromkeys(HASHES, "scramp")}


class Answer(NamedTuple):
    """What SaslAuthenticate is answered.

    Attributes:
        code, message: the error.
        data: the mechanism's next message.
        lifetime_ms: after as long the client has to authenticate itself again; 0: never.
    """

    code: ErrorCode
    message: str | None = None
    data: bytes = b""
    lifetime_ms: int = 0


class Sasl:
    """What the authentications of all connections share.

    Attributes:
        mechanisms: those that are enabled.
        max_session: after as long a client has to authenticate itself again (s); None: never.
        loop: the loop.
        attempts: by address.
    """

    def __init__(
        self, loop: Loop, config: SaslConfig, users: Users, clock: Callable[[], float], scram_users: Users | None = None
    ) -> None:
        """Starts threads: keys are derived from passwords in one of their own, so that no other work waits for it.

        Args:
            loop: its thread makes all calls.
            config: how clients authenticate themselves.
            users: those with passwords.
            clock: the time of day, in seconds since the epoch.
            scram_users: those that log in by SCRAM, if they are others.

        Raises:
            InvalidConfigError: a mechanism is unknown, or lacks what it needs.
        """
        self.mechanisms: Sequence[str] = config.mechanisms
        self.max_session, self.loop, self.attempts = config.max_session, loop, Attempts(loop)
        self._users = {_PLAIN: users, **dict.fromkeys(HASHES, scram_users or users)}
        self._tokens, self._clock = config.tokens, clock
        self._keys: TokenKeys | None = None
        for mechanism in config.mechanisms or ("",):
            if mechanism not in MECHANISMS:
                raise InvalidConfigError(f"SASL mechanism {shown(mechanism)}: there are {', '.join(MECHANISMS)}")
            if mechanism in _NEEDED:
                _load(mechanism, _NEEDED[mechanism])
        if (BEARER in config.mechanisms) != (config.tokens is not None):
            raise InvalidConfigError(f"{BEARER} belongs together with the keys, the issuer and the audience of tokens")
        if config.tokens is not None:
            from pyspark_log.server.security.tokens import TokenKeys, check_source  # noqa: PLC0415  (it is large)

            check_source(config.tokens.jwks)
            self._fetching = Workers(loop, 1)
            self._keys = TokenKeys(config.tokens, self._fetching, loop.time)
        self._workers = Workers(loop, 1)

    def close(self) -> None:
        """Ends the threads."""
        self._workers.close()
        if self._keys is not None:
            self._fetching.close()

    def exchange(self, mechanism: str) -> Exchange:
        """Begins an authentication by an enabled mechanism."""
        if mechanism == _PLAIN:
            return Plain(self._users[mechanism], self._workers)
        if mechanism == BEARER:
            from pyspark_log.server.security.tokens import Bearer  # noqa: PLC0415  (it is large)

            assert self._tokens is not None
            assert self._keys is not None
            return Bearer(self._tokens, self._keys, self._workers, self._clock)
        return Scram(mechanism, self._users[mechanism], self._workers)

    async def has_password(self, host: str, name: str, password: str) -> bool:
        """Whether a user has a password, in the turn of an address; awaits only `Wait`s. As Login, for HTTP.

        A failure is answered with some delay.
        """
        turn, failed = await self.attempts.turn(host), True
        try:
            failed = not await self._workers.run(self._has_password, name, password)
        except (PylogError, OSError) as error:
            _log.error("users cannot be authenticated: %s", error)
        finally:
            self.attempts.end(turn, failed=failed)
        if failed:
            _log.warning("%s: a login to the page failed: user %s", host, shown(name))
            await _pause(self.loop, _DELAY)
        return not failed

    def _has_password(self, name: str, password: str) -> bool:
        """Whether a user could log in by one of the mechanisms. DescriptionError, OSError."""
        users = {self._users[mechanism] for mechanism in self.mechanisms if mechanism in self._users}
        return any(one.has_password(name, password) for one in users)


def _load(mechanism: str, needed: str) -> None:
    """Loads a package now, and not while clients wait."""
    try:
        importlib.import_module(needed)
    except ModuleNotFoundError as error:
        raise InvalidConfigError(f"{mechanism} needs {error.name}: pip install 'pyspark-log[server]'") from None


class Login:
    """The authentication of one connection, and later its repetitions.

    Attributes:
        mechanisms: those that are enabled.
        principal: as which principal the client has authenticated itself; None: it has not yet.
        refusal: why the connection is to be closed after the response at hand; None: it is not.
    """

    def __init__(self, sasl: Sasl, host: str) -> None:
        """`host`: the client's address, without its port."""
        self._sasl, self._host, self.mechanisms = sasl, host, sasl.mechanisms
        self.principal: str | None = None
        self.refusal: str | None = None
        self._mechanism = ""
        self._exchange: Exchange | None = None  # that is not done
        self._begun, self._is_again = 0.0, False  # when the last one has, and whether it was not the first
        self._since = 0.0  # when the client has authenticated itself
        self._ends: float | None = None  # when it has to have done it again

    @property
    def is_done(self) -> bool:
        """Whether the client has authenticated itself, and does not do it again."""
        return self.principal is not None and self._exchange is None

    def check(self, frame: bytes | bytearray) -> None:
        """Refuses a request that may not come now. ClosedByServerError."""
        key = int.from_bytes(frame[:2], "big")
        if key == HANDSHAKE:
            return
        if not self.is_done:
            if key != API_VERSIONS and (key != AUTHENTICATE or self._exchange is None):
                raise ClosedByServerError(f"a request for the API with key {key} before authentication is done")
        elif self._ends is not None and self._sasl.loop.time() > self._ends:
            raise ClosedByServerError(f"{self.principal} has not authenticated itself again in time")

    def begin(self, mechanism: str) -> ErrorCode:
        """Begins an authentication; the error code of the answer."""
        now = self._sasl.loop.time()
        if self._is_again and now - self._begun < _LEAST_SESSION:
            return ErrorCode.ILLEGAL_SASL_STATE
        if mechanism not in self.mechanisms:
            self.refusal = f"the client wants the SASL mechanism {shown(mechanism)}, which is not enabled"
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if self._exchange is not None or self._mechanism not in ("", mechanism):
            self.refusal = "the client begins an authentication in another one, or by another mechanism than before"
            return ErrorCode.ILLEGAL_SASL_STATE
        self._mechanism, self._exchange = mechanism, self._sasl.exchange(mechanism)
        self._begun, self._is_again = now, self.principal is not None
        return ErrorCode.NONE

    async def answer(self, data: bytes) -> Answer:
        """Takes the client's next message; awaits only `Wait`s. A failure is answered with some delay."""
        if self._exchange is None:
            return Answer(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake has to come first")
        try:
            answer = await self._take(self._exchange, data)
        except RefusedLoginError as error:
            self.refusal = f"authentication by {self._mechanism} failed: {error}"
        except (PylogError, OSError) as error:
            _log.error("users cannot be authenticated: %s", error)
            self.refusal = f"authentication by {self._mechanism} is not possible"
        else:
            return Answer(ErrorCode.NONE, data=answer, lifetime_ms=self._lifetime_ms())
        await _pause(self._sasl.loop, _DELAY)
        # The same for an unknown user and a wrong password.
        return Answer(ErrorCode.SASL_AUTHENTICATION_FAILED, f"authentication by {self._mechanism} failed")

    async def _take(self, exchange: Exchange, data: bytes) -> bytes:
        """Takes a message when it is the turn of this address. RefusedLoginError."""
        attempts, failed = self._sasl.attempts, False
        turn = await attempts.turn(self._host)
        try:
            answer = await exchange.answer(data)
            if exchange.identity is not None:
                self._finish(exchange.identity)
        except RefusedLoginError:
            failed = True
            raise
        finally:
            attempts.end(turn, failed=failed)
        return answer

    def _finish(self, identity: Identity) -> None:
        principal = user(identity.name)
        if self.principal not in (None, principal):
            raise RefusedLoginError(f"{self.principal} has authenticated itself again as {shown(principal)}")
        self.principal, self._exchange = principal, None
        self._since = self._sasl.loop.time()
        limits = [limit for limit in (self._sasl.max_session, identity.lasts) if limit is not None]
        self._ends = self._since + min(limits) if limits else None

    def _lifetime_ms(self) -> int:
        if self._exchange is not None or self._ends is None:
            return 0
        return max(round((self._ends - self._since) * 1000), 1)


async def _pause(loop: Loop, seconds: float) -> None:
    """Waits; awaits only `Wait`s."""
    wait: Wait[None] = Wait()
    timer = loop.call_later(seconds, wait.finish, None)
    try:
        await wait
    finally:
        timer.cancel()
