"""Kafka's message schemas as data, and the structs and plans that follow from them.

`messages.json` has the facts of Kafka's own schema files: names, types, versions, defaults (LICENSE and NOTICE are of
Kafka's); `records.json` has those of the records of a cluster's metadata. `tests/kafka/schemas_of_jar.py` writes both,
and messages.pyi, from Kafka's jars.
"""

from pyspark_log.kafka.schemas.message import Message, Struct, api, message, message_of, metadata_record

__all__ = ["Message", "Struct", "api", "message", "message_of", "metadata_record"]
