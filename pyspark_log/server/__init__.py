"""A server that speaks Kafka's protocol over a store: `pylog serve`."""

from pyspark_log.server.network import Limits
from pyspark_log.server.server import ServerConfig, notify_manager, serve

__all__ = ["Limits", "ServerConfig", "notify_manager", "serve"]
