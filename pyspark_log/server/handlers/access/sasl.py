"""SaslHandshake and SaslAuthenticate: a client says which user it is, and proves it."""

from __future__ import annotations

import logging

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from pyspark_log.server.handlers.call import Call

_log = logging.getLogger(__name__)

# After a handshake of version 0 the mechanism's messages come without a header of Kafka's.
_FIRST_WITH_HEADERS = 1


async def sasl_handshake(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Begins an authentication by a mechanism, or lists the mechanisms that are enabled."""
    login = call.client.login
    if login is None:
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, ())
    if call.version < _FIRST_WITH_HEADERS:
        login.refusal = "the client is too old: it sends messages of SASL without headers (SaslHandshake version 0)"
        return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_VERSION, login.mechanisms)
    code = login.begin(request.mechanism)
    return SaslHandshakeResponse(code, () if code == ErrorCode.ILLEGAL_SASL_STATE else login.mechanisms)


async def sasl_authenticate(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Takes the next message of a mechanism."""
    login = call.client.login
    if login is None:
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "this server does not authenticate clients", b"")
    answer = await login.answer(bytes(request.auth_bytes))
    if login.is_done:
        _log.debug("%s: %s", call.client.peer, login.principal)
    return SaslAuthenticateResponse(answer.code, answer.message, answer.data, answer.lifetime_ms)
