"""The log dirs of a Kafka broker, which may be running, read in place."""

from pyspark_log.storage.broker.log_dirs import BrokerLogDirs
from pyspark_log.storage.broker.manager import BrokerLogManager
from pyspark_log.storage.broker.reader import BrokerLogReader

__all__ = ["BrokerLogDirs", "BrokerLogManager", "BrokerLogReader"]
