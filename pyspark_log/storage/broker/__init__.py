"""The log dirs of a Kafka broker, which may be running, read in place."""

from pyspark_log.storage.broker.log_dirs import BrokerFolders
from pyspark_log.storage.broker.manager import BrokerPartitions
from pyspark_log.storage.broker.reader import BrokerPartition

__all__ = ["BrokerFolders", "BrokerPartition", "BrokerPartitions"]
