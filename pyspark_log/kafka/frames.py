"""Requests and responses with their headers, each in a frame of its own: 4 bytes of length, header, message."""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING

from pyspark_log.kafka.errors import MessageError, UnsupportedVersionError
from pyspark_log.kafka.schemas import Message, Struct, api, message, message_of
from pyspark_log.kafka.wire import Plan, decode, encode

if TYPE_CHECKING:
    from pyspark_log.kafka.wire import Chunk

_API_VERSIONS = 18
# What every version of a request's header begins with: API, version, correlation id.
_START = struct.Struct(">hhi")


def decode_request(frame: bytes | bytearray | memoryview) -> tuple[Struct, Struct]:
    """Reads a request.

    Args:
        frame: without its length. Records in the request are memoryviews of it.

    Returns:
        The RequestHeader and the request.

    Raises:
        UnsupportedVersionError: the API or the version is not known; the header's first fields are.
        MessageError: it is no request.
    """
    if len(frame) < _START.size:
        raise MessageError(f"a frame of {len(frame)} bytes is no request")
    key, version, correlation_id = _START.unpack_from(frame)
    try:
        header_plan, plan = _request_plans(key, version)
    except KeyError:
        raise UnsupportedVersionError(key, version, correlation_id) from None
    header, position = decode(header_plan, frame, 0)
    try:
        # As Kafka, without a look at what may follow: librdkafka 2.16 adds bytes to some of its requests for metadata.
        return header, decode(plan, frame, position)[0]
    except MessageError as error:
        raise MessageError(f"{api(key)[0].name} version {version}: {error}") from None


def encode_response(response: Struct, version: int, correlation_id: int) -> list[Chunk]:
    """Writes a response, in chunks as `wire.encode` does. MessageError: a value does not fit its field."""
    header, plan = _response_plans(type(response), version)  # type: ignore[arg-type]  # classes are hashable
    return encode(header, header.struct(correlation_id), plan, response)


def encode_request(request: Struct, version: int, correlation_id: int, client_id: str | None = None) -> list[Chunk]:
    """Writes a request. MessageError: a value does not fit its field."""
    of = message_of(request)
    header = _request_header(of, version)
    return encode(header, header.struct(of.api_key, version, correlation_id, client_id), of.plan(version), request)


def decode_response(api_key: int, version: int, frame: bytes | bytearray | memoryview) -> tuple[int, Struct]:
    """Reads a response, a frame without its length; returns its correlation id too. MessageError: it is none."""
    _, response = api(api_key)
    header, position = decode(_response_header(response, version), frame, 0)
    try:
        value, end = decode(response.plan(version), frame, position)
    except MessageError as error:
        raise MessageError(f"{response.name} version {version}: {error}") from None
    if end != len(frame):
        raise MessageError(f"{response.name} version {version}: {len(frame) - end} bytes too many")
    return header.correlation_id, value


# Found once: a server needs them for each request and response.
@functools.cache
def _request_plans(key: int, version: int) -> tuple[Plan, Plan]:
    """Those of a request's header and of the request. KeyError: the API, or its version, is not known."""
    request, _ = api(key)
    if version not in request.versions:
        raise KeyError(version)
    return _request_header(request, version), request.plan(version)


@functools.cache
def _response_plans(struct: type[Struct], version: int) -> tuple[Plan, Plan]:
    response = message_of(struct())
    return _response_header(response, version), response.plan(version)


def _request_header(request: Message, version: int) -> Plan:
    return message("RequestHeader").plan(2 if version in request.flexible else 1)


def _response_header(response: Message, version: int) -> Plan:
    # A client that does not know the broker reads an answer to ApiVersions before the two agree on a version.
    flexible = version in response.flexible and response.api_key != _API_VERSIONS
    return message("ResponseHeader").plan(1 if flexible else 0)
