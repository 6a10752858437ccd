"""Idempotent producers of one partition: what they have written, and what they may write next."""

from pyspark_log.storage.log.producers.manager import idempotent_batches, replay
from pyspark_log.storage.log.producers.state import ProducerEntry, ProducerStates

__all__ = ["ProducerEntry", "ProducerStates", "idempotent_batches", "replay"]
