"""The table of the APIs that are served: key, versions, handler.

Lowest versions are those of Kafka 4.3, to the letter, and no version is left out in between: librdkafka up to 2.11.0
turns features off by versions that it misses.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from pyspark_log.server.handlers import api_versions
from pyspark_log.server.handlers.fetch import fetch
from pyspark_log.server.handlers.init_producer_id import init_producer_id
from pyspark_log.server.handlers.leader_epochs import offset_for_leader_epoch
from pyspark_log.server.handlers.list_offsets import list_offsets
from pyspark_log.server.handlers.metadata import metadata
from pyspark_log.server.handlers.produce import produce


class Api(NamedTuple):
    """An API.

    Attributes:
        versions: of requests and responses.
        handler: awaits only `Wait`s; returns the response, None if the client expects none.
    """

    versions: range
    handler: Callable[..., Coroutine[Any, Any, Any]]


def _versions(first: int, last: int) -> range:
    return range(first, last + 1)


#: The APIs by key.
APIS: Mapping[int, Api] = {
    # Kafka has removed versions 0 to 2, so the schema lacks them. But Kafka lists them, as librdkafka compresses nothing
    # for a server that does not (KAFKA-18659). A client that sends one is disconnected.
    0: Api(_versions(0, 13), produce),
    1: Api(_versions(4, 17), fetch),
    2: Api(_versions(1, 10), list_offsets),
    3: Api(_versions(0, 13), metadata),
    api_versions.KEY: Api(_versions(0, 4), api_versions.api_versions),
    22: Api(_versions(0, 5), init_producer_id),
    23: Api(_versions(2, 4), offset_for_leader_epoch),
}
