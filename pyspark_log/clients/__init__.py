"""Clients of a store, shaped as Kafka's clients are."""

from pyspark_log.clients.consumer import Consumer
from pyspark_log.clients.consuming.subscriptions import ConsumerRebalanceListener
from pyspark_log.clients.producer import Producer
from pyspark_log.clients.records import ConsumerRecord
from pyspark_log.clients.sent_records import Delivery, RecordMetadata
from pyspark_log.clients.transactions import Transactions

__all__ = [
    "Consumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "Delivery",
    "Producer",
    "RecordMetadata",
    "Transactions",
]
