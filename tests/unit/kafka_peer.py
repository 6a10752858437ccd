"""kafka-python's record codec and key hash, the peers that ours are compared with."""

from __future__ import annotations

import warnings

# Loading its protocol's schemas uses a call that newer Pythons warn about.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as peer_murmur2
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

__all__ = ["DefaultRecordBatch", "DefaultRecordBatchBuilder", "LegacyRecordBatchBuilder", "peer_murmur2"]
