"""Turns rows into validated record batches: partitioning, accumulating, timestamps, checks of a client's batch.

The face is what works without Arrow, which a server does not load: `encoder`, `accumulator` and `partitioner` need it.
"""

from pyspark_log.storage.ingest.packs import FILLING_BYTES, PIECE_SIZE, grouped, packed
from pyspark_log.storage.ingest.validator import validate

__all__ = ["FILLING_BYTES", "PIECE_SIZE", "grouped", "packed", "validate"]
