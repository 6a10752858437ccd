"""kafka-python: its clients, and its record codec and key hash, the peers that ours are compared with."""

from __future__ import annotations

import warnings

# Loading its protocol's schemas uses a call that newer Pythons warn about.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.partitioner.default import murmur2 as peer_murmur2
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

    # These are loaded when they are first used.
    assert kafka.KafkaConsumer
    assert kafka.KafkaProducer
    from kafka.consumer.subscription_state import ConsumerRebalanceListener

__all__ = [
    "ConsumerRebalanceListener", "DefaultRecordBatch", "DefaultRecordBatchBuilder", "LegacyRecordBatchBuilder", "kafka",
    "peer_murmur2",
]  # fmt: skip
