"""Turns rows into validated record batches: partitioning, accumulating, timestamps, checks of a client's batch.

Nothing here loads Arrow, which a server does without, but `partitioner`; the rows of `encoder` are Arrow's or pairs.
"""

from pyspark_log.storage.ingest.encoder import PIECE_SIZE, encode_pairs, grouped, packed
from pyspark_log.storage.ingest.validator import validate, without_transaction

__all__ = ["PIECE_SIZE", "encode_pairs", "grouped", "packed", "validate", "without_transaction"]
