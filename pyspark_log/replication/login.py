"""How a process logs in to a cluster, as a file says it."""

from __future__ import annotations

from typing import Final

from pyspark_log.errors import InvalidConfigError
from pyspark_log.kafka.client_config import ClientConfig, client_config, read_properties
from pyspark_log.storage.fs import files

_MOST: Final = 1024 * 1024  # bytes


def read_client_properties(path: str) -> dict[str, str]:
    """Reads a file as Kafka's own tools or librdkafka's users have it. OSError."""
    return read_properties(files.read_whole(path, _MOST).decode())


def read_client_config(path: str | None) -> ClientConfig:
    """Reads a file as Kafka's own tools or librdkafka's users have it; None: a login is not needed.

    InvalidConfigError: it says what is not understood. OSError.
    """
    if path is None:
        return ClientConfig()
    try:
        return client_config(read_client_properties(path))
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{path}: {error}") from None
