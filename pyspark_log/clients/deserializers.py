"""What makes keys and values of bytes: by name, a function, or an object of Kafka's clients."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

from pyspark_log.errors import InvalidConfigError

#: Pairs of a name and a value.
Headers: TypeAlias = list[tuple[str, bytes | None]]


class TopicDeserializer(Protocol):
    """As a deserializer of kafka-python is."""

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:  # noqa: ANN401  (anything it makes)
        """What a key or value is."""


#: "text" (UTF-8) or "json"; a function of the bytes; a deserializer of kafka-python; or one of confluent-kafka, with a
#: schema registry say, which is called with a context. None: bytes. What has no key or no value keeps None.
Deserializer: TypeAlias = Literal["text", "json"] | Callable[..., Any] | TopicDeserializer | None

#: What is called with the bytes, and whether it is also given the headers.
Reader = tuple[Callable[..., object], bool]

Part = Literal["key", "value"]

_BY_NAME: dict[str, Callable[[bytes], object]] = {"text": bytes.decode, "json": json.loads}


def check_deserializer(given: Deserializer, part: Part) -> None:
    """Refuses what cannot deserialize. InvalidConfigError."""
    reader_of(given, "", part)


def reader_of(given: Deserializer, topic: str, part: Part) -> Reader | None:
    """What reads the keys or values of a topic. InvalidConfigError."""
    if given is None:
        return None
    if isinstance(given, str):
        if given not in _BY_NAME:
            names = ", ".join(map(repr, _BY_NAME))
            raise InvalidConfigError(f"{part}_deserializer {given!r}: there is no such one; there are {names}")
        return _BY_NAME[given], False
    if callable(given):
        return _confluent_reader(given, topic, part) or (given, False)
    if hasattr(given, "deserialize"):
        return (lambda data, headers: given.deserialize(topic, headers, data)), True
    raise InvalidConfigError(
        f"{part}_deserializer: expected a name, a function of bytes or a deserializer, got {type(given).__name__}"
    )


def _confluent_reader(given: Callable[..., Any], topic: str, part: Part) -> Reader | None:
    # Where there is a deserializer of that library, the module with its class was loaded.
    library: Any = sys.modules.get("confluent_kafka.serialization")
    if library is None or not isinstance(given, library.Deserializer):
        return None
    field = library.MessageField.KEY if part == "key" else library.MessageField.VALUE

    def read(data: bytes, headers: Headers) -> object:
        return given(data, library.SerializationContext(topic, field, headers))

    return read, True
