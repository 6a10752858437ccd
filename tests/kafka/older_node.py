"""`pylog serve` of a version that knows no group.version: its arguments are those of the command."""

from pyspark_log.cli.start import main
from pyspark_log.server.cluster import registration
from pyspark_log.server.cluster.image import FeatureRange

registration.SUPPORTED = {**registration.SUPPORTED, "group.version": FeatureRange(0, 0)}
__all__ = ["main"]
