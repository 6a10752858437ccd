"""Clients of a store, shaped as Kafka's clients are."""

from pyspark_log.clients.producer import Producer
from pyspark_log.clients.sent_records import Delivery, RecordMetadata
from pyspark_log.clients.transactions import Transactions

__all__ = ["Delivery", "Producer", "RecordMetadata", "Transactions"]
