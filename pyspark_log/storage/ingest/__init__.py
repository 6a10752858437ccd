"""Turns rows into validated record batches: partitioning, accumulating, timestamps, checks of a client's batch."""

from pyspark_log.storage.ingest.accumulator import FILLING_BYTES, RecordAccumulator
from pyspark_log.storage.ingest.encoder import PIECE_SIZE, AssignedRows, BatchEncoder, encode, grouped, packed
from pyspark_log.storage.ingest.partitioner import Partitioner, group
from pyspark_log.storage.ingest.validator import validate

__all__ = [
    "FILLING_BYTES",
    "PIECE_SIZE",
    "AssignedRows",
    "BatchEncoder",
    "Partitioner",
    "RecordAccumulator",
    "encode",
    "group",
    "grouped",
    "packed",
    "validate",
]
