"""The requests of one connection: bytes in, the handler's answer out."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

from pyspark_log.kafka import MessageError, UnsupportedVersionError, decode_request, encode_response
from pyspark_log.kafka.schemas import Message, api
from pyspark_log.server.broker import Broker
from pyspark_log.server.handlers import KEYS, Call, Client, answer_limited, api_versions
from pyspark_log.server.handlers.records import produce
from pyspark_log.server.network import ClosedByServerError
from pyspark_log.server.security import Login

_log = logging.getLogger(__name__)

_PRODUCE = frozenset({produce.KEY})
_RESPONSES: dict[int, Message] = {key: api(key)[1] for key in KEYS}
# The APIs that count for quotas: their responses can say how long the pause is. Others log in, or are for brokers.
_LIMITED = frozenset(key for key, response in _RESPONSES.items() if "throttle_time_ms" in response.struct._fields)


class ClientSession:
    """Answers the requests of a client.

    Attributes:
        client: what is known of it.
        is_authenticated: whether the client is known as well as it has to be.
        pause: how long nothing is read after the response to the request that was answered last (s).
        overlapping: the keys of APIs whose requests may begin while earlier ones of them wait.
    """

    def __init__(self, broker: Broker, client: Client) -> None:
        """`client`: what is known of it."""
        self._broker, self.client = broker, client
        self.overlapping: Collection[int] = _PRODUCE if broker.logs.overlaps else frozenset()
        self.is_authenticated, self.pause = True, 0.0

    async def answer(self, frame: bytes | bytearray) -> Sequence[Any] | None:
        """Answers a request as `Session.answer` says."""
        self.pause = 0.0
        try:
            header, request = decode_request(frame)
        except UnsupportedVersionError as error:
            return self._answer_unknown(error)
        except MessageError as error:
            raise ClosedByServerError(str(error)) from None
        key, version = header.request_api_key, header.request_api_version
        served = self._broker.apis.get(key)
        if served is None or version not in served.versions:
            return self._answer_unknown(UnsupportedVersionError(key, version, header.correlation_id))
        counts = self._broker.counts
        counts.requests[key][version] += 1
        self.client.client_id = header.client_id or ""
        throttle = None
        throttles = self._broker.throttles
        if throttles.limit_clients and self.is_authenticated and key in _LIMITED:
            throttle = throttles.of(self.client.name, header.client_id or "")
        call = Call(self._broker, self.client, header.client_id, version, throttle)
        if throttle is None:
            response = await served.handler(call, request)
        else:
            response = await answer_limited(call, key, served.handler, request, len(frame))
            self.pause = throttle.pause_ms / 1000
        if response is None:
            return None
        if not served.counts_errors:
            for code in _RESPONSES[key].errors_in(response):
                counts.errors[key, code] += 1
        return encode_response(response, version, header.correlation_id)

    def _answer_unknown(self, error: UnsupportedVersionError) -> Sequence[Any]:
        if error.api_key == api_versions.KEY:
            versions = self._broker.apis[api_versions.KEY].versions
            return encode_response(api_versions.of_unknown_version(versions), 0, error.correlation_id)
        software = f" ({self.client.software})" if self.client.software else ""
        raise ClosedByServerError(f"the client{software} sends what is not served: {self._not_served(error)}")

    def _not_served(self, error: UnsupportedVersionError) -> str:
        served = self._broker.apis.get(error.api_key)
        if served is None:
            return f"an API with the key {error.api_key}"
        schema, _ = api(error.api_key)
        versions = [version for version in schema.versions if version in served.versions]
        name = schema.name.removesuffix("Request")
        return f"{name} in version {error.api_version}; versions {versions[0]} to {versions[-1]} are served"


class SaslSession(ClientSession):
    """The same for a client that has to authenticate itself."""

    def __init__(self, broker: Broker, client: Client, login: Login) -> None:
        """`login`: the client's authentication, which begins."""
        super().__init__(broker, client)
        self._login = client.login = login
        self.is_authenticated = False

    async def answer(self, frame: bytes | bytearray) -> Sequence[Any] | None:
        """Answers a request as `Session.answer` says."""
        login = self._login
        login.check(frame)
        response = await super().answer(frame)
        if login.refusal is not None:
            raise ClosedByServerError(login.refusal, response or ())
        if not self.is_authenticated and login.principal is not None:
            self.is_authenticated, self.client.principal = True, login.principal
        return response
