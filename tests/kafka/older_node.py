"""`pylog serve` of a version that knows no group.version: its arguments are those of the command."""

import sys

from pyspark_log.cli.start import main
from pyspark_log.server.cluster import registration
from pyspark_log.server.cluster.image import FeatureRange

registration.SUPPORTED = {**registration.SUPPORTED, "group.version": FeatureRange(0, 0)}
sys.argv = ["pylog", "serve", *sys.argv[1:]]
main()
