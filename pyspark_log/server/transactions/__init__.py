"""The coordinator of transactions of Kafka's clients (KIP-98, KIP-890)."""

from pyspark_log.server.transactions.transactions import EndOutcome, InitOutcome, Transactions

__all__ = ["EndOutcome", "InitOutcome", "Transactions"]
