"""Idempotent producers of one partition: what they have written, and what they may write next."""

from pyspark_log.storage.log.producers.manager import idempotent_batches, replay
from pyspark_log.storage.log.producers.state import (
    REMEMBERED_BATCHES,
    ProducerEntry,
    ProducerStates,
    WrittenBatch,
    sequence_after,
)

__all__ = [
    "REMEMBERED_BATCHES",
    "ProducerEntry",
    "ProducerStates",
    "WrittenBatch",
    "idempotent_batches",
    "replay",
    "sequence_after",
]
