"""A server that speaks Kafka's protocol over a store: `pylog serve`."""

from pyspark_log.server.kinds import check_several
from pyspark_log.server.network import Limits
from pyspark_log.server.server import ServerConfig, check_reach, notify_manager, serve

__all__ = ["Limits", "ServerConfig", "check_reach", "check_several", "notify_manager", "serve"]
