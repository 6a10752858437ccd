"""The requests of one connection: bytes in, the handler's answer out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pyspark_log.kafka import MessageError, UnsupportedVersionError, decode_request, encode_response
from pyspark_log.kafka.schemas import Message, api
from pyspark_log.server.broker import Broker
from pyspark_log.server.handlers import APIS, Call, Client, api_versions
from pyspark_log.server.network import ClosedByServerError

_log = logging.getLogger(__name__)

_RESPONSES: dict[int, Message] = {key: api(key)[1] for key in APIS}


class ClientSession:
    """Answers the requests of a client.

    Attributes:
        client: what is known of it.
    """

    def __init__(self, broker: Broker, peer: str, reached_at: tuple[str, int]) -> None:
        """`peer`: the client's address; `reached_at`: the server's, as the client has it."""
        self._broker, self.client = broker, Client(peer, reached_at)

    async def answer(self, frame: bytes | bytearray) -> Sequence[Any] | None:
        """Answers a request as `Session.answer` says."""
        try:
            header, request = decode_request(frame)
        except UnsupportedVersionError as error:
            return self._answer_unknown(error)
        except MessageError as error:
            raise ClosedByServerError(str(error)) from None
        key, version = header.request_api_key, header.request_api_version
        served = APIS.get(key)
        if served is None or version not in served.versions:
            return self._answer_unknown(UnsupportedVersionError(key, version, header.correlation_id))
        counts = self._broker.counts
        counts.requests[key][version] += 1
        response = await served.handler(Call(self._broker, self.client, header.client_id, version), request)
        if response is None:
            return None
        if not served.counts_errors:
            for code in _RESPONSES[key].errors_in(response):
                counts.errors[key, code] += 1
        return encode_response(response, version, header.correlation_id)

    def _answer_unknown(self, error: UnsupportedVersionError) -> Sequence[Any]:
        if error.api_key == api_versions.KEY:
            versions = APIS[api_versions.KEY].versions
            return encode_response(api_versions.of_unknown_version(versions), 0, error.correlation_id)
        software = f" ({self.client.software})" if self.client.software else ""
        raise ClosedByServerError(f"the client{software} sends what is not served: {error}")
