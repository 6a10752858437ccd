"""The transactions of Kafka's clients (KIP-98, KIP-890): coordinated by one server, or decided by each of several."""

from pyspark_log.server.transactions.coordinator import Admission, Coordinator, Outcome
from pyspark_log.server.transactions.shared import DecidedTransactions
from pyspark_log.server.transactions.transactions import Transactions

__all__ = ["Admission", "Coordinator", "DecidedTransactions", "Outcome", "Transactions"]
