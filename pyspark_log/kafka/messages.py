"""The classes of messages, by Kafka's names: `messages.ProduceRequest`. They are made when they are first used.

A message is a named tuple of all fields that its schema has; those that a version lacks have their defaults when it
is read, and must have them to be written, unless the schema lets them be dropped. Arrays are tuples, or lists to
write; UUIDs are 16 bytes. Inner structs are attributes: `messages.ProduceRequest.TopicProduceData`.
"""

from __future__ import annotations

from pyspark_log.kafka.schemas import Struct, message


def __getattr__(name: str) -> type[Struct]:
    try:
        made = message(name).struct
    except KeyError:
        raise AttributeError(name) from None
    globals()[name] = made
    return made
