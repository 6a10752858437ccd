"""What makes bytes of keys and values: a function, or an object of Kafka's clients."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

from pyspark_log.clients.sent_records import Data, Headers
from pyspark_log.errors import InvalidConfigError


class TopicSerializer(Protocol):
    """As a serializer of kafka-python is."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ANN401  (anything it takes)
        """The bytes of a key or value."""


#: A function of the value; a serializer of kafka-python; or one of confluent-kafka, which is called with a context.
#: None: what is sent is bytes or text. What has no key or no value keeps None.
Serializer: TypeAlias = Callable[..., Any] | TopicSerializer | None

Part = Literal["key", "value"]


def check_serializer(serializer: Serializer, part: Part) -> None:
    """Refuses what cannot serialize. InvalidConfigError."""
    if serializer is not None and not callable(serializer) and not hasattr(serializer, "serialize"):
        raise InvalidConfigError(
            f"{part}_serializer: expected a function or a serializer, got {type(serializer).__name__}"
        )


def serialized(serializer: Serializer, topic: str, part: Part, value: Any, headers: Headers) -> Data:  # noqa: ANN401
    """What a serializer makes of a key or value."""
    if serializer is None or value is None:
        return value  # type: ignore[no-any-return]  # `send` checks it
    if not callable(serializer):
        return serializer.serialize(topic, headers, value)
    # Where there is a serializer of that library, the module with its class was loaded.
    library: Any = sys.modules.get("confluent_kafka.serialization")
    if library is not None and isinstance(serializer, library.Serializer):
        field = library.MessageField.KEY if part == "key" else library.MessageField.VALUE
        return serializer(value, library.SerializationContext(topic, field, headers))  # type: ignore[no-any-return]
    return serializer(value)  # type: ignore[no-any-return]
