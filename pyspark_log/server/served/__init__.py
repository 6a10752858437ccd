"""What a server serves: the logs of a store, as its handlers ask for them. `logs` has the contracts."""

from pyspark_log.server.served.logs import (
    AsLeft,
    Batch,
    Batches,
    LogView,
    MustWaitError,
    Refused,
    ServedLogs,
    ServedTopic,
    SharedGroups,
    SharedTransactions,
    Stored,
)
from pyspark_log.server.served.servers import Server

__all__ = [
    "AsLeft",
    "Batch",
    "Batches",
    "LogView",
    "MustWaitError",
    "Refused",
    "ServedLogs",
    "ServedTopic",
    "Server",
    "SharedGroups",
    "SharedTransactions",
    "Stored",
]
