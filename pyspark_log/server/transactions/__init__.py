"""The coordinator of transactions of Kafka's clients (KIP-98, KIP-890)."""

from pyspark_log.server.transactions.transactions import Outcome, Transactions

__all__ = ["Outcome", "Transactions"]
