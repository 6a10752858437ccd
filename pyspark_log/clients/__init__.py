"""Clients of a store, shaped as Kafka's clients are."""

from pyspark_log.clients.transactions import Transactions

__all__ = ["Transactions"]
