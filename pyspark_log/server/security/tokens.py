"""OAUTHBEARER (RFC 7628): tokens of an authority, and its keys (JWKS), from a file or by HTTP."""

from __future__ import annotations

import json
import logging
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from typing import IO, Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jws import extract_compact

from pyspark_log.errors import InvalidConfigError
from pyspark_log.server.network import Wait, Workers
from pyspark_log.server.security.config import TokenConfig
from pyspark_log.server.security.mechanisms import Identity, RefusedLoginError, shown
from pyspark_log.storage.fs import files

_log = logging.getLogger(__name__)

# Those of pairs of keys alone: with "none" and with shared keys the server could be given tokens of anybody's.
_ALGORITHMS = [
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
]  # fmt: skip
# Keys are fetched again after as long (s), and for a key that is not known not more often than that.
_REFRESH, _LEAST = 600.0, 60.0
# How long an answer may take (s), twice at most, and how large it may be.
_TIMEOUT, _MOST_BYTES, _PIECE = 10.0, 1024 * 1024, 64 * 1024
# A token that lasts longer lasts as long (s).
_LONGEST = 10 * 365 * 86400
_MESSAGE = re.compile(r"n,(?:a=([^,]*))?,\x01(?:[A-Za-z]+=[^\x01]*\x01)*?auth=[Bb]earer +([A-Za-z0-9._~+/=-]+)\x01")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another address, maybe one without TLS, is not what the administrator has given."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """None: the answer is an error."""


class TokenKeys:
    """The keys of an authority. All calls come from the loop's thread, and files and addresses are read in another."""

    def __init__(self, config: TokenConfig, workers: Workers, clock: Callable[[], float]) -> None:
        """Nothing is known yet.

        Args:
            config: what to read.
            workers: their threads read.
            clock: seconds of a clock that nothing sets.
        """
        self._source, self._workers, self._clock = config.jwks, workers, clock
        self._keys = KeySet([])
        self._asked: float | None = None  # when the keys were asked for
        self._waiting: Wait[None] | None = None  # those are being read
        self._others: list[Wait[None]] = []  # tokens that wait for the same

    async def for_key(self, kid: str | None) -> KeySet:
        """The keys, with that of an id if there is one. RefusedLoginError: they cannot be read."""
        now = self._clock()
        is_known = any(key.kid == kid for key in self._keys) if kid is not None else bool(self._keys.keys)
        old = self._asked is None or now - self._asked > (_REFRESH if is_known else _LEAST)
        if old:
            self._asked = now
            self._begin()
        # A key that is known need not wait for a look whether it still is.
        if not is_known and self._waiting is not None:
            own: Wait[None] = Wait()
            self._others.append(own)
            await own
        return self._keys

    def _begin(self) -> None:
        found = self._workers.run(_read, self._source)

        def finished() -> None:
            self._waiting = None
            if found.error is None:
                self._keys = found.value
            else:
                _log.warning("the keys of tokens cannot be read: %s: %s", self._source, found.error)
            others, self._others = self._others, []
            for one in others:
                one.finish(None)

        self._waiting = Wait()
        found.then(finished)


def check_source(source: str) -> None:
    """Refuses what can be neither the address nor the file of keys. InvalidConfigError."""
    if "://" in source:
        if not source.startswith(("https://", "http://")):
            raise InvalidConfigError(f"{source}: the keys of tokens are in a file, or at an https:// address")
        if source.startswith("http://"):
            _log.warning("%s: without TLS, a server between could give other keys", source)
        return
    try:
        _parse(files.read_whole(source, _MOST_BYTES))
    except (OSError, ValueError) as error:
        raise InvalidConfigError(f"{source} has no keys of tokens (JWKS): {error}") from None


def _read(source: str) -> KeySet:
    if "://" not in source:
        return _parse(files.read_whole(source, _MOST_BYTES))
    opener = urllib.request.build_opener(_NoRedirect())
    data, end = bytearray(), time.monotonic() + _TIMEOUT
    try:
        opened = opener.open(source, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        raise OSError(f"the answer is {error.code} {error.reason}") from None
    with opened as answer:
        while piece := answer.read1(_PIECE):
            data += piece
            if len(data) > _MOST_BYTES or time.monotonic() > end:
                raise ValueError(f"it has more than {_MOST_BYTES} bytes, or takes longer than {_TIMEOUT:g} s")
    return _parse(bytes(data))


def _parse(data: bytes) -> KeySet:
    try:
        document: Any = json.loads(data)
        return KeySet.import_key_set(document)
    except (JoseError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no list of keys: {error!r}") from None


class Bearer:
    """The one message of a client with its token."""

    def __init__(self, config: TokenConfig, keys: TokenKeys, workers: Workers, clock: Callable[[], float]) -> None:
        """`clock`: the time of day, in seconds since the epoch; `workers`: their threads check signatures."""
        self._config, self._keys, self._workers, self._clock = config, keys, workers, clock
        self.identity: Identity | None = None

    async def answer(self, data: bytes) -> bytes:
        """Takes the message."""
        match = _MESSAGE.match(data.decode("utf-8", "replace"))
        if match is None:
            raise RefusedLoginError("its message has another form than one with a token")
        acting_as, token = match[1], match[2]
        try:
            kid = extract_compact(token.encode()).headers().get("kid")
        except (JoseError, ValueError):
            raise RefusedLoginError("its token is no JWT") from None
        keys = await self._keys.for_key(kid if isinstance(kid, str) else None)
        self.identity = await self._workers.run(self._check, token, keys)
        if acting_as and acting_as != self.identity.name:
            raise RefusedLoginError(f"{shown(self.identity.name)} wants to act as {shown(acting_as)}")
        return b""

    def _check(self, token: str, keys: KeySet) -> Identity:
        config, now = self._config, int(self._clock())
        claims = jwt.JWTClaimsRegistry(
            now=now, leeway=config.clock_skew,
            iss={"essential": True, "value": config.issuer},
            aud={"essential": True, "value": config.audience},
            exp={"essential": True},
        )  # fmt: skip
        try:
            found = jwt.decode(token, keys, algorithms=_ALGORITHMS).claims
            claims.validate(found)
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise RefusedLoginError(f"its token: {_words(error)}") from None
        name = found.get(config.principal_claim)
        if not isinstance(name, str) or not name:
            raise RefusedLoginError(f"its token has no {config.principal_claim!r} with a name")
        return Identity(name, min(found["exp"] - now, _LONGEST) + config.clock_skew)


def _words(error: Exception) -> str:
    """What is wrong, without a value of the token."""
    return getattr(error, "description", None) or type(error).__name__
