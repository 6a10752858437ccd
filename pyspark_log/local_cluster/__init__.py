"""A cluster on one machine: Kafka's controllers and nodes of ours, made in a folder and run together."""

from pyspark_log.local_cluster.errors import LocalClusterError
from pyspark_log.local_cluster.kafka import Kafka, find_kafka
from pyspark_log.local_cluster.layout import Layout, read_layout
from pyspark_log.local_cluster.making import make_cluster
from pyspark_log.local_cluster.processes import LocalCluster
from pyspark_log.local_cluster.units import systemd_units

__all__ = [
    "Kafka", "Layout", "LocalCluster", "LocalClusterError", "find_kafka", "make_cluster", "read_layout",
    "systemd_units",
]  # fmt: skip
