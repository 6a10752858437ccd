"""Connections of clients: frames in and out, in order and bounded. It knows nothing of what requests mean."""

from pyspark_log.server.network.connection import ClosedByServerError, Session
from pyspark_log.server.network.listener import Limits, Listener
from pyspark_log.server.network.loop import Loop, Timer
from pyspark_log.server.network.wait import Wait
from pyspark_log.server.network.workers import Workers

__all__ = ["ClosedByServerError", "Limits", "Listener", "Loop", "Session", "Timer", "Wait", "Workers"]
