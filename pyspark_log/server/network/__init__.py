"""Connections of clients: frames in and out, in order and bounded. It knows nothing of what requests mean."""

from pyspark_log.server.network.connection import Buffers, ClosedByServerError, Connection, Session
from pyspark_log.server.network.listener import Limits, Listener
from pyspark_log.server.network.loop import Loop, OthersFirst, Timer, Wait
from pyspark_log.server.network.request_times import ApiTimes, RequestTimes
from pyspark_log.server.network.workers import Workers

__all__ = [
    "ApiTimes", "Buffers", "ClosedByServerError", "Connection", "Limits", "Listener", "Loop", "OthersFirst",
    "RequestTimes", "Session", "Timer", "Wait", "Workers",
]  # fmt: skip
