"""Kafka's message schemas as data, and the structs and plans that follow from them.

`messages.json` has the facts of Kafka's own schema files: names, types, versions, defaults (LICENSE and NOTICE are of
Kafka's). `tests/kafka/schemas_of_jar.py` writes it, and messages.pyi, from the jar of kafka-clients.
"""

from pyspark_log.kafka.schemas.message import Message, Struct, api, message, message_of

__all__ = ["Message", "Struct", "api", "message", "message_of"]
