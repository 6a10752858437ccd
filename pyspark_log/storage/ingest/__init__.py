"""Turns rows into validated record batches: partitioning, accumulating, timestamps, checks of a client's batch.

The face is what works without Arrow, which a server does not load: `accumulator` and `partitioner` need it, and
the rows that `encoder` is given.
"""

from pyspark_log.storage.ingest.encoder import encode_pairs
from pyspark_log.storage.ingest.packs import FILLING_BYTES, PIECE_SIZE, grouped, packed
from pyspark_log.storage.ingest.validator import validate, without_transaction

__all__ = ["FILLING_BYTES", "PIECE_SIZE", "encode_pairs", "grouped", "packed", "validate", "without_transaction"]
