"""A server that speaks Kafka's protocol over a store: `pylog serve`."""

from pyspark_log.server.network import Limits
from pyspark_log.server.server import ServerConfig, check_reach, notify_manager, serve

__all__ = ["Limits", "ServerConfig", "check_reach", "notify_manager", "serve"]
