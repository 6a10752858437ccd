"""`__transaction_state`: the transactions of Kafka's clients, and the markers that end them, in Kafka's format."""

from pyspark_log.storage.transactions.log import TransactionLog
from pyspark_log.storage.transactions.records import NO_EPOCH, NO_PRODUCER, TransactionMetadata, TransactionState

__all__ = ["NO_EPOCH", "NO_PRODUCER", "TransactionLog", "TransactionMetadata", "TransactionState"]
