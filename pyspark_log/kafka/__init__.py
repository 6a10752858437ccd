"""Kafka's protocol as data: messages, their bytes, and frames of them. It knows no store and no socket."""

from pyspark_log.kafka.errors import MessageError, UnsupportedVersionError
from pyspark_log.kafka.frames import decode_request, decode_response, encode_request, encode_response
from pyspark_log.kafka.wire import FileRange

__all__ = [
    "FileRange", "MessageError", "UnsupportedVersionError", "decode_request", "decode_response", "encode_request",
    "encode_response",
]  # fmt: skip
